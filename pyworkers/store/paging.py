"""Paging: all jobs of a list or a sorted set, a page at a time, while others add and remove jobs.

Used by ``api``. A job that stays is seen once. What comes or goes meanwhile may be seen or not.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count

from pyworkers.store import scripts
from pyworkers.store.transport.connections import Connection, errors_translated

PAGE = 200
"""Jobs in memory at a time, or a few times as many; payloads may be large."""
# A queue that is consumed as fast as it is filled would never come to an end.
_MOST_RESTARTS = 10


def members(
    connection: Connection, zset: str, *, descending: bool = False, page: int = PAGE
) -> Iterator[tuple[bytes, float]]:
    """The members of a sorted set with their scores, in order. Raises RedisUnavailableError and StoreError.

    Each page begins behind the last member of the one before, wherever that stands by now.
    """
    script = scripts.load("after")
    last: list[bytes] = []
    while True:
        with errors_translated():
            flat = script.call(connection, [zset], [page, "down" if descending else "up", *last])
        for member, score in zip(flat[::2], flat[1::2], strict=True):
            yield member, float(score)
        if len(flat) < 2 * page:
            return
        last = [flat[-1], flat[-2]]


def entries(connection: Connection, key: str, *, page: int = PAGE) -> Iterator[tuple[bytes, int]]:
    """The entries of a list from the left, where producers push, with their indexes: the newest first.

    Raises RedisUnavailableError and StoreError. Takes eight bytes of memory for each entry seen.
    """
    seen = array("q")
    for _ in range(_MOST_RESTARTS):
        walk = _Walk(connection, key, page)
        known = Counter(seen)
        for raw, index in walk:
            digest = hash(raw)
            if known[digest]:
                known[digest] -= 1
            else:
                seen.append(digest)
                yield raw, index
        if not walk.lost:
            return


def align(
    window: Sequence[bytes], expected: int, behind: Sequence[bytes], ahead: Sequence[bytes]
) -> int | None:
    """Where in ``window`` the first entry stands that was not seen yet; None if nothing tells.

    ``behind`` are the entries seen last, ``ahead`` those that followed them when they were read. Of equal
    entries, the nearest to the ``expected`` place counts.
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


class _Walk:
    """One walk along a list; ``lost`` if all that it knew was gone, so that it could not go on."""

    def __init__(self, connection: Connection, key: str, page: int) -> None:
        self._connection = connection
        self._key = key
        self._page = page
        self._place = 0
        self._behind: list[bytes] = []
        self._ahead: list[bytes] = []
        self.lost = False

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        ended = False
        while not ended:
            start = max(0, self._place - self._page)
            stop = self._place + 2 * self._page
            with errors_translated():
                window = self._connection.execute_command("LRANGE", self._key, start, stop - 1)
            place: int | None = self._place - start
            if self._behind or self._ahead:
                place = align(window, self._place - start, self._behind, self._ahead)
            if place is None:
                if not self._found_again():
                    self.lost = True
                    return
                continue
            fresh = window[place : place + self._page]
            self._behind, self._ahead = fresh or self._behind, window[place + self._page :]
            first, self._place = start + place, start + place + len(fresh)
            ended = len(window) < stop - start and not self._ahead
            yield from zip(fresh, count(first))

    def _found_again(self) -> bool:
        """Move to where to go on, after more than a page has come or gone; False if that cannot be found."""
        for raws, step in ((self._ahead, 0), (self._behind[::-1], 1)):
            for raw in (*raws[:1], *raws[-1:]):
                with errors_translated():
                    place = self._connection.execute_command("LPOS", self._key, raw)
                if place is not None:
                    self._place = int(place) + step
                    return True
        return False
