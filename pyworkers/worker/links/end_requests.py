"""The end-request link: the place where JobCancelled, Interrupted or JobTimeout is raised in a job, once.

Runs in the worker process, around the application's links. Programs that the job has started end with it,
however it takes the request; an interrupted job is given back whatever it raises. The link installs no signal
handler.
"""

from __future__ import annotations

from collections.abc import Callable

from pyworkers.errors import Discard, Interrupted, Kill, Snooze
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.interrupts import STOPS
from pyworkers.worker.links.link import Run

# What an interrupted job may choose instead of running again.
_CHOICES = (Interrupted, Discard, Kill, Snooze)


def ended_on_request(call_next: Run, after: Callable[[Execution], None]) -> Run:
    """The link; ``after`` is called when a job that was asked to end has ended."""

    def interrupted(execution: Execution) -> bool:
        """Clean up after a job that was asked to end; True if that was because the server stops."""
        request = execution.take_request()
        after(execution)
        return isinstance(request, Interrupted)

    def end(execution: Execution) -> Outcome:
        try:
            execution.arm()
            outcome = call_next(execution)
            asked = execution.disarm()
        except BaseException as error:
            if execution.disarm() and interrupted(execution) and not isinstance(error, _CHOICES):
                raise Interrupted(STOPS) from error
            raise
        if asked and interrupted(execution) and outcome.fate is Fate.RETRY:
            raise Interrupted(STOPS)
        return outcome

    return end
