"""Search: the jobs of a place that meet a filter, part by part, each part in a bounded time.

The reads are steps. A search says how far it has come, and goes on from there; nothing of it is kept in Redis
or in the process. A job that stays is found at least once, perhaps twice if the list moves fast.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.pages import PAGE, Row, read_at, read_rows, row_of, total_of
from pyworkers.api.browse.places import Place
from pyworkers.protocol.keys import Keys
from pyworkers.store.browse.parts import Piece, Position, read_part
from pyworkers.store.calls import Steps

BUDGET_S = 0.05
# Redis looks at a thousand small jobs in a millisecond, and at a megabyte of jobs in seven if upper and lower
# case are the same; it runs nothing else meanwhile. To decode one that may meet the filter takes 30 µs.
_AT_A_TIME, _MOST_DECODED = 5000, 250
_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sought:
    """A filter at a moment: ages count until ``now``, so that a count and an action select the same jobs."""

    place: Place
    wanted: Filter
    now: float
    mask: tuple[str, ...] = ()

    def meets(self, row: Row) -> bool:
        """True for a job that the filter selects."""
        since = self.place.since(row.job, row.score)
        return self.wanted.matches(row.job, None if since is None else self.now - since, self.mask)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The jobs that were found in one part. ``after``: where the next part begins; None at the end.

    ``looked_at`` of ``total`` jobs have been looked at so far.
    """

    rows: tuple[Row, ...]
    looked_at: int
    total: int
    after: Position | None

    @property
    def cursor(self) -> str:
        """``after`` as a text for an address; empty at the end."""
        return "_".join(map(str, self.after)) if self.after else ""

    def as_dict(self) -> dict[str, Any]:
        """The part for JSON."""
        facts = {"looked_at": self.looked_at, "total": self.total, "cursor": self.cursor}
        return facts | {"jobs": [row.as_dict() for row in self.rows]}


def read_matches(
    keys: Keys,
    sought: Sought,
    begin: Position,
    count: int = PAGE,
    *,
    budget_s: float = BUDGET_S,
) -> Steps[Stretch]:
    """Look for jobs from a position on, until ``count`` are found or the time is over. Raises StoreError."""
    deadline = time.monotonic() + budget_s
    rows: list[Row] = []
    while True:
        part = yield from read_stretch(keys, sought, begin)
        rows += part.rows
        if len(rows) >= count or part.after is None or time.monotonic() >= deadline:
            break
        begin = part.after
    if len(rows) <= count:
        return Stretch(tuple(rows), part.looked_at, part.total, part.after)
    last = rows[count - 1]
    return Stretch(tuple(rows[:count]), last.index + 1, part.total, after(last))


def read_stretch(keys: Keys, sought: Sought, begin: Position) -> Steps[Stretch]:
    """Look at the next jobs, some thousands at most. Raises StoreError."""
    key = sought.place.key(keys)
    part = yield from read_part(
        key,
        begin,
        _AT_A_TIME,
        descending=sought.place.descending,
        containing=sought.wanted.literals(sought.mask),
        most=_MOST_DECODED,
        most_bytes=_MOST_BYTES,
    )
    rows = []
    for piece in part.pieces:
        row = yield from _judged(keys, sought, piece)
        if row is not None:
            rows.append(row)
    total, place = total_of(part, key), part.after.place
    ended = place >= total or not part.after.token
    return Stretch(tuple(rows), min(place, total), total, None if ended else part.after)


def position_of(cursor: str) -> Position:
    """The position of a cursor from an address; the beginning for any other text."""
    named = read_at(cursor)
    return Position() if named is None else Position(named.place, named.token, named.score)


def after(row: Row) -> Position:
    """The position after a job."""
    named = read_at(row.at)
    return Position() if named is None else Position(named.place + 1, named.token, named.score)


def _judged(keys: Keys, sought: Sought, piece: Piece) -> Steps[Row | None]:
    """The row of a job that meets the filter. A large one is read whole for that."""
    row = whole = row_of(piece)
    if row.job.cut and not sought.wanted.empty:
        [found] = yield from read_rows(keys, sought.place, [row.at])
        if found is None:
            return None
        whole = found
    return row if sought.meets(whole) else None
