"""Workload: the code and the configuration of one server, and its shard, which runs the jobs of a plan.

Runs in the master's event loop. It neither starts nor stops by itself: the master decides when.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pyworkers import logs
from pyworkers.config.fields import Config, RedisConfig
from pyworkers.config.groups import Only
from pyworkers.config.reloading import Configurations
from pyworkers.errors import PyworkersError
from pyworkers.ipc.control import Loaded
from pyworkers.server.generations.generations import GenerationCallbacks, Generations
from pyworkers.server.generations.launch import Launched
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.moves import data_at
from pyworkers.server.plan import NOTHING, Plan, plan
from pyworkers.server.pool.cpus import ReservedCpu
from pyworkers.server.pool.gates import OneJob
from pyworkers.server.proc import affinity, cores, used_s
from pyworkers.server.shard import Common, Control, Shard
from pyworkers.store.preflight import LEFT_OPEN, judge_jobs
from pyworkers.store.replication import data

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Origin:
    """The first fork server, and the function that launches others, with a configuration and an identity.

    ``identity`` is the server's first one.
    """

    identity: str
    first: Launched
    launch: Callable[[Config, str], Launched]


class Workload:
    """Makes the fork servers and the shard of one server, and keeps to its plan."""

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
        self.plan = NOTHING
        self._configurations = configurations
        self._only = only
        self._control = control
        self.one = OneJob(self._fetch_no_more) if once else None
        """What lets one job start; None for a server that runs all."""
        self.generations = Generations(
            origin.first,
            lambda: origin.launch(configurations.load(), self.shard.identity),
            GenerationCallbacks(self._install, control.tasks.start),
        )
        reserved = ReservedCpu(affinity(), used_s)
        common = Common(control, self.generations, reserved, random.Random(), self.one)
        self.shard = Shard(configurations.current, origin.identity, common)

    @property
    def _config(self) -> Config:
        return self._configurations.current

    def planned(self, loaded: Loaded) -> Plan:
        """The plan for a load, by the configuration that it began with. Raises ConfigError."""
        found = plan(loaded.manifest, self._configurations.loading, self._only, cores())
        return found if self.one is None else found.single()

    async def start(self, loaded: Loaded, work: Plan) -> None:
        """Start the managers of the first plan, and the services."""
        self._look_at(loaded, work)
        self._control.tasks.start(self.generations.run(), "reaper")
        await self.shard.start(work, self.generations.current)
        self.generations.ready()

    def _look_at(self, loaded: Loaded, work: Plan) -> None:
        """Take over a plan, and log what an application does that a server cannot have."""
        self.plan = work
        if loaded.threads:
            log.warning("app.threads", threads=loaded.threads, hint="they do not exist in workers")
        if loaded.opened:
            log.warning("app.left_open", opened=loaded.opened, hint=LEFT_OPEN)
        for finding in judge_jobs(loaded.elsewhere, asdict(self._config.redis), self._config.path):
            log.warning("app.other_redis", message=finding.message, fix=finding.fix)

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
            here, there = await self.shard.store.arun(data()), await data_at(other)
        except PyworkersError as error:
            log.warning("redis.not_compared", error=error.message)
        else:
            if there.is_primary and there.follows(here):
                self._configurations.move_to(other)
                await self.shard.connect_to(other)
                ignored = [key for key in ignored if not key.startswith("redis.")]
        self._load_again(ignored)

    def _load_again(self, ignored: list[str]) -> None:
        if ignored:
            log.warning("reload.incomplete", keys=ignored, hint="restart the server to change these")
        self.generations.reload()

    async def _install(self, spawner: Spawner, loaded: Loaded) -> None:
        """Move all queues to a generation, and to the configuration that it has. Raises ConfigError."""
        work = self.planned(loaded)
        queues = self.shard.queues
        queues.stop_dropped(work.groups)
        # A queue that was dropped and is back, or is in another group now, may have its earlier manager yet.
        await queues.stopped(work.queues)
        self._configurations.use(self._configurations.loading)
        self.shard.configure(self._config)
        self._look_at(loaded, work)
        await self.shard.use(work, spawner)
        log.info("reload.done", queues={name: group.concurrency for name, group in work.groups.items()})

    def stop_within(self, seconds: float) -> None:
        """Show that the server stops, and when at the latest."""
        self.shard.stop_by(time.time() + seconds)

    def quiet(self) -> None:
        """Fetch no more jobs until the end of the server; running jobs continue."""
        log.info("server.quiet")
        self.shard.quiet()

    def _fetch_no_more(self) -> None:
        self._control.tasks.start(self.shard.queues.fetch_no_more(), "quiet")
