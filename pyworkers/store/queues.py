"""Queues: reads and changes the waiting jobs of a queue, each change conditional on a removal.

Used by ``api`` and ``cancel``; never by the server. The builders move opaque bytes, and send no command that
scans the names of keys.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import count
from typing import Any, NamedTuple

from pyworkers.errors import StoreError
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import PageSize
from pyworkers.store import full
from pyworkers.store.calls import Mode, Pages, Request, Steps, command, decoded, every, one, script
from pyworkers.store.flow import removal
from pyworkers.store.flow.removal import NOT_KEPT, KeptFor
from pyworkers.store.measures.look import present
from pyworkers.store.sets import DEAD_MAX_AGE_S, DEAD_MAX_JOBS, PAGE
from pyworkers.store.transport.replies import blobs, integer, maybe_blob

# Without a limit, a queue that is consumed as fast as it is filled would be listed for ever.
_MOST_WALKS = 10


class WaitingJob(NamedTuple):
    """A waiting job, and its index when it was read, from the left end on."""

    raw: bytes
    place: int


class Entries(Pages[WaitingJob]):
    """The waiting jobs of a queue from the left, where producers push: the newest first.

    A job that stays is listed once; a job added or removed meanwhile is listed or not. Takes eight bytes of
    memory for each job listed.
    """

    def __init__(self, key: str, *, page: int = PAGE) -> None:
        self._key = key
        self._size = PageSize(page)
        self._seen = array("q")
        self._known: Counter[int] = Counter()
        self._walk = _Walk(self._key, self._size)
        self._walks = 1

    def next_page(self) -> Steps[list[WaitingJob]]:
        found = yield from self._walk.next_page()
        fresh = [waiting for waiting in found if self._is_new(hash(waiting.raw))]
        if self._walk.lost and self._walks < _MOST_WALKS:
            self._known = Counter(self._seen)
            self._walk = _Walk(self._key, self._size)
            self._walks += 1
        self.ended = self._walk.ended
        return fresh

    def moved(self, raws: Iterable[bytes]) -> None:
        """List these no more, which the reader has put in front of the walk again."""
        self._known.update(map(hash, raws))

    def _is_new(self, digest: int) -> bool:
        """False for a job that was moved, or that an earlier walk has seen; equal jobs are counted."""
        if self._known[digest]:
            self._known[digest] -= 1
            return False
        self._seen.append(digest)
        return True


def known(keys: Keys) -> Request[list[str]]:
    """The names of all queues to which a job was ever pushed, sorted; ``clear`` removes a name."""
    return one("SMEMBERS", keys.queues, read=lambda names: sorted(map(decoded, names)))


def size(keys: Keys, queue: str) -> Request[int]:
    """The number of waiting jobs."""
    return one("LLEN", keys.queue(queue), read=integer)


def next_job(keys: Keys, queue: str) -> Request[bytes | None]:
    """The job that is popped next; None if none waits."""
    return one("LINDEX", keys.queue(queue), -1, read=maybe_blob)


def first_jobs(lists: Iterable[str], most: int) -> Steps[list[tuple[str, bytes]]]:
    """The first jobs of these lists, one list after the other, each with the key of its list."""
    found: list[tuple[str, bytes]] = []
    size = PageSize(most)
    for name in (yield from present(list(lists))):
        place, more = 0, True
        while more and len(found) < most:
            wanted = min(size.jobs, most - len(found))
            [raws] = yield from every([command("LRANGE", name, place, place + wanted - 1)], Mode.LENIENT)
            found += [(name, raw) for raw in raws or ()]
            size.note(raws or ())
            place, more = place + wanted, len(raws or ()) == wanted
    return found


def is_paused(keys: Keys, queue: str) -> Request[bool]:
    """True if the queue is paused."""
    return one("SISMEMBER", keys.paused, queue, read=bool)


def pause(keys: Keys, queue: str) -> Request[bool]:
    """Pause a queue; False if it was paused already."""
    return full.write(keys, "SADD", keys.paused, queue, read=bool)


def resume(keys: Keys, queue: str) -> Steps[bool]:
    """Undo ``pause``; False if the queue was not paused.

    A failed job at the head of an ordered queue is retried now. Its server notices the change of this key.
    """
    yield from one("HDEL", keys.ordered(queue), "until", "head", read=integer)
    return (yield from one("SREM", keys.paused, queue, read=bool))


class Withdrawal(IntEnum):
    """How a job is taken out of its queue; the numbers are as in withdraw.lua."""

    DELETED = 0
    DEAD = 1
    FIRST = 2
    """It returns to its queue, to the end that is popped next."""


_ENDINGS = {Withdrawal.DELETED: Ending.DELETED, Withdrawal.DEAD: Ending.DEAD}


def withdraw(
    keys: Keys,
    queue: str,
    jobs: Sequence[WaitingJob],
    now: float,
    how: Withdrawal,
    kept: KeptFor = NOT_KEPT,
) -> Steps[int]:
    """Take waiting jobs out of their place in a queue. Returns how many this call took.

    Raises StoreError if the dead set is needed and a key of another type; then the jobs stay.
    """
    names = [keys.queue(queue), keys.dead, *kept.names(keys)]
    taken = 0
    while jobs:
        last = 7 + 2 * len(jobs)
        args: list[Any] = [repr(now), now - DEAD_MAX_AGE_S, DEAD_MAX_JOBS, int(how), last, *kept]
        for raw, place in jobs:
            args += (raw, place)
        ended = (raw for raw, _ in jobs) if how in _ENDINGS else ()
        ending = _ENDINGS.get(how, Ending.DELETED)
        more_names, more_args = removal.written(keys, removal.ends(ended, ending, now, queue))
        number, *again = yield from script(
            "removal/withdraw", [*names, *more_names], [*args, *more_args], tuple, keys.namespace
        )
        if number < 0:
            raise StoreError(f"{keys.dead} is a key of another type; the jobs stay in their queue")
        taken += number
        # Each round searches the whole queue for two of these jobs, which are settled then, so the loop ends.
        jobs = [jobs[place - 1] for place in again[0]]
    return taken


def align(
    window: Sequence[bytes], expected: int, behind: Sequence[bytes], ahead: Sequence[bytes]
) -> int | None:
    """The place in ``window`` of the first entry that was not read before; None if it cannot be derived.

    ``behind`` are the entries read last, ``ahead`` those that followed them at that time. Of equal entries,
    the nearest to the ``expected`` place counts.
    """
    places: dict[bytes, list[int]] = {}
    for place, raw in enumerate(window):
        places.setdefault(raw, []).append(place)
    for distance, raw in enumerate(ahead):
        if raw in places:
            return _nearest(places[raw], expected + distance)
    for distance, raw in enumerate(reversed(behind), 1):
        if raw in places:
            return _nearest(places[raw], expected - distance) + 1
    return None


def _nearest(places: Sequence[int], expected: int) -> int:
    return min(places, key=lambda place: abs(place - expected))


class _Walk(Pages[WaitingJob]):
    """One walk along a list, over as many jobs as it has at the beginning: others may be put in front of it.

    It ends ``lost`` if all jobs around its place were removed.
    """

    def __init__(self, key: str, size: PageSize) -> None:
        self._key = key
        self._size = size
        self._place = 0
        self._reach = 0
        self._behind: list[bytes] = []
        self._ahead: list[bytes] = []
        self._left: int | None = None
        self.lost = False

    def next_page(self) -> Steps[list[WaitingJob]]:
        page = self._size.jobs
        reach = max(page, self._reach)
        start, stop = max(0, self._place - reach), self._place + page + reach
        reading = command("LRANGE", self._key, start, stop - 1, read=blobs)
        if self._left is None:
            # The length last: a job that is pushed in between must not take the place of the last one.
            window, self._left = yield from every([reading, command("LLEN", self._key, read=integer)])
        else:
            [window] = yield from every([reading])
        place: int | None = self._place - start
        if self._behind or self._ahead:
            place = align(window, self._place - start, self._behind, self._ahead)
        if place is None:
            found = yield from self._find_again()
            self.lost = self.ended = not found
            self._reach = 2 * reach
            return []
        fresh = window[place : place + min(page, self._left)]
        self._left -= len(fresh)
        self._behind, self._ahead = fresh or self._behind, window[place + page :]
        self._size.note(window)
        first = start + place
        # As many jobs may come or go before the next page. At the edge of the window, nothing new was seen.
        self._reach = 2 * (abs(first - self._place) if fresh else reach)
        self._place = first + len(fresh)
        self.ended = self._left <= 0 or (len(window) < stop - start and not self._ahead)
        return [WaitingJob(raw, index) for raw, index in zip(fresh, count(first))]

    def _find_again(self) -> Steps[bool]:
        """Move to the first unread entry, after more than a page was added or removed; False if not found."""
        for raws, step in ((self._ahead, 0), (self._behind[::-1], 1)):
            for raw in (*raws[:1], *raws[-1:]):
                place = yield from one("LPOS", self._key, raw, read=lambda place: place)
                if place is not None:
                    self._place = int(place) + step
                    return True
        return False
