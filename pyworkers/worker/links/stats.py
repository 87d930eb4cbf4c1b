"""The stats link: how long the job took.

Runs in the worker process, as the innermost built-in link; the log line of the job shows it, and the worker
sends it along with the outcome. It keeps nothing longer, and never talks to Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyworkers.middleware import CallNext
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Outcome


class Stats:
    """Measures; ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.elapsed_s = 0.0
        """What the last job took."""
        self.started_s = 0.0
        """When it began, by the clock."""

    def around(self, call_next: CallNext) -> CallNext:
        """The link."""
        clock = self._clock

        def stats(message: Message) -> Outcome:
            started = self.started_s = clock()
            try:
                return call_next(message)
            finally:
                self.elapsed_s = clock() - started

        return stats

    def take(self) -> int:
        """The milliseconds that the last job took; a second call finds none."""
        elapsed_ms, self.elapsed_s = round(self.elapsed_s * 1000), 0.0
        return elapsed_ms
