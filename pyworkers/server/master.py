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
from pyworkers.config import Config
from pyworkers.control import AboutWorker, Loaded, LoadFailed
from pyworkers.errors import AppImportError, ConfigError, PyworkersError, RedisUnavailableError, StoreError
from pyworkers.keys import Keys
from pyworkers.outcome import Fate, Report
from pyworkers.server.cron import Cron
from pyworkers.server.heartbeat import Heartbeat
from pyworkers.server.identity import SIGNALS, make_identity, set_up_logs
from pyworkers.server.losses import Losses
from pyworkers.server.manager import Manager
from pyworkers.server.orders import Orders
from pyworkers.server.plan import Plan, plan
from pyworkers.server.presence import Facts, Presence
from pyworkers.server.reaper import Reaper
from pyworkers.server.recovery import Recovery
from pyworkers.server.scheduler import Scheduler
from pyworkers.server.spawner import Spawner
from pyworkers.server.waiting import cancel, now, until
from pyworkers.server.weather import Weathers
from pyworkers.store.connection import connect_async
from pyworkers.store.cron import CronStore
from pyworkers.store.inspection import inspect
from pyworkers.store.orders import OrdersStore
from pyworkers.store.presence import PresenceStore
from pyworkers.store.schedule import ScheduleStore
from pyworkers.store.store import Store

# How often in-progress lists are compared with what the workers have: cheap, and a stray waits for two looks.
_ADOPT_S, _ADOPTIONS_PER_LEASE = 5.0, 6
# Only orphans wait for this; a fork server tells at once. uvloop keeps SIGCHLD to itself, hence no handler.
_REAP_S = 0.5
_GOODBYE_S = 2.0
_STACKS_APART_S = 0.02
# Between two attempts to replace a fork server that is gone.
_RELOAD_S = 1.0

log = logs.get_logger()


class Master:
    """One server. ``run`` returns when it has been told to stop."""

    def __init__(
        self,
        config: Config,
        identity: str,
        spawner: Spawner,
        make_spawner: Callable[[], Spawner],
        only: Mapping[str, int | None],
        fail_fast: bool = False,
    ) -> None:
        self._config = config
        self._spawner = spawner
        self._make_spawner = make_spawner
        self._only = only
        self._fail_fast = fail_fast
        self._identity = identity
        self._rng = random.Random()
        self._weathers = Weathers(time.monotonic, self._rng)
        self._managers: dict[str, Manager] = {}
        self._parting: dict[str, Manager] = {}
        self._served: list[str] = []
        self._manifest: Mapping[str, Any] = {}
        self._queues: Mapping[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._quiet = False
        self._started = self._reloading = self._reload_again = False
        self._reload_task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Work until stopped. Raises PyworkersError for what ends the server with an exit code of its own."""
        self._set_up()
        try:
            self._adopt_spawner(self._spawner)
            loaded = await self._first_load()
            if loaded is None:
                return
            work = plan(loaded.manifest, self._config, self._only)
            if not await self._register(list(work.queues)):
                return
            self._apply(loaded, work)
            self._start_parts()
            self._started = True
            if self._quiet:
                await self._quiet_all()
            if self._reload_again or not self._spawner.alive:
                self.reload()
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
        loop = asyncio.get_running_loop()
        redis = self._config.redis
        self._store = Store(connect_async(redis), Keys(redis.namespace), self._identity)
        scheduler, retry = self._config.scheduler, self._config.retry
        self._scheduler = Scheduler(
            ScheduleStore(self._store.redis, self._store.keys),
            lambda: self._identity,
            self._weathers,
            scheduler.poll_interval,
            retry.drain_goretry,
        )
        cron_store = CronStore(self._store.redis, self._store.keys)
        self._cron = Cron(cron_store, lambda: self._identity, self._weathers.of("cron"), self._rng)
        self._heartbeat = Heartbeat(
            self._store,
            self._weathers.of("heartbeat"),
            self._config.server.lease,
            lambda: self._served,
            self._lease_lost,
            self._set_crew,
        )
        self._recovery = Recovery(
            self._store,
            self._weathers.of("recovery"),
            self._config.server.lease,
            self._heartbeat.counters.interrupted,
        )
        self._presence = Presence(
            PresenceStore(self._store.redis, self._store.keys, self._config.server.sidekiq6),
            self._weathers.of("presence"),
            self._facts,
            {"TSTP": self.quiet, "TERM": self.stop, "TTIN": self.dump},
        )
        orders_store = OrdersStore(self._store.redis, self._store.keys)
        self._orders = Orders(orders_store, self._weathers.of("orders"), self._set_paused)
        self._reaper = Reaper(self._worker_reaped)
        for number, react in (
            (signal.SIGTERM, self.stop),
            (signal.SIGINT, self.stop),
            (signal.SIGTSTP, self.quiet),
            (signal.SIGTTIN, self.dump),
            (signal.SIGHUP, self.reload),
        ):
            loop.add_signal_handler(number, react)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    async def _first_load(self) -> Loaded | None:
        """Wait for the application; None when the server was told to stop meanwhile."""
        assert self._spawner.loaded is not None
        stopped = asyncio.create_task(self._stop.wait())
        either: list[asyncio.Future[Any]] = [self._spawner.loaded, stopped]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return _checked(self._spawner.loaded.result()) if self._spawner.loaded.done() else None

    async def _register(self, queues: list[str]) -> bool:
        """Wait for Redis to take the first beat: peers must know of an owner before it fetches.

        False when the server was told to stop meanwhile.
        """
        self._served = queues
        weather = self._weathers.of("heartbeat")
        while not self._stop.is_set():
            try:
                await self._heartbeat.beat()
                weather.up()
                with suppress(StoreError):
                    await self._orders.look()
                return True
            except PyworkersError as error:
                if self._fail_fast:
                    raise RedisUnavailableError(error.message) from error
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), weather.down(error))
        return False

    async def _warn_of_dangers(self) -> None:
        """Say what about this Redis can cost jobs, and what mends it."""
        try:
            findings = await inspect(self._store.redis, time.time)
        except PyworkersError as error:
            log.debug("redis.not_inspected", error=error.message)
            return
        for finding in findings:
            log.warning("redis.unsafe", finding=finding.code, message=finding.message, fix=finding.fix)

    def _start_parts(self) -> None:
        self._start(self._heartbeat.run(), "heartbeat")
        self._presence_task = self._start(self._presence.run(), "presence")
        self._start(self._orders.run(), "orders")
        self._start(self._scheduler.run(), "scheduler")
        self._start(self._recovery.run(), "recovery")
        self._start(self._cron.run(), "cron")
        self._start(self._adopt_strays(), "strays")
        self._start(self._reap(), "reaper")

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
            log.error("server.failed", part=task.get_name(), exc_info=error)
            self._failure = self._failure or error
            self._stop.set()

    # Work

    def _apply(self, loaded: Loaded, work: Plan) -> None:
        """Have managers for exactly these queues, all on the code that was loaded last."""
        self._manifest = work.manifest
        self._queues = work.queues
        self._cron.use(work.cron)
        if loaded.threads:
            log.warning("app.threads", threads=loaded.threads, hint="they do not exist in workers")
        self._served += [name for name in work.queues if name not in self._served]
        for name in self._managers.keys() - work.queues.keys():
            self._parting[name] = self._managers.pop(name)
            self._start(self._part_with(name), f"stop {name}")
        for name, concurrency in work.queues.items():
            self._serve(name, concurrency)

    async def _part_with(self, queue: str) -> None:
        try:
            await self._parting[queue].stop(now() + self._config.server.shutdown_timeout)
        except PyworkersError as error:
            log.error("stop.failed", queue=queue, error=error.message)
        finally:
            self._heartbeat.counters.interrupted(self._parting.pop(queue).given_back)
            self._weathers.forget_queue(queue)

    def _everyone(self) -> list[Manager]:
        """The managers, and those that have workers left though their queue is no longer served."""
        return [*self._managers.values(), *self._parting.values()]

    def _serve(self, queue: str, concurrency: int) -> None:
        losses = Losses(queue, self._manifest, self._config.retry.max, time.time, self._rng)
        manager = self._managers.get(queue)
        if manager is not None:
            manager.pool.use(self._spawner, losses, concurrency)
            return
        weather = self._weathers.of_queue(queue)
        manager = self._managers[queue] = Manager(
            queue, self._config, self._identity, weather, self._settled, self._lease_lost
        )
        paused = queue in self._orders.paused
        self._watch(manager.start(concurrency, self._spawner, losses, paused))

    async def _set_paused(self, queues: frozenset[str]) -> None:
        await asyncio.gather(*(m.set_paused(name in queues) for name, m in self._managers.items()))

    def _settled(self, report: Report) -> None:
        self._heartbeat.counters.add(report)
        if report.outcome.fate in (Fate.RETRY, Fate.SNOOZE):
            self._scheduler.expect(report.outcome.at)

    def _facts(self) -> Facts:
        """What Sidekiq's Web UI shows of this server."""
        workers = [pid for manager in self._everyone() for pid in manager.pool.pids()]
        return Facts(
            self._identity,
            self._queues,
            [job for manager in self._everyone() for job in manager.pool.running()],
            self._quiet or self._stop.is_set(),
            [os.getpid(), self._spawner.process.pid, *workers],
        )

    def _set_crew(self, crew: tuple[int, int]) -> None:
        self._scheduler.crew = crew

    async def _adopt_strays(self) -> None:
        weather = self._weathers.of("strays")
        while True:
            await asyncio.sleep(min(_ADOPT_S, self._config.server.lease / _ADOPTIONS_PER_LEASE))
            failed = False
            for manager in list(self._managers.values()):
                try:
                    await manager.adopt()
                except PyworkersError as error:
                    failed = True
                    weather.down(error)
            if not failed:
                weather.up()

    def _lease_lost(self, identity: str) -> None:
        """A peer runs our jobs now: kill ours before anything else, and go on as somebody new."""
        if identity != self._identity:
            # Said again, by a call that was under way.
            return
        log.error("lease.lost")
        self._identity = make_identity()
        set_up_logs(self._config.log, self._identity)
        self._store.identity = self._identity
        for manager in self._everyone():
            manager.move_to(self._identity)
        self._heartbeat.beat_now()
        self._presence.beat_now()
        self._start(self._clear_out(identity), "clearance")

    async def _clear_out(self, identity: str) -> None:
        for manager in self._everyone():
            with suppress(PyworkersError):
                await manager.clear_out(identity)

    # Fork servers and their workers

    async def _reap(self) -> None:
        while True:
            self._reaper.reap()
            await asyncio.sleep(_REAP_S)

    def _adopt_spawner(self, spawner: Spawner) -> None:
        spawner.on_word = self._hear
        spawner.on_down = self._spawner_down
        spawner.attach(asyncio.get_running_loop())
        self._reaper.adopt(spawner.process)

    def _hear(self, word: AboutWorker) -> None:
        for manager in self._everyone():
            if manager.hear(word):
                return

    def _worker_reaped(self, pid: int, status: int) -> None:
        for manager in self._everyone():
            if manager.pool.lost_track(pid, status):
                return

    def _spawner_down(self, spawner: Spawner) -> None:
        if spawner is self._spawner and self._managers and not self._stop.is_set():
            log.error("forkserver.lost", pid=spawner.process.pid)
            if not self._reloading:
                self.reload()

    def reload(self) -> None:
        """SIGHUP: load the application anew; workers are replaced one by one, running jobs finish."""
        # What is being loaded right now may already be outdated.
        self._reload_again = self._reloading or not self._started
        if not self._reload_again and not self._stop.is_set():
            self._reloading = True
            self._reload_task = asyncio.create_task(self._reload(), name="reload")
            self._watch(self._reload_task)

    async def _reload(self) -> None:
        while not await self._try_to_reload() and not self._spawner.alive:
            await asyncio.sleep(_RELOAD_S)
        self._reloading = False
        if self._reload_again:
            self.reload()

    async def _try_to_reload(self) -> bool:
        spawner = self._make_spawner()
        try:
            spawner.start()
        except OSError as error:
            log.error("reload.failed", error=str(error), hint="the old code keeps running")
            return False
        self._adopt_spawner(spawner)
        log.info("reload.started", pid=spawner.process.pid)
        try:
            loaded, work = await self._load_anew(spawner)
        except asyncio.CancelledError:
            spawner.kill()
            raise
        except PyworkersError as error:
            spawner.kill()
            traceback = getattr(error, "traceback", "")
            hint = "the old code keeps running"
            log.error("reload.failed", error=str(error), traceback=traceback, hint=hint)
            return False
        old, self._spawner = self._spawner, spawner
        self._apply(loaded, work)
        if self._quiet:
            await self._quiet_all()
        self._retire(old)
        log.info("reload.done", queues=dict(work.queues))
        return True

    async def _load_anew(self, spawner: Spawner) -> tuple[Loaded, Plan]:
        assert spawner.loaded is not None
        loaded = _checked(await spawner.loaded)
        work = plan(loaded.manifest, self._config, self._only)
        # A queue that went with one reload and comes back with the next has one manager at a time.
        while self._parting.keys() & work.queues.keys():
            await asyncio.sleep(_REAP_S)
        return loaded, work

    def _retire(self, spawner: Spawner) -> None:
        """An old fork server goes when its last worker has: until then it tells how they end."""
        spawner.on_down = lambda _: None
        if spawner.alive:
            self._start(self._close_when_unused(spawner), "retire")

    async def _close_when_unused(self, spawner: Spawner) -> None:
        while any(manager.pool.uses(spawner) for manager in self._everyone()):
            await asyncio.sleep(0.2)
        await self._end(spawner)

    async def _end(self, spawner: Spawner) -> None:
        """Let a fork server go by itself, or else by force."""
        spawner.close()
        await until(lambda: self._reaper.reaped(spawner.process), now() + _GOODBYE_S)
        spawner.kill()

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
        await asyncio.gather(*(manager.quiet() for manager in self._managers.values()))
        self._presence.beat_now()

    def dump(self) -> None:
        """SIGTTIN: log the state of the master; every worker writes its stacks to stderr."""
        for manager in self._everyone():
            log.warning("server.state", **manager.describe())
            manager.pool.signal(signal.SIGTTIN, _STACKS_APART_S)
        tasks = {task.get_name(): str(task.get_coro()) for task in self._tasks}
        log.warning(
            "server.state", redis_down=self._weathers.is_down, troubles=self._weathers.troubles, tasks=tasks
        )

    # Stop

    async def _shut_down(self) -> None:
        self._presence.beat_now()
        deadline = now() + self._config.server.shutdown_timeout
        if self._reload_task is not None:
            # It must not start what nobody would stop.
            await cancel([self._reload_task])
        stops = [manager.stop(deadline) for manager in self._managers.values()]
        results = await asyncio.gather(self._run_drain_hooks(deadline), *stops, return_exceptions=True)
        await until(lambda: not self._parting, deadline)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            log.error("stop.failed", error=str(error), hint="a peer takes over when the lease has run out")
            if not isinstance(error, PyworkersError):
                self._failure = self._failure or error
        await self._take_leave()
        log.info("server.stopped")

    async def _take_leave(self) -> None:
        """What Redis is told last; without it, all of this runs out by itself."""
        self._presence.end()
        await asyncio.wait([self._presence_task], timeout=_GOODBYE_S)
        interrupted = sum(manager.given_back for manager in self._managers.values())
        self._heartbeat.counters.interrupted(interrupted)
        with suppress(PyworkersError):
            await self._heartbeat.flush()
            await self._heartbeat.flush_executions()
            if not await self._store.leave(self._served):
                log.error("jobs.left", hint="a peer takes over at once")
            await self._presence.leave()

    async def _run_drain_hooks(self, deadline: float) -> None:
        if self._manifest["hooks"]["during_drain"]:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._spawner.run_hooks("during_drain")

    async def _tear_down(self) -> None:
        await cancel(self._tasks)
        await self._end(self._spawner)
        await self._store.close()


def _checked(word: Loaded | LoadFailed) -> Loaded:
    if isinstance(word, Loaded):
        return word
    if word.kind == "config":
        raise ConfigError(word.message)
    raise AppImportError(word.message, traceback=word.traceback)
