"""The stats link: how long the job took, and whether it failed.

Runs in the worker process, as the innermost built-in link; the worker reads the tally after each job and
sends it along with the outcome. It keeps nothing longer, and never talks to Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyworkers.errors import Snooze
from pyworkers.message import Message
from pyworkers.middleware import CallNext
from pyworkers.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Tally:
    """What one run came to."""

    elapsed_ms: int = 0
    failed: bool = False


class Stats:
    """A link that measures; ``clock`` counts seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tally = Tally()

    def __call__(self, message: Message, call_next: CallNext) -> Outcome:
        started = self._clock()
        failed = True
        try:
            outcome = call_next(message)
            failed = outcome.failed
        except Snooze:
            failed = False
            raise
        finally:
            self._tally = Tally(round((self._clock() - started) * 1000), failed)
        return outcome

    def take(self) -> Tally:
        """The tally of the last job; a second call finds an empty one."""
        tally, self._tally = self._tally, Tally()
        return tally
