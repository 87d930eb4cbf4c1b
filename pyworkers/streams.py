"""The standard streams of a program, which may be started without some of them.

Used by the command line and by owned servers, before anything else opens a descriptor; by fork servers, for
jobs that print.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper


def open_missing() -> None:
    """Open /dev/null in place of each standard stream that is closed.

    Otherwise the next socket has its number: what a job writes to file 1 or 2 would be sent there, and
    uvloop aborts when it closes one. Python's own stream, for example ``sys.stdout``, is None then.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # The new descriptor is this one: the lowest that is free.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


def accept_all_text() -> None:
    """Have ``print`` escape the characters that the encoding of the terminal lacks."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
