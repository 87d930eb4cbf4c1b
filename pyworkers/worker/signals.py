"""Signals: those that a worker process ignores, and the one by which the master asks it to look at its page.

Runs in the worker process. The page may have requests, which are raised in a job: it has two seconds to clean
up; then the master kills the worker.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable

from pyworkers.errors import Interrupted, JobCancelled
from pyworkers.ipc.page import ATTENTION
from pyworkers.observing.requests import ignore

STOPS = "the server stops: the job is given back"
# The signals that a terminal or a supervisor sends to all processes: the master ends workers. And of timers,
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


def cancelled() -> JobCancelled:
    """The exception that is raised in a cancelled job."""
    return JobCancelled("the job was cancelled")


def interrupted() -> Interrupted:
    """The exception that is raised in a job because the server stops."""
    return Interrupted(STOPS)


def listen(look: Callable[[], None]) -> None:
    """Call ``look`` for each signal of the master, in the main thread."""
    signal.signal(ATTENTION, lambda *_: look())
