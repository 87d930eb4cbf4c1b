"""Fetcher: moves jobs from one queue to its idle workers, and outcomes back.

Runs in the master's event loop. One exchange is under way at a time; while the queue is empty and a worker
is idle, one blocking move waits beside it. No job is fetched without an idle worker to start it; so while
Redis is unreachable, at most as many outcomes wait as there are workers, each at most twice the size of its
job.

    idle worker ──► exchange(outcomes, wanted) ──► jobs ──► pool
                        │ fewer than wanted
                        ▼
                    BRPOPLPUSH ── one job ──► pool, and exchange again: one job means probably more
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.failpoints import hit
from pyworkers.protocol.effects import name_of
from pyworkers.protocol.outcome import Report
from pyworkers.server.health import Health
from pyworkers.server.outbox import Batch, Outbox
from pyworkers.server.pool.deliveries import Deliveries
from pyworkers.server.waiting import cancel
from pyworkers.store.calls import arun_one
from pyworkers.store.jobs import Exchange, InProgress, LeaseLostError
from pyworkers.store.transport.link import Link
from pyworkers.store.waiter import PATIENCE_S, Waiter

log = logs.get_logger()


class _DoubtfulMove(NamedTuple):
    """A blocking move without a reply, which may have taken a job; ``since`` is in monotonic seconds."""

    move: int
    since: float


@dataclass(frozen=True, slots=True)
class Listeners:
    """The functions of the master that a fetcher calls for its events."""

    settled: Callable[[Report], None]
    """Redis has taken this report."""
    lease_lost: Callable[[str], None]
    """A peer has recovered the lists of this identity."""


class Fetcher:
    """Feeds ``deliveries`` and empties ``outbox``."""

    def __init__(
        self,
        inprogress: InProgress,
        link: Link,
        waiter: Waiter,
        health: Health,
        outbox: Outbox,
        deliveries: Deliveries,
        listeners: Listeners,
    ) -> None:
        [self._queue] = inprogress.queues
        self._inprogress = inprogress
        self._link = link
        self._waiter = waiter
        self._health = health
        self._outbox = outbox
        self._deliveries = deliveries
        self._listeners = listeners
        self._waiting: asyncio.Task[None] | None = None
        self._wake = outbox.changed
        self._asking = False
        self._answered = asyncio.Event()
        self._wait_failed = False
        self._defect: BaseException | None = None
        self._unclaimed: Counter[bytes] = Counter()
        self._doubtful: _DoubtfulMove | None = None
        self._fetching = False

    def fetch(self) -> None:
        """Fetch jobs from now on."""
        self._fetching = True
        self._wake.set()

    async def quiet(self) -> None:
        """Fetch no more. Jobs that the exchange or the blocking move under way has taken still run."""
        self._fetching = False
        while self._asking:
            # Redis may execute the exchange only now, and take a newer job.
            self._answered.clear()
            await self._answered.wait()
        while (waiting := self._waiting) is not None:
            await self._waiter.unblock(self._link)
            await asyncio.wait([waiting], timeout=0.2)

    def move_to(self, identity: str) -> None:
        """Continue under another identity: the jobs whose outcomes Redis has not taken belong to a peer."""
        self._outbox.clear()
        self._unclaimed.clear()
        self._inprogress = self._inprogress.under(identity)
        self._wake.set()

    async def clear_out(self, identity: str) -> None:
        """Give back the jobs in the list of an earlier incarnation; retry until Redis has executed it."""
        if (waiting := self._waiting) is not None:
            await self._waiter.unblock(self._link)
            await asyncio.wait([waiting])
        earlier = self._inprogress.under(identity)
        while True:
            try:
                await self._give_back(earlier)
                return
            except PyworkersError as error:
                await self._wait_out(error)

    async def run(self) -> None:
        """Exchange whenever ``changed`` of the outbox is set, until cancelled."""
        while self._defect is None:
            await self._wake.wait()
            self._wake.clear()
            await self._turn()
        raise self._defect

    async def flush(self) -> None:
        """Settle the remaining outcomes, once ``run`` has ended. Raises PyworkersError."""
        while self._outbox:
            batch = self._outbox.portion()
            found = await self._inprogress.exchange(self._link, batch, 0, (), time.time())
            # What is left stands in an in-progress list, which is given back, by us or by a peer.
            self._outbox.taken(batch)
            self._account(batch, found)

    async def give_back(self) -> int:
        """Give all jobs of our in-progress list back to the queue; returns their number.

        Raises PyworkersError.
        """
        return await self._give_back(self._inprogress)

    async def _give_back(self, inprogress: InProgress) -> int:
        total = 0
        while moved := await arun_one(self._link, inprogress.give_back(self._queue)):
            total += moved
            hit("mid_give_back")
        return total

    def drop_connection(self) -> None:
        """Drop the connections: another server is the primary."""
        self._waiter.drop_connection()
        self._link.drop_connection()

    async def end_wait(self) -> None:
        """End a blocking move that ``quiet`` could not end, with its connection."""
        if self._waiting is not None:
            await cancel([self._waiting])

    async def close(self) -> None:
        """Close the connections."""
        await self.end_wait()
        await self._waiter.close()
        await self._link.aclose()

    async def _turn(self) -> None:
        batch = self._outbox.portion()
        fetching = self._fetching and self._waiting is None and len(batch) == len(self._outbox)
        wanted = self._deliveries.free if fetching else 0
        if not batch and wanted <= 0:
            return
        mine = self._inprogress
        if batch:
            hit("before_settle")
        self._asking = wanted > 0
        try:
            try:
                found = await mine.exchange(
                    self._link, batch, max(0, wanted), [self._queue] if wanted > 0 else (), time.time()
                )
            finally:
                self._asking = False
                self._answered.set()
        except LeaseLostError:
            self._listeners.lease_lost(mine.identity)
            return
        except PyworkersError as error:
            await self._wait_out(error)
            return
        if batch:
            hit("after_settle")
        if found.jobs:
            hit("after_fetch")
        if self._inprogress is not mine:
            return
        # Only after the reply: without one, the same batch is sent again.
        self._outbox.taken(batch, found.left)
        self._account(batch, found)
        taken = 0
        for queue, jobs in found.jobs:
            taken += len(jobs)
            for raw in jobs:
                self._deliveries.deliver(queue, raw)
        refusal = found.error or found.refused.get(self._queue)
        if refusal is not None:
            await self._wait_out(refusal)
            return
        if not self._wait_failed:
            self._health.ok()
        if self._outbox:
            self._wake.set()
        if taken < wanted and self._fetching:
            self._waiting = asyncio.create_task(self._wait())
            self._waiting.add_done_callback(self._waited)

    def _account(self, batch: Batch, found: Exchange) -> None:
        for place in found.stale:
            log.warning("job.not_ours", queue=self._queue, fate=batch[place][2].outcome.fate.name.lower())
        for effect, reason in found.failed:
            about = {"queue": self._queue, "effect": name_of(effect), "key": effect.key}
            log.error("effect.failed", **about, error=reason)
        unsettled = {*found.stale, *found.left}
        for place, (_, _, report) in enumerate(batch):
            if place not in unsettled:
                self._listeners.settled(report)

    async def _wait(self) -> None:
        mine = self._inprogress
        got = False

        def taken(raw: bytes) -> None:
            nonlocal got
            got = True
            hit("after_fetch")
            # A job for an earlier incarnation stays in its list, which ``clear_out`` gives back.
            if self._inprogress is mine:
                self._deliveries.deliver(self._queue, raw)

        try:
            while not got and self._may_wait(mine):
                await self._waiter.wait(mine.source(self._queue), mine.key(self._queue), taken)
                self._wait_failed = False
                self._health.ok()
        except PyworkersError as error:
            self._wait_failed = True
            await self._wait_out(error)
        finally:
            self._waiting = None
            self._wake.set()

    def _may_wait(self, mine: InProgress) -> bool:
        return self._fetching and self._deliveries.free > 0 and self._inprogress is mine

    async def check_wait(self) -> None:
        """After an outage, end the blocking move, because its connection may be half open."""
        if move := self._waiter.under_way:
            await self._waiter.unblock(self._link)
            await asyncio.sleep(PATIENCE_S)
            if move == self._waiter.under_way:
                self._waiter.drop_connection()

    def _waited(self, task: asyncio.Task[None]) -> None:
        """Pass an unexpected error of the wait to ``run``: it ends the server, not only this queue."""
        if not task.cancelled():
            self._defect = task.exception()
            self._wake.set()

    async def _wait_out(self, error: PyworkersError) -> None:
        """Pause after a failure: Redis is unreachable, or refuses commands on this queue's key only."""
        await asyncio.sleep(self._health.failed(error))
        self._wake.set()

    @property
    def knows_jobs(self) -> bool:
        """True if our in-progress list should hold jobs."""
        return self._deliveries.busy > 0 or bool(self._outbox)

    async def adopt(self) -> None:
        """Run the jobs of our in-progress list that never arrived, because the reply was lost.

        A job is adopted if two checks find it unclaimed, because its reply may be on the way: the blocking
        move that was under way at the first check is ended, and must have its reply before the second one.
        While the server does not fetch, it adopts nothing (a stop gives these jobs back), and sends no check:
        replies come in order, so the replies to earlier commands arrive before a stop closes the connection.
        Raises PyworkersError.
        """
        # LLEN first: it is cheap, while jobs may be large.
        if not self._fetching or await self._none_unclaimed() or not self._fetching:
            self.has_no_strays()
            return
        jobs = await arun_one(self._link, self._inprogress.jobs(self._queue))
        if not self._fetching or await self._in_doubt():
            return
        known = self._deliveries.known(self._queue) + self._outbox.known(self._queue)
        unclaimed = Counter(jobs) - known
        for raw in (unclaimed & self._unclaimed).elements():
            log.warning("job.adopted", queue=self._queue)
            self._deliveries.deliver(self._queue, raw)
            unclaimed[raw] -= 1
        self._unclaimed = +unclaimed
        if self._unclaimed and self._doubtful is None and (move := self._waiter.under_way):
            self._doubtful = _DoubtfulMove(move, time.monotonic())
            # UNBLOCK makes a pending reply arrive now.
            await self._waiter.unblock(self._link)

    def has_no_strays(self) -> None:
        """Forget the unclaimed jobs that were found."""
        self._unclaimed.clear()
        self._doubtful = None

    async def _in_doubt(self) -> bool:
        """True while the move that was under way at the first check has no reply, for 4 s at most."""
        doubtful = self._doubtful
        if doubtful is None or doubtful.move != self._waiter.under_way:
            self._doubtful = None
            return False
        if time.monotonic() - doubtful.since > 2 * PATIENCE_S:
            self._waiter.drop_connection()
        return True

    async def _none_unclaimed(self) -> bool:
        held = await arun_one(self._link, self._inprogress.count(self._queue))
        return held <= self._deliveries.busy + len(self._outbox)
