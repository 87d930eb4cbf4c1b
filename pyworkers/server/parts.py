"""Parts: the periodic work of the master, all run by one loop; and the tasks that it runs in.

Runs in the master's event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from pyworkers.errors import PyworkersError
from pyworkers.server.health import Health
from pyworkers.server.waiting import cancel, pause


class Part(ABC):
    """Looks at one thing periodically; ``name`` is the name of its task and of its health."""

    name: str
    eager = False
    """Whether a nudge shortens the wait after a failure, too."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._nudge = asyncio.Event()
        self._end = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._nudged = False

    @abstractmethod
    async def look(self) -> float:
        """Look once. Returns the seconds until the next look, unless a nudge comes first.

        Raises PyworkersError. A look after one that failed must ask Redis: its success ends the outage.
        """

    def failed(self, backoff_s: float) -> float:
        """A look has failed. Returns the seconds until the next one, usually those of the back-off."""
        return backoff_s

    def nudge(self) -> None:
        """Look without delay; a nudge during a look causes another look."""
        self._nudge.set()

    async def run(self) -> None:
        """Look until ``end`` or until cancelled."""
        self._ended.clear()
        try:
            while not self._end.is_set():
                await self._turn()
        finally:
            self._ended.set()

    async def _turn(self) -> None:
        self._nudged = self._nudge.is_set()
        self._nudge.clear()
        wake = self._nudge
        try:
            pause_s = await self.look()
            self._health.ok()
        except PyworkersError as error:
            pause_s = self.failed(self._health.failed(error))
            wake = self._nudge if self.eager else self._end
        await pause(wake, pause_s)

    async def end(self) -> None:
        """Have ``run`` return after the current look, and wait for that."""
        self._end.set()
        self._nudge.set()
        await self._ended.wait()


class Tasks:
    """The tasks of a server; ``fail`` is called with the name and the error of one that fails."""

    def __init__(self, fail: Callable[[str, BaseException], None]) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine."""
        return self.watch(asyncio.create_task(work, name=name))

    def watch(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Cancel a task with the others, and report its failure."""
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(task.get_name(), error)

    async def cancel(self) -> None:
        """Cancel all and wait for their end."""
        await cancel(self._tasks)

    def describe(self) -> dict[str, str]:
        """The coroutine of each task, by the name of the task, for the log."""
        return {task.get_name(): str(task.get_coro()) for task in self._tasks}
