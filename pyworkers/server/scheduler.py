"""Scheduler: moves due jobs from ``schedule`` and ``retry`` into their queues.

Runs in the master's event loop, in every master. ``Changes`` passes on the first score of each set whenever
it changes; each master sleeps until that time, and the job is moved within milliseconds of it. Of the masters
that wake up together, one has the turn, and moves all due jobs.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from pyworkers import logs
from pyworkers.errors import BadMessageError, PyworkersError, StoreError
from pyworkers.failpoints import hit
from pyworkers.protocol import envelope, retry
from pyworkers.protocol.keys import Keys, check_queue_name
from pyworkers.server.changes import Follow
from pyworkers.server.health import ServerHealth
from pyworkers.server.parts import Part
from pyworkers.store import sets
from pyworkers.store.sets import PUT_OFF_S, Move, Promoted
from pyworkers.store.store import Store

# Enough to amortise the round trip; a portion blocks Redis for 1 ms, and this master for 4 ms.
PORTION = 200
# Redis scores and timers agree to the microsecond; waking a little late saves a check that finds nothing due.
_SLACK_S = 0.001
# Sidekiq's queue for a job that names no queue.
_NO_QUEUE = "default"
_NAP_S = 1.0

log = logs.get_logger()


class Scheduler(Part):
    """Moves jobs at the times that ``expect`` and ``see`` take; ``identity`` names this master to peers.

    If Redis refuses the commands on a set, the set is tried again after ``poll_interval_s``.
    """

    name = "scheduler"

    def __init__(
        self,
        store: Store,
        identity: Callable[[], str],
        health: ServerHealth,
        poll_interval_s: float,
        drain_goretry: bool,
    ) -> None:
        super().__init__(health.of(self.name))
        keys = store.keys
        self._store = store
        self._identity = identity
        self._interval_s = poll_interval_s
        self.zsets = [keys.retry, keys.schedule, *([keys.goretry] if drain_goretry else [])]
        self._health_of = {zset: health.of(f"scheduler {zset}") for zset in self.zsets}
        self._next = -math.inf

    def follows(self, _keys: Keys, _identity: str) -> dict[str, Follow]:
        """The sorted sets, each with the function that takes its first member."""
        return {zset: Follow("first", partial(self.see, zset), self._interval_s) for zset in self.zsets}

    def see(self, zset: str, first: Any) -> None:
        """Take the first member of a set and its score, as Redis replies, or the error in their place."""
        if isinstance(first, PyworkersError):
            self.expect(self._refused(zset, first))
        elif first:
            self.expect(float(first[1]))
        else:
            self._health_of[zset].ok()

    def expect(self, at: float) -> None:
        """Wake up at ``at`` at the latest, in epoch seconds: a job is due then."""
        if at < self._next:
            self._next = at
            self.nudge()

    async def look(self) -> float:
        """Move the due jobs, if the next known time is reached."""
        if time.time() >= self._next + _SLACK_S:
            self._next = math.inf
            self.expect(await self.move_due())
        # Timers do not notice a change of the clock, or a suspend of the machine.
        return min(self._next + _SLACK_S - time.time(), _NAP_S)

    def failed(self, backoff_s: float) -> float:
        """Read Redis again at the next call, even if nothing is due by then."""
        self._next = -math.inf
        return backoff_s

    async def move_due(self) -> float:
        """Move all due jobs. Returns the next known time of a job, in epoch seconds.

        Raises RedisUnavailableError. If Redis refuses the commands on one set, the others are still moved.
        """
        scores = {zset: await self._first_score(zset) for zset in self.zsets}
        now = time.time()
        drains = [self._drain(zset) for zset, score in scores.items() if score <= now]
        found = await asyncio.gather(*drains, return_exceptions=True)
        for error in found:
            if isinstance(error, BaseException):
                raise error
        later = [score for score in scores.values() if score > now]
        return min([*later, *(wake_at for wake_at in found if isinstance(wake_at, float))], default=math.inf)

    async def _first_score(self, zset: str) -> float:
        try:
            score = await self._store.arun(sets.first_score(zset))
        except StoreError as error:
            return self._refused(zset, error)
        if score is None or score > time.time():
            self._health_of[zset].ok()
        return math.inf if score is None else score

    async def _drain(self, zset: str) -> float:
        """Move all due jobs of one set, portion by portion; other tasks run in between."""
        portion: list[Move] = []
        try:
            while True:
                now = time.time()
                promotion = sets.promote(self._store.keys, zset, portion, now, self._identity(), PORTION)
                found = await self._store.arun(promotion)
                for queue in found.broken:
                    log.error("queue.broken", queue=queue, hint="its key is not a list", put_off_s=PUT_OFF_S)
                if not found.due:
                    self._health_of[zset].ok()
                    return _wake_at(found, now)
                portion = moves(found.due, now, self._store.keys)
                hit("mid_promote")
        except StoreError as error:
            return self._refused(zset, error)

    def _refused(self, zset: str, error: PyworkersError) -> float:
        """Pause the set, because Redis would refuse it again. Returns the pause's end, in epoch seconds."""
        self._health_of[zset].failed(error)
        return time.time() + self._interval_s


def _wake_at(found: Promoted, now: float) -> float:
    """The time of the next member, or the end of a peer's turn, because the peer may have died in it."""
    upcoming = math.inf if found.upcoming is None else found.upcoming
    return min(upcoming, now + found.others_s) if found.others_s else upcoming


def moves(members: Sequence[bytes], now: float, keys: Keys) -> list[Move]:
    """The moves of due members: to their queue, with a new ``enqueued_at``; an invalid job to ``dead``."""
    return [_move(member, now, keys.namespace) for member in members]


def _move(member: bytes, now: float, namespace: str) -> Move:
    try:
        members = envelope.Members(member)
        queue = queue_of(members, namespace)
        changes: dict[str, object] = {"enqueued_at": now}
        if queue != members.get("queue"):
            changes["queue"] = queue
        return Move(member, members.splice(changes, remove=("at",)), queue)
    except (BadMessageError, ValueError) as error:
        log.error("job.failed", outcome="dead", error_class="BadMessageError", error=str(error))
        return Move(member, retry.refused(member, str(error), _NO_QUEUE, now))


def queue_of(members: envelope.Members, namespace: str) -> str:
    """The queue to which a job of a sorted set belongs. Raises ValueError for an invalid name."""
    named = members.get("queue")
    return _queue_called(named, namespace) if isinstance(named, str) else _queue_instead_of(named)


@lru_cache(maxsize=1024)
def _queue_called(name: str, namespace: str) -> str:
    """The queue of that name; go-workers writes its namespace before it. Raises ValueError if invalid."""
    queue = name.removeprefix(namespace)
    check_queue_name(queue)
    return queue


def _queue_instead_of(named: object) -> str:
    """Sidekiq's default for a job without a queue. Raises ValueError for an invalid name."""
    if named is not None:
        check_queue_name(named)
    return _NO_QUEUE
