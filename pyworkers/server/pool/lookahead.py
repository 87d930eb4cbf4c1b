"""LookAhead: how many jobs to fetch beyond those that idle workers can start, and what this permits.

Pure; used in the master's event loop. While jobs are very short, a worker would wait for the next exchange
with Redis for longer than its job took; and while longer ones end in each millisecond, the room of those that
end within an exchange would stay empty. Otherwise it is zero. Workers that have a next job need no exchange
at once: so the outcomes of longer jobs may wait for each other.
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
# An exchange costs as much as several short jobs. So few workers have so many of these ahead, if they run
# them in a millisecond. Measured with one to four workers.
_LEAST = 20
# Jobs that the workers end in a millisecond: below this number they need nothing ahead.
_FEW = 3.0
# The same for jobs that are longer than a millisecond: at a lower rate, the next exchange comes early enough.
# Ten jobs that share two cores, and use 1 ms each, are about here: 1.6 of them end in a millisecond.
_FEW_LONGER = 1.0
# Milliseconds for which jobs are fetched ahead then, and so the time that one waits for a worker.
_AHEAD_MS = 12.0
# The outcomes of these jobs wait as long at least and at most: timers count milliseconds.
_SHORTEST_REST_MS = 1.0
_LONGEST_REST_MS = 6.0


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
        """The number of jobs to fetch ahead for so many that run at once.

        At most twice as many; of short ones, those that few workers run in a millisecond, at most ``_LEAST``.
        """
        per_ms = self._per_ms(room)
        if self.short:
            return 0 if per_ms < _FEW else min(max(2 * room, _LEAST), int(per_ms))
        return 0 if per_ms < _FEW_LONGER else min(2 * room, int(_AHEAD_MS * per_ms))

    def rest_s(self, room: int, ahead: int) -> float:
        """Seconds for which the outcomes of so many that run at once may wait, while so many stand ahead.

        As long as those last: the exchange with the outcomes read before brings the next ones meanwhile.
        """
        rest_ms = ahead / self._per_ms(room) if room > 0 and ahead > 0 else 0.0
        return 0.0 if rest_ms < _SHORTEST_REST_MS else min(rest_ms, _LONGEST_REST_MS) / 1000

    def _per_ms(self, room: int) -> float:
        """The number of jobs that end in a millisecond."""
        return room / max(self._mean_ms, _SHORTEST_MS)
