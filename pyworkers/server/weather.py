"""Weather: whether Redis answers, as seen by everything in the master that talks to it.

One place logs an outage once, then every minute, then its end; and one formula spaces the attempts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyworkers import logs
from pyworkers.errors import PyworkersError

# From 50 ms to 1 s: back at work within two seconds of Redis, without hammering it.
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.05, 1.0
_REMIND_S = 60.0

log = logs.get_logger()


class Jitter(Protocol):
    """What is needed of ``random.Random``."""

    def uniform(self, a: float, b: float, /) -> float:
        """A float between a and b."""
        ...


def backoff_s(failures: int, rng: Jitter) -> float:
    """Seconds to wait after so many failures in a row: doubled, capped, and a random half of it off."""
    delay = min(_FIRST_DELAY_S * 2 ** min(failures - 1, 10), _LONGEST_DELAY_S)
    return rng.uniform(delay / 2, delay)


class Weather:
    """Shared by all parts of one master. ``clock`` is monotonic seconds.

    ``names`` are the events of the beginning and the end of an outage, ``fields`` what they say besides.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        names: tuple[str, str] = ("redis.down", "redis.up"),
        **fields: str,
    ) -> None:
        self._clock = clock
        self._names = names
        self._fields = fields
        self._down_since: float | None = None
        self._reminded = 0.0

    @property
    def is_down(self) -> bool:
        """True between the first failure and the next success."""
        return self._down_since is not None

    def down(self, error: PyworkersError) -> None:
        """Something failed because of Redis."""
        now = self._clock()
        if self._down_since is None:
            self._down_since = self._reminded = now
            log.warning(self._names[0], error=error.message, **self._fields)
        elif now - self._reminded >= _REMIND_S:
            self._reminded = now
            since_s = round(now - self._down_since)
            log.warning(self._names[0], error=error.message, since_s=since_s, **self._fields)

    def up(self) -> None:
        """Something succeeded."""
        if self._down_since is not None:
            after_s = round(self._clock() - self._down_since, 1)
            log.info(self._names[1], after_s=after_s, **self._fields)
            self._down_since = None
