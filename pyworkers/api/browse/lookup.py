"""Lookup: finds a job by its id in all places, and reads all that Redis holds about it.

The reads are steps, each of them bounded in time: a search says how far it has come, and goes on from there.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.pages import ROW, Row, read_rows
from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED, Place
from pyworkers.api.browse.search import BUDGET_S, Sought, position_of, read_stretch
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.record import JOB, STATUS, JobRecord
from pyworkers.api.schemas import ANY
from pyworkers.errors import StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState
from pyworkers.store.browse import tracks
from pyworkers.store.browse.tracks import Held, OrderedState, Tracked, read_tracked
from pyworkers.store.calls import Steps
from pyworkers.store.flow.copies import filled_queues
from pyworkers.store.values import encodable

_SETS = (SCHEDULED, RETRIES, DEAD)
_STATES = {SCHEDULED: JobState.SCHEDULED, RETRIES: JobState.RETRYING, DEAD: JobState.DEAD}


@dataclass(frozen=True, slots=True)
class Hint:
    """Where a job was seen: its place, and ``Row.at``."""

    place: Place
    at: str


@dataclass(frozen=True, slots=True)
class Further:
    """Where a search that is not complete goes on: in this place, from this cursor (``Stretch.cursor``).

    ``looked_at`` of ``total`` jobs of the place have been looked at.
    """

    place: Place
    cursor: str = ""
    looked_at: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it was found.

    ``job`` is None if no place has it, or if it is not found yet: then ``further`` is set.
    """

    jid: str
    tracked: Tracked
    place: Place | None = None
    row: Row | None = None
    held: Held | None = None
    further: Further | None = None
    limits: tuple[str, ...] = ()
    """The limits that have put a scheduled job off."""
    order: OrderedState | None = None
    """What runs before a waiting job, if its queue is ordered."""
    searched: bool = False
    """True if it is not on the servers, in the sets or in the queues."""

    @property
    def job(self) -> JobRecord | None:
        """The stored job."""
        if self.row is not None:
            return self.row.job
        return None if self.held is None else JobRecord(self.held.raw)

    @property
    def state(self) -> JobState:
        """Where it is; what its status says, if it is tracked and nowhere."""
        if self.held is not None:
            return JobState.RUNNING
        if self.place is None:
            return self.tracked.status.state
        return _STATES.get(self.place, JobState.WAITING)

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON, with its state, and its status and result if it is tracked."""
        return JOB_VIEW.as_dict(self)

    @property
    def ended_well(self) -> bool:
        """True if its result is kept."""
        return self.tracked.answer is not None and self.tracked.answer.state is JobState.DONE


def _stored(view: JobView, _now: float) -> dict[str, Any] | None:
    if view.row is not None:
        return view.row.as_dict()
    return None if view.job is None else view.job.as_dict()


def _limits(view: JobView, _now: float) -> str:
    return ", ".join(f"the limit {limit}" for limit in view.limits)


def _held(name: str) -> Callable[[JobView, float], Any]:
    return lambda view, _now: view.held and getattr(view.held, name)


def _due(view: JobView, _now: float) -> float | None:
    return None if view.row is None or view.place == DEAD else view.row.score


def _died(view: JobView, _now: float) -> float | None:
    return view.row.score if view.row is not None and view.place == DEAD else None


_RUNNING: Table[Held] = Table("Running", Column("identity"), Column("queue"), Column("run_at", Kind.MOMENT))
_ORDER: Table[OrderedState] = Table(
    "Order", Column("active"), Column("running", Kind.FLAG), Column("retry_at", Kind.MOMENT, nullable=True)
)
_FURTHER: Table[Further] = Table(
    "Further", Column("place", value=lambda further, _now: further.place.word), Column("cursor")
)
JOB_VIEW: Table[JobView] = Table(
    "JobView",
    Column("jid", Kind.CODE, "JID"),
    Column("state", title="State", value=lambda view, _now: view.state.value),
    Column("cancelled", Kind.FLAG, value=lambda view, _now: view.tracked.cancelled),
    Column("place", value=lambda view, _now: view.place and view.place.word, optional=True),
    Column("running", Kind.RECORD, value=lambda view, _now: view.held, table=_RUNNING, optional=True),
    Column("job", Kind.PARTS, value=_stored, schema={"anyOf": [ROW.schema, JOB.schema]}, optional=True),
    Column("limits", Kind.TEXTS, optional=True),
    Column("ordered", Kind.RECORD, value=lambda view, _now: view.order, table=_ORDER, optional=True),
    Column("status", Kind.RECORD, value=lambda view, _now: view.tracked.status, table=STATUS,
           optional=lambda view: view.tracked.status.state is not JobState.UNKNOWN),
    Column("result", Kind.PARTS, value=lambda view, _now: view.tracked.answer and view.tracked.answer.result,
           schema=ANY, optional=lambda view: view.ended_well),
    Column("further", Kind.RECORD, table=_FURTHER, optional=True),
    Column("put_off", title="Waits for", value=_limits, only_shown=True),
    Column("server", title="Server", value=_held("identity"), place="servers", only_shown=True),
    Column("worker", title="Worker", value=_held("thread"), only_shown=True),
    Column("run_at", Kind.MOMENT, "Runs since", value=_held("run_at"), only_shown=True),
    Column("due", Kind.MOMENT, "Due", value=_due, only_shown=True),
    Column("died", Kind.MOMENT, "Died", value=_died, only_shown=True),
)  # fmt: skip


def read_job(
    keys: Keys,
    jid: str,
    hint: Hint | None = None,
    begin: Further | None = None,
    *,
    budget_s: float = BUDGET_S,
    clock: Callable[[], float] = time.monotonic,
) -> Steps[JobView]:
    """Look for a job: where the hint says, then on the servers, then in the sets and the queues.

    ``begin``: go on with a search. Without an id, or with one that is not UTF-8, only the hint counts.
    """
    deadline = clock() + budget_s
    row = None
    if hint is not None:
        [row] = yield from read_rows(keys, hint.place, [hint.at])
        if row is not None and jid and row.job.jid != jid:
            row = None
    jid = jid or ("" if row is None else row.job.jid)
    if not encodable(jid):
        return JobView(jid, Tracked(), None if row is None or hint is None else hint.place, row)
    tracked = yield from read_tracked(keys, jid)
    if row is not None and hint is not None:
        return (yield from _placed(keys, JobView(jid, tracked, hint.place, row)))
    held = None
    if begin is None:
        held = yield from tracks.read_held(keys, jid)
    if held is not None or (tracked.status.state.final and tracked.status.state is not JobState.DEAD):
        return JobView(jid, tracked, held=held)
    further: Further | None = begin or Further(_SETS[0])
    while further is not None:
        further, row = yield from _look(keys, jid, further)
        if row is not None:
            return (yield from _placed(keys, JobView(jid, tracked, further.place, row)))
        if not further.cursor:
            further = yield from _after(keys, further.place)
        if clock() >= deadline:
            break
    return JobView(jid, tracked, further=further, searched=further is None)


def _placed(keys: Keys, view: JobView) -> Steps[JobView]:
    """The view, with what the job waits for: limits if it is scheduled, others if its queue is ordered."""
    if view.place is not None and view.place.queue:
        return replace(view, order=(yield from tracks.read_order(keys, view.place.queue)))
    if view.place != SCHEDULED or view.job is None or not encodable(view.job.queue):
        return view
    limits = yield from tracks.read_limits(keys, view.job.queue, view.jid)
    return replace(view, limits=tuple(limits))


def _look(keys: Keys, jid: str, begin: Further) -> Steps[tuple[Further, Row | None]]:
    """Look at the next jobs of a place. Without a cursor in the result it is complete."""
    sought = Sought(begin.place, Filter(jid=jid), 0.0)
    try:
        stretch = yield from read_stretch(keys, sought, position_of(begin.cursor))
    except StoreError as error:
        if error.code:
            raise
        # A key of another type.
        return Further(begin.place), None
    row = None
    if stretch.rows:
        # It is whole, unless it has gone since.
        [found] = yield from read_rows(keys, begin.place, [stretch.rows[0].at])
        row = found or stretch.rows[0]
    return Further(begin.place, stretch.cursor, stretch.looked_at, stretch.total), row


def _after(keys: Keys, place: Place) -> Steps[Further | None]:
    """The beginning of the place that is searched after this one; None after the last queue."""
    if place in _SETS[:-1]:
        return Further(_SETS[_SETS.index(place) + 1])
    queues = list((yield from filled_queues(keys)).values())
    following = bisect_left(queues, f"{place.queue}\0") if place.queue else 0
    return Further(Place.of_queue(queues[following])) if following < len(queues) else None
