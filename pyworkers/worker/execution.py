"""Execution: the facts of one run of one job, in one record.

Made in the worker process when a job starts, passed from built-in link to built-in link, dropped when the job
ends. No fact about a job is kept outside its record, because several jobs may share a process. Application
code gets the ``Message``, never this.
"""

from __future__ import annotations

from enum import Enum
from types import TracebackType

from pyworkers.protocol.message import Message

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class _State(Enum):
    """WAITING → RUNNING → ENDED; or RUNNING → ASKED, for good, if the job is asked to end."""

    WAITING = 0
    RUNNING = 1
    ASKED = 2
    ENDED = 3


# Module constants, because reading an attribute of an enum takes three times as long.
_WAITING, _RUNNING, _ASKED, _ENDED = _State


class Execution:
    """One run. Times are in seconds of the clock of the running link (links/running.py)."""

    __slots__ = ("_request", "_state", "delivery", "elapsed_s", "exc_info", "message", "started_s")

    def __init__(self, message: Message, delivery: int = 0) -> None:
        self.message = message
        self.delivery = delivery
        """The number of the frame that brought the job."""
        self.started_s = 0.0
        self.elapsed_s = 0.0
        self.exc_info: ExcInfo | None = None
        """The error of a failed job; its traceback starts at the first frame outside of pyworkers."""
        self._state = _WAITING
        self._request: BaseException | None = None

    def begin(self, now_s: float) -> None:
        """Mark the job as running: until ``end``, requests are raised in it. Raises an earlier request."""
        self.started_s = now_s
        self._state = _RUNNING
        if self._request is not None:
            self.ask(self._request)

    def end(self, now_s: float) -> bool:
        """Mark the job as ended: no request is raised from now on. True if one was. May be called again."""
        self.elapsed_s = now_s - self.started_s
        if self._state is _ASKED:
            return True
        self._state = _ENDED
        return False

    def ask(self, request: BaseException) -> None:
        """Raise the request in the job: now if it runs, at its start if it waits. At most one is raised."""
        if self._state is _RUNNING:
            self._state = _ASKED
            self._request = request
            raise request
        if self._state is _WAITING:
            self._request = request

    def take_request(self) -> BaseException | None:
        """Return the raised request and drop it: its traceback would keep the job's data in memory."""
        request, self._request = self._request, None
        return request

    def fail(self, error: BaseException, trace: TracebackType | None) -> None:
        """Keep the error that the job raised."""
        self.exc_info = (type(error), error, trace)

    def forget(self) -> None:
        """Drop the error: its frames refer to this record, a cycle that keeps the job's data in memory."""
        self.exc_info = None
