"""Orders: what people want of all servers at once, kept in Redis until they want something else.

Used by the master. The notes of cancelled jobs are read when their number or the latest of them has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from pyworkers.protocol.draft import batches
from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts
from pyworkers.store.store import NOTE_TTL_S
from pyworkers.store.transport.connections import errors_translated
from pyworkers.store.transport.replies import integer

# Each takes Redis about a microsecond.
_PER_SCRIPT = 500


class OrdersStore:
    """The notes of one namespace."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self.noticed: Any = [0, []]
        """Their number and the latest one, as ``look.lua`` reads them."""
        self._known: Any = [0, []]

    async def notes(self) -> frozenset[str] | None:
        """The ids of the cancelled jobs; None if they are the same as before. Raises PyworkersError."""
        state = self.noticed
        if state == self._known:
            return None
        with errors_translated():
            found = await self._redis.zrange(self._keys.cancelled, 0, -1)
        self._known = state
        return texts(found)

    async def heed(self, jids: Sequence[str]) -> int:
        """Note the jobs that were cancelled in Sidekiq's way. How many there were. Raises PyworkersError."""
        total = 0
        for batch in batches(jids, _PER_SCRIPT):
            names = [self._keys.cancelled, *map(self._keys.iteration, batch)]
            with errors_translated():
                total += await scripts.load("heed")(self._redis, names, [NOTE_TTL_S, *batch], integer)
        return total

    async def forget(self, jids: Sequence[str]) -> None:
        """Remove the notes of jobs that are dealt with. Raises PyworkersError."""
        if jids:
            with errors_translated():
                names = [jid.encode(errors="surrogateescape") for jid in jids]
                await self._redis.zrem(self._keys.cancelled, *names)


def texts(stored: Any) -> frozenset[str]:
    """Names as Redis holds them, also those that are not UTF-8."""
    return frozenset(name.decode(errors="surrogateescape") for name in stored)
