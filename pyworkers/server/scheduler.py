"""Scheduler: moves due jobs from ``schedule`` and ``retry`` into their queues.

Runs in the master's event loop, in every master. Between polls it sleeps until the next score that it has
seen, so that a job is moved within milliseconds of its time; of several schedulers, the script lets one move
each job.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from pyworkers import envelope, logs
from pyworkers.errors import BadMessageError, PyworkersError
from pyworkers.failpoints import hit
from pyworkers.keys import Keys, check_queue_name
from pyworkers.server.weather import Weather
from pyworkers.store.store import Promotion, Store

# Enough to amortise the round trip, little enough to let exchanges in between.
BATCH = 200
# Redis scores and timers agree to the microsecond; waking a little late saves an empty poll.
_SLACK_S = 0.001

log = logs.get_logger()


class Scheduler:
    """``crew`` is this master's place among the masters and their number; the heartbeat keeps it."""

    def __init__(self, store: Store, weather: Weather, poll_interval_s: float, drain_goretry: bool) -> None:
        keys = store.keys
        self._store = store
        self._weather = weather
        self._interval_s = poll_interval_s
        self._zsets = [keys.retry, keys.schedule, *([keys.goretry] if drain_goretry else [])]
        self._nudge = asyncio.Event()
        self._next = 0.0
        self.crew = (0, 1)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                self._next = await self._promote_all()
                self._weather.up()
            except PyworkersError as error:
                self._next = math.inf
                await asyncio.sleep(self._weather.down(error))
                continue
            await self._sleep()

    def expect(self, at: float) -> None:
        """A job was put away until ``at``: do not oversleep."""
        if at < self._next:
            self._next = at
            self._nudge.set()

    async def _sleep(self) -> None:
        now = time.time()
        poll = next_poll(now, self._interval_s, *self.crew)
        while (remaining := min(self._next, poll) + _SLACK_S - time.time()) > 0:
            self._nudge.clear()
            try:
                await asyncio.wait_for(self._nudge.wait(), remaining)
            except TimeoutError:
                return

    async def _promote_all(self) -> float:
        """Move everything that is due; returns the next score, or infinity."""
        upcoming = math.inf
        for zset in self._zsets:
            while await self._promote_some(zset) == BATCH:
                pass
            first = await self._store.next_due(zset)
            upcoming = min(upcoming, math.inf if first is None else first)
        return upcoming

    async def _promote_some(self, zset: str) -> int:
        now = time.time()
        members = await self._store.due(zset, now, BATCH)
        if members:
            hit("mid_promote")
            await self._store.promote(zset, promotions([m for m, _ in members], now, self._store.keys), now)
        return len(members)


def next_poll(now: float, interval_s: float, rank: int, masters: int) -> float:
    """When to poll next. The masters take turns, so that together they poll once in an interval."""
    cycle = interval_s * masters
    phase = interval_s * rank
    return (math.floor((now - phase) / cycle) + 1) * cycle + phase


def promotions(members: Sequence[bytes], now: float, keys: Keys) -> list[Promotion]:
    """What becomes of due members: into their queue, freshly stamped; what is no job is buried."""
    return [_promotion(member, now, keys) for member in members]


def _promotion(member: bytes, now: float, keys: Keys) -> Promotion:
    try:
        queue = _queue_of(envelope.decode(member), keys.namespace)
        changes = {"queue": queue, "enqueued_at": now}
        return Promotion(member, envelope.splice(member, changes, remove=("at",)), queue)
    except BadMessageError as error:
        log.error("job.failed", outcome="dead", error_class="BadMessageError", error=error.message)
        return Promotion(member)


def _queue_of(data: dict[str, object], namespace: str) -> str:
    """go-workers writes the queue with its namespace; a job without one goes where Sidekiq puts it."""
    queue = data.get("queue")
    if queue is None:
        return "default"
    name = queue.removeprefix(namespace) if isinstance(queue, str) else queue
    try:
        check_queue_name(name)
    except ValueError as error:
        raise BadMessageError(str(error)) from error
    return str(name)
