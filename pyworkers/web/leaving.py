"""Leaving: whether the server of this process stops; it waits for the end of all streams and all answers."""

from __future__ import annotations

import signal


def is_leaving() -> bool:
    """True if this process is uvicorn's, and has a signal to stop.

    It tells an application nothing: only the object whose method handles the signal knows.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
