"""Master: owns everything of one server, from the first beat to the last.

One thread, one event loop, no user code: it never imports the application. Its parts are named for their
work; here is only how they start, reload, and stop together.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.ipc.control import Loaded
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import Fate, Report
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.changes import Changes
from pyworkers.server.cron import Cron
from pyworkers.server.generations.generations import Callbacks, Generations
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import ServerHealth
from pyworkers.server.heartbeat import Facts, Heartbeat
from pyworkers.server.http.opening import endpoint
from pyworkers.server.http.pages import Sources
from pyworkers.server.identity import SIGNALS, make_identity, set_up_logs
from pyworkers.server.lease import Lease
from pyworkers.server.manager import Manager
from pyworkers.server.plan import Plan, plan
from pyworkers.server.pool.losses import Losses
from pyworkers.server.proc import Memory
from pyworkers.server.queues import Queues
from pyworkers.server.recovery import Recovery
from pyworkers.server.remote import Orders
from pyworkers.server.scheduler import Scheduler
from pyworkers.server.waiting import cancel, now, on_callback_failure, pause, until
from pyworkers.store.changes import ChangesStore
from pyworkers.store.cron import CronStore
from pyworkers.store.inspection import inspect
from pyworkers.store.orders import OrdersStore
from pyworkers.store.presence import PresenceStore
from pyworkers.store.schedule import ScheduleStore
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import connect_async, has_sentinels
from pyworkers.store.transport.sentinel import watch_primary

# How often in-progress lists are compared with what the workers have: cheap, and a stray waits for two looks.
_ADOPT_S, _ADOPTIONS_PER_LEASE = 5.0, 6
_PARTING_S = 0.1
_GOODBYE_S = 3.0
_STACKS_APART_S = 0.02

log = logs.get_logger()


class Master:
    """One server. ``run`` returns when it has been told to stop."""

    def __init__(
        self,
        config: Config,
        identity: str,
        spawner: Spawner,
        make_spawner: Callable[[str], Spawner],
        only: Mapping[str, int | None],
        fail_fast: bool = False,
    ) -> None:
        self._config = config
        self._only = only
        self._fail_fast = fail_fast
        self._identity = identity
        self._rng = random.Random()
        self._health = ServerHealth(time.monotonic, self._rng)
        self._cancellations = Cancellations()
        self._managers = Queues()
        self._memory = Memory(time.monotonic)
        self._served: list[str] = []
        self._manifest: Mapping[str, Any] = {}
        self._queues: Mapping[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._quiet = False
        self._failure: BaseException | None = None
        self._generations = Generations(
            spawner,
            lambda: make_spawner(self._identity),
            Callbacks(self._install, self._start),
        )

    async def run(self) -> None:
        """Work until stopped. Raises PyworkersError for what ends the server with an exit code of its own."""
        on_callback_failure(asyncio.get_running_loop(), self._fail)
        self._set_up()
        self._listen_to_signals()
        try:
            self._open_endpoint()
            loaded = await self._generations.first_load(self._stop)
            if loaded is None:
                return
            work = plan(loaded.manifest, self._config, self._only)
            if not await self._register(list(work.queues)):
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

    def _set_up(self) -> None:
        redis, lease_s, health = self._config.redis, self._config.server.lease, self._health.of
        self._store = Store(connect_async(redis), Keys(redis.namespace), self._identity)
        self._scheduler = Scheduler(
            ScheduleStore(self._store.redis, self._store.keys),
            lambda: self._identity,
            self._health,
            self._config.scheduler.poll_interval,
            self._config.retry.drain_goretry,
        )
        cron_store = CronStore(self._store.redis, self._store.keys)
        self._cron = Cron(cron_store, lambda: self._identity, health("cron"), self._rng)
        self._lease = Lease(self._store, health("heartbeat"), lease_s, lambda: self._served, self._lease_lost)
        self._recovery = Recovery(self._store, health("recovery"), lease_s, self._lease.counters.interrupted)
        self._heartbeat = Heartbeat(
            PresenceStore(self._store.redis, self._store.keys, self._config.server.sidekiq6),
            health("presence"),
            self._facts,
            {"TSTP": self.quiet, "TERM": self.stop, "TTIN": self.dump},
            self._memory,
            self._lease.flush,
        )
        self._orders = Orders(
            OrdersStore(self._store.redis, self._store.keys),
            health("orders"),
            self._cancellations,
            self._managers.set_paused,
            self._managers.cancel_noted,
            self._managers.running,
        )
        self._changes = Changes(
            ChangesStore(redis, self._store.keys),
            health("changes"),
            lambda: self._start(self._managers.check_waits(), "waits"),
            [self._scheduler, self._orders, self._cron, self._heartbeat],
        )
        self._changes.follow(self._identity)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number, react in (
            (signal.SIGTERM, self.stop),
            (signal.SIGINT, self.stop),
            (signal.SIGTSTP, self.quiet),
            (signal.SIGTTIN, self.dump),
            (signal.SIGHUP, self._generations.reload),
        ):
            loop.add_signal_handler(number, react)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _open_endpoint(self) -> None:
        """Listen where the configuration says. Raises ConfigError."""
        if bind := self._config.http.bind:
            managers = self._managers.serving
            sources = Sources(
                self._store, self._lease, self._health, lambda: managers, self._facts, self._memory
            )
            self._start(endpoint(bind, sources), "http")

    async def _register(self, queues: list[str]) -> bool:
        """Wait for Redis to take the first beat: peers must know of an owner before it fetches.

        False when the server was told to stop meanwhile.
        """
        self._served = queues
        health = self._health.of("heartbeat")
        while not self._stop.is_set():
            try:
                await self._lease.beat()
                health.ok()
                with suppress(StoreError):
                    await self._changes.look(time.monotonic())
                    await self._orders.turn()
                return True
            except PyworkersError as error:
                if self._fail_fast:
                    raise RedisUnavailableError(error.message) from error
                await pause(self._stop, health.failed(error))
        return False

    async def _warn_of_dangers(self) -> None:
        """Log unsafe Redis settings, each with its fix; without the right to look, start all the same."""
        try:
            findings = await inspect(self._store.redis, time.time)
        except PyworkersError as error:
            log.debug("redis.not_inspected", error=error.message)
            return
        for finding in findings:
            log.warning("redis.unsafe", finding=finding.code, message=finding.message, fix=finding.fix)

    def _start_parts(self) -> None:
        self._start(self._lease.run(), "heartbeat")
        self._heartbeat_task = self._start(self._heartbeat.run(), "presence")
        self._start(self._changes.run(), "changes")
        self._start(self._orders.run(), "orders")
        self._start(self._scheduler.run(), "scheduler")
        self._start(self._recovery.run(), "recovery")
        self._start(self._cron.run(), "cron")
        pause_s = min(_ADOPT_S, self._config.server.lease / _ADOPTIONS_PER_LEASE)
        strays = self._managers.adopt_strays(self._store.hold_any, self._health.of("strays"), pause_s)
        self._start(strays, "strays")
        self._start(self._generations.run(), "reaper")
        if has_sentinels(self._config.redis):
            self._start(watch_primary(self._config.redis, self._leave_primary), "primary")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._watch(asyncio.create_task(work, name=name))

    def _watch(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._part_ended)
        return task

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """A part that fails takes the server down: what supervises it starts a fresh one."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(task.get_name(), error)

    def _fail(self, part: str, error: BaseException) -> None:
        log.error("server.failed", part=part, exc_info=error)
        self._failure = self._failure or error
        self._stop.set()

    # Work

    def _apply(self, spawner: Spawner, loaded: Loaded, work: Plan) -> None:
        """Have managers for exactly these queues, all on the code that was loaded last."""
        self._manifest = work.manifest
        self._queues = work.queues
        self._cron.use(work.cron)
        if loaded.threads:
            log.warning("app.threads", threads=loaded.threads, hint="they do not exist in workers")
        self._served += [name for name in work.queues if name not in self._served]
        for name in self._managers.serving.keys() - work.queues.keys():
            self._managers.parting[name] = self._managers.serving.pop(name)
            self._start(self._part_with(name), f"stop {name}")
        for name, concurrency in work.queues.items():
            self._serve(name, concurrency, spawner)

    async def _part_with(self, queue: str) -> None:
        try:
            await self._managers.parting[queue].stop(now() + self._config.server.shutdown_timeout)
        except PyworkersError as error:
            log.error("stop.failed", queue=queue, error=error.message)
        finally:
            self._lease.counters.interrupted(self._managers.parting.pop(queue).given_back)
            self._health.forget_queue(queue)

    def _serve(self, queue: str, concurrency: int, spawner: Spawner) -> None:
        losses = Losses(queue, self._manifest, self._config.retry.max, time.time, self._rng)
        manager = self._managers.serving.get(queue)
        if manager is not None:
            manager.use(spawner, losses, concurrency)
            return
        health = self._health.of_queue(queue)
        manager = self._managers.serving[queue] = Manager(
            queue,
            self._config,
            self._identity,
            health,
            spawner,
            losses,
            self._cancellations,
            self._settled,
            self._lease_lost,
        )
        paused = queue in self._orders.paused
        self._watch(manager.start(concurrency, paused))

    def _settled(self, report: Report) -> None:
        self._lease.counters.add(report)
        if report.cancelled:
            self._cancellations.settle(report.cancelled)
        if report.outcome.fate in (Fate.RETRY, Fate.SNOOZE):
            self._scheduler.expect(report.outcome.at)

    def _facts(self) -> Facts:
        """What Sidekiq's Web UI shows of this server."""
        return Facts(
            self._identity,
            self._queues,
            self._managers.running(),
            self._quiet or self._stop.is_set(),
            [os.getpid(), self._generations.current.process.pid, *self._managers.pids()],
        )

    def _leave_primary(self) -> None:
        self._changes.leave()
        self._managers.leave_primary()

    def _lease_lost(self, identity: str) -> None:
        """A peer runs our jobs now: kill ours before anything else, and go on as somebody new."""
        if identity != self._identity:
            # Said again, by a call that was under way.
            return
        log.error("lease.lost")
        self._identity = make_identity()
        set_up_logs(self._config.log, self._identity)
        self._store.identity = self._identity
        # Before their managers start workers anew.
        self._generations.identify(self._identity)
        self._managers.move_to(self._identity)
        self._changes.follow(self._identity)
        self._lease.beat_now()
        self._heartbeat.beat_now()
        self._start(self._managers.clear_out(identity), "clearance")

    # What generations of workers need

    async def _install(self, spawner: Spawner, loaded: Loaded) -> None:
        work = plan(loaded.manifest, self._config, self._only)
        # A queue that went with one reload and comes back with the next has one manager at a time.
        while self._managers.parting.keys() & work.queues.keys():
            await asyncio.sleep(_PARTING_S)
        self._apply(spawner, loaded, work)
        if self._quiet:
            await self._quiet_all()
        log.info("reload.done", queues=dict(work.queues))

    # Signals

    def stop(self) -> None:
        """SIGTERM, SIGINT: stop once, however often it is asked for."""
        if not self._stop.is_set():
            log.info("server.stopping", timeout_s=self._config.server.shutdown_timeout)
        self._stop.set()

    def quiet(self) -> None:
        """SIGTSTP: fetch nothing more, for good; running jobs go on."""
        self._quiet = True
        log.info("server.quiet")
        self._start(self._quiet_all(), "quiet")

    async def _quiet_all(self) -> None:
        await self._managers.quiet()
        self._heartbeat.beat_now()

    def dump(self) -> None:
        """SIGTTIN: log the state of the master; every worker writes its stacks to stderr."""
        for manager in self._managers.everyone():
            log.warning("server.state", **manager.describe())
            manager.pool.signal(signal.SIGTTIN, _STACKS_APART_S)
        tasks = {task.get_name(): str(task.get_coro()) for task in self._tasks}
        log.warning(
            "server.state", redis_down=self._health.is_down, troubles=self._health.troubles, tasks=tasks
        )

    # Stop

    async def _shut_down(self) -> None:
        self._heartbeat.beat_now()
        deadline = now() + self._config.server.shutdown_timeout
        # A reload must not start what nobody would stop.
        await self._generations.freeze()
        await until(lambda: not self._managers.clearing, now() + _GOODBYE_S)
        stops = [manager.stop(deadline) for manager in self._managers.serving.values()]
        results = await asyncio.gather(self._run_drain_hooks(deadline), *stops, return_exceptions=True)
        await until(lambda: not self._managers.parting, deadline)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            log.error("stop.failed", error=str(error), hint="a peer takes over when the lease has run out")
            if not isinstance(error, PyworkersError):
                self._failure = self._failure or error
        await self._take_leave()
        log.info("server.stopped")

    async def _take_leave(self) -> None:
        """What Redis is told last; without it, all of this runs out by itself."""
        self._heartbeat.end()
        interrupted = sum(manager.given_back for manager in self._managers.serving.values())
        self._lease.counters.interrupted(interrupted)
        with suppress(PyworkersError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.wait([self._heartbeat_task])
                await self._lease.flush()
                await self._lease.flush_executions()
                if not await self._store.leave(self._served):
                    log.error("jobs.left", hint="a peer takes over at once")
                await self._heartbeat.leave()
                await self._orders.forget()

    async def _run_drain_hooks(self, deadline: float) -> None:
        if self._manifest["hooks"]["during_drain"]:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._generations.current.run_hooks("during_drain")

    async def _tear_down(self) -> None:
        await cancel(self._tasks)
        await self._generations.close()
        await self._changes.close()
        await self._store.close()
