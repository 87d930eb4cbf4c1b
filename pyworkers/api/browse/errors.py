"""Errors: the jobs of ``retries`` and ``dead`` in groups of one error: its numbers and ids do not count.

The reads are steps, and each page of them has a bound: it reads some thousand jobs, and says where to go on.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from pyworkers.api.browse.filter import Filter, folded
from pyworkers.api.browse.pages import Row, read_rows
from pyworkers.api.browse.places import DEAD, RETRIES, Place
from pyworkers.api.browse.search import Sought, position_of, read_stretch
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.schemas import COUNT, array
from pyworkers.protocol import timestamps
from pyworkers.protocol.keys import Keys
from pyworkers.store.browse.parts import Position
from pyworkers.store.calls import Steps
from pyworkers.store.measures import deploys
from pyworkers.store.measures.deploys import Deploy, read_deploys

MOST_JOBS = 10_000
"""The jobs of a page at most."""
# Redis has each stretch of it for a millisecond or two, and serves others between them.
BUDGET_S = 0.25
HOURS = 24
PLACES = (RETRIES, DEAD)
"""The places whose jobs have failed."""
_END, _BETWEEN = "end", "~"
_ERROR = frozenset(("error_class", "error_message"))
_MOST_NAMES, _LONGEST_NAME, _LONGEST_ERROR = 10, 200, 500


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """The jobs with one error. ``error`` selects them as ``error_like`` of a ``Filter``; empty for no error.

    ``first`` and ``last``: when one of them first failed, and last failed or died, in epoch seconds; None if
    unknown. ``classes`` and ``queues``: the most frequent names. ``hours``: how many of them last failed or
    died in each of the last 24 hours, the current one last.
    """

    error: str
    error_class: str
    retries: int
    dead: int
    first: float | None
    last: float | None
    classes: tuple[str, ...]
    queues: tuple[str, ...]
    hours: tuple[int, ...] = ()
    text: str = ""
    """The error itself if these jobs have the same one, with its numbers and ids; else as ``error``."""
    versions: tuple[str, ...] = ()
    """The labels of the deployments after which these jobs first and last failed, the latest first."""

    @property
    def count(self) -> int:
        """The jobs in both places."""
        return self.retries + self.dead

    def as_dict(self) -> dict[str, Any]:
        """The group for JSON."""
        return ERROR.as_dict(self)


ERROR: Table[ErrorGroup] = Table(
    "ErrorGroup",
    Column("error", title="Error", empty="no error", cut=1,
           about="The error, with # instead of numbers, ids and quoted values."),
    Column("text", about="The error itself if all these jobs have the same one; else as error."),
    Column("error_class"),
    Column("count", Kind.COUNT, "Jobs"),
    Column("retries", Kind.COUNT, "Retries"),
    Column("dead", Kind.COUNT, "Dead"),
    Column("first", Kind.MOMENT, "First", nullable=True),
    Column("last", Kind.MOMENT, "Last", nullable=True),
    Column("classes", Kind.TEXTS, "Classes", cut=2),
    Column("queues", Kind.TEXTS, "Queues", cut=3),
    Column("versions", Kind.TEXTS, "Versions", cut=4,
           about="The deployments after which these jobs first and last failed, the latest first."),
    Column("hours", Kind.PARTS, "Last day", value=lambda group, _now: list(group.hours), schema=array(COUNT),
           about="The jobs that last failed or died in each of the last 24 hours, the current one last."),
)  # fmt: skip
ERRORS: Table[ErrorPage] = Table(
    "Errors",
    Column("total", Kind.COUNT),
    Column("looked_at", Kind.COUNT),
    Column("read", Kind.COUNT),
    Column("cursor"),
    Column("errors", Kind.RECORDS, value=lambda page, _now: page.groups, table=ERROR),
)


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """The groups of ``read`` jobs, the largest group first.

    ``looked_at`` of ``total`` jobs have been read so far. ``cursor``: where the next page begins; empty at
    the end. ``deploy``: the last deployment.
    """

    groups: tuple[ErrorGroup, ...]
    read: int
    looked_at: int
    total: int
    cursor: str
    deploy: Deploy | None = None

    def as_dict(self) -> dict[str, Any]:
        """The page for JSON."""
        return ERRORS.as_dict(self)


@dataclass(slots=True)
class _OpenGroup:
    """A group as it grows."""

    error_class: str
    text: str
    """The error; empty once there is another one."""
    places: Counter[str] = field(default_factory=Counter)
    classes: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    versions: set[Deploy] = field(default_factory=set)
    first: float = inf
    last: float = -inf
    hours: list[int] = field(default_factory=lambda: [0] * HOURS)

    def add(self, place: Place, row: Row, now: float, deployed: Sequence[Deploy]) -> None:
        self.places[place.word] += 1
        if row.job.error[:_LONGEST_ERROR] != self.text:
            self.text = ""
        for names, name in ((self.classes, row.job.job_class), (self.queues, row.job.queue)):
            name = name[:_LONGEST_NAME]
            if name and (name in names or len(names) < _MOST_NAMES):
                names[name] += 1
        at = place.since(row.job, row.score)
        if at is not None and isfinite(at):
            self.first, self.last = min(self.first, at), max(self.last, at)
            if 0 <= (age := (now - at) / 3600) < HOURS:
                self.hours[HOURS - 1 - int(age)] += 1
            self.versions.update(_version_at(at, deployed))
            began = timestamps.read(row.job.data.get("failed_at"))
            if began is not None and isfinite(began):
                self.first = min(self.first, began)
                self.versions.update(_version_at(began, deployed))

    def group(self, error: str) -> ErrorGroup:
        known = self.first <= self.last
        return ErrorGroup(
            error,
            self.error_class,
            self.places[RETRIES.word],
            self.places[DEAD.word],
            self.first if known else None,
            self.last if known else None,
            tuple(name for name, _ in self.classes.most_common()),
            tuple(name for name, _ in self.queues.most_common()),
            tuple(self.hours),
            self.text or error,
            tuple(dict.fromkeys(deploy.label for deploy in sorted(self.versions, reverse=True))),
        )


def _version_at(at: float, deployed: Sequence[Deploy]) -> Sequence[Deploy]:
    """The last one of these deployments, of which the first comes first, before a moment; at most one."""
    place = bisect_right(deployed, at, key=lambda deploy: deploy.at)
    return deployed[max(0, place - 1) : place]


def read_errors(
    keys: Keys,
    cursor: str = "",
    most: float = MOST_JOBS,
    *,
    budget_s: float = BUDGET_S,
) -> Steps[ErrorPage]:
    """Group about ``most`` jobs from a cursor on, fewer if the time is over. Raises StoreError.

    Both places are read in turn: ``retries`` by their time, ``dead`` from the latest one on.
    """
    deadline, now = time.monotonic() + budget_s, time.time()
    deployed = (yield from read_deploys(keys, now - deploys.TTL_S, now))[::-1]
    begins = _begins(cursor)
    totals, looked_at = dict.fromkeys(PLACES, 0), dict.fromkeys(PLACES, 0)
    tallies: dict[str, _OpenGroup] = {}
    read, going = 0, list(PLACES)
    while going:
        for place in list(going):
            begin = begins[place]
            # The number of a place is read also if its jobs were read by an earlier page.
            part = yield from read_stretch(keys, Sought(place, Filter(), 0.0), begin or Position())
            totals[place] = part.total
            if begin is None:
                looked_at[place] = part.total
                going.remove(place)
                continue
            for row in part.rows:
                whole = yield from _with_error(keys, place, row)
                job = whole.job
                first = _OpenGroup(job.error_class[:_LONGEST_NAME], job.error[:_LONGEST_ERROR])
                tallies.setdefault(folded(job.error), first).add(place, whole, now, deployed)
            read += len(part.rows)
            looked_at[place], begins[place] = part.looked_at, part.after
            if part.after is None:
                going.remove(place)
        if read >= most or time.monotonic() >= deadline:
            break
    groups = sorted((tally.group(error) for error, tally in tallies.items()), key=lambda group: -group.count)
    counts = read, sum(looked_at.values()), sum(totals.values())
    return ErrorPage(tuple(groups), *counts, _cursor_of(begins), next(reversed(deployed), None))


def _with_error(keys: Keys, place: Place, row: Row) -> Steps[Row]:
    """The row; a large job is read whole if its ends lack its error."""
    if not row.job.cut or row.job.data.keys() >= _ERROR:
        return row
    [whole] = yield from read_rows(keys, place, [row.at])
    return row if whole is None else whole


def _cursor_of(begins: Mapping[Place, Position | None]) -> str:
    if not any(begins.values()):
        return ""
    parts = (begins[place] for place in PLACES)
    return _BETWEEN.join(_END if part is None else "_".join(map(str, part)) for part in parts)


def _begins(cursor: str) -> dict[Place, Position | None]:
    """Where each place is read from; the beginning for an invalid cursor, None for one that is read."""
    parts = cursor.split(_BETWEEN)
    if len(parts) != len(PLACES) or set(parts) == {_END}:
        return dict.fromkeys(PLACES, Position())
    return {
        place: None if part == _END else position_of(part) for place, part in zip(PLACES, parts, strict=True)
    }
