"""Reading: reads all processes and their running jobs, page by page.

Used by ``api`` and by the server. A process without a description, or with an undecodable one, is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from itertools import starmap

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import portions
from pyworkers.store.calls import Mode, Pages, Request, Steps, command, decoded, every, one
from pyworkers.store.heartbeat import clock
from pyworkers.store.processes.decoding import described, reading, work_view
from pyworkers.store.processes.views import ProcessView, WorkView
from pyworkers.store.transport.replies import integer
from pyworkers.store.values import as_text

_PER_ROUND_TRIP = 100


class Processes(Pages[ProcessView]):
    """The processes with a description in Redis, in no order; those in ``known`` are not read."""

    def __init__(self, keys: Keys, known: Collection[str] = ()) -> None:
        self._keys = keys
        self._identities = Identities(keys)
        self._known = known
        self.left_out: set[str] = set()
        """The ``known`` ones that were met."""

    def next_page(self) -> Steps[list[ProcessView]]:
        found = yield from self._identities.next_page()
        self.ended = self._identities.ended
        self.left_out.update(name for name in found if name in self._known)
        names = [name for name in found if name not in self._known]
        replies = yield from every([reading(self._keys, name) for name in names], Mode.LENIENT)
        views = (described(name, values) for name, values in zip(names, replies, strict=True))
        return [view for view in views if view is not None]


def live(keys: Keys) -> Steps[list[ProcessView]]:
    """The processes with a recent heartbeat, by Redis' clock: all of them write their own time."""
    now = yield from clock()
    return [view for view in (yield from Processes(keys).rest()) if not view.silent(now)]


class Works(Pages[WorkView]):
    """The running jobs of these processes."""

    def __init__(self, keys: Keys, identities: Sequence[str]) -> None:
        self._keys = keys
        self._portions = deque(portions(identities, _PER_ROUND_TRIP))
        self.ended = not self._portions

    def next_page(self) -> Steps[list[WorkView]]:
        names = self._portions.popleft()
        self.ended = not self._portions
        views = starmap(work_view, (yield from stored_works(self._keys, names)))
        return [view for view in views if view is not None]


def stored_works(keys: Keys, names: Sequence[str]) -> Steps[list[tuple[str, bytes, bytes]]]:
    """The running jobs of these processes, not decoded: the process, the thread, and the job."""
    both = [key for name in names for key in (keys.work(name), keys.workers(name))]
    replies = yield from every([command("HGETALL", key) for key in both], Mode.LENIENT)
    return [
        (name, thread, value)
        for name, now, before in zip(names, replies[::2], replies[1::2], strict=True)
        for thread, value in {**(before or {}), **(now or {})}.items()
    ]


def registered(keys: Keys) -> Request[int]:
    """The number of names in ``processes``; a few of them may have crashed."""
    return one("SCARD", keys.processes, read=integer)


def leader(keys: Keys) -> Request[str]:
    """The identity of Sidekiq Enterprise's leader; empty if there is none."""
    return one("GET", keys.leader, read=as_text)


class Identities(Pages[str]):
    """The members of ``processes``, each once."""

    def __init__(self, keys: Keys) -> None:
        self._key = keys.processes
        self._cursor = 0
        self._seen: set[bytes] = set()

    def next_page(self) -> Steps[list[str]]:
        self._cursor, found = yield from one(
            "SSCAN", self._key, self._cursor, "COUNT", _PER_ROUND_TRIP, read=tuple
        )
        self.ended = self._cursor == 0
        fresh = [name for name in found if name not in self._seen]
        self._seen.update(fresh)
        return [decoded(name) for name in fresh]
