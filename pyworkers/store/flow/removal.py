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
from pyworkers.protocol.portions import portions
from pyworkers.store.calls import Pages, Request, Steps, one, script
from pyworkers.store.transport.replies import blobs, integer

_PER_SEARCH = 1000
# The end of a tracked job is six writes: of a thousand, Redis would do nothing else for 50 ms.
_PER_SCRIPT = 100
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


class Clearing(Pages[int]):
    """The deletion of all jobs of a queue or a sorted set, and the effects of their ends. Its item: how many.

    They leave their place together, in the first page. The other pages keep them for an undo, and apply the
    effects, of some jobs each. A page that an error has ended may be read again.
    """

    def __init__(self, keys: Keys, key: str, now: float, queue: str = "", kept: KeptFor = NOT_KEPT) -> None:
        self._keys = keys
        self._key = key
        self._now = now
        self._queue = queue
        self._kept = kept
        self._cleared = keys.own(f"cleared:{os.urandom(8).hex()}")
        self._jobs: int | None = None
        self._keeps = bool(kept.deletion)
        self._first_to_keep = 0
        self._per_page = _PER_SEARCH
        self.looked_at = 0
        """The jobs whose effects are applied."""

    def next_page(self) -> Steps[list[int]]:
        if self._jobs is None:
            self._jobs = yield from self._take()
            return [self._jobs]
        if self._keeps and self._first_to_keep < self._jobs:
            yield from self._keep()
        elif self.looked_at < self._jobs:
            yield from self._settle()
        else:
            yield from one("UNLINK", self._cleared, read=integer)
            self.ended = True
        return []

    def _take(self) -> Steps[int]:
        if self._queue:
            yield from one("SREM", self._keys.queues, self._queue, read=integer)
        names = [self._key, self._cleared]
        return (yield from script("removal/clear", names, [_CLEARED_TTL_S], integer, self._keys.namespace))

    def _keep(self) -> Steps[None]:
        """Keep a part of the jobs. After an error, no more: jobs of its page may be kept already."""
        names = [self._cleared, *self._kept.names(self._keys)]
        args, self._per_page = [*self._kept, self._first_to_keep, self._per_page], 0
        read = yield from script("removal/keep", names, args, integer, self._keys.namespace)
        self._per_page = _PER_SEARCH
        self._first_to_keep += read
        self._keeps = read > 0

    def _settle(self) -> Steps[None]:
        read, found = yield from script(
            "removal/search", [self._cleared], [self.looked_at, _PER_SEARCH, *MARKS], _found
        )
        for jobs in portions(found, _PER_SCRIPT):
            effects = ends(jobs, Ending.DELETED, self._now, self._queue)
            names, args = written(self._keys, ((1, effect) for _, effect in effects))
            if args:
                yield from script("removal/apply", names, args, bool, self._keys.namespace)
        # Another program may have deleted the key.
        self.looked_at = self.looked_at + read if read else self._jobs or 0


def _found(reply: Any) -> tuple[int, list[bytes]]:
    return integer(reply[0]), blobs(reply[1])
