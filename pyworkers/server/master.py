"""Master: owns all parts of one server; starts, reloads and stops them together.

One thread, one event loop, no user code: it never imports the application.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.config.groups import Only
from pyworkers.config.reloading import Configurations
from pyworkers.errors import PyworkersError
from pyworkers.ipc.control import Loaded
from pyworkers.protocol.keys import Keys
from pyworkers.server.fetching.fetcher import Listeners
from pyworkers.server.generations.generations import Callbacks, Generations
from pyworkers.server.generations.launch import Launched
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import ServerHealth
from pyworkers.server.heartbeat import Facts
from pyworkers.server.http.opening import endpoint
from pyworkers.server.http.pages import Sources
from pyworkers.server.incarnation import SIGNALS, Incarnation, Incarnations
from pyworkers.server.manager import Manager
from pyworkers.server.parts import Tasks
from pyworkers.server.plan import NOTHING, Group, Plan, plan
from pyworkers.server.pool.losses import Losses
from pyworkers.server.proc import cores
from pyworkers.server.queues import Queues
from pyworkers.server.services import Server, Services
from pyworkers.server.waiting import now, on_callback_failure
from pyworkers.store.jobs import InProgress
from pyworkers.store.preflight import inspect
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import connect_async, has_sentinels
from pyworkers.store.transport.sentinel import watch_primary

_GOODBYE_S = 3.0
_STACKS_APART_S = 0.02

log = logs.get_logger()


class Master:
    """One server, made in its event loop.

    ``first`` is its first fork server; ``launch`` launches others, with a configuration and an identity.

    ``only`` are the queues and groups of the command line.
    """

    def __init__(
        self,
        configurations: Configurations,
        identity: str,
        first: Launched,
        launch: Callable[[Config, str], Launched],
        only: Only,
        fail_fast: bool = False,
    ) -> None:
        config = configurations.current
        self._configurations = configurations
        self._only = only
        self._fail_fast = fail_fast
        self._rng = random.Random()
        self._health = ServerHealth(time.monotonic, self._rng)
        self._plan = NOTHING
        self._tasks = Tasks(self._fail)
        self._stop = asyncio.Event()
        self._quiet = False
        self._failure: BaseException | None = None
        self._store = Store(connect_async(config.redis), Keys(config.redis.namespace))
        self._incarnations = Incarnations(identity, config.log, self._lease_lost)
        self._queues = Queues(self._make_manager, self._tasks, config.server.shutdown_timeout, self._parted)
        self._generations = Generations(
            first,
            lambda: launch(configurations.load(), self._incarnations.identity()),
            Callbacks(self._install, self._tasks.start),
        )
        words = {"TSTP": self.quiet, "TERM": self.stop, "TTIN": self.dump}
        server = Server(
            config, self._store, self._incarnations, self._health, self._queues, self._facts, words
        )
        self._services = Services(server)

    async def run(self) -> None:
        """Run the server until it is stopped.

        Raises PyworkersError for an error that has an exit code of its own.
        """
        on_callback_failure(asyncio.get_running_loop(), self._fail)
        self._listen_to_signals()
        try:
            self._open_endpoint()
            loaded = await self._generations.first_load(self._stop)
            if loaded is None:
                return
            work = self._planned(loaded)
            self._services.serve(work.queues)
            if not await self._services.register(self._stop, self._fail_fast):
                return
            self._apply(self._generations.current, loaded, work)
            self._start_parts()
            if self._quiet:
                await self._quiet_all()
            self._generations.ready()
            log.info("server.started", import_ms=loaded.import_ms)
            await self._warn_of_dangers()
            await self._stop.wait()
            await self._shut_down()
        finally:
            await self._tear_down()
        if self._failure is not None:
            raise self._failure

    # Start

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number, react in (
            (signal.SIGTERM, self.stop),
            (signal.SIGINT, self.stop),
            (signal.SIGTSTP, self.quiet),
            (signal.SIGTTIN, self.dump),
            (signal.SIGHUP, self.reload),
        ):
            loop.add_signal_handler(number, react)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _open_endpoint(self) -> None:
        """Start the HTTP endpoint if the configuration has one. Raises ConfigError."""
        if bind := self._config.http.bind:
            managers = self._queues.serving
            sources = Sources(
                self._store,
                self._services.lease,
                self._services.counters,
                self._health,
                lambda: managers,
                self._facts,
                self._services.memory,
            )
            self._tasks.start(endpoint(bind, sources), "http")

    async def _warn_of_dangers(self) -> None:
        """Log unsafe Redis settings, each with its fix; if Redis refuses to show them, that is no error."""
        try:
            findings = await self._store.arun(inspect(await self._store.redis_cli(), time.time))
        except PyworkersError as error:
            log.debug("redis.not_inspected", error=error.message)
            return
        for finding in findings:
            log.warning("redis.unsafe", finding=finding.code, message=finding.message, fix=finding.fix)

    def _start_parts(self) -> None:
        self._services.start(self._tasks)
        self._tasks.start(self._generations.run(), "reaper")
        if has_sentinels(self._config.redis):
            self._tasks.start(watch_primary(self._config.redis, self._leave_primary), "primary")

    def _fail(self, part: str, error: BaseException) -> None:
        """Stop the server because a part has failed: the server's supervisor starts it again."""
        log.error("server.failed", part=part, exc_info=error)
        self._failure = self._failure or error
        self._stop.set()

    # Work

    @property
    def _config(self) -> Config:
        return self._configurations.current

    def _planned(self, loaded: Loaded) -> Plan:
        """The plan for a load, by the configuration that it began with. Raises ConfigError."""
        return plan(loaded.manifest, self._configurations.loading, self._only, cores())

    def _apply(self, spawner: Spawner, loaded: Loaded, work: Plan) -> None:
        """Make the managers match the plan and the code that was loaded last."""
        self._plan = work
        self._services.cron.use(work.cron)
        if loaded.threads:
            log.warning("app.threads", threads=loaded.threads, hint="they do not exist in workers")
        self._services.serve(work.queues)
        ordered = self._queues.ordered
        self._queues.apply(work.groups, spawner, self._losses(), self._services.remote.paused)
        if self._queues.ordered != ordered:
            self._services.follow_queues()

    def _losses(self) -> Losses:
        return Losses(self._plan.manifest, self._config.retry.max, time.time, self._rng)

    def _make_manager(self, group: Group, spawner: Spawner) -> Manager:
        return Manager(
            group,
            InProgress(self._store.keys, list(group.queues), self._incarnations.identity()),
            self._config,
            self._health.of_queue,
            spawner,
            self._losses(),
            self._queues.cancellations,
            self._services.suspects,
            self._services.asks,
            Listeners(self._services.settled, self._incarnations.lost),
            self._rng,
        )

    def _parted(self, manager: Manager) -> None:
        self._services.counters.interrupted(manager.given_back)
        for queue in manager.queues:
            self._health.forget_queue(queue)

    def _facts(self) -> Facts:
        """The facts about this server that Sidekiq's Web UI shows."""
        return Facts(
            self._incarnations.identity(),
            self._plan.groups,
            self._queues.running(),
            self._quiet or self._stop.is_set(),
            [os.getpid(), self._generations.current.process.pid, *self._queues.pids()],
        )

    def _leave_primary(self) -> None:
        self._services.changes.drop_connection()
        self._queues.leave_primary()

    def _lease_lost(self, earlier: Incarnation) -> None:
        """A peer runs our jobs: kill the workers that run them, and continue under the new identity."""
        identity = self._incarnations.identity()
        # Before the managers move, because they start new workers.
        self._generations.identify(identity)
        self._queues.move_to(identity)
        self._services.begin_anew()
        self._queues.clear_out(earlier.identity)

    # Reload

    def reload(self) -> None:
        """SIGHUP: read the configuration and load the application again; after an error, both remain."""
        try:
            ignored = self._configurations.read_again()
        except PyworkersError as error:
            log.error("reload.failed", error=str(error), hint="the old code and configuration continue")
            return
        if ignored:
            log.warning("reload.incomplete", keys=ignored, hint="restart the server to change these")
        self._generations.reload()

    async def _install(self, spawner: Spawner, loaded: Loaded) -> None:
        """Move all queues to a generation, and to the configuration that it has. Raises ConfigError."""
        work = self._planned(loaded)
        self._queues.part(work.groups)
        # A queue that was dropped and is back, or is in another group now, may have its earlier manager yet.
        await self._queues.parted(work.queues)
        self._configurations.use(self._configurations.loading)
        self._incarnations.log_as(self._config.log)
        self._apply(spawner, loaded, work)
        if self._quiet:
            await self._quiet_all()
        log.info("reload.done", queues={name: group.concurrency for name, group in work.groups.items()})

    # Signals

    def stop(self) -> None:
        """SIGTERM, SIGINT: stop; a second one changes nothing."""
        if not self._stop.is_set():
            log.info("server.stopping", timeout_s=self._config.server.shutdown_timeout)
        self._stop.set()

    def quiet(self) -> None:
        """SIGTSTP: fetch no more jobs until the end of the server; running jobs continue."""
        self._quiet = True
        log.info("server.quiet")
        self._tasks.start(self._quiet_all(), "quiet")

    async def _quiet_all(self) -> None:
        await self._queues.quiet()
        self._services.heartbeat.nudge()

    def dump(self) -> None:
        """SIGTTIN: log the state of the master; every worker writes its stacks to stderr."""
        managers = list(self._queues.everyone())
        for manager in managers:
            log.warning("server.state", **manager.describe())
        log.warning(
            "server.state",
            redis_down=self._health.is_down,
            troubles=self._health.troubles,
            tasks=self._tasks.describe(),
        )
        # Last: faulthandler writes stacks word by word, into the middle of a line that is logged meanwhile.
        for manager in managers:
            manager.pool.signal(signal.SIGTTIN, _STACKS_APART_S)

    # Stop

    async def _shut_down(self) -> None:
        self._services.heartbeat.nudge()
        deadline = now() + self._config.server.shutdown_timeout
        # Stop reloads first: a new manager would not be stopped.
        await self._generations.freeze()
        await self._queues.cleared_out(_GOODBYE_S)
        stops = [manager.stop(deadline) for manager in self._queues.serving.values()]
        results = await asyncio.gather(self._run_drain_hooks(deadline), *stops, return_exceptions=True)
        await self._queues.parted(timeout_s=deadline - now())
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            log.error("stop.failed", error=str(error), hint="a peer takes over when the lease expires")
            if not isinstance(error, PyworkersError):
                self._failure = self._failure or error
        interrupted = sum(manager.given_back for manager in self._queues.serving.values())
        self._services.counters.interrupted(interrupted)
        await self._services.sign_off()
        log.info("server.stopped")

    async def _run_drain_hooks(self, deadline: float) -> None:
        if self._plan.manifest["hooks"]["during_drain"]:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._generations.current.run_hooks("during_drain")

    async def _tear_down(self) -> None:
        await self._tasks.cancel()
        await self._generations.close()
        await self._services.close()
        await self._store.close()
