"""Interrupts: the signals by which the master asks a worker to end its job.

Runs in the worker process. A request gives the job two seconds to clean up; then the master kills the worker.
This module decides nothing: it turns a signal into an exception object and passes it on.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from pyworkers.errors import Interrupted, JobCancelled
from pyworkers.ipc.control import CANCEL_REQUEST, INTERRUPT_REQUEST

STOPS = "the server stops: the job is given back"
_REQUESTS: dict[int, Callable[[], BaseException]] = {
    CANCEL_REQUEST: lambda: JobCancelled("the job was cancelled"),
    INTERRUPT_REQUEST: lambda: Interrupted(STOPS),
}


def listen(ask: Callable[[BaseException], None]) -> None:
    """Call ``ask`` with JobCancelled or Interrupted for each request, in the main thread."""

    def handle(number: int, _frame: FrameType | None) -> None:
        ask(_REQUESTS[number]())

    for number in _REQUESTS:
        signal.signal(number, handle)
