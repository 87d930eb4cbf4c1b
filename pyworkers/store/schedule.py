"""Schedule store: the sorted sets of jobs for later, and the one script that moves what is due.

Runs in the master's event loop. It moves opaque bytes, reads no clock, and never decides where a job goes.
Errors of redis-py leave as RedisUnavailableError or StoreError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts
from pyworkers.store.store import DEAD_MAX_AGE_S, DEAD_MAX_JOBS
from pyworkers.store.transport.connections import errors_translated
from pyworkers.store.transport.replies import blob, blobs, integer

TURN_MS = 1000
"""A turn is renewed with every batch, which takes some 10 ms; after a crash, peers wait for this long."""
PUT_OFF_S = 60.0
"""For so long a job stays away from the head of its set when the key of its queue is no list."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """One due member: where it goes, and as what. ``queue`` None buries it; without a payload, as it is."""

    member: bytes
    payload: bytes = b""
    queue: str | None = None


@dataclass(frozen=True, slots=True)
class Promoted:
    """What became of a batch, and what comes next.

    ``moved`` members went; the jobs of the ``broken`` queues were put off, because their keys are no lists.
    ``due`` are members to move next: none are left, or a peer is moving them, for ``others_s`` seconds unless
    it goes on. ``upcoming`` is the first score later than now, in epoch seconds.
    """

    moved: int
    broken: list[str]
    upcoming: float | None
    others_s: float
    due: list[bytes]


class ScheduleStore:
    """The sorted sets of one namespace, over the connection pool of the caller."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self.keys = keys

    async def first_score(self, zset: str) -> float | None:
        """The lowest score of a sorted set, in epoch seconds; None if it is empty."""
        with errors_translated():
            first: float | None = await self._redis.execute_command(
                "ZRANGE", zset, 0, 0, "WITHSCORES", read=_first_score
            )
        return first

    async def promote(
        self, zset: str, promotions: Sequence[Promotion], now: float, identity: str, wanted: int = 0
    ) -> Promoted:
        """Move members of a sorted set into their queues, and ask for up to ``wanted`` that are due.

        Members that are gone meanwhile are left alone, so this is safe to send again after a lost reply.
        Asking takes the turn of this set, unless a peer has it; that nothing is due any more ends it.
        """
        names = [zset, self.keys.turn(zset), self.keys.dead, self.keys.queues]
        args: list[Any] = [repr(now), identity, TURN_MS, wanted, repr(now + PUT_OFF_S)]
        args += (now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS)
        for queue, batch in _by_queue(promotions).items():
            if queue is not None:
                names.append(self.keys.queue(queue))
            args += (queue or "", len(batch))
            args += (promotion.member for promotion in batch)
            args += (promotion.payload for promotion in batch)
        with errors_translated():
            return await scripts.load("promote")(self._redis, names, args, _promoted)


def _first_score(first: list[Any]) -> float | None:
    """Of a member and its score, which are a pair in the third protocol."""
    if not first:
        return None
    return float(first[0][1] if isinstance(first[0], list) else first[1])


def _promoted(reply: list[Any]) -> Promoted:
    moved, broken, upcoming, others_ms, due = reply
    return Promoted(
        integer(moved),
        [name.decode() for name in blobs(broken)],
        float(upcoming) if blob(upcoming) else None,
        integer(others_ms) / 1000,
        blobs(due),
    )


def _by_queue(promotions: Sequence[Promotion]) -> dict[str | None, list[Promotion]]:
    batches: dict[str | None, list[Promotion]] = {}
    for promotion in promotions:
        batches.setdefault(promotion.queue, []).append(promotion)
    return batches
