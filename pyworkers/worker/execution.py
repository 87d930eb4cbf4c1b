"""Execution: the facts of one run of one job, in one record.

Made in the worker process when a job starts, passed from built-in link to built-in link, dropped when the job
ends. No fact about a job lives longer than its record: several jobs may share a process. Users get the
``Message``, never this.
"""

from __future__ import annotations

from enum import Enum
from types import TracebackType

from pyworkers.protocol.message import Message

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class _State(Enum):
    """WAITING → RUNNING → ENDED, or ASKED for a job that was asked to end."""

    WAITING = 0
    RUNNING = 1
    ASKED = 2
    ENDED = 3


# Bound once: an attribute of an enum takes three times as long to read.
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
        """The error of a failed job, with the part of its traceback that is worth reading."""
        self._state = _WAITING
        self._request: BaseException | None = None

    def begin(self, now_s: float) -> None:
        """The job runs: from here to ``end``, requests are raised. Raises the one that came before."""
        self.started_s = now_s
        self._state = _RUNNING
        if self._request is not None:
            self.ask(self._request)

    def end(self, now_s: float) -> bool:
        """The job has ended, and no further request is raised; True if one was. May be called again."""
        self.elapsed_s = now_s - self.started_s
        if self._state is _ASKED:
            return True
        self._state = _ENDED
        return False

    def ask(self, request: BaseException) -> None:
        """Raise this in the job, once: while it runs, or else as soon as it does."""
        if self._state is _RUNNING:
            self._state = _ASKED
            self._request = request
            raise request
        if self._state is _WAITING:
            self._request = request

    def take_request(self) -> BaseException | None:
        """The request that was raised, dropped here: its traceback would keep the job's data alive."""
        request, self._request = self._request, None
        return request

    def fail(self, error: BaseException, trace: TracebackType | None) -> None:
        """Keep the error that the job raised."""
        self.exc_info = (type(error), error, trace)

    def forget(self) -> None:
        """Drop the error: its frames refer to this record, and the cycle would keep the job's data alive."""
        self.exc_info = None
