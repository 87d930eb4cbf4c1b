"""The running link: measures the duration of a job, and allows requests to end it while it runs.

Runs in the worker process, inside the retry link: the hooks of a failed job do not count as its time.
Programs of a job that was asked to end are killed when it ends, also if it caught the request. An interrupted
job that fails is given back to its queue, unless it raises Discard, Kill or Snooze. The link installs no
signal handler.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyworkers.errors import Discard, Interrupted, Kill, Snooze
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.interrupts import STOPS
from pyworkers.worker.links.link import Run

# Exceptions that an interrupted job may raise; any other exception is replaced by Interrupted.
_CHOICES = (Interrupted, Discard, Kill, Snooze)

AfterRequest = Callable[[Execution], None]
"""Called when a job that was asked to end has ended."""


def running(call_next: Run, after: AfterRequest, clock: Callable[[], float] = time.monotonic) -> Run:
    """Put the running link around ``call_next``; ``clock`` counts seconds."""

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
