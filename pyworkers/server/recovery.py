"""Recovery: gives the jobs of dead incarnations back to their queues.

Runs in the master's event loop. One master at a time watches the leases of all, whichever has the turn; if
several recover the same jobs, the script moves each job once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pyworkers import logs
from pyworkers.errors import RedisUnavailableError, StoreError
from pyworkers.failpoints import hit
from pyworkers.server.changes import UnchangedKeys
from pyworkers.server.health import Health
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.parts import Part
from pyworkers.server.turn import Turn
from pyworkers.store import leases
from pyworkers.store.calls import Request
from pyworkers.store.store import Store

# The lease of a live owner may have been deleted by hand, or lost by a failover; its next renewal, after a
# sixth of the lease at most, restores it. So an owner must be without a lease for longer than that: with the
# default lease of 30 s, jobs run again 30 + 5 + 9 s after a crash, plus at most 5 s until the next sweep.
_SWEEPS_PER_LEASE = 6
_GRACE = 0.3
# A lease that was seen shortly before its end has expired: its owner had missed four renewals by then, while
# Redis answered. So it is dead at once.
_END = 1 / 3
# Two renewals: longer ago, and Redis renews no lease, for example because it cannot save to its disk.
_OWN_RENEWAL = 1 / 3
# After an outage of all servers, the many recovered jobs must not delay the other commands. One portion takes
# Redis about a millisecond; ``_REST_S`` is the pause between two portions.
PORTION, _REST_S = 500, 0.02

log = logs.get_logger()

T = TypeVar("T")


class Registrations:
    """The registered incarnations, ``own`` among them; they are read again when they may have changed."""

    def __init__(self, store: Store, own: Incarnations, unchanged: UnchangedKeys) -> None:
        self._store = store
        self._owners = store.keys.owners
        self.own = own
        self._unchanged = unchanged
        self._names: list[str] = []
        """All of them; empty if only the own one was asked for."""
        self._found = ""
        """The own identity, if it was among them."""

    async def names(self) -> list[str]:
        """All identities. Raises PyworkersError."""
        if not self._names or not self._are_current():
            names = await self._read(leases.owners(self._store.keys))
            self._note(names, found=self.own.identity() in names)
        return self._names

    async def check(self) -> None:
        """Notice that Redis has lost the own registration. Raises PyworkersError."""
        if not self._are_current():
            asked = leases.is_registered(self._store.keys, self.own.identity())
            self._note([], found=await self._read(asked))

    def forget(self) -> None:
        """Read them at the next question."""
        self._unchanged.forget()

    async def _read(self, request: Request[T]) -> T:
        try:
            return await self._unchanged.read(request, self._owners)
        except RedisUnavailableError:
            # Perhaps only the connection with the announcements is lost, and a failed look delays a recovery.
            return await self._store.arun(request)

    def _are_current(self) -> bool:
        return self._found == self.own.identity() and self._unchanged.has(self._owners)

    def _note(self, names: list[str], *, found: bool) -> None:
        self._names, self._found = names, self.own.identity() if found else ""
        if not found:
            # It was lost with its key.
            self.own.current.unregistered()


class Recovery(Part):
    """Recovers the incarnations of one namespace whose lease is gone, while this server has the ``turn``.

    ``on_recovered`` is called with the number of jobs.
    """

    name = "recovery"

    def __init__(
        self,
        store: Store,
        registrations: Registrations,
        health: Health,
        lease_s: float,
        on_recovered: Callable[[int], None],
    ) -> None:
        super().__init__(health)
        self._store = store
        self._registrations = registrations
        self.turn = Turn(store, registrations.own, lease_s)
        self._lease_s = lease_s
        self._on_recovered = on_recovered
        self._silent_since: dict[str, float] = {}
        self._ending: set[str] = set()
        self._expired: set[str] = set()

    def saw_lease(self, identity: str, left_s: float) -> None:
        """Note how long the lease of a peer lasts; 0 if it has expired: then its jobs are recovered at once.

        For an ordered queue, whose next server waits for this peer alone.
        """
        if left_s > _END * self._lease_s:
            self._ending.discard(identity)
        elif left_s > 0:
            self._ending.add(identity)
        elif identity in self._ending:
            self._expired.add(identity)
            self.nudge()

    async def look(self) -> float:
        """Sweep once."""
        try:
            await self.sweep(asyncio.get_running_loop().time())
        except RedisUnavailableError:
            # No server could renew its lease: start the count again.
            self._forget()
            raise
        return self._lease_s / _SWEEPS_PER_LEASE

    def failed(self, backoff_s: float) -> float:
        """Have the next look send a command."""
        self._registrations.forget()
        return backoff_s

    async def sweep(self, now: float) -> int:
        """Recover the incarnations that have had no lease for long enough. ``now`` is monotonic seconds.

        If Redis refuses to recover one, the others are recovered first. Raises PyworkersError.
        """
        dead = {*(await self._long_silent(now)), *self._expired}
        moved = 0
        refusal: StoreError | None = None
        for identity in sorted(dead):
            try:
                moved += await self._recover(identity)
            except StoreError as error:
                # Perhaps of this one alone, which another program has written.
                refusal = refusal or error
            self._ending.discard(identity)
            self._expired.discard(identity)
            await asyncio.sleep(_REST_S)
        if refusal is not None:
            raise refusal
        return moved

    async def _long_silent(self, now: float) -> list[str]:
        """The incarnations without a lease for long enough; none if another server watches the leases."""
        mine = self._registrations.own.current
        if not mine.holds_lease(_OWN_RENEWAL * self._lease_s):
            # The leases of live servers expire, too; their next renewals must come before a recovery.
            self._forget()
            watches = False
        else:
            watches = await self.turn.take()
        if not watches:
            self._silent_since.clear()
            await self._registrations.check()
            return []
        names = await self._registrations.names()
        silent = await self._store.arun(leases.silent(self._store.keys, mine.identity, names))
        self._silent_since = {name: self._silent_since.get(name, now) for name in silent}
        grace_s = _GRACE * self._lease_s
        return [name for name, since in self._silent_since.items() if now - since >= grace_s]

    def _forget(self) -> None:
        self._silent_since.clear()
        self._ending.clear()
        self._expired.clear()

    async def _recover(self, identity: str) -> int:
        total = 0
        queues = await self._store.arun(leases.queues_of(self._store.keys, identity))
        if queues is None:
            # It has ended in order, or another server has recovered it.
            return 0
        recovery = leases.recover(self._store.keys, identity, queues, PORTION)
        while (moved := await self._store.arun(recovery)) > 0:
            total += moved
            hit("mid_recover")
            await asyncio.sleep(_REST_S)
        self._on_recovered(total)
        if moved >= 0:
            log.warning("process.recovered", owner=identity, jobs=total)
        return total
