"""The stats link: how long the job took.

Runs in the worker process, as the innermost built-in link; the worker reads the time after each job and
sends it along with the outcome. It keeps nothing longer, and never talks to Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from pyworkers.message import Message
from pyworkers.middleware import CallNext
from pyworkers.outcome import Outcome


class Stats:
    """A link that measures; ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._elapsed_ms = 0

    def __call__(self, message: Message, call_next: CallNext) -> Outcome:
        started = self._clock()
        try:
            return call_next(message)
        finally:
            self._elapsed_ms = round((self._clock() - started) * 1000)

    def take(self) -> int:
        """The milliseconds that the last job took; a second call finds none."""
        elapsed_ms, self._elapsed_ms = self._elapsed_ms, 0
        return elapsed_ms
