"""Pages: the contents of the HTTP endpoint.

Runs in the master's event loop. It changes nothing, and reads Redis at most once a second for all clients
together.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import simplejson

from pyworkers.config.reloading import Configurations
from pyworkers.errors import PyworkersError, RedisUnavailableError
from pyworkers.protocol.flow.counted import INCIDENTS
from pyworkers.protocol.histogram import Tally
from pyworkers.server.heartbeat.facts import described
from pyworkers.server.manager import ManagerState
from pyworkers.server.plan import Group
from pyworkers.server.proc import Memory
from pyworkers.server.running import Payloads
from pyworkers.server.shard import Shard
from pyworkers.store import counters
from pyworkers.store.counters import Counts

_FRESH_S = 1.0
_PATIENCE_S = 2.0


@dataclass(frozen=True, slots=True)
class Numbers:
    """All numbers at one Redis at one moment. ``counts`` is None while Redis is unreachable."""

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
    """The contents of each page, of ``shards`` by the name of their Redis."""

    def __init__(self, shards: Mapping[str, Shard], memory: Memory, configurations: Configurations) -> None:
        self._shards = shards
        self._memory = memory
        self._configurations = configurations
        self._payloads = Payloads()
        self._counted = {name: _Counted(shard) for name, shard in shards.items()}
        self._several = len(shards) > 1

    def ready(self) -> dict[str, bool]:
        """Each condition for fetching jobs, and whether it holds; a paused queue is not a fault.

        With several Redis servers, they hold if a group can work at one of them.
        """
        each = [self._ready_at(shard) for shard in self._shards.values()]
        if not self._several:
            return each[0]
        held = {name: any(one[name] for one in each) for name in each[0]}
        return held | {"fetching": any(all(one.values()) for one in each)}

    def redis_servers(self) -> dict[str, bool]:
        """Whether this server can work at each Redis, by its name; empty if there is one."""
        if not self._several:
            return {}
        return {
            name: shard.services.lease.is_held and not shard.health.is_down
            for name, shard in self._shards.items()
        }

    def _ready_at(self, shard: Shard) -> dict[str, bool]:
        managers, failing = shard.queues.serving, shard.queues.failing()
        works = [
            one.state in (ManagerState.RUNNING, ManagerState.PAUSED) and name not in failing
            for name, one in managers.items()
        ]
        takes = any(works) if self._several else bool(works) and all(works) and not failing
        return {
            "fetching": takes and not shard.facts().quiet,
            "lease": shard.services.lease.is_held,
            "redis": not shard.health.is_down,
        }

    def failing(self) -> dict[str, str]:
        """Why groups run no jobs: they cannot start a worker, or their Redis of several is away."""
        found: dict[str, str] = {}
        for name, shard in self._shards.items():
            found |= self._failing_at(name, shard)
        return found

    def _failing_at(self, redis: str, shard: Shard) -> dict[str, str]:
        found = shard.queues.failing()
        if not self._several:
            return found
        if shard.health.is_down:
            return dict.fromkeys(shard.plan.groups, f"the Redis {redis} is unreachable")
        if not shard.services.lease.is_held:
            return dict.fromkeys(shard.plan.groups, f"this server has no lease at the Redis {redis}")
        return found

    async def stats(self) -> str:
        """go-workers' JSON (its stats.go): counters of all servers, running jobs of this one; and its groups.

        With several Redis servers the sums of those that answer, and the errors of the others. Raises
        PyworkersError.
        """
        counts, errors = await self._count_all()
        facts = [shard.facts() for shard in self._shards.values()]
        enqueued = {queue: size for one in counts for queue, size in one.enqueued.items()}
        jobs: dict[str, list[object]] = {queue: [] for queue in enqueued}
        running = [job for one in facts for job in one.running]
        mask = self._configurations.current.web.mask
        for job, payload in self._payloads.of(running, mask):
            message: Any = simplejson.RawJSON(payload)
            jobs.setdefault(job.queue, []).append({"message": message, "started_at": int(job.started_at)})
        page = {
            **{name: sum(one.counted[name] for one in counts) for name in counts[0].counted},
            "jobs": jobs,
            "enqueued": {queue: str(size) for queue, size in enqueued.items()},
            "retries": sum(one.retries for one in counts),
            "groups": {name: group for one in facts for name, group in described(one).items()},
            **({"away": errors} if errors else {}),
        }
        return str(simplejson.dumps(page))

    async def _count_all(self) -> tuple[list[Counts], dict[str, str]]:
        """The counts of all that answer, and the errors of the others. Raises PyworkersError if none does."""
        counts: list[Counts] = []
        errors: dict[str, PyworkersError] = {}
        for name, counted in self._counted.items():
            try:
                counts.append(await counted.read())
            except PyworkersError as error:
                errors[name] = error
        if not counts:
            raise next(iter(errors.values()))
        return counts, {name: error.message for name, error in errors.items()}

    async def snapshots(self) -> dict[str, Numbers]:
        """The numbers for monitoring, by the name of each Redis."""
        pids = next(iter(self._shards.values())).facts().pids
        memory_bytes = await self._memory.total_kb(pids) * 1024
        return {name: await self._numbers(name, memory_bytes) for name in self._shards}

    async def _numbers(self, redis: str, memory_bytes: int) -> Numbers:
        shard = self._shards[redis]
        managers, facts, counters = shard.queues.serving, shard.facts(), shard.services.counters
        paused = frozenset[str]().union(*(manager.paused for manager in managers.values()))
        try:
            counts = await self._counted[redis].read()
        except PyworkersError:
            counts = None
        return Numbers(
            self._ready_at(shard),
            counters.executions.totals(),
            {name: Counter(manager.pool.pids().values()) for name, manager in managers.items()},
            facts.groups,
            facts.busy,
            {queue: queue in paused for queue in facts.queues},
            counts,
            memory_bytes,
            dict(counters.expired),
            self._failing_at(redis, shard),
            {name: counters.incidents[name] for name in INCIDENTS},
        )


class _Counted:
    """The counters at one Redis, read at most once a second."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._asking = asyncio.Lock()
        self._counts: Counts | None = None
        self._counted_at = -_FRESH_S

    async def read(self) -> Counts:
        """The counts. Raises PyworkersError."""
        async with self._asking:
            if self._counts is None or time.monotonic() - self._counted_at > _FRESH_S:
                self._counts = None
                store, queues = self._shard.store, self._shard.plan.queues
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        self._counts = await store.arun(counters.read(store.keys, queues))
                except TimeoutError as error:
                    raise RedisUnavailableError("Redis did not answer in time") from error
                self._counted_at = time.monotonic()
            return self._counts
