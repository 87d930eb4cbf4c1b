"""The running link: the end of a job that was asked to end.

Runs in the worker process, inside the retry link: the hooks of a failed job do not count as its time.
Programs of such a job are killed when it ends, also if it caught the request. An interrupted job that fails
is given back to its queue, unless it raises Discard, Kill or Snooze. The link installs no signal handler.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable

from pyworkers.errors import Discard, Interrupted, Kill, Snooze
from pyworkers.worker.execution import Execution, caused
from pyworkers.worker.interrupts import STOPS

# Exceptions that an interrupted job may raise; any other exception is replaced by Interrupted.
_CHOICES = (Interrupted, Discard, Kill, Snooze)

AfterRequest = Callable[[Execution], None]
"""Called when a job that was asked to end has ended."""


def answer_to(request: BaseException | None, error: BaseException) -> BaseException:
    """The error of a job that was asked to end, by the request and the error that it raised."""
    if isinstance(request, Interrupted) and not isinstance(error, _CHOICES):
        return caused(Interrupted(STOPS), error)
    if request is not None and isinstance(error, CancelledError):
        return caused(request, error)
    return error
