"""Parts: the periodic work of the master, with one loop for all of it, and the tasks in which it runs.

Runs in the master's event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import CoroutineType
from typing import Any

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.server.health import Health, shortages_translated
from pyworkers.server.waiting import cancel, pause


class Part(ABC):
    """One kind of periodic work; ``name`` is the name of its task and of its health."""

    name: str
    eager = False
    """True if a nudge also ends the wait after a failure."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._nudge = asyncio.Event()
        self._end = asyncio.Event()
        self._ended = asyncio.Event()
        self._ended.set()
        self._nudged = False

    @abstractmethod
    async def look(self) -> float:
        """Do the work once. Returns the seconds until the next call, unless a nudge comes first.

        Raises PyworkersError. The call after a failed one must send a command to Redis, because its success
        ends the outage. An error of a system that has too little of something counts as one, too.
        """

    def failed(self, backoff_s: float) -> float:
        """React to a failed ``look``. Returns the seconds until the next one, usually the back-off."""
        return backoff_s

    def nudge(self) -> None:
        """Call ``look`` without delay; a nudge during a call causes another call."""
        self._nudge.set()

    async def run(self) -> None:
        """Call ``look`` again and again, until ``end`` or until cancelled."""
        self._ended.clear()
        try:
            while not self._end.is_set():
                await self._look_and_pause()
        finally:
            self._ended.set()

    async def _look_and_pause(self) -> None:
        self._nudged = self._nudge.is_set()
        self._nudge.clear()
        wake = self._nudge
        try:
            with shortages_translated():
                pause_s = await self.look()
            self._health.ok()
        except PyworkersError as error:
            pause_s = self.failed(self._health.failed(error))
            wake = self._nudge if self.eager else self._end
        await pause(wake, pause_s)

    async def end(self) -> None:
        """Have ``run`` return after the current ``look``, and wait until it has returned."""
        self._end.set()
        self._nudge.set()
        await self._ended.wait()


class Tasks:
    """The tasks of a server; ``fail`` is called with the name and the error of one that fails.

    ``family`` are the same tasks for another Redis, ``redis`` the name of it that log lines have.
    """

    def __init__(
        self, fail: Callable[[str, BaseException], None], family: Tasks | None = None, redis: str = ""
    ) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set() if family is None else family._tasks
        self._redis = redis

    def at(self, redis: str) -> Tasks:
        """The same tasks, for what works at one of several Redis servers: its log lines have its name."""
        return Tasks(self._fail, self, redis)

    def named(self) -> AbstractContextManager[None]:
        """A block in which log lines have the name, also the lines of tasks that are started in it."""
        return logs.bound({"redis": self._redis}) if self._redis else nullcontext()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine."""
        where = f" at {self._redis}" if self._redis else ""
        with self.named():
            task = asyncio.create_task(work, name=name + where)
        return self.watch(task)

    def watch(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Add a task: it is cancelled with the others, and its failure is reported."""
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(task.get_name(), error)

    async def cancel(self) -> None:
        """Cancel all tasks and wait for their end."""
        await cancel(self._tasks)

    def describe(self) -> dict[str, str]:
        """The functions in which each task waits, the innermost last, by the task's name; for the log."""
        by_name = sorted(self._tasks, key=asyncio.Task.get_name)
        return {task.get_name(): " > ".join(_functions(task.get_coro())) for task in by_name}


def _functions(awaited: object) -> Iterator[str]:
    """The names of the functions of a coroutine that is suspended."""
    while isinstance(awaited, CoroutineType):
        yield awaited.__qualname__
        awaited = awaited.cr_await
