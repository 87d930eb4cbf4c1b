"""Finished: reads the lists of finished jobs. Used by ``api``; never by the server."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import islice

from pyworkers.protocol.flow.finished import FinishedEntry, read_entry
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Steps, command, decoded, every
from pyworkers.store.values import encodable

Place = tuple[int, int, str]
"""The time and the number of an entry, and the name of its list."""
_MOST_LISTS = 1000


def lists(keys: Keys) -> Steps[list[str]]:
    """The names of the lists, sorted; at most a thousand."""
    [found] = yield from every([command("SMEMBERS", keys.finished)], Mode.LENIENT)
    return sorted(name for name in map(decoded, found or ()) if encodable(name))[:_MOST_LISTS]


def before(
    keys: Keys, names: Sequence[str], place: Place | None, count: int
) -> Steps[list[tuple[Place, FinishedEntry | None]]]:
    """The latest entries of all lists before a place, up to ``count``; None for an invalid one."""
    asked = [
        command("XREVRANGE", keys.finished_jobs(name), _end(name, place), "-", "COUNT", count)
        for name in names
    ]
    replies = (yield from every(asked, Mode.LENIENT)) if asked else []
    found = (
        [(_place(id, name), _entry(fields)) for id, fields in entries or ()]
        for name, entries in zip(names, replies, strict=True)
    )
    return list(islice(merge(*found, key=lambda one: one[0], reverse=True), count))


def read(keys: Keys, name: str, id: str) -> Steps[FinishedEntry | None]:
    """One entry; None if it is gone."""
    if not encodable(name):
        return None
    asked = command("XREVRANGE", keys.finished_jobs(name), id, id, "COUNT", 1)
    [entries] = yield from every([asked], Mode.LENIENT)
    return _entry(entries[0][1]) if entries else None


def _end(name: str, place: Place | None) -> str:
    """Where a list begins behind a place: entries of one time are in the order of the names."""
    if place is None:
        return "+"
    ms, number, other = place
    return f"{ms}-{number}" if name < other else f"({ms}-{number}"


def _place(id: bytes, name: str) -> Place:
    ms, _, number = decoded(id).partition("-")
    return int(ms), int(number), name


def _entry(fields: dict[bytes, bytes]) -> FinishedEntry | None:
    packed = fields.get(b"v")
    return None if packed is None else read_entry(packed)
