"""Fetcher: moves jobs from the queues of one group to its idle workers, and outcomes back.

Runs in the master's event loop. One exchange is under way at a time. While all queues are empty and a worker
is idle, one blocking move for each queue waits alongside it. A job is fetched only for an idle worker, or as
one of the jobs ahead (handout.py). So while Redis is unreachable, no more outcomes wait than that, each at
most twice the size of its job.

    idle worker ──► exchange(outcomes, wanted) ──► jobs ──► pool
                        │ fewer than wanted
                        ▼
                    BRPOPLPUSH ── one job ──► pool, and exchange again: one job means probably more
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

from pyworkers import logs
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.failpoints import hit
from pyworkers.protocol.effects import name_of, subject_of
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.limits import QueueLimit
from pyworkers.protocol.outcome import Report
from pyworkers.server.fetching.large import Cuts, LargeJobs
from pyworkers.server.fetching.source import Adoption, Route, Source, Waits
from pyworkers.server.plan import Group
from pyworkers.server.pool.outbox import Portion
from pyworkers.server.waiting import now
from pyworkers.store.calls import arun_one
from pyworkers.store.jobs import (
    Exchange,
    InProgress,
    LeaseLostError,
    Taken,
    WatchedList,
    exchange_watched,
    hold_any,
    watch,
)
from pyworkers.store.transport.link import Link

log = logs.get_logger()
R = TypeVar("R")

# A group that has no job for this time closes its connection, if the server watches its queues.
_REST_S = 10.0

Look = tuple[str, Callable[[Any], None]]
"""A kind of read in look.lua, and the function that takes the reply."""


def no_queue(_queue: str) -> bool:
    """False for each queue."""
    return False


class Fetcher:
    """Feeds the table of jobs of a route, and empties its outbox."""

    def __init__(
        self,
        group: Group,
        inprogress: InProgress,
        route: Route,
        callbacks: GroupCallbacks,
        rng: random.Random,
    ) -> None:
        sources, link, jobs, outbox = route.sources, route.link, route.jobs, route.outbox
        self._inprogress = inprogress
        self._link = link
        self._by_queue = {source.queue: source for source in sources}
        self._outbox = outbox
        self._jobs = jobs
        self._callbacks = callbacks
        self._rng = rng
        self._cuts = Cuts(outbox, link)
        self._wake = outbox.changed
        self._grow, self._may_grow = route.grow, route.may_grow
        self._asked: Sequence[Source] = ()
        """The queues from which the exchange under way takes jobs."""
        self._answered = asyncio.Event()
        self._rounds = asyncio.Lock()
        """Held during a round, and from ``end`` on."""
        self._large = LargeJobs(jobs, outbox)
        self._waits = Waits(inprogress, route, self._large)
        self._limited = Limited(link, self._waits)
        self._watching = Watching(link, self._large, sources[0]) if len(sources) == 1 else None
        self._fetches, self._empty_after = 0, -1
        self._doubtful = False
        """True if Redis may execute a fetch of ours at any time: its reply was lost."""
        self._certain = True
        """True if all jobs with an outcome in the outbox are in our lists."""
        self._adoption = Adoption(route)
        self.use(group)

    def use(self, group: Group) -> None:
        """Fetch in the order of this group, which has the same queues."""
        self._sources = [self._by_queue[queue] for queue in group.queues]
        self._grows = group.least is not None
        self._waits.use(self._grows)
        self._weights = None if group.strict or len(group.queues) == 1 else group.queues
        self._limited.use(group.limits)

    def fetch(self, queues: Container[str]) -> None:
        """Fetch from these queues from now on, and from no others."""
        for source in self._sources:
            source.fetch(source.queue in queues)
        self._wake.set()

    async def quiet(self) -> None:
        """Wait until no fetch is under way from a queue from which none may be.

        Jobs that the exchange or a blocking move under way has taken still run.
        """
        while any(not source.open for source in self._asked):
            # Redis may execute the exchange only now, and take a newer job.
            self._answered.clear()
            await self._answered.wait()
        await self._waits.end_closed()

    def move_to(self, identity: str) -> None:
        """Continue under another identity: the jobs whose outcomes Redis has not taken belong to a peer."""
        self._outbox.clear()
        self._large.forget()
        if self._watching is not None:
            self._watching.forget()
        self.has_no_strays()
        self._empty_after = -1
        self._inprogress = self._inprogress.under(identity)
        self._waits.move_to(self._inprogress)
        self._wake.set()

    def wake(self) -> None:
        """Ask for jobs, if it may."""
        self._wake.set()

    async def clear_out(self, identity: str) -> None:
        """Give back the jobs in the lists of an earlier incarnation; retry until Redis has executed it."""
        await self._waits.end_these()
        earlier = self._inprogress.under(identity)
        while True:
            try:
                await self._give_back(earlier)
                return
            except PyworkersError as error:
                await self._wait_out(error)

    async def run(self) -> None:
        """Exchange whenever ``changed`` of the outbox is set, until cancelled."""
        self._waits.begin_idle(self._ready())
        while (defect := self._waits.defect) is None:
            await self._wake.wait()
            self._wake.clear()
            async with self._rounds:
                await self._round()
        raise defect

    async def end(self) -> None:
        """Wait for the end of the exchange under way, and have ``run`` begin no other one."""
        await self._rounds.acquire()

    async def flush(self) -> None:
        """Settle the remaining outcomes, once ``run`` has ended. Raises PyworkersError."""
        mine = self._inprogress
        while self._outbox:
            portion = self._cuts.portion()
            call = mine.exchange(self._link, portion, 0, (), time.time())
            try:
                found = await self._cuts.watch(mine, portion, call)
            except PyworkersError:
                if self._cuts.searching:
                    continue
                raise
            if self._inprogress is not mine:
                # The lease was lost meanwhile: a peer has the portion, and the outbox has dropped it.
                return
            # The rest is in an in-progress list, which this server or a peer gives back.
            self._account(portion, self._outbox.taken(portion), found)

    async def give_back(self, except_from: Callable[[str], bool] = no_queue) -> int:
        """Give all jobs of our in-progress lists back to their queues; returns their number.

        ``except_from`` is asked about the queue before each command. Raises PyworkersError.
        """
        # Most groups of a server with many queues have no connection, and do not open one for this. EXISTS
        # first: a Redis that hangs would execute a script after the next manager of the queue has taken jobs.
        if not self.may_hold or not await arun_one(self._link, hold_any(self.lists)):
            return 0
        return await self._give_back(self._inprogress, except_from)

    async def _give_back(self, inprogress: InProgress, except_from: Callable[[str], bool] = no_queue) -> int:
        total = 0
        for queue in inprogress.queues:
            while not except_from(queue) and (
                moved := await arun_one(self._link, inprogress.give_back(queue))
            ):
                total += moved
                hit("mid_give_back")
        return total

    async def release(self) -> None:
        """Give up what only one server may have, once no job is in progress here. Raises PyworkersError."""

    def follows(self, _keys: Keys) -> dict[str, Look]:
        """The keys whose changes it needs."""
        return {}

    async def connect_to(self, config: RedisConfig) -> None:
        """Use this Redis from now on, which has the same data."""
        for source in self._sources:
            await source.connect_to(config)
        await self._link.connect_to(config)

    async def cut_waits(self) -> None:
        """End the blocking moves that ``quiet`` could not end, with their connections."""
        await self._waits.cut()

    async def close(self) -> None:
        """Close the connections."""
        await self.cut_waits()
        for source in self._sources:
            await source.close()
        await self._link.aclose()

    async def _round(self) -> None:
        """Settle the outcomes and take jobs: one exchange, and fetches from queues with limits."""
        if returning := self._outbox.given_back:
            # Otherwise it would take the jobs that are given back.
            await self._waits.end(returning)
        portion, returning = self._cuts.portion(), self._outbox.given_back
        free = self._jobs.free if len(portion) == len(self._outbox) else 0
        wanted = min(free, self._large.most)
        asked, limited = self._turns(returning) if wanted > 0 else ([], [])
        if self._grows and self._jobs.free <= 0:
            self._look_for_more()
        if not portion and not asked:
            if limited:
                await self._take_limited(limited)
            return
        mine = self._inprogress
        exchange = self._exchange(mine, portion, wanted if asked else 0, asked)
        found = await self._replied(mine, asked, self._cuts.watch(mine, portion, exchange))
        if found is None or self._inprogress is not mine:
            return
        taken = self._accept(portion, found)
        if found.error is not None:
            await self._wait_out(found.error)
            return
        self._note_health(found)
        if returning or self._outbox.outcomes > len(found.left) or not (found.refused or self._certain):
            self._wake.set()
        for source in asked if self._grows else ():
            source.fetched()
        if taken < wanted:
            self._waits.begin(asked)
        else:
            await self._took_all(mine, wanted < free)
        if self._limited.limits:
            await self._turn_to_limited(portion, limited)

    def _turns(self, returning: Container[str]) -> tuple[list[Source], list[Source]]:
        """The queues from which the next exchange takes jobs, and those with limits, which follow it."""
        # A queue to which jobs are given back has its turn in the next exchange: otherwise this server would
        # take them again, and no other server would get one.
        asked = [source for source in self._ready() if source.queue not in returning]
        if self._limited.limits and (limited := self._limited.among(asked)):
            # They have their turn after the exchange, which frees slots. It takes nothing from other queues,
            # which have theirs in the next round: they would take the room of limited ones before them.
            return [], limited
        return asked, []

    async def _took_all(self, mine: InProgress, has_room: bool) -> None:
        """Continue after an exchange that took all that it wanted; ``has_room``: more jobs may be fetched."""
        if has_room or (self._grows and self._may_grow()):
            # The queues may hold more jobs, for which there is room, or would be with another worker.
            self._wake.set()
        self._waits.check_surplus()
        if self._watching is not None and self._certain:
            await self._watching.begin(mine)

    async def _turn_to_limited(self, ended: Portion, limited: list[Source]) -> None:
        """Take jobs from queues with limits, after an exchange that has settled ``ended``."""
        for queue in {job.queue for job in ended}:
            self._by_queue[queue].job_ended()
        if limited:
            await self._take_limited(limited)

    def _look_for_more(self) -> None:
        """Start a worker if a job waits for one; else notice when one does."""
        ready = self._ready()
        if not self._waits.able:
            self._grow(True)
        elif any(source.filled for source in ready):
            self._grow(False)
        elif self._may_grow():
            for source in ready:
                self._waits.watch(source)

    async def _take_limited(self, sources: Sequence[Source]) -> None:
        """Take the jobs that may start now from queues with limits, in their order."""
        for source in sources:
            mine, wanted = self._inprogress, min(self._jobs.free, self._large.most)
            if wanted <= 0:
                break
            # A reload may have removed its limits meanwhile: then the next exchange takes from it.
            if not source.ready or source.queue not in self._limited.limits:
                continue
            # Its reply may be lost: then our list holds jobs that this server has not received.
            certain, self._certain = self._certain, False
            found = await self._replied(mine, [source], self._limited.take(mine, source.queue, wanted))
            if found is None or self._inprogress is not mine:
                return
            self._certain = certain
            source.fetched()
            self._start_limited(source.queue, found)
            self._limited.taken(source, found, wanted)
        # For the queues without limits; and these, if workers are idle again, or more may start.
        self._wake.set()

    async def _replied(
        self, mine: InProgress, asked: Sequence[Source], fetch: Coroutine[Any, Any, R]
    ) -> R | None:
        """The reply to a fetch from these queues; None if it was not executed, or if the reply is lost."""
        self._asked = asked
        self._fetches += bool(asked)
        try:
            return await fetch
        except LeaseLostError:
            self._callbacks.lease_lost(mine.identity)
        except PyworkersError as error:
            self._end_asking()
            await self._wait_out(error)
        finally:
            # Lists that were found empty before this reply may hold its jobs.
            self._fetches += bool(asked)
            self._end_asking()
        return None

    async def _exchange(
        self, mine: InProgress, portion: Portion, wanted: int, asked: Sequence[Source]
    ) -> Exchange:
        if portion:
            hit("before_settle")
        certain, self._certain = self._certain, False
        # Until a reply shows that the portion is settled, it may be settled already: then an extract could
        # find a job that this server has not received.
        found = None
        if certain and self._watching is not None:
            found = await self._watching.exchange(mine, portion, wanted)
        if found is None:
            queues = [source.queue for source in asked]
            extracts = self._large.extracts(portion) if certain else {}
            found = await mine.exchange(self._link, portion, wanted, queues, time.time(), extracts)
        # An extract that was not enough is not sent again.
        self._certain = len(found.left) == 0
        if portion:
            hit("after_settle")
        return found

    def _end_asking(self) -> None:
        self._asked = ()
        self._answered.set()

    def _accept(self, portion: Portion, found: Exchange) -> int:
        """Remove a portion that is settled, and start the jobs that were taken; returns their number."""
        # Only after the reply: without one, the same portion is sent again.
        outcomes = self._outbox.taken(portion, found.left)
        self._large.settled(portion)
        self._account(portion, outcomes, found)
        return self._start(found.jobs)

    def _start(self, found: Sequence[tuple[str, Sequence[bytes]]]) -> int:
        """Start the jobs of one fetch, by their queues; returns their number."""
        if jobs := [raw for _, taken in found for raw in taken]:
            hit("after_fetch")
            self._large.note(jobs)
            for queue, taken in found:
                self._jobs.deliver_all(queue, taken)
        return len(jobs)

    def _start_limited(self, queue: str, found: Taken) -> None:
        if found.jobs:
            hit("after_fetch")
            self._large.note(found.jobs)
        for raw, start in zip_longest(found.jobs, found.starts):
            self._jobs.deliver(queue, raw, start)

    def _note_health(self, found: Exchange) -> None:
        for queue, refusal in found.refused.items():
            self._by_queue[queue].refused(refusal)
            self._leave_replica(refusal)
        for source in self._sources:
            source.worked()

    def _ready(self) -> Sequence[Source]:
        """The queues to take jobs from, in their order; if they have weights, in an order drawn anew.

        Not those for whose next job a blocking move waits: they were empty, and the move takes it.
        """
        ready = [source for source in self._sources if source.ready] if self._may_fetch() else []
        if (weights := self._weights) is not None:
            # Sidekiq shuffles a list that holds each queue as many times as its weight, and takes the queues
            # as they first occur in it. Times with these rates, sorted, give the same chances.
            ready.sort(key=lambda source: self._rng.expovariate(weights[source.queue]))
        return ready

    def _may_fetch(self) -> bool:
        return self._callbacks.may_fetch(self._inprogress.identity)

    def _account(self, portion: Portion, outcomes: int, found: Exchange) -> None:
        """Log and count a portion; the first ``outcomes`` of it are no notes."""
        for place in found.stale:
            job = portion[place]
            # A note may come too late.
            if place < outcomes:
                log.warning("job.not_ours", queue=job.queue, fate=job.report.outcome.fate.name.lower())
        for queue, effect, reason in found.failed:
            about = {"queue": queue, "effect": name_of(effect), "key": subject_of(effect)}
            log.error("effect.failed", **about, error=reason)
        unsettled = {*found.stale, *found.left}
        queue, report, jobs = "", None, 0
        for place, job in enumerate(portion[:outcomes] if outcomes < len(portion) else portion):
            if place in unsettled:
                continue
            # Short jobs of one class have the same report: they are counted together.
            if job.report is report and job.queue == queue:
                jobs += 1
                continue
            if report is not None:
                self._callbacks.settled(queue, report, jobs)
            queue, report, jobs = job.queue, job.report, 1
        if report is not None:
            self._callbacks.settled(queue, report, jobs)

    async def check_wait(self) -> None:
        """After an outage, end the blocking moves, because their connections may be half open."""
        await self._waits.check()

    async def _wait_out(self, error: PyworkersError) -> None:
        """Pause after a failure: Redis is unreachable, or refuses the exchange."""
        self._doubtful = True
        self._leave_replica(error)
        await asyncio.sleep(max([source.health.failed(error) for source in self._sources]))
        self._wake.set()

    def _leave_replica(self, refusal: PyworkersError) -> None:
        """Hang up after a refusal by a replica: the next connection may lead to the primary."""
        if refusal.code == "READONLY":
            self._link.hang_up()

    @property
    def knows_jobs(self) -> bool:
        """True if our in-progress lists should hold jobs."""
        return self._jobs.busy > 0 or bool(self._outbox)

    async def adopt(self) -> None:
        """Run the jobs of our in-progress lists that never arrived. Raises PyworkersError."""
        await self._adoption.adopt(self._inprogress)

    @property
    def lists(self) -> list[str]:
        """The keys of our in-progress lists."""
        return [self._inprogress.key(queue) for queue in self._inprogress.queues]

    @property
    def fetches(self) -> int:
        """A number that grows with each fetch that begins, and with each that ends or brings a job."""
        return self._fetches + self._waits.begun

    @property
    def may_hold(self) -> bool:
        """True if our in-progress lists may hold a job: a fetch began or ended since they were empty."""
        return self._doubtful or self.fetches != self._empty_after or self._waits.in_doubt

    def has_no_strays(self) -> None:
        """Forget the unclaimed jobs that were found."""
        self._adoption.forget()

    def is_empty(self, fetches: int) -> None:
        """Note that our in-progress lists were empty when ``fetches`` had this value."""
        self.has_no_strays()
        self._empty_after = fetches

    def rest(self) -> None:
        """Close the connection if there was no job for some time."""
        if not self.may_hold and self._waits.rests:
            self._link.hang_up(_REST_S)


# How often to look for a slot of a queue that another server may have freed.
_OTHERS_S = 0.5


class Limited:
    """The limits of a group's queues, in ``limits``."""

    def __init__(self, link: Link, waits: Waits) -> None:
        self._link = link
        self._waits = waits
        self._takes = itertools.count()
        self.limits: Mapping[str, QueueLimit] = {}

    def use(self, limits: Mapping[str, QueueLimit]) -> None:
        """Have these limits from now on."""
        self.limits = limits

    def among(self, sources: Iterable[Source]) -> list[Source]:
        """The queues that have limits."""
        return [source for source in sources if source.queue in self.limits]

    async def take(self, mine: InProgress, queue: str, wanted: int) -> Taken:
        """Take up to ``wanted`` jobs that may start now.

        Raises LeaseLostError when a peer has recovered the lists, and PyworkersError.
        """
        name = f"{mine.identity} {next(self._takes)}"
        return await mine.take(self._link, queue, self.limits[queue], wanted, name)

    def taken(self, source: Source, found: Taken, wanted: int) -> None:
        """Rest until more jobs of a queue may start, or wait for the next one."""
        source.worked()
        if found.after_s is not None or found.full:
            source.rest(_OTHERS_S if found.after_s is None else found.after_s, found.full)
        elif len(found.jobs) < wanted:
            self._waits.begin_in_place(source)


# Until the next attempt after one that failed: Redis is out of memory, an ACL forbids it, or another client
# changes the list.
_PAUSE_S = 1.0


class Watching:
    """The list of a group with one queue, ``source``."""

    def __init__(self, link: Link, large: LargeJobs, source: Source) -> None:
        self._link = link
        self._large = large
        self._source = source
        self._watched: WatchedList | None = None
        self._again_at = 0.0

    def forget(self) -> None:
        """Watch no more: the jobs are in other lists."""
        self._watched = None

    async def exchange(self, mine: InProgress, portion: Portion, wanted: int) -> Exchange | None:
        """Settle a portion and take jobs; None if nothing was done. Raises PyworkersError."""
        watched, self._watched = self._watched, None
        # The blocking move may take a job at any time.
        if watched is None or self._source.waits:
            return None
        if (places := self._large.places(watched.queue, portion)) is None:
            return None
        held = len(self._large.known(watched.queue))
        result = await exchange_watched(mine, self._link, watched, places, wanted, held)
        if result is None:
            self._again_at = now() + _PAUSE_S
            return None
        self._watched = result.watched
        return result.found

    async def begin(self, mine: InProgress) -> None:
        """Watch the list if it holds large jobs alone."""
        queue = self._source.queue
        if self._watched or self._source.waits or now() < self._again_at:
            return
        if self._large.places(queue, []) is None:
            return
        try:
            self._watched = await watch(mine, self._link, queue, len(self._large.known(queue)))
        except PyworkersError:
            # The next exchange deals with the outage.
            return
        if self._watched is None:
            self._again_at = now() + _PAUSE_S


@dataclass(frozen=True, slots=True)
class GroupCallbacks:
    """The functions of the master that a group calls for its events, and before it asks for jobs."""

    settled: Callable[[str, Report, int], None]
    """Redis has taken this report, of this many jobs of a queue."""
    interrupted: Callable[[int], None]
    """This many jobs run again: a stop gave them back, or nothing shows that they ended their process."""
    lease_lost: Callable[[str], None]
    """A peer has recovered the lists of this identity."""
    saw_lease: Callable[[str, float], None]
    """The lease of this peer expires in this many seconds; 0 if it has expired and jobs are in its lists."""
    may_fetch: Callable[[str], bool]
    """True if Redis has registered this identity: before, it refuses to hand out jobs."""
