"""Removal: deletes jobs on request, each together with the effects of its end.

Run by ``api``; never by the server. A job that a server or another client has taken meanwhile has no effects
here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyworkers.protocol.effects import Effect, arguments, name_of
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.flow.rules import MARKS, effects_of_stored
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Request, Steps, one, script
from pyworkers.store.transport.replies import blobs, integer

_PER_SEARCH = 1000
# For the search in a cleared key, of which ten million jobs take a minute.
_CLEARED_TTL_S = 3600


def written(keys: Keys, effects: Iterable[tuple[int, Effect]]) -> tuple[list[str], list[Any]]:
    """The keys and the arguments of effects for a script, each with the place of its job, from 1."""
    names: list[str] = []
    args: list[Any] = []
    for place, effect in effects:
        names += effect.keys(keys)
        args += (place, name_of(effect), *arguments(effect))
    return names, args


def ends(jobs: Iterable[bytes], ending: Ending, now: float, queue: str = "") -> list[tuple[int, Effect]]:
    """The effects of the ends of stored jobs, each with the place of its job, from 1."""
    return [
        (place, effect)
        for place, raw in enumerate(jobs, 1)
        for effect in effects_of_stored(raw, ending, now, queue)
    ]


class KeptFor(NamedTuple):
    """Jobs that are deleted are kept for an undo: by the id of the deletion, and the word of their place."""

    deletion: str = ""
    place: str = ""

    def names(self, keys: Keys) -> list[str]:
        """The keys in which they are kept."""
        return [keys.deletions, keys.deletion(self.deletion)]


NOT_KEPT = KeptFor()


def remove(
    keys: Keys, zset: str, members: Sequence[bytes], now: float, kept: KeptFor = NOT_KEPT
) -> Request[int]:
    """Delete members of a sorted set. Returns how many this call removed."""
    names, args = written(keys, ends(members, Ending.DELETED, now))
    if not (args or kept.deletion):
        return one("ZREM", zset, *members, read=integer)
    args = [3 + len(members), *kept, *members, *args]
    return script("removal/remove", [zset, *kept.names(keys), *names], args, integer, keys.namespace)


def clear(keys: Keys, key: str, now: float, queue: str = "", kept: KeptFor = NOT_KEPT) -> Steps[int]:
    """Delete all jobs of a queue or a sorted set. Returns their number."""
    cleared = keys.own(f"cleared:{os.urandom(8).hex()}")
    jobs = yield from script("removal/clear", [key, cleared], [_CLEARED_TTL_S], integer, keys.namespace)
    if kept.deletion:
        yield from _keep(keys, cleared, jobs, kept)
    first = 0
    while first < jobs:
        read, found = yield from _search(cleared, first)
        if not read:
            break
        first += read
        names, args = written(keys, ((1, effect) for _, effect in ends(found, Ending.DELETED, now, queue)))
        if args:
            yield from script("removal/apply", names, args, bool, keys.namespace)
    yield from one("UNLINK", cleared, read=integer)
    return jobs


def _search(key: str, first: int) -> Request[tuple[int, list[bytes]]]:
    """How many jobs of a list or sorted set were read from an index on, and the ones with effects."""
    return script("removal/search", [key], [first, _PER_SEARCH, *MARKS], _found)


def _found(reply: Any) -> tuple[int, list[bytes]]:
    return integer(reply[0]), blobs(reply[1])


def _keep(keys: Keys, cleared: str, jobs: int, kept: KeptFor) -> Steps[None]:
    names = [cleared, *kept.names(keys)]
    first = 0
    while first < jobs:
        args = [*kept, first, _PER_SEARCH]
        read = yield from script("removal/keep", names, args, integer, keys.namespace)
        if not read:
            return
        first += read
