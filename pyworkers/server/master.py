"""Master: owns all parts of one server; starts, reloads and stops them together.

One thread, one event loop, no user code: it never imports the application.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from pyworkers import logs
from pyworkers.config.fields import Config
from pyworkers.config.groups import Only
from pyworkers.config.reloading import Configurations
from pyworkers.errors import PyworkersError
from pyworkers.failpoints import hit
from pyworkers.server.draining import Draining
from pyworkers.server.generations.launch import Launched
from pyworkers.server.generations.watching import watch
from pyworkers.server.http.opening import HttpEndpoint
from pyworkers.server.http.pages import Views
from pyworkers.server.incarnation import SIGNALS
from pyworkers.server.owner import Owner
from pyworkers.server.parts import Tasks
from pyworkers.server.plan import Group, Plan
from pyworkers.server.upgrade.predecessor import Predecessor
from pyworkers.server.upgrade.successor import CommandLine
from pyworkers.server.upgrade.systemd import keep_alive, notify
from pyworkers.server.upgrade.upgrade import Upgrade, UpgradeCallbacks, forbidden
from pyworkers.server.waiting import cancel, now, on_callback_failure
from pyworkers.server.workload import Control, Origin, Workload
from pyworkers.store.processes.signals import Signal
from pyworkers.version import __version__

_STACKS_APART_S = 0.02

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class ServerStart:
    """The way in which a server was started; ``only`` are the queues and groups of the command line."""

    only: Only
    command: CommandLine
    predecessor: Predecessor | None = None
    """The server that this one replaces."""
    fail_fast: bool = False
    owner: Owner | None = None
    """The program that this server ends with."""
    watched: Sequence[Path] = ()
    """The folders whose changes cause a reload."""
    drain_s: float | None = None
    """The server ends once no job is left that comes due within this time; None: until it is stopped."""
    once: bool = False
    """The server ends after one job, or if none waits."""


class Master:
    """One server, made in its event loop.

    ``first`` is its first fork server; ``launch`` launches others, with a configuration and an identity.
    """

    def __init__(
        self,
        configurations: Configurations,
        identity: str,
        first: Launched,
        launch: Callable[[Config, str], Launched],
        start: ServerStart,
    ) -> None:
        self._configurations = configurations
        self._start = start
        self._launched_at = first.at
        self._tasks = Tasks(self._fail)
        self._stop = asyncio.Event()
        self._interrupted = False
        self._stop_at_once = asyncio.Event()
        self._failure: BaseException | None = None
        words: dict[str, Callable[[], None]] = {
            Signal.QUIET: self.quiet,
            Signal.STOP: self.stop,
            Signal.DUMP: self.dump,
            Signal.RELOAD: self.reload,
        }
        self._workload = Workload(
            configurations,
            start.only,
            Origin(identity, first, launch),
            Control(self._tasks, self._stop, words),
            once=start.once,
        )
        self._generations = self._workload.generations
        self._draining = self._make_draining()
        views = Views(self._workload.shards, self._workload.memory, configurations)
        self._site = HttpEndpoint(configurations.current.http, views, self._tasks.start)
        self._upgrade = Upgrade(
            start.command,
            self._generations.reaper,
            UpgradeCallbacks(self._site.listener, self._tasks.start, self._replaced),
            forbidden(
                configurations.embedded, owned=start.owner is not None, ends=self._draining is not None
            ),
        )

    async def run(self) -> None:
        """Run the server until it is stopped.

        Raises PyworkersError for an error that has its own exit code.
        """
        try:
            await self._serve()
        finally:
            await self._tear_down()
        if self._failure is not None:
            raise self._failure
        if self._draining is not None:
            self._draining.check()

    async def _serve(self) -> None:
        on_callback_failure(asyncio.get_running_loop(), self._fail)
        self._listen_to_signals()
        predecessor = self._start.predecessor
        if predecessor is None:
            self._site.open()
        if self._start.watched:
            # Before the import ends, so that no change after it is missed.
            self._tasks.start(watch(self._start.watched, self.reload), "watch")
        with _log_importing(self._config.app, self._launched_at):
            loaded = await self._generations.first_load(self._stop)
        if loaded is None:
            return
        work = self._workload.planned(loaded)
        fail_fast = self._start.fail_fast
        # Otherwise a predecessor that works would be stopped for a server that waits for Redis.
        if not await self._workload.register(work, fail_fast=fail_fast, one_at_least=predecessor is not None):
            return
        await self._workload.start(loaded)
        _log_started(self._config, self._configurations.shown_redis, work, loaded.import_ms)
        if predecessor is None:
            self._upgrade.allow()
            notify("READY=1")
            if self._start.owner is not None:
                self._start.owner.ready()
            self._tasks.start(keep_alive(is_successor=False), "watchdog")
        else:
            self._tasks.start(self._take_over(predecessor), "take-over")
        if self._draining is not None:
            self._tasks.start(self._draining.run(), self._draining.name)
        await self._warn_of_dangers()
        await self._stop.wait()
        await self._shut_down()

    # Start

    def _make_draining(self) -> Draining | None:
        start = self._start
        if start.drain_s is None and not start.once:
            return None
        return Draining(start.drain_s or 0.0, self._workload, self.stop, self._fail)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number, react in (
            (signal.SIGTERM, self.stop),
            (signal.SIGINT, self.interrupt),
            (signal.SIGTSTP, self.quiet),
            (signal.SIGTTIN, self.dump),
            (signal.SIGHUP, self.reload),
            (signal.SIGUSR2, self._upgrade.begin),
        ):
            loop.add_signal_handler(number, react)
        if self._start.owner is not None:
            self._start.owner.watch(self.stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    async def _take_over(self, predecessor: Predecessor) -> None:
        """Have the earlier server stop when all workers have started; then ping the watchdog in its place.

        Raises PyworkersError.
        """
        await self._workload.all_started()
        # Only now, because both servers answer from now on.
        self._site.open(predecessor.listener(self._start.command.bind))
        hit("before_takeover")
        predecessor.ready()
        self._upgrade.allow()
        await keep_alive(is_successor=True)

    def _replaced(self, pid: int) -> None:
        """Stop: the server of this pid has started."""
        notify(f"MAINPID={pid}")
        self._site.leave()
        self.stop()

    async def _warn_of_dangers(self) -> None:
        """Log unsafe Redis settings, each with its fix; if Redis refuses to show them, that is no error."""
        for shard in self._workload.shards.values():
            await shard.warn_of_dangers()

    def _fail(self, part: str, error: BaseException) -> None:
        """Stop the server because a part has failed: the server's supervisor starts it again."""
        log.error("server.failed", part=part, exc_info=error)
        self._failure = self._failure or error
        self._stop.set()

    @property
    def _config(self) -> Config:
        return self._configurations.current

    # Signals

    def stop(self) -> None:
        """SIGTERM: stop; a second one changes nothing."""
        if not self._stop.is_set():
            _log_stopping(len(self._workload.running()), self._config.server.shutdown_timeout)
        self._stop.set()

    def interrupt(self) -> None:
        """SIGINT: stop; a second one gives the running jobs back at once."""
        if self._interrupted and not self._stop_at_once.is_set():
            self._stop_at_once.set()
            _log_hurried(len(self._workload.running()))
            for manager in self._workload.managers():
                manager.stop_at_once()
        self._interrupted = True
        self.stop()

    def quiet(self) -> None:
        """SIGTSTP: fetch no more jobs until the end of the server; running jobs continue."""
        self._workload.quiet()

    def reload(self) -> None:
        """SIGHUP: read the configuration and load the application again; after an error, both remain."""
        self._workload.reload()

    def dump(self) -> None:
        """SIGTTIN: log the state of the master; every worker writes its stacks to stderr."""
        managers = self._workload.managers()
        for manager in managers:
            log.warning("server.state", **manager.describe())
        log.warning(
            "server.state",
            redis_down=self._workload.redis_down,
            troubles=self._workload.troubles,
            tasks=self._tasks.describe(),
        )
        # Last and one by one: faulthandler writes stacks word by word, into the middle of what others write.
        loop = asyncio.get_running_loop()
        for place, dump in enumerate(chain.from_iterable(manager.pool.dumps() for manager in managers)):
            loop.call_later(place * _STACKS_APART_S, dump)

    # Stop

    async def _shut_down(self) -> None:
        self._workload.stop_within(self._config.server.shutdown_timeout)
        deadline = now() + self._config.server.shutdown_timeout
        # Stop reloads first: a new manager would not be stopped.
        await self._generations.freeze()
        others = (self._run_drain_hooks(deadline), self._upgrade.abandon(deadline))
        errors = await self._workload.stop(deadline, *others)
        for error in errors:
            log.error(
                "stop.failed", error=str(error), hint="another server takes over when the lease expires"
            )
            if not isinstance(error, PyworkersError):
                self._failure = self._failure or error
        await self._workload.sign_off()
        log.info("server.stopped")
        if self._draining is not None and self._draining.done:
            await self._draining.report()

    async def _run_drain_hooks(self, deadline: float) -> None:
        if not self._workload.plan.manifest["hooks"]["during_drain"]:
            return
        hooks = asyncio.create_task(self._generations.current.run_hooks("during_drain"))
        at_once = asyncio.create_task(self._stop_at_once.wait())
        await asyncio.wait([hooks, at_once], timeout=deadline - now(), return_when=asyncio.FIRST_COMPLETED)
        await cancel([hooks, at_once])

    async def _tear_down(self) -> None:
        await self._tasks.cancel()
        await self._generations.close()
        await self._workload.close()


# What the log says at the start and at the stop, for the person who started the server

# An import that takes longer looks like a server that hangs.
_SLOW_IMPORT_S = 1.0


@contextmanager
def _log_importing(app: str | None, began: float) -> Iterator[None]:
    """Log that the application is being imported if that has not ended in a second.

    ``began`` is its start in monotonic seconds: the master has imported its own modules meanwhile.
    """
    wait_s = max(0.0, _SLOW_IMPORT_S - (time.monotonic() - began))
    timer = asyncio.get_running_loop().call_later(wait_s, _log_slow_import, app)
    try:
        yield
    finally:
        timer.cancel()


def _log_slow_import(app: str | None) -> None:
    log.info("app.importing", app=app, hint="it takes more than a second; the server starts after it")


def _log_started(config: Config, redis: Mapping[str, str], work: Plan, import_ms: int) -> None:
    """Log that the server has started; ``redis`` are the masked URLs by name."""
    urls = [*redis.values()] if len(redis) == 1 else [f"{name} {url}" for name, url in redis.items()]
    about = {
        "pyworkers": __version__,
        "application": config.app,
        "redis": "; ".join(urls),
        "groups": _groups(work.groups),
        "stop": f"Ctrl-C or SIGTERM: running jobs get {config.server.shutdown_timeout:g} s; "
        "a second Ctrl-C puts them back at once",
    }
    log.info("server.started", import_ms=import_ms, about=about)


def _log_stopping(running: int, timeout_s: float) -> None:
    """Log that the server stops, and for what it waits until when."""
    deadline = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + timeout_s))
    waits = {"deadline": deadline, "hint": "a second Ctrl-C puts them back at once"} if running else {}
    log.info("server.stopping", running=running, timeout_s=timeout_s, **waits)


def _log_hurried(running: int) -> None:
    """Log that the server does not wait for its running jobs."""
    log.warning("server.hurried", running=running, hint="they are put back into their queues, and run again")


def _groups(groups: Mapping[str, Group]) -> str:
    return "; ".join(map(_group, groups.values()))


def _group(group: Group) -> str:
    queues = "" if list(group.queues) == [group.name] else f" ({', '.join(group.queues)})"
    where = f" in {group.spelled} processes"
    if group.mode != "process":
        where += f", mode {group.mode}"
    elif group.least is None:
        where = ""
    return f"{group.name}{queues}: {group.concurrency} at a time{where}"
