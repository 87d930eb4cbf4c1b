"""Workload: the queues that one server works on, the code and configuration that they have, and its services.

Runs in the master's event loop. It neither starts nor stops by itself: the master decides when.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from pyworkers import logs
from pyworkers.config.fields import Config, RedisConfig
from pyworkers.config.groups import Only
from pyworkers.config.reloading import Configurations
from pyworkers.errors import PyworkersError
from pyworkers.ipc.control import Loaded
from pyworkers.protocol.keys import Keys
from pyworkers.server.fetching.fetcher import GroupCallbacks
from pyworkers.server.generations.generations import GenerationCallbacks, Generations
from pyworkers.server.generations.launch import Launched
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import ServerHealth
from pyworkers.server.heartbeat.facts import Facts
from pyworkers.server.incarnation import Incarnation, Incarnations
from pyworkers.server.manager import Manager, Shared
from pyworkers.server.moves import Moves, data_at, name_in
from pyworkers.server.parts import Tasks
from pyworkers.server.plan import NOTHING, Group, Plan, plan
from pyworkers.server.pool.cpus import ReservedCpu
from pyworkers.server.pool.gates import CancelledJobs, Gates, OneJob
from pyworkers.server.pool.settling import Rules
from pyworkers.server.proc import affinity, cores, used_s
from pyworkers.server.queues import Queues
from pyworkers.server.services import ServerParts, Services
from pyworkers.store.jobs import InProgress
from pyworkers.store.preflight import LEFT_OPEN, judge_jobs
from pyworkers.store.replication import data
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import connect_async, has_sentinels

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Origin:
    """The first fork server, and the function that launches others, with a configuration and an identity.

    ``identity`` is the server's first one.
    """

    identity: str
    first: Launched
    launch: Callable[[Config, str], Launched]


@dataclass(frozen=True, slots=True)
class Control:
    """The tasks of the server, the event of its stop, and the signals that may come through Redis."""

    tasks: Tasks
    stop: asyncio.Event
    words: Mapping[str, Callable[[], None]]


class Workload:
    """Makes the managers, fork servers and services of one server, and keeps to its plan."""

    def __init__(
        self,
        configurations: Configurations,
        only: Only,
        origin: Origin,
        control: Control,
        *,
        once: bool = False,
    ) -> None:
        """``once``: run one job."""
        config = configurations.current
        self.plan = NOTHING
        self.is_quiet = False
        self._stops_at: float | None = None
        self._following: asyncio.Task[None] | None = None
        self._configurations = configurations
        self._only = only
        self._control = control
        self._rng = random.Random()
        self.one = OneJob(self._fetch_no_more) if once else None
        """What lets one job start; None for a server that runs all."""
        self._reserved = ReservedCpu(affinity(), used_s)
        self.health = ServerHealth(time.monotonic, self._rng)
        self.store = Store(connect_async(config.redis), Keys(config.redis.namespace))
        self._incarnations = Incarnations(origin.identity, config.log, self._lease_lost)
        self.queues = Queues(
            self._make_manager, control.tasks, config.server.shutdown_timeout, self._manager_stopped
        )
        self.generations = Generations(
            origin.first,
            lambda: origin.launch(configurations.load(), self._incarnations.identity()),
            GenerationCallbacks(self._install, control.tasks.start),
        )
        server = ServerParts(
            config, self.store, self._incarnations, self.health, self.queues, self.facts, control.words
        )
        self.services = Services(server)

    @property
    def identity(self) -> str:
        """The current identity."""
        return self._incarnations.identity()

    @property
    def _config(self) -> Config:
        return self._configurations.current

    def planned(self, loaded: Loaded) -> Plan:
        """The plan for a load, by the configuration that it began with. Raises ConfigError."""
        found = plan(loaded.manifest, self._configurations.loading, self._only, cores())
        return found if self.one is None else found.single()

    async def start(self, loaded: Loaded, work: Plan) -> None:
        """Start the managers of the first plan, and the services."""
        self._apply(self.generations.current, loaded, work)
        tasks = self._control.tasks
        self.services.start(tasks)
        tasks.start(self.generations.run(), "reaper")
        self._follow_primary()
        if self.is_quiet:
            await self._quiet_all()
        self.generations.ready()

    def _follow_primary(self) -> None:
        """Notice when another Redis becomes the primary, as far as the URL allows that."""
        if self._following is not None:
            self._following.cancel()
        tasks, config = self._control.tasks, self._config.redis
        if has_sentinels(config):
            self._following = tasks.start(self.store.watch_primary(_log_failover), "primary")
        elif host := name_in(config.url):
            health = self.health.of(Moves.name)
            moves = Moves(self.store, config, host, health, lambda: self._connect_to(config))
            self._following = tasks.start(moves.run(), Moves.name)

    async def _connect_to(self, config: RedisConfig) -> None:
        _log_failover()
        await self.services.changes.connect_to(config)
        await self.queues.connect_to(config)
        await self.store.connect_to(config)

    def _apply(self, spawner: Spawner, loaded: Loaded, work: Plan) -> None:
        """Make the managers match the plan and the code that was loaded last."""
        self.plan = work
        self.services.cron.use(work.cron, client_middleware=work.manifest.get("client_middleware", False))
        if loaded.threads:
            log.warning("app.threads", threads=loaded.threads, hint="they do not exist in workers")
        if loaded.opened:
            log.warning("app.left_open", opened=loaded.opened, hint=LEFT_OPEN)
        for finding in judge_jobs(loaded.elsewhere, asdict(self._config.redis), self._config.path):
            log.warning("app.other_redis", message=finding.message, fix=finding.fix)
        self.services.lease.serve(work.queues)
        ordered = self.queues.ordered
        self.queues.apply(work.groups, spawner, self._rules(), self.services.remote.paused)
        if self.queues.ordered != ordered:
            self.services.follow_queues()

    def _rules(self) -> Rules:
        return Rules(self.plan.manifest, self._config.retry.max, time.time, self._rng)

    def _make_manager(self, group: Group, spawner: Spawner) -> Manager:
        cancelled = CancelledJobs(self.queues.cancellations)
        gates = Gates(cancelled, self.services.suspects, self.services.asks, self.one)
        shared = Shared(
            self._config,
            self.health.of_queue,
            gates,
            self._reserved,
            GroupCallbacks(
                self.services.settled,
                self.services.counters.interrupted,
                self._incarnations.lost,
                self.services.recovery.saw_lease,
                self._incarnations.may_fetch,
            ),
            self._rng,
        )
        inprogress = InProgress(self.store.keys, list(group.queues), self._incarnations.identity())
        return Manager(group, inprogress, spawner, self._rules(), shared)

    def _manager_stopped(self, manager: Manager) -> None:
        self.services.counters.interrupted(manager.given_back)
        for queue in manager.queues:
            self.health.forget_queue(queue)

    def facts(self) -> Facts:
        """The facts about this server that Sidekiq's Web UI shows."""
        return Facts(
            self._incarnations.identity(),
            self.plan.groups,
            self.queues.running(),
            self.is_quiet or self._control.stop.is_set(),
            [os.getpid(), self.generations.current.process.pid, *self.queues.pids()],
            self.plan.classes,
            self.queues.workers,
            self.queues.restarts,
            self.queues.failing,
            self.plan.features,
            self._stops_at,
        )

    def _lease_lost(self, earlier: Incarnation) -> None:
        """A peer runs our jobs: kill the workers that run them, and continue under the new identity."""
        identity = self._incarnations.identity()
        # Before the managers move, because they start new workers.
        self.generations.identify(identity)
        self.queues.move_to(identity)
        self.services.begin_anew()
        self.queues.clear_out(earlier.identity)

    def reload(self) -> None:
        """Read the configuration and load the application again; after an error, both remain."""
        try:
            ignored = self._configurations.read_again()
        except PyworkersError as error:
            log.error("reload.failed", error=str(error), hint="the old code and configuration continue")
            return
        if (other := self._configurations.offered) is None:
            self._load_again(ignored)
        else:
            self._control.tasks.start(self._move_and_load_again(other, ignored), "move")

    async def _move_and_load_again(self, other: RedisConfig, ignored: list[str]) -> None:
        """Use another Redis if it has the same data, and load the application again."""
        try:
            here, there = await self.store.arun(data()), await data_at(other)
        except PyworkersError as error:
            log.warning("redis.not_compared", error=error.message)
        else:
            if there.is_primary and there.follows(here):
                self._configurations.move_to(other)
                await self._connect_to(other)
                self._follow_primary()
                ignored = [key for key in ignored if not key.startswith("redis.")]
        self._load_again(ignored)

    def _load_again(self, ignored: list[str]) -> None:
        if ignored:
            log.warning("reload.incomplete", keys=ignored, hint="restart the server to change these")
        self.generations.reload()

    async def _install(self, spawner: Spawner, loaded: Loaded) -> None:
        """Move all queues to a generation, and to the configuration that it has. Raises ConfigError."""
        work = self.planned(loaded)
        self.queues.stop_dropped(work.groups)
        # A queue that was dropped and is back, or is in another group now, may have its earlier manager yet.
        await self.queues.stopped(work.queues)
        self._configurations.use(self._configurations.loading)
        self._incarnations.log_as(self._config.log)
        self._apply(spawner, loaded, work)
        if self.is_quiet:
            await self._quiet_all()
        self.services.heartbeat.nudge()
        log.info("reload.done", queues={name: group.concurrency for name, group in work.groups.items()})

    def stop_within(self, seconds: float) -> None:
        """Show that the server stops, and when at the latest."""
        self._stops_at = time.time() + seconds
        self.services.heartbeat.nudge()

    def quiet(self) -> None:
        """Fetch no more jobs until the end of the server; running jobs continue."""
        self.is_quiet = True
        log.info("server.quiet")
        self._control.tasks.start(self._quiet_all(), "quiet")

    def _fetch_no_more(self) -> None:
        self._control.tasks.start(self.queues.fetch_no_more(), "quiet")

    async def _quiet_all(self) -> None:
        await self.queues.quiet()
        self.services.heartbeat.nudge()


def _log_failover() -> None:
    log.warning("redis.failover")
