"""Draining: ends a server when nothing is left for it to run (``pyworkers run --drain`` and ``--once``).

Runs in the master's event loop, in a server that was started so. It only reads. While jobs run here, it
sends nothing.

A job is left for this server in four places: in a queue of it that is not paused, in one of its in-progress
lists, in the list of a server that has died, or among the jobs that come due in time for these queues. So a
paused queue, a failed job at the head of an ordered queue that comes due later, and a job that another server
runs do not keep it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from pyworkers import logs
from pyworkers.errors import BadMessageError, InterruptedDrainError, PyworkersError, StoreError
from pyworkers.protocol.envelope import Members
from pyworkers.protocol.portions import PageSize
from pyworkers.server.parts import Part
from pyworkers.server.scheduler import queue_of
from pyworkers.server.shard import Shard
from pyworkers.server.workload import Workload
from pyworkers.store import draining
from pyworkers.store.draining import Rest, Sight
from pyworkers.store.flow.ordered import held_heads
from pyworkers.store.transport.errors import Reaction, rule_for

# Between two looks: at what runs here, and at Redis.
_HERE_S, _REDIS_S = 0.02, 0.1
# Members of a sorted set that one command reads.
_PAGE = 100

log = logs.get_logger()


class Draining(Part):
    """Calls ``stop`` when nothing is left that comes due within ``within_s``, or once the one job has ended.

    Calls ``fail`` with the reason if jobs are left that cannot run here.
    """

    name = "drain"

    def __init__(
        self,
        within_s: float,
        workload: Workload,
        stop: Callable[[], None],
        fail: Callable[[str, BaseException], None],
    ) -> None:
        super().__init__(workload.health_of(self.name))
        self._within_s = within_s
        self._workload = workload
        self._stop = stop
        self._fail = fail
        self._reads = False
        self.done = False
        """True once nothing was left."""

    async def look(self) -> float:
        """Look whether a job is left: here, and if not, in Redis."""
        if not self._reads and not self._idle():
            self._check_workers()
            return _HERE_S
        self._reads = False
        one = self._workload.one
        if one is None or not one.taken:
            try:
                left = await self._any_left()
            except StoreError as error:
                if rule_for(error.code).reaction is not Reaction.STOP:
                    raise
                self._give_up(error)
                return _REDIS_S
            if left or not self._idle():
                self._check_workers()
                return _REDIS_S
        self.done = True
        self._stop()
        return _REDIS_S

    def failed(self, backoff_s: float) -> float:
        """Read Redis at the next look, because that ends the outage."""
        self._reads = True
        return backoff_s

    def _idle(self) -> bool:
        """True if nothing runs here, Redis has all outcomes, and no cron slot is due."""
        # The jobs of a queue that a reload has dropped may run yet.
        if not all(shard.queues.idle for shard in self._workload.shards.values()):
            return False
        return all(shard.services.cron.is_idle for shard in self._shards)

    def _check_workers(self) -> None:
        for shard in self._shards:
            for group, reason in shard.queues.failing().items():
                hint = "see worker.boot_failed in the log"
                self._give_up(PyworkersError(f"the group {group!r} runs no jobs: {reason}", hint=hint))

    def _give_up(self, error: PyworkersError) -> None:
        if not self.done:
            self.done = True
            self._fail(self.name, error)

    @property
    def _shards(self) -> Collection[Shard]:
        """The shards with queues of this server: no other Redis may keep it, e.g. by being away."""
        return [shard for shard in self._workload.shards.values() if shard.plan.queues]

    async def _any_left(self) -> bool:
        """True if a job is left in a Redis."""
        for shard in self._shards:
            if await self._left(shard):
                return True
        return False

    async def _left(self, shard: Shard) -> bool:
        until = time.time() + self._within_s
        store, queues, identity = shard.store, shard.plan.queues, shard.identity
        zsets = shard.services.scheduler.zsets if self._within_s else []
        seen = await store.arun(draining.see(store.keys, identity, queues, zsets, until))
        if seen.mine or await _waits(shard, seen, until) or await _comes_due(shard, seen, zsets, until):
            return True
        if (await store.arun(draining.elsewhere(store.keys, identity, queues))).lost:
            return True
        # A job that has come due between these reads, or was recovered, is in its queue by now.
        seen = await store.arun(draining.see(store.keys, identity, queues, (), until))
        return bool(seen.mine or await _waits(shard, seen, until))

    # The end

    def check(self) -> None:
        """Raise InterruptedDrainError if the server was stopped before the end."""
        if not self.done:
            raise InterruptedDrainError("stopped before the end: jobs may be left", hint="start it again")

    async def report(self) -> None:
        """Log what ran and what is left."""
        tallies = [
            tally
            for shard in self._workload.shards.values()
            for tally in shard.services.counters.executions.totals().values()
        ]
        ran = {
            "jobs": sum(tally.processed for tally in tallies),
            "failed": sum(one.failed for one in tallies),
        }
        try:
            rests = [await _rest(shard) for shard in self._shards]
        except PyworkersError as error:
            log.warning(
                "server.drained",
                **ran,
                error=error.message,
                hint="the jobs that are left could not be counted",
            )
            return
        rest = Rest(*map(sum, zip(*rests, strict=True)))
        log.info("server.drained", **ran, left=sum(rest), **rest._asdict())


async def _waits(shard: Shard, seen: Sight, until: float) -> bool:
    """True if a queue that is not paused has a job that may run by then."""
    groups, store = shard.plan.groups, shard.store
    waiting = seen.waiting.keys() - seen.paused
    ordered = waiting & {queue for group in groups.values() if group.ordered for queue in group.queues}
    if waiting - ordered or not ordered:
        return bool(waiting)
    heads = await store.arun(held_heads(store.keys, ordered))
    return any(queue not in heads or heads[queue].until <= until for queue in ordered)


async def _comes_due(shard: Shard, seen: Sight, zsets: list[str], until: float) -> bool:
    """True if a job comes due by then for a queue of this server that is not paused."""
    queues, namespace = set(shard.plan.queues) - seen.paused, shard.store.keys.namespace
    if _any_of(queues, seen.due, namespace):
        return True
    for zset in zsets if seen.more else ():
        start, size = 0, PageSize(_PAGE)
        while page := await shard.store.arun(draining.due(zset, until, start, size.jobs)):
            if _any_of(queues, page, namespace):
                return True
            size.note(page)
            start += len(page)
    return False


def _any_of(queues: set[str], members: list[bytes], namespace: str) -> bool:
    return any(_queue(member, namespace) in queues for member in members)


async def _rest(shard: Shard) -> Rest:
    return await shard.store.arun(draining.rest(shard.store.keys, shard.identity, shard.plan.queues))


def _queue(member: bytes, namespace: str) -> str:
    """The queue of a job in a sorted set; empty for an invalid one, which goes to ``dead``."""
    try:
        return queue_of(Members(member), namespace)
    except (BadMessageError, ValueError):
        return ""
