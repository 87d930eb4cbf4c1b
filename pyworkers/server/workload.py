"""Workload: the code and the configuration of one server, and its shards, which run the jobs of a plan.

Runs in the master's event loop. It neither starts nor stops by itself: the master decides when.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.config.groups import Only
from pyworkers.config.reloading import Configurations
from pyworkers.config.stores import DEFAULT, Stores
from pyworkers.errors import PyworkersError, RedisUnavailableError
from pyworkers.ipc.control import Loaded
from pyworkers.server.generations.generations import Generations
from pyworkers.server.generations.launch import Launched
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import Health, ServerHealth
from pyworkers.server.manager import Manager
from pyworkers.server.parts import Tasks
from pyworkers.server.plan import NOTHING, Plan, plan
from pyworkers.server.pool.cpus import ReservedCpu
from pyworkers.server.pool.gates import OneJob
from pyworkers.server.proc import Memory, affinity, cores, used_s
from pyworkers.server.running import Running
from pyworkers.server.shard import Common, Shard
from pyworkers.server.waiting import cancel, ended, now
from pyworkers.store.preflight import LEFT_OPEN, judge_jobs

# At the start, once one Redis has registered this server, for those that have not answered yet.
_TOGETHER_S = 1.0
# For the jobs that still arrive in the lists of an earlier incarnation, at a stop.
_GOODBYE_S = 3.0

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
    """Makes the fork servers and the shards of one server, and keeps to its plan.

    Each Redis of the configuration has a shard, also one without a queue of this server: its scheduled jobs
    and its cron slots wait for any server.
    """

    def __init__(
        self,
        configurations: Configurations,
        only: Only,
        origin: Origin,
        control: Control,
        *,
        once: bool,
    ) -> None:
        """``once``: run one job."""
        self.plan = NOTHING
        self._late: frozenset[str] = frozenset()
        """The Redis servers that were away when this server started."""
        self._found, self._is_started = asyncio.Event(), asyncio.Event()
        self._configurations = configurations
        self._only = only
        self._control = control
        rng = random.Random()
        self.one = OneJob(self._fetch_no_more) if once else None
        """What lets one job start; None for a server that runs all."""
        self.generations = Generations(
            origin.first,
            lambda: origin.launch(configurations.load(), self.shards[DEFAULT].identity),
            self._install,
            control.tasks.start,
        )
        self._health = ServerHealth(time.monotonic, rng)
        self.memory = Memory(time.monotonic, self.health_of("memory"))
        common = Common(
            control.stop,
            control.words,
            self.generations,
            ReservedCpu(affinity(), used_s),
            rng,
            self.one,
            self.memory,
            self._pids,
            self._make_slots,
        )
        self.shards = {
            name: Shard(
                self._config_at(name), origin.identity, common, self._tasks_at(name), leads=name == DEFAULT
            )
            for name in self._stores.by_name
        }

    @property
    def _config(self) -> Config:
        return self._configurations.current

    @property
    def _stores(self) -> Stores:
        return Stores.of(self._config)

    def _config_at(self, redis: str) -> Config:
        """The configuration of one shard."""
        return replace(self._config, redis=self._stores.by_name[redis])

    def _tasks_at(self, redis: str) -> Tasks:
        tasks = self._control.tasks
        return tasks.at(redis) if self._stores.several else tasks

    def _part(self, redis: str) -> Plan:
        """The part of the plan that is at one Redis."""
        return self.plan.at(self._stores, redis)

    def planned(self, loaded: Loaded) -> Plan:
        """The plan for a load, by the configuration that it began with. Raises ConfigError."""
        found = plan(loaded.manifest, self._configurations.loading, self._only, cores())
        return found if self.one is None else found.single()

    # What the parts of all shards say

    def health_of(self, part: str) -> Health:
        """The health of a part of the server that is in no shard."""
        return self._health.of(part)

    @property
    def redis_down(self) -> bool:
        """True while a Redis is unreachable for any part."""
        return any(health.is_down for health in self._healths())

    @property
    def troubles(self) -> dict[str, list[str]]:
        """The codes of the present troubles, by part."""
        found = dict(self._health.troubles)
        for name, shard in self.shards.items():
            where = f" at {name}" if self._stores.several else ""
            found |= {f"{part}{where}": codes for part, codes in shard.health.troubles.items()}
        return found

    def _healths(self) -> list[ServerHealth]:
        return [self._health, *(shard.health for shard in self.shards.values())]

    def managers(self) -> list[Manager]:
        """All managers that may have workers."""
        return [manager for shard in self.shards.values() for manager in shard.queues.everyone()]

    def running(self) -> list[Running]:
        """All jobs that workers run."""
        return [job for shard in self.shards.values() for job in shard.queues.running()]

    def _pids(self) -> list[int]:
        return [pid for shard in self.shards.values() for pid in shard.queues.pids()]

    def _make_slots(self, queue: str, request: bytes) -> asyncio.Future[bytes] | None:
        for shard in self.shards.values():
            if (answer := shard.queues.make_slots(queue, request)) is not None:
                return answer
        return None

    async def all_started(self) -> None:
        """Wait until all workers have started. Raises PyworkersError if the workers of a group fail to."""
        for shard in self.shards.values():
            await shard.queues.all_started()

    # Start

    async def register(self, work: Plan, *, fail_fast: bool, one_at_least: bool) -> bool:
        """Wait until Redis has registered this server: peers must know a server before it fetches.

        Of several Redis servers one is enough: the queues of another one follow once it is there. False if
        the server is stopped meanwhile. With ``fail_fast``, raises RedisUnavailableError at the first
        failure; with ``one_at_least``, if no Redis is there.
        """
        self.plan = work
        if not self._stores.several:
            only = self.shards[DEFAULT]
            return await only.register(work, self._control.stop, fail_fast or one_at_least)
        errors = await self._try_all()
        if errors and (fail_fast or (one_at_least and len(errors) == len(self.shards))):
            raise next(iter(errors.values()))
        self._late = frozenset(errors)
        for name in errors:
            self._control.tasks.start(self._start_later(name), f"start at {name}")
        if len(errors) == len(self.shards):
            stopped = asyncio.create_task(self._control.stop.wait())
            found = asyncio.create_task(self._found.wait())
            await asyncio.wait([stopped, found], return_when=asyncio.FIRST_COMPLETED)
            await cancel([stopped, found])
        return not self._control.stop.is_set()

    async def _try_all(self) -> dict[str, BaseException]:
        """Register this server once at each Redis. Returns the errors of those where that fails.

        Once one has succeeded, the others have a second.
        """
        stop = self._control.stop
        tries = {
            name: asyncio.create_task(shard.register(self._part(name), stop, True))
            for name, shard in self.shards.items()
        }
        pending = set(tries.values())
        while pending and not any(task.done() and task.exception() is None for task in tries.values()):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        await ended(pending, _TOGETHER_S)
        await cancel(pending)
        slow = RedisUnavailableError("Redis has not answered in time")
        errors = {name: slow if task.cancelled() else task.exception() for name, task in tries.items()}
        return {name: error for name, error in errors.items() if error is not None}

    async def _start_later(self, name: str) -> None:
        """Wait until a Redis that was away at the start has registered this server; then work there."""
        shard = self.shards[name]
        if await shard.register(self._part(name), self._control.stop, fail_fast=False):
            self._found.set()
            await self._is_started.wait()
            if not self._control.stop.is_set():
                await shard.start(self._part(name), self.generations.current)

    async def start(self, loaded: Loaded) -> None:
        """Start the managers of the first plan, and the services."""
        self._look_at(loaded, self.plan)
        self._control.tasks.start(self.generations.run(), "reaper")
        for name, shard in self.shards.items():
            if name not in self._late:
                await shard.start(self._part(name), self.generations.current)
        self.generations.ready()
        self._is_started.set()

    def _look_at(self, loaded: Loaded, work: Plan) -> None:
        """Note the plan of a load, and log what an application does that a server cannot have."""
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
        if self._configurations.offered:
            self._control.tasks.start(self._move_and_load_again(ignored), "move")
        else:
            self._load_again(ignored)

    async def _move_and_load_again(self, ignored: list[str]) -> None:
        """Use other Redis servers as far as they have the same data, and load the application again."""
        for name, other in self._configurations.offered.items():
            if await self.shards[name].moves_to(other):
                ignored = self._configurations.move_to(name, other, ignored)
        self._load_again(ignored)

    def _load_again(self, ignored: list[str]) -> None:
        if ignored:
            log.warning("reload.incomplete", keys=ignored, hint="restart the server to change these")
        self.generations.reload()

    async def _install(self, spawner: Spawner, loaded: Loaded) -> None:
        """Move all queues to a generation, and to the configuration that it has. Raises ConfigError."""
        work = self.planned(loaded)
        stores = Stores.of(self._configurations.loading)
        for name, shard in self.shards.items():
            shard.queues.stop_dropped(work.at(stores, name).groups)
        # A queue that was dropped and is back, or is in another group now, may have its earlier manager yet.
        for shard in self.shards.values():
            await shard.queues.stopped(work.queues)
        self._configurations.use(self._configurations.loading)
        for name, shard in self.shards.items():
            shard.configure(self._config_at(name))
        self._look_at(loaded, work)
        for name, shard in self.shards.items():
            await shard.use(self._part(name), spawner)
        log.info("reload.done", queues={name: group.concurrency for name, group in work.groups.items()})

    # Stop

    def stop_within(self, seconds: float) -> None:
        """Show that the server stops, and when at the latest."""
        at = time.time() + seconds
        for shard in self.shards.values():
            shard.stop_by(at)

    async def stop(self, deadline: float, *others: Awaitable[None]) -> list[BaseException]:
        """Stop all managers until ``deadline`` (loop time), and do what else a stop does meanwhile.

        Returns the errors.
        """
        shards = self.shards.values()
        await asyncio.gather(*(shard.queues.cleared_out(_GOODBYE_S) for shard in shards))
        stops = (shard.stop(deadline) for shard in shards)
        done = await asyncio.gather(*others, *stops, return_exceptions=True)
        await asyncio.gather(*(shard.queues.stopped(timeout_s=deadline - now()) for shard in shards))
        found = chain.from_iterable(result if isinstance(result, list) else [result] for result in done)
        return [error for error in found if isinstance(error, BaseException)]

    async def sign_off(self) -> None:
        """Write the last counters, and deregister, after the stop of all managers."""
        await asyncio.gather(*(shard.sign_off() for shard in self.shards.values()))

    async def close(self) -> None:
        """Close the connections."""
        for shard in self.shards.values():
            await shard.close()

    def quiet(self) -> None:
        """Fetch no more jobs until the end of the server; running jobs continue."""
        log.info("server.quiet")
        for shard in self.shards.values():
            shard.quiet()

    def _fetch_no_more(self) -> None:
        for shard in self.shards.values():
            self._control.tasks.start(shard.queues.fetch_no_more(), "quiet")
