"""The stats link: how long the job took.

Runs in the worker process, inside the retry link, so that hooks of a failed job do not count. The log line of
the job shows the time, and the worker sends it with the outcome. The link never talks to Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.links.link import Run


def timed(call_next: Run, clock: Callable[[], float] = time.monotonic) -> Run:
    """The link; ``clock`` counts seconds."""

    def stats(execution: Execution) -> Outcome:
        execution.start(clock())
        try:
            return call_next(execution)
        finally:
            execution.stop(clock())

    return stats
