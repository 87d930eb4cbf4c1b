"""Lifeline: the master's end of a pipe; when it is closed, the kernel kills the process at the other end.

Used in the master, once for each fork server and each worker. Nothing is ever written to it. The other end is
in ``worker/lifeline.py``.
"""

from __future__ import annotations

import os


class Lifeline:
    """Owns ``fd``, a write end."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Close it, which kills the process and its group; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
