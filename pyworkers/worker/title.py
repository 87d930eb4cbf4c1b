"""Title: the name under which ``top``, ``ps -o comm`` and ``pstree`` show a process.

Runs in the fork server and in workers. A forked process has the command line of its parent, so the title is
needed to tell them apart.
"""

from __future__ import annotations

import os
from contextlib import suppress


def set_title(title: str) -> None:
    """Set the name, of which Linux keeps 15 bytes. Does nothing on other systems."""
    with suppress(OSError):
        comm = os.open("/proc/self/comm", os.O_WRONLY)
        try:
            os.write(comm, title.encode())
        finally:
            os.close(comm)
