"""Pages: the contents of the HTTP endpoint.

Runs in the master's event loop. It changes nothing, and reads Redis at most once a second for all clients
together.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import simplejson

from pyworkers.errors import PyworkersError, RedisUnavailableError
from pyworkers.protocol.flow.counted import INCIDENTS
from pyworkers.protocol.histogram import Tally
from pyworkers.server.counters import Counters
from pyworkers.server.health import ServerHealth
from pyworkers.server.heartbeat.facts import Facts, described
from pyworkers.server.lease import Lease
from pyworkers.server.manager import Manager, ManagerState
from pyworkers.server.plan import Group
from pyworkers.server.proc import Memory
from pyworkers.server.running import Payloads
from pyworkers.store import counters
from pyworkers.store.counters import Counts
from pyworkers.store.store import Store

_FRESH_S = 1.0
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects that the views read."""

    store: Store
    lease: Lease
    counters: Counters
    health: ServerHealth
    managers: Callable[[], Mapping[str, Manager]]
    facts: Callable[[], Facts]
    memory: Memory
    mask: Collection[str] = ()
    """Names of members whose values ``stats`` hides."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """All numbers at one moment. ``counts`` is None while Redis is unreachable."""

    ready: Mapping[str, bool]
    tallies: Mapping[str, Tally]
    workers: Mapping[str, Mapping[str, int]]
    """Number of worker processes by group and state."""
    groups: Mapping[str, Group]
    busy: Mapping[str, int]
    """Number of running jobs by group."""
    paused: Mapping[str, bool]
    """By queue."""
    counts: Counts | None
    memory_bytes: int
    expired: Mapping[str, int] = field(default_factory=dict)
    """Number of expired jobs by handler."""
    failing: Collection[str] = ()
    """The groups that have no worker and cannot start one."""
    incidents: Mapping[str, int] = field(default_factory=dict)
    """By the names of counted.py."""


class Views:
    """The contents of each page."""

    def __init__(self, sources: Sources) -> None:
        self._from = sources
        self._payloads = Payloads(sources.mask)
        self._asking = asyncio.Lock()
        self._counts: Counts | None = None
        self._counted_at = -_FRESH_S

    def ready(self) -> dict[str, bool]:
        """Each condition for fetching jobs, and whether it holds; a paused queue is not a fault."""
        states = [manager.state for manager in self._from.managers().values()]
        taking = bool(states) and all(
            state in (ManagerState.RUNNING, ManagerState.PAUSED) for state in states
        )
        return {
            "fetching": taking and not self._from.facts().quiet and not self.failing(),
            "lease": self._from.lease.is_held,
            "redis": not self._from.health.is_down,
        }

    def failing(self) -> dict[str, str]:
        """Why the groups that have no worker cannot start one."""
        return self._from.facts().failing()

    async def stats(self) -> str:
        """go-workers' JSON (its stats.go): counters of all servers, running jobs of this one; and its groups.

        Raises PyworkersError.
        """
        counts = await self._read_counts()
        jobs: dict[str, list[object]] = {queue: [] for queue in counts.enqueued}
        for job, payload in self._payloads.of(self._from.facts().running):
            message: Any = simplejson.RawJSON(payload)
            jobs.setdefault(job.queue, []).append({"message": message, "started_at": int(job.started_at)})
        facts = self._from.facts()
        page = {
            **counts.counted,
            "jobs": jobs,
            "enqueued": {queue: str(size) for queue, size in counts.enqueued.items()},
            "retries": counts.retries,
            "groups": described(facts),
        }
        return str(simplejson.dumps(page))

    async def snapshot(self) -> Numbers:
        """The numbers for monitoring."""
        managers, facts = self._from.managers(), self._from.facts()
        paused = frozenset[str]().union(*(manager.paused for manager in managers.values()))
        try:
            counts = await self._read_counts()
        except PyworkersError:
            counts = None
        return Numbers(
            self.ready(),
            self._from.counters.executions.totals(),
            {name: Counter(manager.pool.pids().values()) for name, manager in managers.items()},
            facts.groups,
            facts.busy,
            {queue: queue in paused for queue in facts.queues},
            counts,
            await self._from.memory.total_kb(facts.pids) * 1024,
            dict(self._from.counters.expired),
            self.failing(),
            {name: self._from.counters.incidents[name] for name in INCIDENTS},
        )

    async def _read_counts(self) -> Counts:
        async with self._asking:
            if self._counts is None or time.monotonic() - self._counted_at > _FRESH_S:
                self._counts = None
                store, queues = self._from.store, self._from.facts().queues
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        self._counts = await store.arun(counters.read(store.keys, queues))
                except TimeoutError as error:
                    raise RedisUnavailableError("Redis did not answer in time") from error
                self._counted_at = time.monotonic()
            return self._counts
