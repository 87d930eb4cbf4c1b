"""Orders: what people want of all servers at once, kept in Redis until they want something else.

Read by every master once a second, in one round trip, however many jobs it runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from redis.asyncio import Redis

from pyworkers.errors import PyworkersError
from pyworkers.keys import Keys
from pyworkers.store.connection import errors_translated, translate


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. What is None could not be read; ``errors`` say why."""

    paused: frozenset[str] | None
    errors: list[PyworkersError]


class OrdersStore:
    """Reads the orders of one namespace."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def look(self) -> Seen:
        """What is wanted now. Raises RedisUnavailableError."""
        with errors_translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.smembers(self._keys.paused)
                (paused,) = await pipe.execute(raise_on_error=False)
        errors = [translate(reply) for reply in (paused,) if isinstance(reply, Exception)]
        names = None if isinstance(paused, Exception) else frozenset(map(_text, paused))
        return Seen(names, errors)


def _text(stored: bytes) -> str:
    return stored.decode(errors="surrogateescape")
