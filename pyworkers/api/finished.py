"""FinishedSet: the last jobs that have ended, of classes, queues and servers with ``keep``."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import simplejson

from pyworkers.api.actions import AbsentError, Action, Given
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.editing import enqueue_copied
from pyworkers.api.parameters import Parameter
from pyworkers.api.record import JobRecord
from pyworkers.api.schemas import ANY, array, maybe
from pyworkers.api.target import Admin, AtRedis
from pyworkers.encryption import Encryption
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import sealing
from pyworkers.protocol.editing import Edit
from pyworkers.protocol.flow.finished import FinishedEntry
from pyworkers.protocol.keys import Keys
from pyworkers.store import finished
from pyworkers.store.calls import Steps

_BUDGET_S = 0.05
_PORTION = 200
_AT = re.compile(r"(\d{1,20})-(\d{1,20}) (\S.*)", re.ASCII | re.DOTALL)


class FinishedPlace(NamedTuple):
    """Where a finished job is: its entry, by time and number, and the list that has it."""

    ms: int
    number: int
    name: str

    @classmethod
    def read(cls, text: str) -> FinishedPlace:
        """The inverse of ``str``. Raises BadArgumentError."""
        if not (parts := _AT.fullmatch(text)):
            raise BadArgumentError(f"{text[:100]!r} is not the place of a finished job")
        return cls(int(parts[1]), int(parts[2]), parts[3])

    @property
    def id(self) -> str:
        """The id of the entry."""
        return f"{self.ms}-{self.number}"

    def __str__(self) -> str:
        return f"{self.id} {self.name}"


class FinishedJob(JobRecord):
    """A job that has ended, as ``keep`` has kept it. ``facts`` are about its end, ``at`` is its place."""

    def __init__(self, place: FinishedPlace, entry: FinishedEntry) -> None:
        # With escapes: a text of a job may have a lone surrogate.
        super().__init__(simplejson.dumps(dict(entry.job), allow_nan=True).encode())
        self.place, self.facts, self.has_args = place, entry.facts, entry.has_args

    @property
    def at(self) -> str:
        """Its place, for ``enqueue again``."""
        return str(self.place)

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON."""
        return FINISHED.as_dict(self)


@dataclass(frozen=True, slots=True)
class FinishedFilter:
    """Conditions; an empty one counts as met."""

    job_class: str = ""
    queue: str = ""
    state: str = ""
    jid: str = ""

    def meets(self, job: FinishedJob) -> bool:
        """True if the job meets all of them."""
        pairs = (
            (self.job_class, job.job_class),
            (self.queue, job.queue),
            (self.state, job.facts.state),
            (self.jid, job.jid),
        )
        return all(not asked or asked == known for asked, known in pairs)


def _fact(name: str) -> Any:
    return lambda job, _now: getattr(job.facts, name)


FINISHED: Table[FinishedJob] = Table(
    "FinishedJob",
    Column("class", title="Class", value=lambda job, _now: job.job_class, empty="no class", cut=2),
    Column("state", title="State", value=_fact("state")),
    Column("queue", title="Queue", place="queues", cut=4),
    Column("ended_at", Kind.MOMENT, "Ended", value=_fact("at"), nullable=True,
           about="By the worker's clock."),
    Column("duration", Kind.SECONDS, "Took", value=_fact("duration_s"), about="Seconds of the last run."),
    Column("attempts", Kind.COUNT, "Attempts", value=_fact("attempts")),
    Column("worker", title="Worker", value=_fact("worker"), cut=3, about="HOSTNAME:PID of the process."),
    Column("result_bytes", Kind.COUNT, "Result", value=_fact("result_bytes"), nullable=True,
           about="The size of what it returned as JSON, in bytes; null if that is not kept."),
    Column("error", title="Error", value=_fact("error"), cut=1),
    Column("args", Kind.PARTS, "Arguments", value=lambda job, _now: job.args if job.has_args else None,
           schema=maybe(array(ANY)), about="null if they are not kept."),
    Column("jid", title="JID", place="jobs", cut=5),
    Column("at", about="Its place, for the action again."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FinishedPage:
    """Some finished jobs, the latest first; ``next`` is where the others begin, empty at the end.

    ``lists`` are the names of all lists: none if nothing is kept.
    """

    jobs: Sequence[FinishedJob]
    next: str
    lists: Sequence[str]

    def as_dict(self) -> Mapping[str, Any]:
        """The page for JSON."""
        return FINISHED_PAGE.as_dict(self)


FINISHED_PAGE: Table[FinishedPage] = Table(
    "FinishedPage",
    Column("jobs", Kind.RECORDS, table=FINISHED),
    Column("next"),
    Column("lists", Kind.TEXTS),
)


def read_finished(
    keys: Keys, asked: FinishedFilter, after: str = "", count: int = 50, *, budget_s: float = _BUDGET_S
) -> Steps[FinishedPage]:
    """The finished jobs that meet the conditions, behind ``after``, the latest first.

    It looks until its budget is used up: fewer than ``count`` with a ``next`` means that there may be
    more. Raises BadArgumentError for an ``after`` that is not the place of a job.
    """
    last = FinishedPlace.read(after) if after else None
    deadline = time.monotonic() + budget_s
    names = yield from finished.lists(keys)
    found: list[FinishedJob] = []
    while True:
        entries = yield from finished.before(keys, names, last, _PORTION)
        for place, entry in entries[:_PORTION]:
            last = FinishedPlace(*place)
            job = None if entry is None else FinishedJob(last, entry)
            if job is not None and asked.meets(job):
                found.append(job)
                if len(found) == count:
                    return FinishedPage(found, str(last), names)
        if len(entries) < _PORTION:
            return FinishedPage(found, "", names)
        if time.monotonic() >= deadline:
            return FinishedPage(found, str(last), names)


class FinishedSet(AtRedis):
    """The finished jobs. All methods raise RedisUnavailableError and StoreError."""

    def __iter__(self) -> Iterator[FinishedJob]:
        """The jobs, the latest first."""
        return self.matching(FinishedFilter())

    def matching(self, asked: FinishedFilter) -> Iterator[FinishedJob]:
        """The jobs that meet the conditions, the latest first."""
        after = ""
        while True:
            page = self._admin.run(read_finished(self._admin.keys, asked, after, _PORTION))
            yield from page.jobs
            if not (after := page.next):
                return

    def enqueue_again(self, at: str) -> str:
        """Enqueue a copy of the job with this ``at``; returns the copy's id.

        Raises AbsentError if it is not kept any more, and BadArgumentError without its arguments.
        """
        return _again(self._admin, at)


def _kept(admin: Admin, at: str) -> FinishedJob | None:
    """The job at this place; None if it is not kept any more."""
    place = FinishedPlace.read(at)
    found = admin.run(finished.read(admin.keys, place.name, place.id))
    return None if found is None else FinishedJob(place, found)


def _again(admin: Admin, at: str) -> str:
    job = _kept(admin, at)
    if job is None:
        raise AbsentError("finished job", "the finished job is not kept any more")
    if not job.has_args:
        raise BadArgumentError("its arguments are not kept", hint="keep_args, and at most 4096 bytes a job")
    keys = Encryption(None).keys() if job.data.get(sealing.FIELD) is True else None
    return enqueue_copied(admin, job.raw, job.queue, Edit(encryption=keys))


def _queues(admin: Admin, given: Given) -> Iterable[str]:
    job = _kept(admin, given["at"])
    return [] if job is None else [job.queue]


AGAIN: Action[FinishedJob] = Action(
    "finished.again",
    "Enqueue a copy of a finished job.",
    [Parameter("at", "Its at.", required=True)],
    _again,
    queues=_queues,
    done="Enqueued again as {result}",
    label="Enqueue again",
    offered=lambda job: job.has_args,
    returns="jid",
    command="""Enqueue a copy of a finished job, with its arguments and options, and print its id.

    AT is the at of the job, as --json prints it.

    \b
    Example: pyworkers finished again '1795225197500-0 server'
    """,
)
ACTIONS = (AGAIN,)
