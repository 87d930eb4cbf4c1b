"""Turn: lets one server at a time do what one must do for all, so that its cost does not grow with them.

Used in the master. Two servers may have it for a moment, so what they do in it must be safe to do twice.
"""

from __future__ import annotations

import asyncio
import math
import time

from pyworkers.errors import StoreError
from pyworkers.server.incarnation import Incarnations
from pyworkers.store import leases
from pyworkers.store.store import Store

# A server that dies leaves its turn behind: the next one has it before the leases of both can have expired.
_LIVES_PER_LEASE = 2
# The holder renews it when less than this share of its life is left, not at each look.
_RENEWED_AT = 0.6


class Turn:
    """The turn of one server: ``take`` before each piece of work."""

    def __init__(self, store: Store, incarnations: Incarnations, lease_s: float) -> None:
        self._store = store
        self._incarnations = incarnations
        self._life_s = lease_s / _LIVES_PER_LEASE
        self._until = -math.inf
        self._holder = ""
        self._taking = asyncio.Lock()
        self._ended = False

    @property
    def is_held(self) -> bool:
        """True if this server has it, as far as it knows."""
        return self._holder == self._incarnations.identity() and time.monotonic() < self._until

    async def end(self) -> None:
        """Take it no more. The deregistration passes it on; a later request would keep it from the others."""
        async with self._taking:
            self._ended = True

    async def take(self) -> bool:
        """Take the turn, or keep it. False if another server has it. Raises PyworkersError.

        If Redis refuses the key, each server does the work: one whose memory is full still recovers jobs.
        """
        async with self._taking:
            return not self._ended and await self._take()

    async def _take(self) -> bool:
        now, held = time.monotonic(), self.is_held
        if held and self._until - now > _RENEWED_AT * self._life_s:
            return True
        identity = self._incarnations.identity()
        taking = leases.take_turn(self._store.keys, identity, self._life_s, held=held)
        try:
            if not await self._store.arun(taking):
                return False
        except StoreError:
            return True
        self._holder, self._until = identity, now + self._life_s
        return True
