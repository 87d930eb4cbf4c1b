"""The running link: measures how long the job takes, and lets it be asked to end while it runs.

Runs in the worker process, inside the retry link: the time of hooks of a failed job does not count. Programs
of a job that was asked to end are killed when it ends, also if it caught the request; an interrupted job is
given back whatever it raises. The link installs no signal handler.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyworkers.errors import Discard, Interrupted, Kill, Snooze
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.interrupts import STOPS
from pyworkers.worker.links.link import Run

# What an interrupted job may choose instead of running again.
_CHOICES = (Interrupted, Discard, Kill, Snooze)

AfterRequest = Callable[[Execution], None]
"""Called when a job that was asked to end has ended."""


def running(call_next: Run, after: AfterRequest, clock: Callable[[], float] = time.monotonic) -> Run:
    """The link; ``clock`` counts seconds."""

    def interrupted(execution: Execution) -> bool:
        """Clean up after a job that was asked to end; True if that was because the server stops."""
        request = execution.take_request()
        after(execution)
        # The clean-up is part of the job's time.
        execution.end(clock())
        return isinstance(request, Interrupted)

    def run(execution: Execution) -> Outcome:
        try:
            execution.begin(clock())
            outcome = call_next(execution)
            asked = execution.end(clock())
        except BaseException as error:
            if execution.end(clock()) and interrupted(execution) and not isinstance(error, _CHOICES):
                raise Interrupted(STOPS) from error
            raise
        if asked and interrupted(execution) and outcome.fate is Fate.RETRY:
            raise Interrupted(STOPS)
        return outcome

    return run
