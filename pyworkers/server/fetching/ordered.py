"""Ordered: fetches from an ordered queue, one job at a time over all servers, and retries a job in its place.

Runs in the master's event loop. One server is active for the queue, and the others wait: see take.lua. No
job is taken before the one before it is settled, and none waits in a blocking move.

    active ──► take ──► job ──► outcome ──► exchange ──► take …
                 │
                 ├──► empty: until Redis announces a change of the queue
                 └──► the head has failed: until its time
    standby ──► until the queue is given up, or the lease of the active server expires
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyworkers import logs
from pyworkers.errors import PyworkersError
from pyworkers.protocol.effects import HoldHead, PauseQueue
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import Fate, Outcome, Report
from pyworkers.protocol.suspects import deleting_entry
from pyworkers.server.fetching.fetcher import Fetcher, Look
from pyworkers.server.fetching.source import Source
from pyworkers.server.plan import Group
from pyworkers.server.pool.delivery import Delivery
from pyworkers.store.calls import arun_one
from pyworkers.store.flow import ordered
from pyworkers.store.flow.ordered import TakeReply

# In case an announcement is lost: until the next look at a queue that another server has, that is paused or
# whose head waits; and at an empty one.
_LONGEST_S, _EMPTY_S = 5.0, 60.0
# Between two looks at a lease that is about to expire, or at a job that is being recovered.
_SHORTEST_S = 0.1
_SLACK_S = 0.01

log = logs.get_logger()


class InPlace:
    """A step of the end of a job of an ordered queue: one that is to run again keeps its place, and the queue
    waits. Unless ``skip_dead``, a job that is dead pauses its queue.
    """

    def __init__(self, skip_dead: bool) -> None:
        self._skip_dead = skip_dead

    def use(self, skip_dead: bool) -> None:
        """Set whether the queue continues after a dead job."""
        self._skip_dead = skip_dead

    def step(self, job: Delivery, report: Report) -> Report:
        """The report of a job, with what the order adds to it."""
        outcome, queue = report.outcome, job.queue
        if outcome.fate in (Fate.RETRY, Fate.SNOOZE):
            return report._replace(outcome=_in_place(job, outcome))
        if outcome.fate is Fate.DEAD and not self._skip_dead:
            log.error("queue.stopped", queue=queue, hint=f"see the dead job, then: pyworkers resume {queue}")
            return report._replace(outcome=_with(outcome, PauseQueue(queue)))
        return report


def _in_place(job: Delivery, outcome: Outcome) -> Outcome:
    if job.marked:
        outcome = deleting_entry(job.raw, outcome)
    delay_ms = max(0, round((outcome.at - time.time()) * 1000))
    head = hashlib.sha1(outcome.payload or job.raw, usedforsecurity=False).hexdigest()
    held = _with(outcome, HoldHead(f"ordered:{job.queue}", delay_ms, head))
    return replace(held, fate=Fate.REQUEUE)


def _with(outcome: Outcome, effect: HoldHead | PauseQueue) -> Outcome:
    # Not ``with_effects``: the job's own effects may have reached the limit.
    return replace(outcome, effects=(*outcome.effects, effect))


class OrderedFetcher(Fetcher):
    """Feeds the pool of one ordered queue while this server is active for it."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        [self._source] = self._sources
        self._known = ""
        self._fence = 0
        """The fencing token while this server is active, else 0."""
        self._timer: asyncio.TimerHandle | None = None

    def use(self, group: Group) -> None:
        """Fetch from the queue of this group. Its order is a limit by itself, so it has no others."""
        super().use(replace(group, limits={}))

    # The changes in Redis

    def follows(self, keys: Keys) -> dict[str, Look]:
        """The queue and the state of its order."""
        queue = self._source.queue
        return {
            keys.queue(queue): ("length", self._see_queue),
            keys.ordered(queue): ("active", self._see_active),
        }

    def _see_queue(self, _length: Any) -> None:
        # The take under way may make this server active, and have found the queue empty before this job came.
        if self._fence or self._asked:
            self._wake.set()

    def _see_active(self, _active: Any) -> None:
        self._wake.set()

    # As a fetcher

    def move_to(self, identity: str) -> None:
        """Continue under another identity, which is not active yet."""
        self._stand_by("")
        super().move_to(identity)

    async def adopt(self) -> None:
        """Run a job whose fetch had no reply: the next ``take`` returns it."""
        self._wake.set()

    async def release(self) -> None:
        """Let another server become active, if no job is in progress here. Raises PyworkersError."""
        if not self._fence:
            return
        mine = self._inprogress
        if await arun_one(self._link, ordered.release(mine.keys, self._source.queue, mine.identity)):
            self._stand_by("")

    async def close(self) -> None:
        """Close the connections."""
        if self._timer is not None:
            self._timer.cancel()
        await super().close()

    def _ready(self) -> Sequence[Source]:
        # The exchange only settles.
        return ()

    async def _round(self) -> None:
        await super()._round()
        if self._jobs.busy or self._outbox:
            return
        try:
            if not self._source.open:
                await self.release()
            elif self._may_fetch() and self._jobs.free > 0 and self._source.ready:
                await self._take_next()
        except PyworkersError as error:
            await self._wait_out(error)

    async def _take_next(self) -> None:
        mine, queue = self._inprogress, self._source.queue
        self._asked = (self._source,)
        self._fetches += 1
        try:
            found = await arun_one(self._link, ordered.take(mine.keys, queue, mine.identity, self._known))
            while found.word == "other":
                self._known = found.active
                found = await arun_one(self._link, ordered.take(mine.keys, queue, mine.identity, self._known))
        finally:
            self._fetches += 1
            self._end_asking()
        if self._inprogress is not mine:
            return
        self._source.worked()
        if found.word == "lost":
            self._callbacks.lease_lost(mine.identity)
        elif found.word in ("standby", "expired"):
            self._stand_by(found.active)
            self._callbacks.saw_lease(found.active, found.wait_s)
            # Halves, so that the last look before the end is shortly before it (recovery.py).
            self._look_in(max(found.wait_s / 2, _SHORTEST_S))
        elif found.word == "paused":
            # The pause may end before this server has read it: then nothing else would be noticed.
            self._look_in(_LONGEST_S)
        else:
            self._work(found)

    def _work(self, found: TakeReply) -> None:
        if found.fence != self._fence:
            self._fence = found.fence
            self._jobs.set_fence(self._source.queue, found.fence)
            log.info("queue.active", queue=self._source.queue, fence=found.fence)
        if found.word == "job":
            self._start([(self._source.queue, [found.raw])])
        elif found.word == "wait":
            self._look_in(found.wait_s)
        else:
            # Redis announces the next job.
            self._look_in(_EMPTY_S, _EMPTY_S)

    def _stand_by(self, active: str) -> None:
        if self._fence:
            log.info("queue.standby", queue=self._source.queue)
        self._known, self._fence = active, 0

    def _look_in(self, seconds: float, longest_s: float = _LONGEST_S) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = min(max(seconds, 0.0) + _SLACK_S, longest_s)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
