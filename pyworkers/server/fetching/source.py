"""Source: one queue of a group, with its blocking move and its health.

Runs in the master's event loop. It starts no exchange; the fetcher does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pyworkers.errors import PyworkersError
from pyworkers.server.fetching.unclaimed import Unclaimed
from pyworkers.server.health import Health
from pyworkers.server.waiting import cancel
from pyworkers.store.fetching.waiter import PATIENCE_S, Waiter
from pyworkers.store.scripts import Commands

_AGAIN_S = 0.2


class Source:
    """One queue; ``wake`` is called when an exchange may take jobs from it again."""

    def __init__(self, queue: str, waiter: Waiter, health: Health, wake: Callable[[], None]) -> None:
        self.queue = queue
        self.health = health
        self.open = False
        """True while jobs are fetched from it."""
        self.unclaimed = Unclaimed(waiter)
        self._waiter = waiter
        self._wake = wake
        self._waiting: asyncio.Task[None] | None = None
        self._wait_failed = False
        self._rest: asyncio.TimerHandle | None = None
        self._until_end = False

    def fetch(self, fetching: bool) -> None:
        """Set whether jobs are fetched from it."""
        self.open = fetching

    @property
    def ready(self) -> bool:
        """True if an exchange may take jobs from it: no blocking move waits for its next one."""
        return self.open and self._waiting is None and self._rest is None

    @property
    def waits(self) -> bool:
        """True while its blocking move is under way."""
        return self._waiting is not None

    # The keys of the queue

    def worked(self) -> None:
        """Note that Redis has executed an exchange, and has not refused the keys of this queue."""
        if not self._wait_failed and self._rest is None:
            self.health.ok()

    def refused(self, error: PyworkersError) -> None:
        """Take no jobs for a while, because Redis refuses commands on the keys of this queue."""
        if self._rest is None:
            delay_s = self.health.failed(error)
            self._until_end = False
            self._rest = asyncio.get_running_loop().call_later(delay_s, self._rested)

    def rest(self, delay_s: float, until_end: bool) -> None:
        """Take no jobs for a while, or only ``until_end`` of a job that runs, because none may start."""
        if self._rest is None:
            self._until_end = until_end
            self._rest = asyncio.get_running_loop().call_later(delay_s, self._rested)

    def job_ended(self) -> None:
        """Take jobs again, if the source waits for the end of one."""
        if self._rest is not None and self._until_end:
            self._rest.cancel()
            self._rested()

    def _rested(self) -> None:
        self._rest = None
        self._wake()

    # The blocking move

    def wait(
        self, source: str, target: str, taken: Callable[[bytes], None], wanted: Callable[[], bool]
    ) -> asyncio.Task[None]:
        """Start to wait for one job, as long as one is ``wanted``. Returns the task.

        ``source`` and ``target`` are the keys of the queue and of the list; ``taken`` is called with the job.
        """
        self._waiting = asyncio.create_task(self._wait(source, target, taken, wanted))
        return self._waiting

    async def _wait(
        self, source: str, target: str, taken: Callable[[bytes], None], wanted: Callable[[], bool]
    ) -> None:
        got = False

        def on_job(raw: bytes) -> None:
            nonlocal got
            got = True
            taken(raw)

        try:
            while not got and self.open and wanted():
                # The first one after a failure is short: its end shows that Redis serves moves again.
                await self._waiter.wait(source, target, on_job, briefly=self._wait_failed)
                self._wait_failed = False
                self.health.ok()
        except PyworkersError as error:
            self._wait_failed = True
            await asyncio.sleep(self.health.failed(error))
        finally:
            self._waiting = None
            self._wake()

    async def end_wait(self, control: Commands, unless: Callable[[], bool]) -> None:
        """End the blocking move without losing a job. ``unless`` is True once it may go on nevertheless."""
        # Again and again, because an UNBLOCK that arrives before the move has no effect.
        while (waiting := self._waiting) is not None and not unless():
            await self._waiter.unblock(control)
            await asyncio.wait([waiting], timeout=_AGAIN_S)

    async def end_this_wait(self, control: Commands) -> None:
        """End the blocking move that is under way now, and no later one."""
        if (waiting := self._waiting) is not None:
            await self._waiter.unblock(control)
            await asyncio.wait([waiting])

    async def check_wait(self, control: Commands) -> None:
        """After an outage, end the blocking move, because its connection may be half open."""
        if move := self._waiter.under_way:
            await self._waiter.unblock(control)
            await asyncio.sleep(PATIENCE_S)
            if move == self._waiter.under_way:
                self._waiter.drop_connection()

    def drop_connection(self) -> None:
        """Drop the connection: another server is the primary."""
        self._waiter.drop_connection()

    async def cut_wait(self) -> None:
        """End a blocking move that ``end_wait`` could not end, with its connection."""
        if self._waiting is not None:
            await cancel([self._waiting])

    async def close(self) -> None:
        """Close the connection."""
        if self._rest is not None:
            self._rest.cancel()
        await self.cut_wait()
        await self._waiter.close()
