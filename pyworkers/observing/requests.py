"""Requests: which exceptions ask this process or its job to end; what observes jobs keeps every other one.

Used by the guard around observers, by the logs and where exceptions are read. The rule: an observer, a
``__repr__`` or a ``__str__`` in the path of a job changes nothing by an exception of any class:
KeyboardInterrupt and SystemExit, too, would end the worker or change the outcome. A request that comes then
passes: JobTimeout, JobCancelled, Interrupted, the cancellation of a task, and Ctrl-C or another signal whose
handler may have raised. A worker ignores the signals of a terminal, so that there none is such.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

from pyworkers.errors import Interrupted, JobCancelled, JobTimeout

_OF_JOBS = (JobTimeout, JobCancelled, Interrupted)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ignore(_number: int, _frame: FrameType | None) -> None:
    """The handler of a signal that a process leaves to another one."""


def is_request(error: BaseException) -> bool:
    """True if the exception may be a request, and must pass."""
    # issubclass does not look at the exception, which may raise.
    kind = type(error)
    if issubclass(kind, _OF_JOBS):
        return True
    if not issubclass(kind, KeyboardInterrupt | SystemExit):
        return False
    # Python calls the handlers of signals in this thread.
    return threading.current_thread() is threading.main_thread() and any(map(_may_raise, _ENDING))


def _may_raise(number: signal.Signals) -> bool:
    handler = signal.getsignal(number)
    return callable(handler) and handler is not ignore
