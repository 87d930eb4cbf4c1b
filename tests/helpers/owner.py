"""Owner: one incarnation and what it does with jobs and leases, for tests.

Used by the tests alone, in the process of the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyworkers.protocol.keys import Keys
from pyworkers.store import leases
from pyworkers.store.calls import arun
from pyworkers.store.jobs import Exchange, InProgress, Settlement
from pyworkers.store.leases import LeaseState
from pyworkers.store.transport.connections import AsyncConnection


class Owner:
    """Acts under one identity, over one client."""

    def __init__(self, redis: AsyncConnection, keys: Keys, identity: str) -> None:
        self.identity = identity
        self._redis = redis
        self._keys = keys
        self._registered: list[str] = []

    async def exchange(
        self, queue: str, settlements: Sequence[Settlement], wanted: int, now: float
    ) -> Exchange:
        return await self._list(queue).exchange(self._redis, settlements, wanted, now)

    async def inprogress(self, queue: str) -> list[bytes]:
        return await arun(self._redis, self._list(queue).jobs())

    async def give_back(self, queue: str, most: int = 1000) -> int:
        """All jobs of the list, up to ``most`` at a time."""
        total = 0
        while moved := await arun(self._redis, self._list(queue).give_back(most)):
            total += moved
        return total

    async def renew(self, lease_s: float, queues: list[str]) -> LeaseState:
        known = queues == self._registered
        renewal = leases.renew(self._keys, self.identity, lease_s, queues, registered=known)
        found = await arun(self._redis, renewal)
        self._registered = list(queues)
        return found

    async def deregister(self, queues: Sequence[str]) -> bool:
        return await arun(self._redis, leases.deregister(self._keys, self.identity, queues))

    async def silent_owners(self) -> Mapping[str, list[str]]:
        return (await arun(self._redis, leases.owners(self._keys, self.identity))).silent

    async def recover(self, identity: str, queues: Sequence[str], most: int) -> int:
        return await arun(self._redis, leases.recover(self._keys, identity, queues, most))

    def _list(self, queue: str) -> InProgress:
        return InProgress(self._keys, queue, self.identity)
