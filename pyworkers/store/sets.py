"""Sets: reads and changes the sorted sets of jobs, each change conditional on a removal.

The builders move opaque bytes, read no clock, and never decide where a job goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyworkers.errors import StoreError
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.flow.rules import effects_of_stored
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import PageSize
from pyworkers.store import full, plain
from pyworkers.store.calls import Pages, Request, Steps, command, every, one, script
from pyworkers.store.flow.removal import written
from pyworkers.store.transport.replies import blob, blobs, integer

# Sidekiq's config.rb: 180 days, and its rank trim keeps one less than its 10,000 (protocol.md, Retries).
DEAD_MAX_AGE_S = 180 * 86_400
DEAD_MAX_JOBS = 9_999
TURN_MS = 1000
"""A turn is renewed with every portion, which takes some 10 ms; after a crash, peers wait for this long."""
PUT_OFF_S = 60.0
"""How long a job stays away from the head of its set when the key of its queue is not a list."""
PAGE = 200
"""Jobs in memory at a time, or a few times as many; payloads may be large."""
# A member is listed this often at most, on average.
_MOST_LISTED = 2

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


@dataclass(frozen=True, slots=True)
class Promoted:
    """The result of a portion, and the members to move next.

    ``moved`` members were moved; the jobs of the ``broken`` queues were put off, because their keys are not
    lists. ``due`` are the members to move next; empty if none are left, or if a peer is moving them: its turn
    ends in ``others_s`` seconds unless renewed. ``upcoming`` is the first score after now, in epoch seconds.
    """

    moved: int
    broken: list[str]
    upcoming: float | None
    others_s: float
    due: list[bytes]


class MembersByScore(Pages[Member]):
    """The members of a sorted set with their scores, in order, as of the beginning.

    Each page begins after the last member of the previous page, at the place where that member is by then. A
    member that stays is listed once; so is one that the reader gives another score and notes as ``moved``.
    What is added behind the member that was the last one at the beginning is not listed. It ends after twice
    as many members as there were: another object may move a member again and again in front of it.
    """

    def __init__(self, zset: str, *, descending: bool = False, page: int = PAGE) -> None:
        self._zset = zset
        self._direction = "down" if descending else "up"
        self._size = PageSize(page)
        self._last: list[bytes] = []
        self._end: tuple[float, bytes] | None = None
        self._left = 0
        # Digests, some 60 bytes each.
        self._moved: set[int] = set()

    def next_page(self) -> Steps[list[Member]]:
        if self._end is None:
            edge = 0 if self._direction == "down" else -1
            reading = command("ZRANGE", self._zset, edge, edge, "WITHSCORES", read=plain.scored)
            found, card = yield from every([reading, command("ZCARD", self._zset, read=integer)])
            self._left = _MOST_LISTED * card + PAGE
            if not found:
                self.ended = True
                return []
            self._end = float(found[0][1]), found[0][0]
        page, is_down = self._size.jobs, self._direction == "down"
        members_after = script("after", [self._zset], [page, self._direction, *self._last], blobs)
        instead = partial(plain.after, self._zset, page, self._last, descending=is_down)
        flat = yield from plain.or_plain(members_after, instead)
        self._last = flat[:-3:-1]
        self._size.note(flat[::2])
        members = [(member, float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)]
        within = [member for member in members if not self._is_beyond(member)]
        self._left -= len(members)
        self.ended = self._left <= 0 or len(flat) < 2 * page or len(within) < len(members)
        return [(member, score) for member, score in within if hash(member) not in self._moved]

    def moved(self, member: bytes) -> None:
        """List this one no more: it has another score."""
        self._moved.add(hash(member))

    def _is_beyond(self, member: Member) -> bool:
        """True for a member behind the one that was the last at the beginning."""
        place = member[1], member[0]
        return self._end is not None and (
            place < self._end if self._direction == "down" else place > self._end
        )


class Matches(Pages[Member]):
    """The members whose bytes contain ``text``, in no order; Redis does the search.

    A member that stays is listed at least once, perhaps twice.
    """

    def __init__(self, zset: str, text: str) -> None:
        self._zset = zset
        self._text = text
        self._cursor = b"0"

    def next_page(self) -> Steps[list[Member]]:
        matching = script("browse/match", [self._zset], [self._cursor, self._text], _matching)
        instead = partial(plain.match, self._zset, self._cursor, self._text)
        self._cursor, found = yield from plain.or_plain(matching, instead)
        self.ended = self._cursor == b"0"
        return found


def size(zset: str) -> Request[int]:
    """The number of members."""
    return one("ZCARD", zset, read=integer)


def with_score(zset: str, score: float) -> Request[list[bytes]]:
    """The members with exactly that score."""
    return one("ZRANGEBYSCORE", zset, repr(score), repr(score), read=blobs)


def move(keys: Keys, zset: str, moves: Sequence[Move], now: float) -> Steps[int]:
    """Move members of a sorted set. Returns how many this call moved; other clients took the rest.

    Raises StoreError if a destination is a key of another type; its members stay where they are.
    """
    names = [zset, keys.dead, keys.queues]
    places: dict[str, int] = {}
    args: list[Any] = [repr(now), now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS, 0, 5 + 4 * len(moves)]
    for one_move in moves:
        place = 0
        if one_move.queue is not None:
            place = places.setdefault(one_move.queue, len(names) + len(places) + 1)
        args += (one_move.member, one_move.payload, place, one_move.queue or "")
    names += (keys.queue(name) for name in places)
    args[3] = len(names)
    killed = (
        (place, effect)
        for place, one_move in enumerate(moves, 1)
        if one_move.queue is None
        for effect in effects_of_stored(one_move.member, Ending.DEAD, now)
    )
    more_names, more_args = written(keys, killed)
    names += more_names
    args += more_args
    moved, broken = yield from script("removal/move", names, args, tuple, keys.namespace)
    if broken:
        key = broken[0].decode(errors="backslashreplace")
        raise StoreError(f"{key} is a key of another type; {len(broken)} jobs stay where they are")
    return len(moved)


def reschedule(keys: Keys, zset: str, member: bytes, score: float) -> Request[bool]:
    """Give a member another score; False if it is no longer in the set."""
    commands = ("ZADD", zset, "XX", repr(score), member), ("ZSCORE", zset, member)
    return full.writes(keys, *commands, read=lambda replies: replies[1] is not None)


def first_score(zset: str) -> Request[float | None]:
    """The lowest score of a sorted set, in epoch seconds; None if it is empty."""
    return one("ZRANGE", zset, 0, 0, "WITHSCORES", read=_first_score)


def promote(
    keys: Keys, zset: str, moves: Sequence[Move], now: float, identity: str, wanted: int = 0
) -> Request[Promoted]:
    """Move members of a sorted set into their queues, and ask for up to ``wanted`` that are due.

    Members that were removed meanwhile are skipped, so this is safe to send again after a lost reply. Asking
    for due members takes the turn of this set, unless a peer has it; the turn ends when no more are due.
    """
    names = [zset, keys.turn(zset), keys.dead, keys.queues]
    args: list[Any] = [repr(now), identity, TURN_MS, wanted, repr(now + PUT_OFF_S)]
    args += (now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS)
    for queue, together in _by_queue(moves).items():
        if queue is not None:
            names.append(keys.queue(queue))
        args += (queue or "", len(together))
        args += (move.member for move in together)
        args += (move.payload for move in together)
    return script("promote", names, args, _promoted, keys.namespace)


def _matching(reply: Any) -> tuple[bytes, list[Member]]:
    cursor, *flat = blobs(reply)
    return cursor, [(raw, float(score)) for raw, score in zip(flat[::2], flat[1::2], strict=True)]


def _first_score(first: list[Any]) -> float | None:
    """The score in a reply of a member and its score, which RESP3 sends as a pair."""
    if not first:
        return None
    return float(first[0][1] if isinstance(first[0], list) else first[1])


def _promoted(reply: list[Any]) -> Promoted:
    moved, broken, upcoming, others_ms, due = reply
    return Promoted(
        integer(moved),
        [name.decode(errors="backslashreplace") for name in blobs(broken)],
        float(upcoming) if blob(upcoming) else None,
        integer(others_ms) / 1000,
        blobs(due),
    )


def _by_queue(moves: Sequence[Move]) -> dict[str | None, list[Move]]:
    by_queue: dict[str | None, list[Move]] = {}
    for move in moves:
        by_queue.setdefault(move.queue, []).append(move)
    return by_queue
