"""Health, one object per part of the server: whether Redis and the system give the part what it needs.

Logs an outage of Redis once, then each minute, then its end; a shortage of the system once, then its end.
Computes the delay before the next attempt. Each part has its own, because Redis may refuse one and serve
another. The health of the server is derived from its parts.
"""

from __future__ import annotations

import errno
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyworkers import logs
from pyworkers.errors import PyworkersError, RedisUnavailableError
from pyworkers.store.transport.errors import NO_THREAD, Reaction, rule_for

_FIRST_DELAY_S = 0.05
# The server works again within two seconds after Redis; errors that only a person can fix are retried less
# often.
_LONGEST_DELAY_S, _LONGEST_STOP_S = 1.0, 5.0
_REMIND_S = 60.0

log = logs.get_logger()


class ShortageError(PyworkersError):
    """The system has refused a thread, a descriptor, memory, a file or room on a disk."""

    @classmethod
    def of(cls, error: Exception) -> ShortageError | None:
        """The shortage that an exception reports; None if it reports another error."""
        if isinstance(error, MemoryError):
            return cls("no memory", code="ENOMEM")
        if isinstance(error, OSError):
            return cls(str(error), code=errno.errorcode.get(error.errno or 0, type(error).__name__))
        if isinstance(error, RuntimeError) and str(error).startswith(NO_THREAD):
            return cls(str(error), code="EAGAIN")
        return None


@contextmanager
def shortages_translated() -> Iterator[None]:
    """A block in which the errors of a system that has too little become ShortageError.

    For work without which the server still runs jobs: it is left out until the system has enough again.
    """
    try:
        yield
    except Exception as error:
        if (shortage := ShortageError.of(error)) is None:
            raise
        raise shortage from error


def backoff_s(failures: int, rng: random.Random, reaction: Reaction = Reaction.RETRY) -> float:
    """Seconds to wait after this many failures in a row: doubled, capped, minus a random part up to half."""
    longest = _LONGEST_STOP_S if reaction is Reaction.STOP else _LONGEST_DELAY_S
    delay = min(_FIRST_DELAY_S * 2 ** min(failures - 1, 10), longest)
    return rng.uniform(delay / 2, delay)


@dataclass(frozen=True, slots=True)
class Names:
    """The log events at the beginning and the end of a trouble."""

    began: str
    ended: str


AWAY = Names("redis.down", "redis.up")
REFUSED = Names("redis.refused", "redis.accepted")
BROKEN = Names("queue.broken", "queue.mended")
SHORT = Names("resource.missing", "resource.returned")


@dataclass(slots=True)
class _Trouble:
    """``named`` are the codes that only a person can fix, each logged once; all others are one event."""

    code: str
    since: float
    reminded: float
    named: set[str]

    def repeated(self, code: str, now: float, named: set[str], remind_s: float) -> bool:
        """Note another failure. True if it must be logged: ``remind_s`` have passed, or a code is new."""
        self.code = code
        due = now - self.reminded >= remind_s or not named <= self.named
        if due:
            self.reminded = now
            self.named |= named
        return due


class Health:
    """The health of one part. ``clock`` is monotonic seconds, ``fields`` name the part in every event.

    ``refused`` are the events for a reachable Redis that refuses commands; it is never logged as "down".
    """

    def __init__(
        self, clock: Callable[[], float], rng: random.Random, refused: Names = REFUSED, **fields: str
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._refused = refused
        self._fields = fields
        self._troubles: dict[Names, _Trouble] = {}
        self._failures = 0

    @property
    def is_down(self) -> bool:
        """True from the first call for which Redis was unreachable to the next success."""
        return AWAY in self._troubles

    @property
    def troubles(self) -> list[str]:
        """The codes of the present troubles."""
        return [trouble.code for trouble in self._troubles.values()]

    def failed(self, error: PyworkersError) -> float:
        """Note a failure because of Redis or of the system. Returns the seconds until the next attempt."""
        self._failures += 1
        self._note(self._names(error), error)
        return backoff_s(self._failures, self._rng, rule_for(error.code).reaction)

    def ok(self) -> None:
        """Note a success: it ends all troubles."""
        self._failures = 0
        while self._troubles:
            names, trouble = self._troubles.popitem()
            log.info(names.ended, after_s=round(self._clock() - trouble.since, 1), **self._fields)

    def _names(self, error: PyworkersError) -> Names:
        if isinstance(error, ShortageError):
            return SHORT
        return AWAY if isinstance(error, RedisUnavailableError) else self._refused

    def _note(self, names: Names, error: PyworkersError) -> None:
        now = self._clock()
        stays = rule_for(error.code).reaction is Reaction.STOP or names is SHORT
        named = {error.code} if stays else set()
        trouble = self._troubles.get(names)
        if trouble is None:
            self._troubles[names] = _Trouble(error.code, now, now, named)
            self._warn(names, error)
        elif trouble.repeated(error.code, now, named, math.inf if names is SHORT else _REMIND_S):
            self._warn(names, error, since_s=round(now - trouble.since))

    def _warn(self, names: Names, error: PyworkersError, **more: float) -> None:
        log.warning(names.began, error=error.message, code=error.code, **more, **self._fields)


class ServerHealth:
    """The health of all parts of one master."""

    def __init__(self, clock: Callable[[], float], rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._parts: dict[str, Health] = {}

    def of(self, part: str) -> Health:
        """The health of a part, such as ``scheduler``; the same object for the same name."""
        if part not in self._parts:
            self._parts[part] = Health(self._clock, self._rng, part=part)
        return self._parts[part]

    def of_queue(self, queue: str) -> Health:
        """A new health for the fetcher of a queue; it replaces an earlier one."""
        part = f"fetcher {queue}"
        self._parts[part] = Health(self._clock, self._rng, BROKEN, part=part, queue=queue)
        return self._parts[part]

    def forget_queue(self, queue: str) -> None:
        """Drop the health of a queue that is no longer served."""
        self._parts.pop(f"fetcher {queue}", None)

    @property
    def is_down(self) -> bool:
        """True while Redis is unreachable for any part."""
        return any(health.is_down for health in self._parts.values())

    @property
    def troubles(self) -> dict[str, list[str]]:
        """The codes of the present troubles, by part; empty if there are none."""
        return {part: health.troubles for part, health in self._parts.items() if health.troubles}
