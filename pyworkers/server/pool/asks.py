"""Asks: has Redis decide whether jobs with limits may start, and hands out those that may.

Runs in the master's event loop, one for all queues. A job that waits for the reply is in no worker, and
keeps room for itself; one whose turn is near waits here without. The decision is Redis' (limits/ask.lua).

    ask of a worker ──► Redis ──► granted ──► handed out again
                          │ ▲
                          ├─┘ its turn is near: asked again then
                          └────► in schedule: forgotten here
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyworkers import logs
from pyworkers.failpoints import hit
from pyworkers.protocol import envelope
from pyworkers.protocol.limits import Ask
from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.server.pool.delivery import Delivery
from pyworkers.store.flow import limits
from pyworkers.store.flow.limits import Asked, AskReply, Verdict
from pyworkers.store.store import Store

if TYPE_CHECKING:
    from pyworkers.server.pool.jobs import Jobs

# How often a server frees the slots of dead servers, while limits are in use. One that recovers a server does
# it at once.
_SWEEP_S = 60.0
# When Redis refuses commands on the keys of one job, it is asked again after this time.
_REFUSED_S = 1.0
_REST_S = 3600.0

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class _Open:
    """A job without a final reply. ``due``: the time (of the loop's clock) to ask."""

    asked: Asked
    jobs: Jobs
    due: float = 0.0


class Asks(Part):
    """The jobs of one server that ask for their limits. ``expect`` is called with the times in schedule."""

    name = "asks"

    def __init__(
        self, store: Store, identity: Callable[[], str], health: Health, expect: Callable[[float], None]
    ) -> None:
        super().__init__(health)
        self._store = store
        self._identity = identity
        self._expect = expect
        self._open: dict[Delivery, _Open] = {}
        self._sweep_at: float | None = 0.0
        """When to sweep (loop time); None while no limit is in use. At the start, those of others may be."""

    # For the tables

    def add(self, job: Delivery, ask: Ask, jobs: Jobs) -> None:
        """Ask for a job, until it is answered or dropped. From now on, its end frees its slots."""
        identity = self._identity()
        job.hold(limits.frees(identity, ask), limits.starts(identity, ask))
        payload = envelope.splice(job.raw, ask.changes) if ask.changes else b""
        self._open[job] = _Open(Asked(ask, job.queue, job.raw, payload), jobs)
        self.nudge()

    def drop(self, job: Delivery) -> None:
        """Forget a job that does not start here."""
        self._open.pop(job, None)

    def sweep_soon(self) -> None:
        """Free the slots of a server whose jobs were recovered."""
        self._sweep_at = 0.0
        self.nudge()

    # The work

    async def look(self) -> float:
        """Ask for the jobs that are due; sweep if it is time."""
        now = asyncio.get_running_loop().time()
        due = {job: one.asked for job, one in self._open.items() if one.due <= now}
        if due:
            hit("before_ask")
            asking = limits.ask(self._store.keys, self._identity(), list(due.values()))
            replies = await self._store.arun(asking)
            hit("after_ask")
            for job, reply in zip(due, replies, strict=True):
                # Else it has ended meanwhile, which frees its slots.
                if (one := self._open.get(job)) is not None:
                    self._decide(job, one, reply, now)
            self._sweep_at = self._sweep_at or 0.0
        if self._sweep_at is not None and self._sweep_at <= now:
            swept = await self._store.arun(limits.sweep(self._store.keys))
            self._sweep_at = now + _SWEEP_S if swept.limits else None
        return self._rest()

    def failed(self, backoff_s: float) -> float:
        """Sweep at the next call, which so sends a command, also if no job waits any more."""
        if self._sweep_at is not None:
            self._sweep_at = 0.0
        return backoff_s

    def _rest(self) -> float:
        """The seconds until the next job is due, or the next sweep."""
        now = asyncio.get_running_loop().time()
        times = [one.due for one in self._open.values()]
        times += [] if self._sweep_at is None else [self._sweep_at]
        return max(0.0, min(times) - now) if times else _REST_S

    def _decide(self, job: Delivery, one: _Open, reply: AskReply | None, now: float) -> None:
        if reply is None:
            self._open[job] = replace(one, due=now + _REFUSED_S)
        elif reply.verdict is Verdict.WAIT:
            self._open[job] = replace(one, due=now + reply.after_s)
            one.jobs.make_room(job)
        else:
            del self._open[job]
            self._conclude(job, one, reply)

    def _conclude(self, job: Delivery, one: _Open, reply: AskReply) -> None:
        if reply.verdict is Verdict.GRANTED:
            job.grant()
            one.jobs.start(job)
            return
        if reply.verdict is Verdict.BROKEN:
            log.error("limit.failed", queue=job.queue, error=f"WRONGTYPE {reply.key} is no zset")
        if reply.verdict is not Verdict.GONE:
            log.debug("job.limited", queue=job.queue, jid=one.asked.ask.jid, until=reply.at)
            self._expect(reply.at)
        one.jobs.put_off(job)
