"""Plain: what scripts that only read do, by commands, for users of Redis who may not send scripts, and while
the keys of a script are on two nodes of a cluster.

Used by ``api`` after a script was refused, as for the role ``read-only`` of ``pyworkers acl``. Other clients
may write between two commands: a page may then lack a job that moved.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pyworkers.errors import PyworkersError
from pyworkers.protocol.extract import token
from pyworkers.protocol.keys import literal
from pyworkers.protocol.portions import PageSize
from pyworkers.store.calls import Mode, Request, Steps, command, every, one
from pyworkers.store.transport.replies import blob, blobs, integer

T = TypeVar("T")
Visit = Callable[[int, bytes, bytes], bool]
# As in the scripts.
_REACH, _FAR_REACH = 2000, 20_000
_MOST_AT_ONCE, _MOST_OF_SCORE = 250, 2000
_SEARCH_BYTES, _FAR_SEARCH_BYTES = 4 << 20, 32 << 20
_FIRST = 20
# Redis copies each member that it looks at.
_PER_SCAN = 100
_TAIL = 4096
_SINCE = re.compile(rb'.*"enqueued_at"\s*:\s*("?[^,}"]*"?)', re.DOTALL)
_READS: dict[str, tuple[str, tuple[str, ...]]] = {
    "length": ("LLEN", ()),
    "active": ("HGET", ("identity",)),
    "since": ("LINDEX", ("-1",)),
    "head": ("LINDEX", ("-1",)),
}


def or_plain(script: Request[T], plain: Callable[[], Steps[T]]) -> Steps[T]:
    """The reply of a script, or what commands read if it is refused."""
    try:
        return (yield from replace(script, hurries=True))
    except PyworkersError as error:
        if error.code not in ("NOPERM", "TRYAGAIN"):
            raise
    return (yield from plain())


def look(names: Sequence[str], kinds: Sequence[str]) -> Steps[list[Any]]:
    """As look.lua; None for a key of another type."""
    reads = [(name, *_READS[kind]) for name, kind in zip(names, kinds, strict=True)]
    sent = [command(read, name, *rest) for name, read, rest in reads]
    found = yield from every(sent, Mode.LENIENT)
    return [_since(reply) if kind == "since" else reply for reply, kind in zip(found, kinds, strict=True)]


def _since(raw: bytes | None) -> bytes | None:
    found = _SINCE.match(raw[-_TAIL:]) if raw is not None else None
    return found[1] if found else (None if raw is None else b"")


def seek(names: Sequence[str], text: bytes) -> Steps[list[Any]]:
    """As browse/seek.lua; it reads the first jobs of each list."""
    lists = yield from every([command("LRANGE", name, 0, _FIRST - 1) for name in names], Mode.LENIENT)
    longer, found = [], []
    for place, jobs in enumerate(lists, 1):
        if len(jobs or ()) == _FIRST:
            longer.append(place)
        for raw in jobs or ():
            if text in raw:
                found += [place, raw]
    return [len(names), longer, found]


def after(zset: str, page: int, last: Sequence[bytes], *, descending: bool) -> Steps[list[bytes]]:
    """As after.lua; ``last``: score and bytes of the last member."""
    first = 0
    if last:
        before, at = yield from _rank(zset, *last)
        size = yield from one("ZCARD", zset, read=integer)
        first = size - before if descending else before + at
    name = "ZREVRANGE" if descending else "ZRANGE"
    flat: list[bytes] = []
    pairs = yield from one(name, zset, first, first + page - 1, "WITHSCORES", read=scored)
    for pair in pairs:
        flat += pair
    return flat


def _rank(zset: str, score: bytes, member: bytes) -> Steps[tuple[int, int]]:
    found, place = yield from every([command("ZSCORE", zset, member), command("ZRANK", zset, member)])
    if found is not None and float(found) == float(score):
        return integer(place), 1
    bound = score.decode()
    low, high = yield from every(
        [command("ZCOUNT", zset, "-inf", f"({bound}"), command("ZCOUNT", zset, "-inf", bound)]
    )
    while low < high:
        middle = (low + high) // 2
        there = yield from one("ZRANGE", zset, middle, middle, read=blobs)
        if there and there[0] < member:
            low = middle + 1
        else:
            high = middle
    return low, 0


def match(zset: str, cursor: bytes, text: str) -> Steps[tuple[bytes, list[tuple[bytes, float]]]]:
    """As browse/match.lua."""
    options = ("MATCH", f"*{literal(text)}*" if text else "*", "COUNT", _PER_SCAN)
    following, found = yield from one("ZSCAN", zset, cursor, *options, read=tuple)
    return b"%d" % int(following), [(raw, float(score)) for raw, score in found]


class Walk:
    """The jobs of a queue or a sorted set, one after the other, as pages.lua walks."""

    def __init__(self, key: str, kind: str, *, descending: bool) -> None:
        self._key = key
        self._is_list = kind == "list"
        self._descending = descending

    def visit(self, first: int, last: int, most_bytes: int, visit: Visit) -> Steps[int]:
        """Visit each job until that returns true; the place after the last one visited."""
        size, read = PageSize(_MOST_AT_ONCE), 0
        while first <= last:
            jobs = yield from self._between(first, min(last, first + size.jobs - 1))
            if not jobs:
                return first
            for place, (raw, score) in enumerate(jobs, first):
                read += len(raw)
                if visit(place, raw, score) or read >= most_bytes:
                    return place + 1
            size.note(raw for raw, _ in jobs)
            first += len(jobs)
        return first

    def visit_back(self, last: int, first: int, most_bytes: int, visit: Visit) -> Steps[int]:
        """Visit from a place back to an earlier one; the earliest place visited."""
        total = yield from one("LLEN" if self._is_list else "ZCARD", self._key, read=integer)
        last, first = min(last, total - 1), max(first, 0)
        back = Walk(self._key, "list" if self._is_list else "zset", descending=not self._descending)

        def mirrored(at: int, raw: bytes, score: bytes) -> bool:
            return visit(total - 1 - at, raw, score)

        stop = yield from back.visit(total - 1 - last, total - 1 - first, most_bytes, mirrored)
        return total - stop

    def _between(self, first: int, last: int) -> Steps[list[tuple[bytes, bytes]]]:
        if not self._is_list:
            name = "ZREVRANGE" if self._descending else "ZRANGE"
            return (yield from one(name, self._key, first, last, "WITHSCORES", read=scored))
        start, stop = (first, last) if self._descending else (-last - 1, -first - 1)
        jobs = yield from one("LRANGE", self._key, start, stop, read=blobs)
        return [(raw, b"") for raw in (jobs if self._descending else reversed(jobs))]


def read(
    key: str, begin: tuple[int, str, str], limits: Sequence[int], texts: Sequence[str], *, descending: bool
) -> Steps[list[Any]]:
    """The reply of browse/read.lua, whose arguments these are."""
    kind = yield from _kind(key)
    if kind not in ("list", "zset"):
        return [0 if kind == "none" else -1, 0, b"", b""]
    count, most_bytes, large, head, tail, most = limits
    total = yield from one("LLEN" if kind == "list" else "ZCARD", key, read=integer)
    walk = Walk(key, kind, descending=descending)
    place = begin[0]
    if place > 0 and begin[1]:
        place = yield from _resumed(walk, key, kind, begin, descending)
    contains = _tests(texts)
    pieces: list[Any] = []
    last: tuple[bytes, bytes] | None = None

    def visit(at: int, raw: bytes, score: bytes) -> bool:
        nonlocal last
        last = raw, score
        if all(test(raw) for test in contains):
            is_large = len(raw) > large
            ends = (raw[:head], raw[-tail:]) if is_large else (raw, b"")
            pieces.extend((at, score, token(raw).encode(), len(raw), *ends))
            return len(pieces) == 6 * most
        return False

    after_place = yield from walk.visit(place, place + count - 1, most_bytes, visit)
    named = (token(last[0]).encode(), last[1]) if last else (b"", b"")
    return [total, after_place, *named, *pieces]


def _resumed(walk: Walk, key: str, kind: str, begin: tuple[int, str, str], descending: bool) -> Steps[int]:
    place, wanted, score = begin
    found: list[int] = []

    def compare(at: int, raw: bytes, _score: bytes) -> bool:
        if token(raw) == wanted:
            found.append(at)
        return bool(found)

    yield from walk.visit(max(0, place - 1), place - 1, _SEARCH_BYTES, compare)
    lowest, highest = 0, place + _REACH + 1
    if not found and kind == "zset" and score:
        lowest, number = yield from _places_of(key, score, descending)
        highest = lowest + number
        place = max(lowest, min(place, highest))
    if not found:
        yield from walk.visit(place, min(place + _REACH, highest - 1), _SEARCH_BYTES, compare)
    earliest = place
    if not found:
        earliest = yield from walk.visit_back(place - 1, max(place - _REACH, lowest), _SEARCH_BYTES, compare)
    return found[0] + 1 if found else earliest


def _places_of(zset: str, score: str, descending: bool) -> Steps[tuple[int, int]]:
    """The place of the first member with that score, and their number."""
    bounds = (f"({score}", "+inf") if descending else ("-inf", f"({score}")
    counts = [
        command("ZCOUNT", zset, *bounds, read=integer),
        command("ZCOUNT", zset, score, score, read=integer),
    ]
    first, number = yield from every(counts)
    return first, number


def find(key: str, jobs: Sequence[tuple[str, int, str]], *, descending: bool) -> Steps[list[Any]]:
    """The reply of browse/find.lua: token, place and score of each job are its arguments."""
    kind = yield from _kind(key)
    found: dict[str, tuple[bytes, int]] = {}
    wanted = {job[0] for job in jobs}

    def visit(at: int, raw: bytes, _score: bytes) -> bool:
        name = token(raw)
        if name in wanted:
            found.setdefault(name, (raw, at))
        return len(found) == len(wanted)

    if kind in ("list", "zset") and jobs:
        walk = Walk(key, kind, descending=descending)
        lowest, highest = min(job[1] for job in jobs), max(job[1] for job in jobs)
        yield from walk.visit(max(0, lowest), min(highest, lowest + _FAR_REACH), _FAR_SEARCH_BYTES, visit)
        if kind == "list" and len(found) < len(wanted):
            yield from walk.visit_back(lowest - 1, lowest - _FAR_REACH, _FAR_SEARCH_BYTES, visit)
        if kind == "list" and len(found) < len(wanted):
            yield from walk.visit(highest + 1, highest + _FAR_REACH, _FAR_SEARCH_BYTES, visit)
        for name, _, score in jobs if kind == "zset" else ():
            if name not in found and score:
                first, number = yield from _places_of(key, score, descending)
                last = first + min(number, _MOST_OF_SCORE) - 1
                yield from walk.visit(first, last, _FAR_SEARCH_BYTES, visit)
    return [part for job in jobs for part in found.get(job[0], (None, -1))]


def _kind(key: str) -> Steps[str]:
    return (yield from one("TYPE", key, read=lambda reply: blob(reply).decode()))


def _tests(texts: Sequence[str]) -> list[Callable[[bytes], bool]]:
    """Whether a job contains each text that may be anywhere in it; members are for the reader to judge."""
    found: list[Callable[[bytes], bool]] = []
    for text in texts:
        names, _, rest = text[1:].partition(":")
        if not names:
            found.append(partial(_holds, rest.encode(errors="surrogateescape"), text[0] == "~"))
    return found


def _holds(text: bytes, folded: bool, raw: bytes) -> bool:
    return text in (raw.lower() if folded else raw)


def scored(reply: list[Any]) -> list[tuple[bytes, bytes]]:
    """Members with their scores, as Redis writes them; in RESP3 they come in pairs, as numbers."""
    if reply and isinstance(reply[0], list | tuple):
        return [(blob(member), _text_of(score)) for member, score in reply]
    return [(blob(member), _text_of(score)) for member, score in zip(reply[::2], reply[1::2], strict=True)]


def _text_of(score: float | bytes) -> bytes:
    """A score as Redis writes it; redis-py has made a number of it."""
    if isinstance(score, bytes):
        return score
    if math.isinf(score):
        return b"inf" if score > 0 else b"-inf"
    return (b"%d" % int(score)) if score == int(score) and abs(score) < 1e17 else repr(score).encode()
