"""Source: where the jobs of one group come from: its queues, their blocking moves, and moves without a reply.

Runs in the master's event loop. It starts no exchange, and gives no job back; the fetcher does.

``Source`` is one queue, with its health and its blocking move. ``Waits`` has the moves of a group wait while
a worker is idle. ``Adoption`` finds the jobs that Redis has moved for this server, and whose reply was lost
(``Unclaimed``).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyworkers import logs
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.failpoints import hit
from pyworkers.server.fetching.idle import IdleQueues
from pyworkers.server.fetching.large import LargeJobs
from pyworkers.server.health import Health
from pyworkers.server.pool.jobs import JobTable
from pyworkers.server.pool.outbox import Outbox
from pyworkers.server.waiting import cancel, now
from pyworkers.store.calls import arun_one
from pyworkers.store.jobs import PATIENCE_S, InProgress, Waiter
from pyworkers.store.scripts import Commands
from pyworkers.store.transport.link import Link

_AGAIN_S = 0.2
# A queue that gets jobs in shorter intervals is busy.
_BUSY_S = 5.0


class Source:
    """One queue; ``wake`` is called when an exchange may take jobs from it again."""

    def __init__(
        self, queue: str, waiter: Waiter, health: Health, idle: IdleQueues, wake: Callable[[], None]
    ) -> None:
        self.queue = queue
        self.health = health
        self.open = False
        """True while jobs are fetched from it."""
        self.unclaimed = Unclaimed(waiter)
        self._waiter = waiter
        self._idle = idle
        self._wake = wake
        self._waiting: asyncio.Task[None] | None = None
        self._is_empty = False
        """True from an exchange that took all of its jobs to the announcement of a change."""
        self.filled = False
        """True from the announcement of a job to the next fetch: a worker is needed."""
        self._changed_at = -math.inf
        self.is_busy = False
        """True if it has often got a job lately: then a blocking move, with its connection, is cheaper."""
        self._wait_failed = False
        self.doubtful = False
        """True if the reply to a blocking move was lost: Redis may execute it later."""
        self._rest: asyncio.TimerHandle | None = None
        self._until_end = False

    def fetch(self, fetching: bool) -> None:
        """Set whether jobs are fetched from it."""
        self.open = fetching

    @property
    def ready(self) -> bool:
        """True if an exchange may take jobs from it: nothing waits for its next one."""
        return self.open and self._waiting is None and self._rest is None and not self._is_empty

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

    def fetched(self) -> None:
        """Note that an exchange has taken jobs from it, perhaps all."""
        self.filled = False

    # Without a connection

    def watch(self, key: str) -> None:
        """Take no jobs until Redis announces a change of the queue, whose key this is."""
        self._is_empty = True
        self.filled = False
        self._idle.watch(key, self._changed)

    def _changed(self, filled: bool = True) -> None:
        self._is_empty = False
        self.filled = filled
        changed_at, self._changed_at = self._changed_at, now()
        self.is_busy = self._changed_at - changed_at < _BUSY_S
        self._wake()

    # The blocking move

    def wait(
        self,
        source: str,
        target: str,
        taken: Callable[[bytes], None],
        wanted: Callable[[], bool],
    ) -> asyncio.Task[None]:
        """Start to wait for one job, as long as one is ``wanted``. Returns the task.

        ``source`` and ``target`` are the keys of the queue and of the list; ``taken`` is called with the job.
        If none comes, and empty queues are watched, the queue is not busy, and the connection is closed.
        """
        self._waiting = asyncio.create_task(self._wait(source, target, taken, wanted))
        return self._waiting

    async def _wait(
        self,
        source: str,
        target: str,
        taken: Callable[[bytes], None],
        wanted: Callable[[], bool],
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
                if not got and self._idle.watches:
                    self.is_busy = False
                    self._waiter.hang_up()
                    break
        except PyworkersError as error:
            self._wait_failed = self.doubtful = True
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

    async def connect_to(self, config: RedisConfig) -> None:
        """Wait at this Redis from now on."""
        await self._waiter.connect_to(config)

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


@dataclass(frozen=True, slots=True)
class Route:
    """The way of the jobs of one group: from its queues, over its connection, to its table, and back to Redis
    from its outbox.
    """

    sources: Sequence[Source]
    idle: IdleQueues
    link: Link
    jobs: JobTable
    outbox: Outbox
    grow: Callable[[bool], None]
    """Starts another worker, if the group may have one more; with True, all, for good."""
    may_grow: Callable[[], bool]


class _DoubtfulMove(NamedTuple):
    """A blocking move without a reply, which may have taken a job; ``since`` is in monotonic seconds."""

    move: int
    since: float


class Unclaimed:
    """The unclaimed jobs in the list of one queue, and the blocking move that may still bring one of them.

    A job that two checks find unclaimed is a *stray*. The first check alone is no proof, because the reply
    may be on the way: the blocking move that was under way then is ended, and must have its reply before the
    second one.
    """

    def __init__(self, waiter: Waiter) -> None:
        self._waiter = waiter
        self._jobs: Counter[bytes] = Counter()
        self._doubtful: _DoubtfulMove | None = None

    def forget(self) -> None:
        """Forget the unclaimed jobs that were found."""
        self._jobs.clear()
        self._doubtful = None

    def in_doubt(self) -> bool:
        """True while the move that was under way at the first check has no reply, for 4 s at most."""
        doubtful = self._doubtful
        if doubtful is None or doubtful.move != self._waiter.under_way:
            self._doubtful = None
            return False
        if time.monotonic() - doubtful.since > 2 * PATIENCE_S:
            self._waiter.drop_connection()
        return True

    def strays(self, found: Counter[bytes]) -> list[bytes]:
        """The jobs that the last check found, too; the others are kept for the next check."""
        strays = found & self._jobs
        self._jobs = found - strays
        return list(strays.elements())

    async def end_doubtful_move(self, control: Commands) -> None:
        """Make the reply arrive that may have one of these jobs."""
        if self._jobs and self._doubtful is None and (move := self._waiter.under_way):
            self._doubtful = _DoubtfulMove(move, time.monotonic())
            # UNBLOCK makes a pending reply arrive now.
            await self._waiter.unblock(control)


log = logs.get_logger()


class Adoption:
    """Runs the strays of all queues of a group."""

    def __init__(self, route: Route) -> None:
        self._link: Commands = route.link
        self._sources = route.sources
        self._jobs = route.jobs
        self._outbox = route.outbox

    async def adopt(self, inprogress: InProgress) -> None:
        """Run the jobs that two checks find unclaimed. Raises PyworkersError.

        From a queue from which the server does not fetch, it adopts nothing (a stop gives these jobs back),
        and it sends no check: replies come in order, so the replies to earlier commands arrive before a stop
        closes the connection.
        """
        # LLEN first: it is cheap, while jobs may be large.
        fetches = any(source.open for source in self._sources)
        if not fetches or await self._none_unclaimed(inprogress):
            self.forget()
            return
        for source in self._sources:
            if source.open:
                await self._adopt_from(source, inprogress)
            else:
                source.unclaimed.forget()

    def forget(self) -> None:
        """Forget the unclaimed jobs that were found."""
        for source in self._sources:
            source.unclaimed.forget()

    async def _adopt_from(self, source: Source, inprogress: InProgress) -> None:
        queue, unclaimed = source.queue, source.unclaimed
        jobs = await arun_one(self._link, inprogress.jobs(queue))
        if not source.open or unclaimed.in_doubt():
            return
        known = self._jobs.known(queue) + self._outbox.known(queue)
        for raw in unclaimed.strays(Counter(jobs) - known):
            log.warning("job.adopted", queue=queue)
            self._jobs.deliver(queue, raw)
        await unclaimed.end_doubtful_move(self._link)

    async def _none_unclaimed(self, inprogress: InProgress) -> bool:
        held = 0
        for source in self._sources:
            held += await arun_one(self._link, inprogress.count(source.queue))
        return held <= self._jobs.busy + self._outbox.outcomes


# Linux takes a wake-up through a socket as a sign that the sender is about to sleep, and often places the
# worker on the CPU of the master. There it would wait for the rest of the master's turn: 0.15 to 0.35 ms.
# sched_yield(2) does not help, because a worker has its own session, and so its own scheduling group
# (sched(7), autogroup). With the kernel's slack of 50 µs, the master sleeps for 0.1 ms: about as long as
# a worker with cold caches takes to reach the first line of its job.
_SLEEP_S = 50e-6
# A group that gets jobs more often is not idle. So a group has the master sleep for 2% of the time at most.
_IDLE_S = 0.005


class CpuYield:
    """Leaves the CPU to a worker that gets the first job for a while, because it would wait for it."""

    def __init__(self) -> None:
        self._job_at = 0.0

    def due(self, now_s: float) -> bool:
        """True if the job of this moment is the first one for a while. Call this once for each job."""
        before, self._job_at = self._job_at, now_s
        return now_s - before >= _IDLE_S

    def give(self) -> None:
        """Leave the CPU to the worker."""
        time.sleep(_SLEEP_S)


# For two attempts to end a blocking move (``source.py``). If Redis refuses UNBLOCK, the move may take a job
# that is given back, and no harm is done.
_LONGEST_END_S = 0.3


class Waits:
    """The blocking moves of a route into the lists ``inprogress``."""

    def __init__(self, inprogress: InProgress, route: Route, large: LargeJobs) -> None:
        self.defect: BaseException | None = None
        """An unexpected error of a wait: it ends the server, not only this queue."""
        self._inprogress = inprogress
        self._idle = route.idle
        self._grows = False
        self._link = route.link
        self._sources = route.sources
        self._outbox = route.outbox
        self._jobs = route.jobs
        self._large = large
        self._cpu_yield = CpuYield()
        self.begun = 0
        """The number of blocking moves that were started, and of the jobs that they have brought."""
        self._surplus: asyncio.Task[None] | None = None
        """Ends the blocking moves for which no worker is free."""

    def use(self, grows: bool) -> None:
        """Set whether the number of workers follows the jobs."""
        self._grows = grows

    def move_to(self, inprogress: InProgress) -> None:
        """Continue with the lists of another incarnation."""
        self._inprogress = inprogress

    # To begin

    def begin(self, sources: Iterable[Source]) -> None:
        """Wait for the next job of each of these queues that is ready."""
        for source in sources:
            if source.ready:
                if self._watches(source):
                    self.watch(source)
                else:
                    self._wait(source)

    def _watches(self, source: Source) -> bool:
        # A blocking move would stay when the last worker of a group ends.
        return self._idle.able if self._grows else self._idle.watches and not source.is_busy

    def watch(self, source: Source) -> None:
        """Notice when a queue has a job, although no worker is free for it."""
        source.watch(self._inprogress.source(source.queue))

    @property
    def able(self) -> bool:
        """False where Redis does not announce when a queue gets a job."""
        return self._idle.able

    @property
    def rests(self) -> bool:
        """True if empty queues are watched, so that the group needs no connection."""
        return self._idle.watches and not any(source.waits for source in self._sources)

    def begin_idle(self, sources: Iterable[Source]) -> None:
        """At the start, take the queues for empty, if that needs no connection for each of them."""
        if self._idle.watches:
            self.begin(sources)

    def _wait(self, source: Source) -> None:
        mine, queue = self._inprogress, source.queue
        self.begun += 1

        def taken(raw: bytes) -> None:
            hit("after_fetch")
            self.begun += 1
            # A job for an earlier incarnation stays in its list, which ``clear_out`` gives back.
            if self._inprogress is mine:
                # Several queues may each bring a job at once, although fewer workers are idle. That is no
                # loss: the job is in our list, the next worker that ends its own job takes it, and if none
                # does, the pool gives it back as it gives back all jobs that were fetched ahead.
                self._large.note([raw])
                self._jobs.deliver(queue, raw)
                if self._cpu_yield.due(now()):
                    self._cpu_yield.give()
                self.check_surplus(but=source)

        def wanted() -> bool:
            free = self._jobs.free > 0 and queue not in self._outbox.given_back
            return free and self._inprogress is mine

        waiting = source.wait(mine.source(queue), mine.key(queue), taken, wanted)
        waiting.add_done_callback(self._waited)

    def begin_in_place(self, source: Source) -> None:
        """Wait until a queue with limits has a job, which stays there."""
        key = self._inprogress.source(source.queue)
        if self._watches(source):
            source.watch(key)
            return
        waiting = source.wait(key, key, lambda _: None, lambda: self._jobs.free > 0)
        waiting.add_done_callback(self._waited)

    def _waited(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.defect = error
            self._outbox.changed.set()

    @property
    def in_doubt(self) -> bool:
        """True if Redis may execute a blocking move now."""
        return any(source.waits or source.doubtful for source in self._sources)

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
            self._idle.forget(self._inprogress.source(source.queue))
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
