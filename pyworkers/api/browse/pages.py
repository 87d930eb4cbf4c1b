"""Pages of jobs: some jobs of a queue or a set by place, however long it is.

The reads are steps. A page of large jobs holds their beginnings and ends, and never the whole of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.api.browse.cut import CutRecord
from pyworkers.api.browse.places import Place
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.record import JOB, SCORED, JobRecord, finite
from pyworkers.api.schemas import COUNT, SCORE, TEXT, array, record
from pyworkers.errors import StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store.browse.parts import Again, Named, Piece, Position, Slice, find_again, read_part
from pyworkers.store.calls import Steps

_AT = re.compile(r"([0-9]{1,12})_([0-9a-f]{1,20})_(-?inf|-?[0-9][0-9.e+-]{0,30}|)")
PAGE = 50
"""The rows of a page."""


@dataclass(frozen=True, slots=True)
class Row:
    """A job of a page. ``at`` names it for an action, and finds it again while the list moves.

    ``index`` counts from 0, from the job that is popped next, the one that is due first, or the one that died
    last. ``score`` is in epoch seconds, None in a queue. ``length`` is the size of the job in bytes.
    """

    job: JobRecord
    index: int
    score: float | None
    length: int
    at: str

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON, with its place; a large one lacks the fields that were not read."""
        return ROW.as_dict(self)


ROW: Table[Row] = Table(
    "Row",
    *JOB.within(lambda row: row.job),
    Column("index", Kind.COUNT),
    Column("at"),
    Column("bytes", Kind.COUNT, value=lambda row, _now: row.length),
    Column("score", Kind.PARTS, value=lambda row, _now: None if row.score is None else finite(row.score),
           schema=SCORE, optional=True),
    Column("cut", Kind.FLAG, value=lambda row, _now: row.job.cut, optional=lambda row: row.job.cut),
    *SCORED,
)  # fmt: skip
JOBS = record(
    "Jobs",
    {"total": COUNT, "jobs": array(ROW.schema)},
    {"first": COUNT, "looked_at": COUNT, "cursor": TEXT},
)
"""The schema of a page, and of a part of a search."""


@dataclass(frozen=True, slots=True)
class JobPage:
    """Jobs of a place from the index ``first`` on, at about one moment; ``total`` is the number of all."""

    place: Place
    first: int
    total: int
    rows: tuple[Row, ...]

    @property
    def last(self) -> int:
        """The index after the last row: where the next page begins."""
        return self.rows[-1].index + 1 if self.rows else self.first

    def as_dict(self) -> dict[str, Any]:
        """The page for JSON."""
        return {"first": self.first, "total": self.total, "jobs": [row.as_dict() for row in self.rows]}


def read_page(keys: Keys, place: Place, first: int = 0, count: int = PAGE) -> Steps[JobPage]:
    """Read the jobs of a place from an index on, at most ``count``; fewer if they are large.

    The first page of a place is read again if the index lies behind its end. Raises StoreError for a key of
    another type.
    """
    key = place.key(keys)
    part = yield from read_part(key, Position(max(0, first)), count, descending=place.descending)
    if not part.pieces and 0 < part.total <= first:
        first = (part.total - 1) // count * count
        part = yield from read_part(key, Position(first), count, descending=place.descending)
    return JobPage(place, max(0, first), total_of(part, key), tuple(map(row_of, part.pieces)))


def read_rows(keys: Keys, place: Place, ats: Sequence[str]) -> Steps[list[Row | None]]:
    """The jobs that a page has named (``Row.at``), whole; None for one that is gone, or an invalid name."""
    named = [read_at(at) for at in ats]
    asked = [job for job in named if job is not None]
    again = yield from find_again(place.key(keys), asked, descending=place.descending)
    found = dict(zip(asked, again, strict=True))
    return [None if job is None else _whole(job, found[job]) for job in named]


def row_of(piece: Piece) -> Row:
    """A job of a part that was read."""
    job = JobRecord(piece.head) if piece.whole else CutRecord(piece.head, piece.tail, piece.length)
    at = f"{piece.place}_{piece.token}_{piece.score}"
    return Row(job, piece.place, float(piece.score) if piece.score else None, piece.length, at)


def _whole(job: Named, found: Again | None) -> Row | None:
    if found is None:
        return None
    return row_of(Piece(found.place, job.score, job.token, len(found.raw), found.raw, b""))


def read_at(at: str) -> Named | None:
    """The job that ``Row.at`` names; None for any other text."""
    found = _AT.fullmatch(at)
    if found is None:
        return None
    try:
        float(found[3] or 0)
    except ValueError:
        return None
    return Named(found[2], int(found[1]), found[3])


def total_of(part: Slice, key: str) -> int:
    """The jobs in a key. Raises StoreError for a key of another type."""
    if part.total < 0:
        raise StoreError(f"{key} is a key of another type, and has no jobs")
    return part.total
