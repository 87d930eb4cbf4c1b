"""Plans: the batches that an enqueue call writes, as values, and their status.

Pure; made by ``plugins/batches.py`` and ``plugins/canvas.py``, written and read by ``store/flow``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.filling import parts_of

GONE = ("dropped", "cancelled", "deleted", "expired", "missing", "skipped")
"""The kinds of members that are gone and not done, as in batches.lua."""
CALLBACKS = ("on_success", "on_complete", "on_death", "on_cancel")
"""The fields of a batch with a job that follows an event."""
LEFT_OUT = frozenset(GONE[1:5])
"""The kinds that a batch with ``missing="ignore"`` leaves out of its total."""
MOST_NAMED, MOST_STEPS_NAMED = 20, 50
"""A batch or group of at most this many members names them for people; so does a chain its first steps."""
MOST_INNER = 50
"""The batches inside another one that it names, as ``enlist.lua``."""
_OF_INNER = (
    "id", "kind", "description", "state", "total", "pending", "done", "failed", "dead", "gone", "created_at",
    "success_at",
)  # fmt: skip
"""What JSON has of a batch inside another one."""
# Of a named member: with its jid at most 64 bytes, the longest value of a hash that Redis keeps compactly.
_MOST_CLASS = 39
_TEXT = rb'"(?:[^"\\]|\\.)*"'
_CLASS = re.compile(rb'\{(?:"retry":\w+,)?"queue":%b,"class":(%b)' % (_TEXT, _TEXT))


@dataclass
class BatchPlan:
    """A batch that will be made, or members that will be added to one, with the batches inside it.

    ``queue`` is the queue of a member that it has, if it exists.
    """

    id: str
    token: str
    """The name of its hold, which keeps the callbacks back while members are added."""
    fields: dict[str, str] = field(default_factory=dict)
    """Of the HASH: ``kind``, ``description``, ``on_success`` …"""
    exists: bool = False
    """True for members that are added to a batch that exists."""
    begun: bool = False
    """True if its hold is in Redis already: an earlier portion has put it."""
    closes: bool = True
    """False if its hold stays: more members follow."""
    queue: str = ""
    members: list[str] = field(default_factory=list)
    """Ids of members that are not pushed with it: later steps of a chain, and the batches inside it."""
    jobs: list[PushedJob] = field(default_factory=list)
    """Its members that are pushed now."""
    inner: list[BatchPlan] = field(default_factory=list)
    starts: list[PushedJob] = field(default_factory=list)
    """Members of ``inner`` that are pushed once all of these are made."""
    then: list[str] = field(default_factory=list)
    """Ready jobs that follow when all members are done."""

    def add(self, jobs: Iterable[PushedJob]) -> None:
        """Add members that are pushed now."""
        self.jobs.extend(jobs)

    def follow(self, ready: Iterable[str]) -> None:
        """Add jobs that follow when all members are done."""
        self.then.extend(ready)

    def leave_open(self) -> BatchPlan:
        """Keep its hold when it is written; returns the plan of the members that follow."""
        if not self.exists:
            self.fields["streams"] = self.token
        self.closes = False
        return BatchPlan(self.id, self.token, exists=True, begun=True, queue=next(queues_of(self), ""))

    def name(self, members: Iterable[str]) -> None:
        """Name its first members for people, in their order: each a ``named`` job, or the id of a batch."""
        self.fields.update({f"member:{place}": name for place, name in enumerate(members)})

    def name_all(self) -> None:
        """Name the members that are pushed now and the batches, if they are few and all that it has.

        Those with conditions are left out: a duplicate is no member.
        """
        if not self.exists and len(self.jobs) + len(self.inner) <= MOST_NAMED:
            jobs = (named(job.jid, class_of(job.payload)) for job in self.jobs if job.conditions is None)
            self.name([*jobs, *(inner.id for inner in self.inner)])

    def nest(self, inner: BatchPlan, place: int | None = None) -> None:
        """Make ``inner`` a member. ``place``: the place of its result, if it is kept."""
        if not inner.exists:
            inner.fields["parent"] = f"{'' if place is None else place} {self.id}"
        self.inner.append(inner)


def tags_in(text: str) -> tuple[str, ...]:
    """The tags in a field of a batch; none in one that another program has written otherwise."""
    try:
        found = envelope.decode(b'{"tags":%b}' % text.encode(errors="replace"))["tags"] if text else []
    except (BadMessageError, KeyError):
        return ()
    return tuple(tag for tag in found if isinstance(tag, str)) if isinstance(found, list) else ()


def named(jid: str, job_class: str) -> str:
    """A job as its batch names it for people: ``JID CLASS``, of a long class the end."""
    return f"{jid} {job_class[-_MOST_CLASS:]}"


def class_of(payload: bytes) -> str:
    """The class of a job that this package has made, from the beginning of its payload; empty if unknown."""
    found = _CLASS.match(payload)
    return str(envelope.decode(b'{"class":%b}' % found[1])["class"]) if found else ""


def queues_of(plan: BatchPlan) -> Iterator[str]:
    """The queues of all jobs of a batch: members, callbacks, and what follows them."""
    if plan.queue:
        yield plan.queue
    for job in (*plan.jobs, *plan.starts):
        yield job.queue
        yield from _queues_after_job(job.payload)
    callbacks = (plan.fields[name] for name in CALLBACKS if name in plan.fields)
    for ready in (*callbacks, *plan.then):
        queue, _, payload = parts_of(ready)
        yield queue
        yield from _queues_after_job(payload.encode())
    for inner in plan.inner:
        yield from queues_of(inner)


def _queues_after_job(payload: bytes) -> Iterator[str]:
    if b'"then":' in payload:
        yield from _queues_after(envelope.decode(payload).get("then"))


def _queues_after(value: Any) -> Iterator[str]:
    """The queues of the steps after a job: envelopes, in lists and in the lists of other steps."""
    if isinstance(value, list):
        for item in value:
            yield from _queues_after(item)
    elif isinstance(value, dict):
        if isinstance(value.get("queue"), str):
            yield value["queue"]
        yield from _queues_after(value.get("steps"))
        yield from _queues_after(value.get("then"))


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """The numbers and times of a batch at one moment. Times are in epoch seconds, None if still to come."""

    id: str
    description: str
    kind: str
    """``batch``, ``chain`` or ``group``."""
    open: bool
    """True while members are added, or if the program that added them has died."""
    total: int
    """The members; with ``missing="ignore"`` without cancelled, deleted, expired and missing ones."""
    pending: int
    """The members that have not ended."""
    done: int
    """The members that have returned, or have chosen to be discarded."""
    failed: int
    """The members that wait for a retry; they are pending, too."""
    dead: int
    """The members that are dead, and batches inside it that cannot succeed unless a dead job is retried."""
    created_at: float
    complete_at: float | None = None
    """When each member had run at least once, or had ended without; if cancelled, when all had ended."""
    success_at: float | None = None
    """When all were done."""
    death_at: float | None = None
    """When the first member ended that was not done."""
    cancel_at: float | None = None
    """When the batch was cancelled."""
    reason: str = ""
    """How it ended: ``dead``, ``dropped``, ``cancelled``, ``deleted``, ``expired`` or ``missing``."""
    reason_jid: str = ""
    """Its id; it may be a member of a batch inside this one."""
    dropped: int = 0
    """The members that failed for good and are not kept."""
    cancelled: int = 0
    deleted: int = 0
    expired: int = 0
    missing: int = 0
    """The members that are gone without a word: another program has deleted them, or has run them."""
    skipped: int = 0
    """The steps of a chain that will not run, because one before them is gone."""
    lost: int = 0
    """The members that Redis has forgotten: it has evicted a key, and the batch will not end by itself."""
    parent: str = ""
    """The batch of which this one is a member."""
    tags: tuple[str, ...] = ()
    inner_total: int = 0
    """The batches, chains and groups inside it, done ones included; not those inside of these."""
    inner: tuple[BatchStatus, ...] = field(default=(), compare=False)
    """The first fifty of them, each without its own; lists of batches leave them out."""

    @property
    def answered(self) -> bool:
        """True once its result is known, or that there will be none."""
        return (self.success_at, self.death_at, self.cancel_at) != (None, None, None)

    @property
    def gone(self) -> int:
        """The members that have ended, are not done, and are not kept."""
        return sum(number for _, number in self.kinds)

    @property
    def kinds(self) -> list[tuple[str, int]]:
        """The kinds of members that are gone, with their numbers."""
        return [(kind, getattr(self, kind)) for kind in GONE]

    @property
    def state(self) -> str:
        """The first that is true: ``cancelled``, ``open``, ``lost``, ``succeeded``, ``dead``, ``failing``,
        ``running``.

        ``dead``: a member has ended and is not done.
        """
        states = {
            "cancelled": self.cancel_at is not None,
            "open": self.open,
            "lost": self.lost,
            "succeeded": self.success_at is not None,
            "dead": self.dead or self.gone,
            "failing": self.failed,
        }
        return next((name for name, is_so in states.items() if is_so), "running")

    def as_dict(self) -> dict[str, Any]:
        """The status for JSON."""
        inner = [{name: getattr(one, name) for name in _OF_INNER} for one in self.inner]
        return {**asdict(replace(self, inner=())), "tags": [*self.tags], "inner": inner, "state": self.state}


@dataclass(frozen=True, slots=True)
class CancelledBatch:
    """What became of a request to cancel a batch."""

    ended: bool = False
    """True if the batch had succeeded before, and nothing was changed."""
    removed: int = 0
    """The jobs that waited, and were removed by this call."""
    left: int = 0
    """The members that have not ended: jobs that run, which are asked to end, and batches with such jobs."""

    def as_dict(self) -> dict[str, Any]:
        """The answer for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CancelledNumbers:
    """What became of a request to cancel all jobs with a tag or of a class."""

    removed: int
    """The jobs that waited, and were removed."""
    running: int
    """The jobs that run. Their servers ask them to end."""

    def as_dict(self) -> dict[str, Any]:
        """The answer for JSON."""
        return asdict(self)


def members(jobs: Iterable[PushedJob], batch: str) -> list[PushedJob]:
    """The jobs as members of a batch. Its id needs no escapes in JSON."""
    field = b',"batch":"%b"}' % batch.encode()
    # A third of the time of PushedJob(…), which checks its arguments.
    make = tuple.__new__
    return [
        make(PushedJob, (queue, raw[:-1] + field, jid, at, conditions))
        for queue, raw, jid, at, conditions in jobs
    ]
