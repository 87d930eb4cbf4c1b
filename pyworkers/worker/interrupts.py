"""Requests to end: raises JobCancelled, Interrupted or JobTimeout inside a job, once.

Runs in the worker process, as a built-in link around the application's. A request is a courtesy that lets a
job clean up; two seconds later the master kills the worker. Programs that the job has started end with it,
however it takes the request.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

from pyworkers.errors import Discard, Interrupted, JobCancelled, Kill, Snooze
from pyworkers.ipc.control import CANCEL_REQUEST, INTERRUPT_REQUEST
from pyworkers.middleware import CallNext
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome

_STOPS = "the server stops: the job is given back"
_REQUESTS: dict[int, Callable[[], BaseException]] = {
    CANCEL_REQUEST: lambda: JobCancelled("the job was cancelled"),
    INTERRUPT_REQUEST: lambda: Interrupted(_STOPS),
}
# What an interrupted job may choose instead of running again.
_CHOICES = (Interrupted, Discard, Kill, Snooze)


class EndRequests:
    """The master asks only while its table says that this worker has a job, and that one job.

    ``after`` is called when a job that was asked to end has ended.
    """

    def __init__(self, after: Callable[[], None]) -> None:
        self._after = after
        self._armed = False
        self._asked: BaseException | None = None
        self._raised: BaseException | None = None
        for number in _REQUESTS:
            signal.signal(number, self._hear)

    def begin(self) -> None:
        """A job has arrived: what was asked before was meant for an earlier one."""
        self._asked = None

    def around(self, call_next: CallNext) -> CallNext:
        """The link."""

        def end(message: Message) -> Outcome:
            self._armed = True
            try:
                if self._asked is not None:
                    self.ask(self._asked)
                outcome = call_next(message)
                if self._armed:
                    return outcome
            except BaseException as error:
                if not self._armed and self._interrupted() and not isinstance(error, _CHOICES):
                    raise Interrupted(_STOPS) from error
                raise
            finally:
                self._armed = False
            if self._interrupted() and outcome.fate is Fate.RETRY:
                raise Interrupted(_STOPS)
            return outcome

        return end

    def ask(self, request: BaseException) -> None:
        """Raise this in the job that runs, unless it was asked to end before."""
        if self._armed:
            self._armed = False
            self._raised = request
            raise request

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self._asked = _REQUESTS[number]()
        self.ask(self._asked)

    def _interrupted(self) -> bool:
        """Clean up after a job that was asked to end; True if that was because the server stops."""
        # Its traceback keeps alive what the job had in hand.
        request, self._raised, self._asked = self._raised, None, None
        self._after()
        return isinstance(request, Interrupted)
