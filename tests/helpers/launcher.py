"""What the program that started the tests leaves to them: signals, umask, open files, bytecode."""

from __future__ import annotations

import os
import resource
import signal
import sys

_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Each interpreter ignores these itself."""
_OPEN_FILES = 4096


def as_from_a_terminal() -> None:
    """Undo what nohup, a shell without job control, cron or a container has changed.

    All programs that a test starts inherit it.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals():
        if number not in _BY_PYTHON and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.umask(0o022)
    # The suite starts some thousand interpreters. Without files of bytecode each compiles all modules.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
