"""Generations: the fork servers of one server, each with the application code that it has loaded.

Runs in the master's event loop. One is current; during a reload its successor imports alongside it. An older
one runs until its last worker has ended, because it reports the exit status of each of its workers.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from enum import Enum, auto

from pyworkers import logs
from pyworkers.errors import AppImportError, ConfigError, PyworkersError
from pyworkers.ipc.control import Loaded, LoadFailed
from pyworkers.server.generations.launch import Launched
from pyworkers.server.generations.reaper import Reaper
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.waiting import StartTask, cancel, now, until

# The longest delay for orphans; a fork server reports its workers at once. A poll, because uvloop does not
# pass on SIGCHLD.
_REAP_S = 0.5
# Between two attempts to replace a fork server that has ended.
_RELOAD_S = 1.0
# For an import for which another reload waits.
_HANGS_S = 10.0
# From the close of a fork server's channel to its kill.
_GOODBYE_S = 2.0

log = logs.get_logger()


class LoadPhase(Enum):
    """``STARTING → CURRENT ⇄ LOADING``, at last ``CLOSED``. OUTDATED: loading, with a reload requested."""

    STARTING = auto()
    CURRENT = auto()
    LOADING = auto()
    OUTDATED = auto()
    CLOSED = auto()


class Generations:
    """Owns the fork servers: ``first``, and its successors, from ``launch``, which raises OSError.

    ``install`` moves all workers to a generation; it raises PyworkersError if the application cannot be
    served. ``start`` runs a coroutine as a task of the server.
    """

    def __init__(
        self,
        first: Launched,
        launch: Callable[[], Launched],
        install: Callable[[Spawner, Loaded], Awaitable[None]],
        start: StartTask,
    ) -> None:
        self.reaper = Reaper()
        self.reaper.inherit_orphans()
        self.current = self._spawner(first)
        self._next: Spawner | None = None
        self._launch = launch
        self._install = install
        self._start = start
        self._phase = LoadPhase.STARTING
        self._loading: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Collect processes that have ended, until cancelled."""
        while True:
            self.reaper.reap()
            await asyncio.sleep(_REAP_S)

    async def first_load(self, stopped: asyncio.Event) -> Loaded | None:
        """Wait for the first import; None if the server is stopped before the import has ended.

        Raises AppImportError or ConfigError.
        """
        stop = asyncio.create_task(stopped.wait())
        load = asyncio.create_task(self.current.loaded())
        await asyncio.wait([load, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if load.done():
            return checked(load.result())
        load.cancel()
        return None

    def ready(self) -> None:
        """Note that the code loaded last is in use; start a reload that was requested in the meantime."""
        again = self._phase is LoadPhase.OUTDATED or not self.current.alive
        self._phase = LoadPhase.CURRENT
        if again:
            self.reload()

    def reload(self) -> None:
        """Load the application again; workers are replaced one by one, and running jobs finish."""
        if self._phase is LoadPhase.CURRENT:
            self._phase = LoadPhase.LOADING
            self._loading = self._start(self._reload(), "reload")
        elif self._phase is not LoadPhase.CLOSED:
            # The load under way may have read the code before this request.
            self._phase = LoadPhase.OUTDATED

    def identify(self, identity: str) -> None:
        """Set the identity that workers log, for all workers forked from now on."""
        for spawner in (self.current, self._next):
            if spawner is not None:
                spawner.identify(identity)

    async def freeze(self) -> None:
        """Cancel a reload that is under way, and start no other."""
        self._phase = LoadPhase.CLOSED
        if self._loading is not None:
            await cancel([self._loading])

    async def close(self) -> None:
        """End the current fork server."""
        await self._end(self.current)

    def _spawner(self, launched: Launched) -> Spawner:
        return Spawner(launched, self.reaper, self._down)

    def _down(self, spawner: Spawner) -> None:
        if spawner is not self.current or self._phase in (LoadPhase.STARTING, LoadPhase.CLOSED):
            return
        log.error("forkserver.lost", pid=spawner.process.pid)
        if self._phase is LoadPhase.CURRENT:
            self.reload()

    async def _reload(self) -> None:
        while not await self._try_to_reload() and not self.current.alive:
            await asyncio.sleep(_RELOAD_S)
            # The next load reads the code after all requests.
            self._phase = LoadPhase.LOADING
        self.ready()

    async def _try_to_reload(self) -> bool:
        try:
            spawner = self._next = self._spawner(self._launch())
        except OSError as error:
            text = f"the fork server cannot be started: {error}"
            hint = "the old code continues"
            log.error("reload.failed", error=text, traceback=traceback.format_exc(), hint=hint)
            return False
        log.info("reload.started", pid=spawner.process.pid)
        try:
            await self._install(spawner, await self._loaded(spawner))
        except asyncio.CancelledError:
            spawner.kill()
            raise
        except PyworkersError as error:
            spawner.kill()
            stack = getattr(error, "traceback", "")
            hint = "the old code continues"
            log.error("reload.failed", error=str(error), traceback=stack, hint=hint)
            return False
        finally:
            self._next = None
        old, self.current = self.current, spawner
        if old.alive:
            self._start(self._retire(old), "retire")
        return True

    async def _loaded(self, spawner: Spawner) -> Loaded:
        """Wait for the import, until another reload has waited for too long.

        Raises AppImportError or ConfigError.
        """
        while True:
            try:
                async with asyncio.timeout(_HANGS_S):
                    return checked(await spawner.loaded())
            except TimeoutError:
                if self._phase is LoadPhase.OUTDATED:
                    text = f"the import has not ended within {_HANGS_S:g} s, and another reload was requested"
                    raise AppImportError(text) from None

    async def _retire(self, spawner: Spawner) -> None:
        await spawner.unused()
        await self._end(spawner)

    async def _end(self, spawner: Spawner) -> None:
        """Let a fork server end by itself, or kill it."""
        spawner.close()
        await until(lambda: self.reaper.reaped(spawner.process), now() + _GOODBYE_S)
        spawner.kill()


def checked(message: Loaded | LoadFailed) -> Loaded:
    """The application that was loaded. Raises AppImportError or ConfigError if the import failed."""
    if isinstance(message, Loaded):
        return message
    if message.kind == "config":
        raise ConfigError(message.message)
    raise AppImportError(message.message, traceback=message.traceback)
