"""Orders: what people want of all servers at once, kept in Redis until they want something else.

Read by every master once a second, in one round trip, however many jobs it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from pyworkers.errors import PyworkersError
from pyworkers.keys import Keys
from pyworkers.store.connection import errors_translated, translate


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. ``cancelled`` is None where it has not changed; what could not be read is None; ``errors``
    say why.
    """

    paused: frozenset[str] | None
    cancelled: frozenset[str] | None
    errors: list[PyworkersError]


class OrdersStore:
    """Reads the orders of one namespace."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._known: Any = (0, [])

    async def look(self) -> Seen:
        """What is wanted now. Raises RedisUnavailableError and StoreError."""
        notes = self._keys.cancelled
        with errors_translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.smembers(self._keys.paused)
                # Number and latest of the notes: whatever is added or removed changes one of them.
                pipe.zcard(notes)
                pipe.zrange(notes, -1, -1, withscores=True)
                paused, *state = await pipe.execute(raise_on_error=False)
            errors = [translate(reply) for reply in (paused, *state) if isinstance(reply, Exception)]
            names = None if isinstance(paused, Exception) else _texts(paused)
            cancelled = None
            if len(errors) == 0 and state != self._known:
                cancelled = _texts(await self._redis.zrange(notes, 0, -1))
                self._known = state
        return Seen(names, cancelled, errors)

    async def forget(self, jids: Sequence[str]) -> None:
        """Remove the notes of jobs that are dealt with. Raises PyworkersError."""
        if jids:
            with errors_translated():
                names = [jid.encode(errors="surrogateescape") for jid in jids]
                await self._redis.zrem(self._keys.cancelled, *names)


def _texts(stored: Any) -> frozenset[str]:
    return frozenset(name.decode(errors="surrogateescape") for name in stored)
