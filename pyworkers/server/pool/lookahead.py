"""LookAhead: how many jobs to fetch beyond those that idle workers can start.

Pure; used in the master's event loop. While jobs are very short, a worker would wait for the next exchange
with Redis for longer than its job took; and while very many run at once, the room of those that end within
an exchange would stay empty. Otherwise it is zero.
"""

from __future__ import annotations

# The weight of the newest job in the mean.
_WEIGHT = 1 / 16
# The mean at first: high, so that a good number of short jobs must have ended before any is fetched ahead.
_UNKNOWN_MS = 100.0
# About an exchange with Redis.
_SHORT_MS = 1.0
# Reports give whole milliseconds; 0 is anything below a half.
_SHORTEST_MS = 0.2
# Jobs that the workers end in a millisecond: below this number they need nothing ahead.
_FEW = 3.0
# The same for jobs that are longer than a millisecond: so many of them end only where hundreds run at once.
_FEW_LONGER = 10.0
# Milliseconds for which jobs are fetched ahead then: an exchange that settles so many takes about two.
_EXCHANGE_MS = 2.0


class LookAhead:
    """The mean length of the jobs, and what follows from it."""

    def __init__(self) -> None:
        self._mean_ms = _UNKNOWN_MS

    def ended(self, elapsed_ms: int) -> None:
        """Note the length of a job."""
        self._mean_ms += (elapsed_ms - self._mean_ms) * _WEIGHT

    def reset(self) -> None:
        """Fetch nothing ahead until jobs have proved to be short again."""
        self._mean_ms = _UNKNOWN_MS

    @property
    def short(self) -> bool:
        """True if the jobs take less than a millisecond."""
        return self._mean_ms <= _SHORT_MS

    def jobs(self, room: int) -> int:
        """The number of jobs to fetch ahead for so many that run at once; at most twice as many."""
        per_ms = room / max(self._mean_ms, _SHORTEST_MS)
        if self.short:
            return 0 if per_ms < _FEW else min(2 * room, int(per_ms))
        return 0 if per_ms < _FEW_LONGER else int(_EXCHANGE_MS * per_ms)
