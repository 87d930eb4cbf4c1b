"""The standard streams of a program that was started without some of them.

Used by the command line and by owned servers, before anything else opens a descriptor.
"""

from __future__ import annotations

import os


def open_missing() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Otherwise the next socket has its number: what a job writes to file 1 or 2 would be sent there, and
    uvloop aborts when it closes one.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # The new descriptor is this one: the lowest that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
