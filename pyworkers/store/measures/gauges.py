"""Gauges: how many jobs run, of how many that can, and how long each queue lets jobs wait, over time.

``note`` and ``fold`` are run by the one master that has the turn, once a minute; ``read`` by ``api``. Two
streams of a fixed size have one entry a minute for two hours, and one for each ten minutes of three days. The
id of an entry is the time at which it begins, so that Redis refuses a second one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import simplejson

from pyworkers.errors import StoreError
from pyworkers.protocol.keys import Keys, is_queue_name
from pyworkers.protocol.portions import portions
from pyworkers.store.calls import Mode, Steps, command, decoded, every, one
from pyworkers.store.heartbeat import TTL_S, clock
from pyworkers.store.measures.look import look, present, since
from pyworkers.store.processes.decoding import described, reading
from pyworkers.store.processes.reading import Identities
from pyworkers.store.values import as_count, decoded_json

MOST_QUEUES = 50
"""The queues of an entry: those with the longest waits."""
MINUTE, TEN_MINUTES = 1, 10
_KEPT = {MINUTE: 120, TEN_MINUTES: 432}
_TTL_S = {MINUTE: 2 * 3600, TEN_MINUTES: 72 * 3600}
# The queues that are looked at, and of those the ones with jobs whose next job is read.
_MOST_NAMES, _PER_SCAN, _MOST_READ = 10_000, 1000, 1000
_PER_CALL = 1000
# A shorter wait is none.
_DIGITS = 1
_ABSURD = 1e15
# Of one server: numbers of another program above it count as nothing.
_MOST_JOBS = 1_000_000


@dataclass(frozen=True, slots=True)
class GaugeEntry:
    """The gauges of a part of time, which begins at ``at`` (epoch seconds).

    Of several minutes, ``busy`` is the mean, and each other number the highest.
    """

    at: float
    busy: float
    """The jobs that ran."""
    concurrency: int
    """Those that could run at a time."""
    latencies_s: Mapping[str, float] = field(default_factory=dict)
    """The seconds that the next job of a queue had been waiting, the longest first."""
    left_out: int = 0
    """The queues with shorter waits, or that were not read."""


def note_busy(keys: Keys, identity: str, busy: int, concurrency: int) -> Steps[bool]:
    """Note how many jobs a server runs, for as long as its heartbeat is shown."""
    return (yield from one("SET", keys.busy(identity), f"{busy} {concurrency}", "EX", TTL_S, read=bool))


def note(keys: Keys, served: Sequence[str]) -> Steps[float]:
    """Add the entry of this minute, unless a server has. Returns Redis' time in epoch seconds.

    ``served``: queues that may be missing in Redis' set of all queues, because a producer has left them out.
    """
    now = yield from clock()
    busy, concurrency = yield from _jobs(keys, now)
    waits, unread = yield from _waits(keys, served, now)
    yield from add(keys, MINUTE, _entry(_begin(now, MINUTE), busy, concurrency, waits, unread))
    return now


def fold(keys: Keys, now: float) -> Steps[None]:
    """Add the entries of those ten minutes that are over at ``now`` (epoch seconds) and are missing."""
    newest = _entries(
        (yield from one("XREVRANGE", keys.gauges(TEN_MINUTES), "+", "-", "COUNT", 1, read=list))
    )
    begin = newest[0].at + 60 * TEN_MINUTES if newest else 0.0
    end = _begin(now, TEN_MINUTES)
    found = yield from one("XRANGE", keys.gauges(MINUTE), _ms(begin), _ms(end) - 1, read=list)
    for part in _in_parts(_entries(found)):
        yield from add(keys, TEN_MINUTES, part)


def read(keys: Keys, begin: float, minutes: int) -> Steps[list[GaugeEntry]]:
    """The entries of minutes, or of ten minutes, from ``begin`` (epoch seconds) on, the first one first.

    The newest ten minutes are there before they are over.
    """
    sizes = [MINUTE, TEN_MINUTES] if minutes == TEN_MINUTES else [MINUTE]
    asked = [command("XRANGE", keys.gauges(size), _ms(begin), "+") for size in sizes]
    newest, *longer = [_entries(found or ()) for found in (yield from every(asked, Mode.LENIENT))]
    if not longer:
        return newest
    [folded] = longer
    after = folded[-1].at + 60 * TEN_MINUTES if folded else begin
    return [*folded, *_in_parts([one for one in newest if one.at >= after])]


def merged(at: float, parts: Sequence[GaugeEntry]) -> GaugeEntry:
    """Several parts as one, which begins at ``at``."""
    waits: dict[str, float] = {}
    for part in parts:
        for queue, wait in part.latencies_s.items():
            waits[queue] = max(wait, waits.get(queue, 0.0))
    busy = round(sum(part.busy for part in parts) / len(parts), 2)
    left_out = max(part.left_out for part in parts)
    return _entry(at, busy, max(part.concurrency for part in parts), waits, left_out)


def _entry(at: float, busy: float, concurrency: int, waits: Mapping[str, float], left_out: int) -> GaugeEntry:
    """With the longest waits alone."""
    longest = sorted(waits.items(), key=lambda item: (-item[1], item[0]))[:MOST_QUEUES]
    return GaugeEntry(at, busy, concurrency, dict(longest), left_out + len(waits) - len(longest))


def _in_parts(entries: Sequence[GaugeEntry]) -> Iterator[GaugeEntry]:
    """Of ten minutes each."""
    for begin, some in groupby(entries, key=lambda one: _begin(one.at, TEN_MINUTES)):
        yield merged(begin, list(some))


def _begin(at: float, minutes: int) -> float:
    """When the part begins to which a time belongs."""
    return at // (60 * minutes) * 60 * minutes


def _ms(at: float) -> int:
    return int(at * 1000)


# Read


def _jobs(keys: Keys, now: float) -> Steps[tuple[int, int]]:
    """How many jobs run on all servers, and how many can."""
    known: list[tuple[int, int]] = []
    others: list[str] = []
    for some in portions((yield from Identities(keys).rest()), _PER_CALL):
        stored = yield from one("MGET", *map(keys.busy, some), read=list)
        for identity, numbers in zip(some, stored, strict=True):
            runs, _, can_run = (numbers or b"").partition(b" ")
            known.append((as_count(runs), as_count(can_run)))
            if not numbers:
                others.append(identity)
    # Servers of other programs, and of pyworkers 0.2, have these numbers in their heartbeats alone.
    replies = yield from every([reading(keys, identity) for identity in others], Mode.LENIENT)
    for identity, values in zip(others, replies, strict=True):
        view = described(identity, values)
        if view is not None and not view.silent(now):
            known.append((view.busy, view.concurrency))
    return _sum(busy for busy, _ in known), _sum(can_run for _, can_run in known)


def _sum(numbers: Iterable[int]) -> int:
    return sum(number for number in numbers if 0 < number <= _MOST_JOBS)


def _waits(keys: Keys, served: Sequence[str], now: float) -> Steps[tuple[dict[str, float], int]]:
    """The seconds that the next job of each queue has been waiting, and how many queues were not read."""
    names = set(served)
    cursor = -1
    while cursor and len(names) < _MOST_NAMES:
        cursor, page = yield from one("SSCAN", keys.queues, max(0, cursor), "COUNT", _PER_SCAN, read=tuple)
        names.update(map(decoded, page))
    queues = {keys.queue(name): name for name in sorted(filter(is_queue_name, names))}
    filled = yield from present(list(queues))
    times = yield from look([(key, "since") for key in filled[:_MOST_READ]])
    waits = {}
    for key, stored in zip(filled, times, strict=False):
        at = since(stored)
        wait = 0.0 if at is None else round(now - at, _DIGITS)
        if 0 < wait < math.inf:
            waits[queues[key]] = wait
    return waits, len(filled[_MOST_READ:])


# Entries


def add(keys: Keys, minutes: int, entry: GaugeEntry) -> Steps[None]:
    """Add an entry. Redis refuses one that is not newer than the last: another server has added it."""
    content = {
        "busy": entry.busy,
        "concurrency": entry.concurrency,
        "waits": entry.latencies_s,
        "left_out": entry.left_out,
    }
    # In ASCII: an entry of another program, which is folded, may have half of a pair.
    packed = simplejson.dumps(content, separators=(",", ":"))
    key = keys.gauges(minutes)
    sent = command("XADD", key, "MAXLEN", _KEPT[minutes], f"{_ms(entry.at)}-0", "v", packed)
    try:
        yield from every([sent, command("EXPIRE", key, _TTL_S[minutes])])
    except StoreError as error:
        if error.code != "ERR":
            raise
        yield from _remove_if_ahead(key)


def _remove_if_ahead(key: str) -> Steps[None]:
    """Remove a stream whose last entry is of the future, because the clock of Redis was wrong.

    It would refuse all further entries until that time.
    """
    last = yield from one("XREVRANGE", key, "+", "-", "COUNT", 1, read=list)
    if last and _begin_of(last[0][0]) > (yield from clock()):
        yield from one("EXPIRE", key, 0, read=bool)


def _entries(stored: Sequence[Any]) -> list[GaugeEntry]:
    """The entries of a stream, without undecodable ones."""
    found = (_unpacked(name, fields) for name, fields in stored)
    return [entry for entry in found if entry is not None]


def _unpacked(name: bytes, fields: Mapping[bytes, bytes]) -> GaugeEntry | None:
    stored = decoded_json(fields.get(b"v"), dict) or {}
    busy, concurrency, left_out = (_number(stored.get(key)) for key in ("busy", "concurrency", "left_out"))
    waits = stored.get("waits")
    if busy is None or concurrency is None or left_out is None or not isinstance(waits, dict):
        return None
    known = ((queue, _number(wait)) for queue, wait in waits.items())
    latencies_s = {queue: wait for queue, wait in known if wait is not None}
    return GaugeEntry(_begin_of(name), busy, int(concurrency), latencies_s, int(left_out))


def _begin_of(name: bytes) -> float:
    """When the entry with this id begins, in epoch seconds."""
    return int(name.partition(b"-")[0]) / 1000


def _number(value: object) -> float | None:
    """A number from 0 on; None for any other value."""
    return float(value) if isinstance(value, int | float) and 0 <= value < _ABSURD else None
