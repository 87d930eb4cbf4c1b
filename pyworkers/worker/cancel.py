"""The request to end: raises JobCancelled inside a job that its master wants to end.

Runs in the worker process, as the innermost built-in link. It is a courtesy that lets a job clean up; two
seconds later the master kills the worker.
"""

from __future__ import annotations

import signal
from types import FrameType

from pyworkers.control import CANCEL_REQUEST
from pyworkers.errors import JobCancelled
from pyworkers.message import Message
from pyworkers.middleware import CallNext
from pyworkers.outcome import Outcome


class CancelRequests:
    """The master asks only while its table says that this worker has a job, and that one job."""

    def __init__(self) -> None:
        self._armed = False
        self._asked = False
        signal.signal(CANCEL_REQUEST, self._hear)

    def begin(self) -> None:
        """A job has arrived: what was asked before was meant for an earlier one."""
        self._asked = False

    def around(self, call_next: CallNext) -> CallNext:
        """The link."""

        def cancel(message: Message) -> Outcome:
            self._armed = True
            try:
                if self._asked:
                    raise JobCancelled("the job was cancelled before it began")
                return call_next(message)
            finally:
                self._armed = False

        return cancel

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        self._asked = True
        if self._armed:
            self._armed = False
            raise JobCancelled("the job was cancelled")
