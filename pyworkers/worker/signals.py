"""Signals: which signals a worker process ignores, and that the processes which its jobs fork do not.

Runs in the worker process, before its hooks. The signals of the master are in ``interrupts``.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable

from pyworkers.observing.requests import ignore

# Those that a terminal or a supervisor sends to all processes: the master ends workers. And those of timers,
# because one that a job has set may expire after the job.
_IGNORED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP),
    *(signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF),
)


def ignore_signals() -> None:
    """Ignore these signals in this process, but not in those that it forks or starts.

    By an empty handler, because programs would inherit SIG_IGN. In a fork the defaults return:
    ``multiprocessing`` ends processes by SIGTERM, and then waits for their end.
    """
    for number in _IGNORED:
        signal.signal(number, ignore)
    blocked = _Blocked()

    def set_defaults() -> None:
        for number in _IGNORED:
            # A job may have set a handler, which is meant for its forks, too.
            if signal.getsignal(number) is ignore:
                default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
                signal.signal(number, default)
        blocked.end()

    os.register_at_fork(before=blocked.begin, after_in_parent=blocked.end, after_in_child=set_defaults)


class _Blocked(threading.local):
    """The time of a fork, in which the signals wait: the child may get one before it has its defaults."""

    _mask: Iterable[int] = ()

    def begin(self) -> None:
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)

    def end(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
