"""Owner: one incarnation and what it does with jobs and leases, for tests.

Used by the tests alone, in the process of the test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyworkers.errors import PyworkersError
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.limits import QueueLimit
from pyworkers.protocol.outcome import Outcome, Report
from pyworkers.store import leases
from pyworkers.store.calls import arun
from pyworkers.store.jobs import Exchange, InProgress, Settlement, Taken
from pyworkers.store.leases import LeaseState
from pyworkers.store.transport.connections import AsyncConnection


class Exchanged(NamedTuple):
    """The exchange of a single queue: as ``Exchange``, with the jobs alone."""

    jobs: list[bytes]
    stale: list[int]
    error: PyworkersError | None
    refused: Mapping[str, PyworkersError]
    left: Sequence[int]
    failed: Sequence[tuple[Effect, str]]


class Owner:
    """Acts under one identity, over one client."""

    def __init__(self, redis: AsyncConnection, keys: Keys, identity: str) -> None:
        self.identity = identity
        self._redis = redis
        self._keys = keys
        self._registered: list[str] = []
        self._takes = 0

    async def exchange(
        self, queue: str, settlements: Sequence[tuple[bytes, Outcome]], wanted: int, now: float
    ) -> Exchanged:
        batch = [Settlement(queue, raw, Report(outcome)) for raw, outcome in settlements]
        found = await self._list(queue).exchange(self._redis, batch, wanted, [queue], now)
        jobs = [raw for _, taken in found.jobs for raw in taken]
        failed = [(effect, reason) for _, effect, reason in found.failed]
        return Exchanged(jobs, *found[1:5], failed or ())

    async def take(self, queue: str, limit: QueueLimit, wanted: int) -> Taken:
        """Take jobs of a queue with limits."""
        self._takes += 1
        name = f"{self.identity} {self._takes}"
        return await self._list(queue).take(self._redis, queue, limit, wanted, name)

    async def exchange_all(
        self,
        queues: Sequence[str],
        batch: Sequence[Settlement],
        wanted: int,
        order: Sequence[str],
        now: float,
    ) -> Exchange:
        """The exchange of a group of queues."""
        lists = InProgress(self._keys, queues, self.identity)
        return await lists.exchange(self._redis, batch, wanted, order, now)

    async def inprogress(self, queue: str) -> list[bytes]:
        return await arun(self._redis, self._list(queue).jobs(queue))

    async def give_back(self, queue: str, most: int = 1000) -> int:
        """All jobs of the list, up to ``most`` at a time."""
        total = 0
        while moved := await arun(self._redis, self._list(queue).give_back(queue, most)):
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

    async def silent_owners(self) -> Mapping[str, list[str] | None]:
        """Those without a lease, each with its queues."""
        names = await arun(self._redis, leases.owners(self._keys))
        names = await arun(self._redis, leases.silent(self._keys, self.identity, names))
        return {name: await arun(self._redis, leases.queues_of(self._keys, name)) for name in names}

    async def recover(self, identity: str, queues: Sequence[str], most: int) -> int:
        return await arun(self._redis, leases.recover(self._keys, identity, queues, most))

    def _list(self, queue: str) -> InProgress:
        return InProgress(self._keys, [queue], self.identity)
