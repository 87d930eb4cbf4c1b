"""Lease: renews the lease and writes the counters.

Runs in the master's event loop.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from pyworkers import logs
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.protocol.histogram import Executions
from pyworkers.protocol.outcome import Fate, Report
from pyworkers.server.health import Health
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.parts import Part
from pyworkers.store.metrics import MetricsStore
from pyworkers.store.store import LeaseState

# Several beats fit into a lease, so that one that is lost does no harm.
_BEATS_PER_LEASE = 6

log = logs.get_logger()


class Counters:
    """What has happened since the last beat. Sidekiq counts a failed job as processed, too.

    A crash of its worker is no failure of a job, and an interruption is neither: they have counters apart.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.executions = Executions()

    def add(self, report: Report) -> None:
        """Count a settled job. One that was given back, put off, or is no job at all counts as nothing."""
        outcome = report.outcome
        if outcome.crashed:
            self._counts["crashed"] += 1
            return
        if outcome.fate is Fate.CANCELLED:
            self._counts["cancelled"] += 1
        if outcome.failed:
            self._counts["failed"] += 1
        if outcome.failed or outcome.fate == 0:
            self._counts["processed"] += 1
            if report.job_class:
                self.executions.add(report.job_class, report.elapsed_ms, outcome.failed)

    def interrupted(self, jobs: int) -> None:
        """Count jobs that were given back at the end of a stop, or recovered from a dead server."""
        if jobs:
            self._counts["interrupted"] += jobs

    def take(self) -> Counter[str]:
        """The counts so far; they start again at zero."""
        counts, self._counts = self._counts, Counter()
        return counts

    def put_back(self, counts: Counter[str]) -> None:
        """Keep what could not be written."""
        self._counts += counts


class Lease(Part):
    """Ends the incarnation when a peer has recovered its lists.

    A nudge matters: a new incarnation may fetch nothing before it is registered.
    """

    name = "heartbeat"

    def __init__(
        self,
        incarnations: Incarnations,
        health: Health,
        lease_s: float,
        queues: Callable[[], Sequence[str]],
    ) -> None:
        super().__init__(health)
        self._incarnations = incarnations
        store = incarnations.current.store
        self._metrics = MetricsStore(store.redis, store.keys)
        self._lease_s = lease_s
        self._queues = queues
        self.counters = Counters()

    @property
    def lease_held(self) -> bool:
        """True if peers still count this server as alive."""
        return self._incarnations.current.holds_lease(self._lease_s)

    async def look(self) -> float:
        """Beat once."""
        await self.beat()
        return self._lease_s / _BEATS_PER_LEASE

    async def beat(self) -> None:
        """One beat. Raises PyworkersError."""
        mine = self._incarnations.current
        began = time.monotonic()
        lease = await mine.store.beat(self._lease_s, self._queues())
        if lease is LeaseState.LOST:
            self._incarnations.lost(mine.identity)
            return
        mine.renewed(began)
        if lease is LeaseState.RESTORED:
            log.debug("lease.restored")
        await self.flush()
        await self.flush_executions()

    async def flush(self) -> None:
        """Write the counters. Raises PyworkersError; the counts are kept then."""
        counts = self.counters.take()
        if counts:
            try:
                await self._incarnations.current.store.count(counts, datetime.now(UTC).strftime("%Y-%m-%d"))
            except PyworkersError:
                self.counters.put_back(counts)
                raise

    async def flush_executions(self) -> None:
        """Write the numbers by class. Raises PyworkersError; they are kept if Redis could not be reached."""
        unsent = self.counters.executions.take()
        if unsent:
            try:
                await self._metrics.write(unsent, datetime.now(UTC))
            except StoreError:
                # A part of them may have been written, and the rest would be refused again.
                self.counters.executions.sent()
                raise
            self.counters.executions.sent()
