"""Sets: reads and changes the sorted sets of jobs, each change conditional on a removal.

The builders move opaque bytes, read no clock, and never decide where a job goes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.errors import StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Call, Mode, Pages, Steps, command, one, script
from pyworkers.store.store import DEAD_MAX_AGE_S, DEAD_MAX_JOBS
from pyworkers.store.transport.replies import blobs, integer

PAGE = 200
"""Jobs in memory at a time, or a few times as many; payloads may be large."""
_PER_SCAN = 1000

Member = tuple[bytes, float]
"""The bytes of a job, and its score in epoch seconds."""


@dataclass(frozen=True, slots=True)
class Move:
    """One member of a sorted set: its destination, and its bytes there.

    ``queue`` None is the dead set. A job without ``payload`` goes to the dead set as it is.
    """

    member: bytes
    payload: bytes = b""
    queue: str | None = None


class Members(Pages[Member]):
    """The members of a sorted set with their scores, in order. One that stays is seen once.

    Each page begins behind the last member of the one before, at its place by then.
    """

    def __init__(self, zset: str, *, descending: bool = False, page: int = PAGE) -> None:
        self._zset = zset
        self._direction = "down" if descending else "up"
        self._page = page
        self._last: list[bytes] = []

    def next_page(self) -> Steps[list[Member]]:
        flat = yield from script("after", [self._zset], [self._page, self._direction, *self._last], blobs)
        self.ended = len(flat) < 2 * self._page
        self._last = flat[:-3:-1]
        return [(member, float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)]


class Matches(Pages[Member]):
    """The members whose bytes hold ``text``, in no order; Redis does the search.

    A member that stays is seen at least once, perhaps twice.
    """

    def __init__(self, zset: str, text: str) -> None:
        self._zset = zset
        self._pattern = f"*{_literal(text)}*" if text else "*"
        self._cursor = 0

    def next_page(self) -> Steps[list[Member]]:
        options = ("MATCH", self._pattern, "COUNT", _PER_SCAN)
        found: list[Member]
        self._cursor, found = yield from one("ZSCAN", self._zset, self._cursor, *options, read=tuple)
        self.ended = self._cursor == 0
        return found


def size(zset: str) -> Call[int]:
    """The number of members."""
    return one("ZCARD", zset, read=integer)


def with_score(zset: str, score: float) -> Call[list[bytes]]:
    """The members with exactly that score."""
    return one("ZRANGEBYSCORE", zset, repr(score), repr(score), read=blobs)


def move(keys: Keys, zset: str, moves: Sequence[Move], now: float) -> Steps[int]:
    """Move members of a sorted set. How many this call moved: another client was quicker with the rest.

    Raises StoreError if a destination is a key of another type; its members stay where they are.
    """
    names = [zset, keys.dead, keys.queues]
    places: dict[str, int] = {}
    args: list[Any] = [repr(now), now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS]
    for one_move in moves:
        place = 0
        if one_move.queue is not None:
            place = places.setdefault(one_move.queue, len(names) + len(places) + 1)
        args += (one_move.member, one_move.payload, place, one_move.queue or "")
    names += (keys.queue(name) for name in places)
    moved, broken = yield from script("move", names, args, tuple)
    if broken:
        key = broken[0].decode(errors="backslashreplace")
        raise StoreError(f"{key} is a key of another type; {len(broken)} jobs stay where they are")
    return len(moved)


def remove(zset: str, members: Sequence[bytes]) -> Call[int]:
    """Remove members of a sorted set for good. How many this call removed."""
    return one("ZREM", zset, *members, read=integer)


def reschedule(zset: str, member: bytes, score: float) -> Call[bool]:
    """Give a member another score; False if it is not there any more."""
    commands = [command("ZADD", zset, "XX", repr(score), member), command("ZSCORE", zset, member)]
    return Call(commands, lambda replies: replies[1] is not None, Mode.TRANSACTION)


def clear(zset: str) -> Call[int]:
    """Remove all members of a sorted set. How many there were."""
    return Call(
        [command("ZCARD", zset), command("UNLINK", zset)], lambda replies: int(replies[0]), Mode.TRANSACTION
    )


def _literal(text: str) -> str:
    """A pattern of Redis that matches only this text."""
    return re.sub(r"([*?\[\]\\^-])", r"\\\1", text)
