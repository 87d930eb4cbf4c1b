"""Generations: the fork servers of one server, each with the application as it was when it was loaded.

Runs in the master's event loop. One is current; while a reload is under way its successor imports beside it;
older ones live as long as their last worker, because they tell how it ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from pyworkers import logs
from pyworkers.errors import AppImportError, ConfigError, PyworkersError
from pyworkers.ipc.control import Loaded, LoadFailed
from pyworkers.server.generations.reaper import Reaper
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.waiting import cancel, now, until

# Only orphans wait for this; a fork server tells at once. uvloop keeps SIGCHLD to itself, hence no handler.
_REAP_S = 0.5
# Between two attempts to replace a fork server that is gone.
_RELOAD_S = 1.0
_GOODBYE_S = 2.0

log = logs.get_logger()


class Phase(Enum):
    """``STARTING → CURRENT ⇄ LOADING``, at last ``CLOSED``; OUTDATED: a reload was asked during a load."""

    STARTING = auto()
    CURRENT = auto()
    LOADING = auto()
    OUTDATED = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the generations need of the master."""

    install: Callable[[Spawner, Loaded], Awaitable[None]]
    """Move all workers to this generation. Raises PyworkersError if its application cannot be served."""
    start: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    """Run a coroutine as a part of the server."""


class Generations:
    """``first`` was started already; ``make`` makes its successors."""

    def __init__(self, first: Spawner, make: Callable[[], Spawner], callbacks: Callbacks) -> None:
        self.current = first
        self._next: Spawner | None = None
        self._make = make
        self._tell = callbacks
        self._reaper = Reaper()
        self._reaper.inherit_orphans()
        self._phase = Phase.STARTING
        self._loading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Look for processes that have ended, until cancelled."""
        while True:
            self._reaper.reap()
            await asyncio.sleep(_REAP_S)

    async def first_load(self, stopped: asyncio.Event) -> Loaded | None:
        """What the first one has loaded; None when the server was told to stop meanwhile.

        Raises AppImportError or ConfigError.
        """
        self._adopt(self.current)
        stop = asyncio.create_task(stopped.wait())
        load = asyncio.create_task(self.current.loaded())
        await asyncio.wait([load, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if load.done():
            return checked(load.result())
        load.cancel()
        return None

    def ready(self) -> None:
        """What was loaded last is at work; now for what came meanwhile."""
        again = self._phase is Phase.OUTDATED or not self.current.alive
        self._phase = Phase.CURRENT
        if again:
            self.reload()

    def reload(self) -> None:
        """Load the application anew; workers are replaced one by one, and running jobs finish."""
        if self._phase is Phase.CURRENT:
            self._phase = Phase.LOADING
            self._loading = self._tell.start(self._reload(), "reload")
        elif self._phase is not Phase.CLOSED:
            # What is being loaded right now may be old already.
            self._phase = Phase.OUTDATED

    def identify(self, identity: str) -> None:
        """Have all workers that are yet to start log another identity."""
        for spawner in (self.current, self._next):
            if spawner is not None:
                spawner.identify(identity)

    async def freeze(self) -> None:
        """Load nothing more."""
        self._phase = Phase.CLOSED
        if self._loading is not None:
            await cancel([self._loading])

    async def close(self) -> None:
        """Let the current fork server go."""
        await self._end(self.current)

    def _adopt(self, spawner: Spawner) -> None:
        spawner.attach(self._reaper, self._down)
        self._reaper.adopt(spawner.process)

    def _down(self, spawner: Spawner) -> None:
        if spawner is not self.current or self._phase in (Phase.STARTING, Phase.CLOSED):
            return
        log.error("forkserver.lost", pid=spawner.process.pid)
        if self._phase is Phase.CURRENT:
            self.reload()

    async def _reload(self) -> None:
        while not await self._try_to_reload() and not self.current.alive:
            await asyncio.sleep(_RELOAD_S)
        self.ready()

    async def _try_to_reload(self) -> bool:
        spawner = self._make()
        try:
            spawner.start()
        except OSError as error:
            log.error("reload.failed", error=str(error), hint="the old code keeps running")
            return False
        self._adopt(spawner)
        self._next = spawner
        log.info("reload.started", pid=spawner.process.pid)
        try:
            await self._tell.install(spawner, checked(await spawner.loaded()))
        except asyncio.CancelledError:
            spawner.kill()
            raise
        except PyworkersError as error:
            spawner.kill()
            traceback = getattr(error, "traceback", "")
            hint = "the old code keeps running"
            log.error("reload.failed", error=str(error), traceback=traceback, hint=hint)
            return False
        finally:
            self._next = None
        old, self.current = self.current, spawner
        if old.alive:
            self._tell.start(self._retire(old), "retire")
        return True

    async def _retire(self, spawner: Spawner) -> None:
        await spawner.unused()
        await self._end(spawner)

    async def _end(self, spawner: Spawner) -> None:
        """Let a fork server go by itself, or else by force."""
        spawner.close()
        await until(lambda: self._reaper.reaped(spawner.process), now() + _GOODBYE_S)
        spawner.kill()


def checked(word: Loaded | LoadFailed) -> Loaded:
    """What was loaded. Raises AppImportError or ConfigError for what could not be."""
    if isinstance(word, Loaded):
        return word
    if word.kind == "config":
        raise ConfigError(word.message)
    raise AppImportError(word.message, traceback=word.traceback)
