"""Shard: what one server does at one Redis: its identity there, its queues with their workers, its services.

Runs in the master's event loop. It has no fork server: that is the server's.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyworkers import logs
from pyworkers.config.directories import is_directory
from pyworkers.config.fields import Config, RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.keys import Keys
from pyworkers.server.fetching.fetcher import GroupCallbacks
from pyworkers.server.generations.generations import Generations
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import ServerHealth, shortages_translated
from pyworkers.server.heartbeat.facts import Facts
from pyworkers.server.incarnation import Incarnation, Incarnations
from pyworkers.server.manager import Manager, Shared
from pyworkers.server.moves import Moves, data_at, name_in
from pyworkers.server.parts import Tasks
from pyworkers.server.plan import NOTHING, Group, Plan
from pyworkers.server.pool.cpus import ReservedCpu
from pyworkers.server.pool.gates import CancelledJobs, Gates, OneJob
from pyworkers.server.pool.settling import Rules
from pyworkers.server.proc import Memory
from pyworkers.server.queues import Queues
from pyworkers.server.remote import Stacks
from pyworkers.server.services import ServerParts, Services
from pyworkers.server.slots.questions import MakeSlots
from pyworkers.store.jobs import InProgress
from pyworkers.store.preflight import inspect, judge_files, judge_password, lacks
from pyworkers.store.replication import data
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import connect_async

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Common:
    """What all shards of a server share."""

    stop: asyncio.Event
    """The stop of the server."""
    words: Mapping[str, Callable[[], None]]
    """The signals that may come through Redis."""
    generations: Generations
    reserved: ReservedCpu
    rng: random.Random
    one: OneJob | None
    """What lets one job start; None for a server that runs all."""
    memory: Memory
    pids: Callable[[], list[int]]
    """All processes of the server."""
    make_slots: MakeSlots
    """Have any worker of the server make the jobs of cron slots."""


class Shard:
    """Makes the managers and services at one Redis, and keeps to its plan. The workload decides when.

    ``tasks`` are the server's tasks, for this Redis. Log lines have the identity of the shard that leads.
    """

    def __init__(self, config: Config, identity: str, common: Common, tasks: Tasks, *, leads: bool) -> None:
        self.plan = NOTHING
        self.started = False
        """True once Redis has registered this server, and the managers have been made."""
        self._config = config
        self._common = common
        self._tasks = tasks
        self._leads = leads
        self._is_quiet = False
        self._stops_at: float | None = None
        self._following: asyncio.Task[None] | None = None
        self.health = ServerHealth(time.monotonic, common.rng)
        self.store = Store(connect_async(config.redis), Keys(config.redis.namespace))
        self._incarnations = Incarnations(identity, config.log if leads else None, self._lease_lost)
        self.queues = Queues(self._make_manager, tasks, config.server.shutdown_timeout, self._manager_stopped)
        server = ServerParts(
            config,
            self.store,
            self._incarnations,
            self.health,
            self.queues,
            self.facts,
            common.words,
            common.memory,
            self._make_slots,
            Stacks(self.store, self.queues, self._incarnations.identity, tasks.start).ask,
            self._reconnect,
        )
        self.services = Services(server)

    @property
    def identity(self) -> str:
        """The current identity."""
        return self._incarnations.identity()

    async def register(self, work: Plan, stop: asyncio.Event, fail_fast: bool) -> bool:
        """As ``Services.register``, for the queues of a plan."""
        self.plan = work
        self.services.lease.serve(work.queues)
        with self._tasks.named():
            return await self.services.register(stop, fail_fast)

    async def start(self, work: Plan, spawner: Spawner) -> None:
        """Start the managers of the first plan, and the services."""
        self.started = True
        with self._tasks.named():
            self._apply(work, spawner)
            self.services.start(self._tasks)
            self._follow_primary()
            if self._is_quiet:
                await self._quiet_all()

    def configure(self, config: Config) -> None:
        """Use another configuration: its log now, the rest for the next plan."""
        self._config = config
        self._incarnations.log_as(config.log)

    async def use(self, work: Plan, spawner: Spawner) -> None:
        """Move to another plan and generation."""
        if not self.started:
            self.plan = work
            return
        with self._tasks.named():
            self._apply(work, spawner)
            if self._is_quiet:
                await self._quiet_all()
        self.services.heartbeat.nudge()

    def _apply(self, work: Plan, spawner: Spawner) -> None:
        """Make the managers match a plan and the code that was loaded last."""
        self.plan = work
        self.services.cron.use(work.cron, client_middleware=work.manifest.get("client_middleware", False))
        self.services.lease.serve(work.queues)
        self.services.changes.idle.serve(len(work.queues))
        ordered = self.queues.ordered
        self.queues.apply(work.groups, spawner, self._rules(), self.services.remote.paused)
        if self.queues.ordered != ordered:
            self.services.follow_queues()

    async def moves_to(self, redis: RedisConfig) -> bool:
        """Use another Redis from now on, if it has the same data."""
        with self._tasks.named():
            try:
                here, there = await self.store.arun(data()), await data_at(redis)
            except PyworkersError as error:
                log.warning("redis.not_compared", error=error.message)
                return False
            if not (there.is_primary and there.follows(here)):
                return False
            self._config = replace(self._config, redis=redis)
            await self._leave_for(redis)
            self._follow_primary()
            return True

    def _follow_primary(self) -> None:
        """Notice when another Redis becomes the primary, as far as the URL allows that."""
        if self._following is not None:
            self._following.cancel()
        tasks, redis = self._tasks, self._config.redis
        if is_directory(redis.url):
            self._following = tasks.start(self.store.watch_primary(_log_failover), "primary")
        elif host := name_in(redis.url):
            health = self.health.of(Moves.name)
            moves = Moves(self.store, redis, host, health, lambda: self._leave_for(redis))
            self._following = tasks.start(moves.run(), Moves.name)

    async def _leave_for(self, redis: RedisConfig) -> None:
        await self.services.changes.connect_to(redis)
        await self._connect_to(redis)

    async def _reconnect(self) -> None:
        """Open the connections of the store and the queues again, unless they follow the primary."""
        if not is_directory(self._config.redis.url):
            await self._connect_to(self._config.redis)

    async def _connect_to(self, redis: RedisConfig) -> None:
        _log_failover()
        await self.queues.connect_to(redis)
        await self.store.connect_to(redis)

    def _rules(self) -> Rules:
        return Rules(self.plan.manifest, self._config.retry.max, time.time, self._common.rng)

    def _make_manager(self, group: Group, spawner: Spawner) -> Manager:
        cancelled = CancelledJobs(self.queues.cancellations)
        gates = Gates(cancelled, self.services.suspects, self.services.asks, self._common.one)
        shared = Shared(
            self._config,
            self.health.of_queue,
            gates,
            self._common.reserved,
            self.services.changes.idle,
            GroupCallbacks(
                self.services.settled,
                self.services.counters.interrupted,
                self._incarnations.lost,
                self.services.recovery.saw_lease,
                self._incarnations.may_fetch,
            ),
            self._common.rng,
        )
        inprogress = InProgress(self.store.keys, list(group.queues), self._incarnations.identity())
        return Manager(group, inprogress, spawner, self._rules(), shared)

    def _manager_stopped(self, manager: Manager) -> None:
        for queue in manager.queues:
            self.health.forget_queue(queue)

    def facts(self) -> Facts:
        """The facts about this server that Sidekiq's Web UI shows."""
        common = self._common
        return Facts(
            self._incarnations.identity(),
            self.plan.groups,
            self.queues.running(),
            self._is_quiet or common.stop.is_set(),
            [os.getpid(), common.generations.current.process.pid, *common.pids()],
            self.plan.classes,
            self.queues.workers(),
            self.queues.restarts(),
            self.queues.failing(),
            self.plan.features,
            self._stops_at,
            self.plan.signatures,
        )

    def _make_slots(self, queue: str, request: bytes) -> asyncio.Future[bytes] | None:
        """Have a worker make the jobs of cron slots, if possible one of this shard."""
        return self.queues.make_slots(queue, request) or self._common.make_slots(queue, request)

    def _lease_lost(self, earlier: Incarnation) -> None:
        """A peer runs our jobs: kill the workers that run them, and continue under the new identity."""
        identity = self._incarnations.identity()
        # Before the managers move, because they start new workers.
        if self._leads:
            self._common.generations.identify(identity)
        self.queues.move_to(identity)
        self.services.begin_anew()
        self.queues.clear_out(earlier.identity)

    async def warn_of_dangers(self) -> None:
        """Log unsafe Redis settings, each with its fix; if Redis refuses to show them, that is no error."""
        with self._tasks.named():
            await self._inspect()

    async def _inspect(self) -> None:
        store = self.store
        try:
            with shortages_translated():
                redis_cli, followed = await store.redis_cli(), is_directory(self._config.redis.url)
                findings = await store.arun(inspect(redis_cli, time.time, followed=followed))
                missing = await store.arun(lacks(store.keys.namespace))
                findings += judge_password(await store.readable_on_the_way())
                findings += judge_files(self._config.redis)
        except PyworkersError as error:
            log.debug("redis.not_inspected", error=error.message)
            return
        for finding in findings:
            log.warning("redis.unsafe", finding=finding.code, message=finding.message, fix=finding.fix)
        for finding in missing:
            log.warning("redis.lacks", finding=finding.code, message=finding.message, fix=finding.fix)

    # Stop

    def stop_by(self, at: float) -> None:
        """Show that the server stops, and when at the latest, in epoch seconds."""
        self._stops_at = at
        self.services.heartbeat.nudge()

    def quiet(self) -> None:
        """Fetch no more jobs until the end of the server; running jobs continue."""
        self._is_quiet = True
        self._tasks.start(self._quiet_all(), "quiet")

    async def _quiet_all(self) -> None:
        await self.queues.quiet()
        self.services.heartbeat.nudge()

    async def stop(self, deadline: float) -> list[BaseException]:
        """Stop all managers until ``deadline`` (loop time). Returns the errors of those that could not."""
        stops = [manager.stop(deadline) for manager in self.queues.serving.values()]
        with self._tasks.named():
            results = await asyncio.gather(*stops, return_exceptions=True)
        return [result for result in results if isinstance(result, BaseException)]

    async def sign_off(self) -> None:
        """Write the last counters, and deregister, after the stop of all managers."""
        if self.started:
            with self._tasks.named():
                await self.services.sign_off()

    async def close(self) -> None:
        """Close the connections."""
        await self.services.close()
        await self.store.close()


def _log_failover() -> None:
    log.warning("redis.failover")
