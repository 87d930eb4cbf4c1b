"""Lease: renews the lease of this server, and writes its counters with each renewal.

Runs in the master's event loop.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from pyworkers import logs
from pyworkers.server.health import Health
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.parts import Part
from pyworkers.server.pool.worker import KILL_GRACE_S
from pyworkers.store import leases
from pyworkers.store.leases import LeaseState
from pyworkers.store.store import Store

# Several renewals fit into a lease, so that one failed renewal does not lose it.
_RENEWALS_PER_LEASE = 6

# A job that must not overlap (ordered queues, ``fenced``) ends before a peer can start it: after this share
# of the lease, counted from the request that renewed it. The rest, 3 of 30 s, is for clocks that differ in
# speed, and for a process that gets no processor. It is asked before, with the time of any request to clean
# up.
_ENDS, _CLEAN_UP = 0.9, 1 / 15

log = logs.get_logger()


class LeaseDeadlines(NamedTuple):
    """When jobs that must not overlap are asked to end, and when their process ends, in monotonic seconds."""

    ask_at_s: float
    end_at_s: float


class Lease(Part):
    """Renews the lease; ends the incarnation when a peer has recovered its lists.

    ``on_renewed`` is awaited after each renewal, with True if it has registered something, and the deadlines
    until the next one. A new incarnation is registered at once by a nudge: it may fetch nothing before.
    """

    name = "lease"

    def __init__(
        self,
        store: Store,
        incarnations: Incarnations,
        health: Health,
        lease_s: float,
        on_renewed: Callable[[bool, LeaseDeadlines], Awaitable[None]],
    ) -> None:
        super().__init__(health)
        self._store = store
        self._incarnations = incarnations
        self._lease_s = lease_s
        self.queues: list[str] = []
        """The queues whose jobs this server may hold; only ``serve`` changes them."""
        self._on_renewed = on_renewed

    def serve(self, queues: Iterable[str]) -> None:
        """Register these queues, too, from the next renewal on."""
        self.queues += [name for name in queues if name not in self.queues]

    @property
    def is_held(self) -> bool:
        """True if peers still count this server as alive."""
        return self._incarnations.current.holds_lease(self._lease_s)

    async def look(self) -> float:
        """Renew once."""
        await self.renew()
        return self._lease_s / _RENEWALS_PER_LEASE

    def failed(self, backoff_s: float) -> float:
        """Try again within a sixth of the lease, however often it failed: peers rely on it (recovery.py)."""
        return min(backoff_s, self._lease_s / _RENEWALS_PER_LEASE)

    async def renew(self) -> None:
        """Renew the lease once. Raises PyworkersError."""
        mine, queues = self._incarnations.current, tuple(self.queues)
        began = time.monotonic()
        known = mine.is_registered(queues)
        renewal = leases.renew(self._store.keys, mine.identity, self._lease_s, queues, registered=known)
        lease = await self._store.arun(renewal)
        if lease is LeaseState.LOST:
            self._incarnations.lost(mine.identity)
            return
        mine.renewed(began, queues)
        if lease is LeaseState.RESTORED:
            log.debug("lease.restored")
        end_at_s = began + _ENDS * self._lease_s
        deadlines = LeaseDeadlines(end_at_s - min(KILL_GRACE_S, _CLEAN_UP * self._lease_s), end_at_s)
        await self._on_renewed(not known, deadlines)
