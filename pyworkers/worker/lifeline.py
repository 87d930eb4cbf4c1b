"""Lifeline: a pipe whose write end only the master holds, so that no process outlives the master.

Runs in the fork server and in workers. Nothing is ever written to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal


def die_with(lifeline: int) -> None:
    """Have the kernel kill this process and its group when the write end of the pipe is closed.

    A death signal (PR_SET_PDEATHSIG) is bound to the fork server, which may be replaced while its workers
    run on. A thread that watches the pipe would not run during a C call that holds the GIL, and must not
    exist before a fork. The kernel's I/O signal is bound to the pipe itself and reaches the whole group.
    Where that signal cannot be chosen (macOS), SIGIO ends idle workers, and busy ones between bytecodes.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    else:
        signal.signal(signal.SIGIO, lambda *_: os.killpg(0, signal.SIGKILL))
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC | os.O_NONBLOCK)
    # The master may have died before the flag was set: then this read finds the end of the pipe.
    with contextlib.suppress(BlockingIOError):
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)
