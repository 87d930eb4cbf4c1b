"""Waits: the blocking moves of one group: each waits for the next job of a queue, while a worker is idle.

Runs in the master's event loop. It starts no exchange; the fetcher does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Sequence

from pyworkers.failpoints import hit
from pyworkers.server.fetching.headstart import HeadStart
from pyworkers.server.fetching.large import LargeJobs
from pyworkers.server.fetching.outbox import Outbox
from pyworkers.server.fetching.source import Source
from pyworkers.server.pool.jobs import Jobs
from pyworkers.server.waiting import cancel, now
from pyworkers.store.jobs import InProgress
from pyworkers.store.transport.link import Link

# For two attempts to end a blocking move (``source.py``). If Redis refuses UNBLOCK, the move may take a job
# that is handed back, and no harm is done.
_LONGEST_END_S = 0.3


class Waits:
    """The blocking moves of ``sources`` into the lists ``inprogress``, which feed ``jobs``."""

    def __init__(
        self,
        inprogress: InProgress,
        link: Link,
        sources: Sequence[Source],
        outbox: Outbox,
        jobs: Jobs,
        large: LargeJobs,
    ) -> None:
        self.defect: BaseException | None = None
        """An unexpected error of a wait: it ends the server, not only this queue."""
        self._inprogress = inprogress
        self._link = link
        self._sources = sources
        self._outbox = outbox
        self._jobs = jobs
        self._large = large
        self._head_start = HeadStart()
        self._surplus: asyncio.Task[None] | None = None
        """Ends the blocking moves for which no worker is free."""

    def move_to(self, inprogress: InProgress) -> None:
        """Continue with the lists of another incarnation."""
        self._inprogress = inprogress

    # To begin

    def begin(self, sources: Iterable[Source]) -> None:
        """Wait for the next job of each of these queues that is ready."""
        for source in sources:
            if source.ready:
                self._wait(source)

    def _wait(self, source: Source) -> None:
        mine, queue = self._inprogress, source.queue

        def taken(raw: bytes) -> None:
            hit("after_fetch")
            # A job for an earlier incarnation stays in its list, which ``clear_out`` gives back.
            if self._inprogress is mine:
                # Several queues may each bring a job at once, although fewer workers are idle. That is no
                # loss: the job is in our list, the next worker that ends its own job takes it, and if none
                # does, the pool gives it back as it gives back all jobs that were fetched ahead.
                self._large.note([raw])
                self._jobs.deliver(queue, raw)
                if self._head_start.due(now()):
                    self._head_start.give()
                self.check_surplus(but=source)

        def wanted() -> bool:
            free = self._jobs.free > 0 and queue not in self._outbox.handed_back
            return free and self._inprogress is mine

        source.wait(mine.source(queue), mine.key(queue), taken, wanted).add_done_callback(self._waited)

    def begin_in_place(self, source: Source) -> None:
        """Wait until a queue with limits has a job, which stays there."""
        key = self._inprogress.source(source.queue)
        waiting = source.wait(key, key, lambda _: None, lambda: self._jobs.free > 0)
        waiting.add_done_callback(self._waited)

    def _waited(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.defect = error
            self._outbox.changed.set()

    # To end

    async def end(self, queues: Container[str]) -> None:
        """End the blocking moves of these queues, but do not delay the outcomes for long."""
        deadline = now() + _LONGEST_END_S
        waits = [source for source in self._sources if source.waits and source.queue in queues]
        await asyncio.gather(*(source.end_wait(self._link, lambda: now() >= deadline) for source in waits))

    async def end_closed(self) -> None:
        """End the blocking moves of the queues from which nothing is fetched any more."""
        closed = [source for source in self._sources if not source.open]
        await asyncio.gather(*(self._end_closed(source) for source in closed))

    async def _end_closed(self, source: Source) -> None:
        await source.end_wait(self._link, unless=lambda: source.open)

    async def end_these(self) -> None:
        """End the blocking moves that are under way now, and no later ones."""
        await asyncio.gather(*(source.end_this_wait(self._link) for source in self._sources))

    async def check(self) -> None:
        """After an outage, end the blocking moves, because their connections may be half open."""
        await asyncio.gather(*(source.check_wait(self._link) for source in self._sources))

    async def cut(self) -> None:
        """End the blocking moves that ``end_closed`` could not end, with their connections."""
        if self._surplus is not None:
            await cancel([self._surplus])
        for source in self._sources:
            await source.cut_wait()

    # The surplus

    def check_surplus(self, but: Source | None = None) -> None:
        """End the blocking moves, but for one that ends by itself, if no job is to be fetched any more."""
        if self._surplus is None and self._has_surplus(but):
            self._surplus = asyncio.create_task(self._end_surplus())
            self._surplus.add_done_callback(self._waited)

    def _has_surplus(self, but: Source | None = None) -> bool:
        waits = any(source.waits and source is not but for source in self._sources)
        return waits and self._jobs.free <= 0

    async def _end_surplus(self) -> None:
        try:
            while self._has_surplus():
                waits = [source for source in self._sources if source.waits]
                await asyncio.gather(*(self._end_surplus_wait(source) for source in waits))
        finally:
            self._surplus = None

    async def _end_surplus_wait(self, source: Source) -> None:
        await source.end_wait(self._link, unless=lambda: self._jobs.free > 0)
