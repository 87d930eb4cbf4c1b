"""QueueStats: the numbers of a queue at one time, and what people see of them.

A command that only reads imports this, without what moves or ends jobs (``queue``).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyworkers.api.columns import Column, Kind, Table, Word
from pyworkers.api.record import JobRecord
from pyworkers.api.schemas import COUNT, by_name
from pyworkers.protocol import timestamps
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.flow.ordered import HeldHead
from pyworkers.store.measures.runs import read_trends as read_trends
from pyworkers.store.stats import QueueView, one_queue
from pyworkers.text import valid


@dataclass(frozen=True, slots=True)
class QueueHead:
    """A failed job at the head of an ordered queue: the others wait until it is done or dead.

    ``jid``, ``job_class`` and ``error_class`` are empty for a job above 64 KiB, which is not read.
    """

    jid: str
    job_class: str
    error_class: str
    misfit: bool
    """True if it does not fit the active server: its class or a parameter is of another release."""
    since: float | None
    """Its first failure in epoch seconds; None if it is unknown, or if the job waits for another reason."""
    retry_at: float
    """When it runs again, in epoch seconds."""

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON."""
        return HEAD.as_dict(self)


HEAD: Table[QueueHead] = Table(
    "QueueHead",
    Column("jid"),
    Column("class", value=lambda head, _now: head.job_class),
    Column("error_class"),
    Column("misfit", Kind.FLAG),
    Column("since", Kind.MOMENT, nullable=True),
    Column("retry_at", Kind.MOMENT),
)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue at one time; ``size`` jobs wait, and the next one was enqueued at ``next_enqueued_at`` (epoch
    seconds).

    ``in_progress`` counts the jobs in the in-progress lists of servers, ``in_progress_by`` the jobs of each
    server: of pyworkers, and of Go programs if reported or searched for; Sidekiq has no in-progress lists. A
    queue is ``served`` if a server with a heartbeat or a lease takes jobs from it.
    """

    name: str
    size: int
    in_progress: int
    next_enqueued_at: float | None
    paused: bool
    served: bool
    in_progress_by: Mapping[str, int] = field(default_factory=dict)
    active: str = ""
    """The identity of the server that runs the jobs of an ordered queue; empty for any other queue."""
    rate_per_min: float | None = None
    """The jobs a minute that ran, failed ones included, over the last full minute and the current one.

    None if no server of pyworkers serves the queue: others do not count by queue.
    """
    failed_per_min: float | None = None
    """The failed jobs among them."""
    head: QueueHead | None = None
    """The failed job at the head of an ordered queue, for which the others wait; else None."""
    servers: int = 0
    """The servers with a recent heartbeat that take jobs from it."""

    def latency_s(self, now: float) -> float:
        """The seconds that the next job has been waiting; 0 if none waits or its age is unknown."""
        if not self.size or self.next_enqueued_at is None:
            return 0.0
        return max(0.0, now - self.next_enqueued_at)

    def words(self, _now: float = 0.0) -> Sequence[Word]:
        """Why no job of the queue runs; and the active server of an ordered one."""
        found = []
        if self.paused:
            found.append(Word("paused", "warn"))
        if not self.served:
            found.append(Word("unserved", "bad" if self.size else "note", "No server takes jobs from it."))
        if self.active:
            found.append(Word("active:", name=self.active, place="servers"))
        if self.head and self.head.jid:
            found.append(Word("held by", "warn", name=self.head.jid, place="jobs"))
        elif self.head:
            found.append(Word("held by its head", "warn"))
        return found or [Word("runs", usual=True)]

    def as_dict(self, now: float | None = None) -> dict[str, Any]:
        """The queue for JSON, with its latency at ``now`` (epoch seconds)."""
        return QUEUE.as_dict(self, time.time() if now is None else now)


def _by_owner(queue: QueueStats, _now: float) -> dict[str, int]:
    return {valid(owner): jobs for owner, jobs in queue.in_progress_by.items()}


_RATE = "The jobs a minute that ran; null if no server of pyworkers serves the queue."
QUEUE: Table[QueueStats] = Table(
    "Queue",
    Column("name", Kind.TEXT, "Queue", place="queues", empty="(empty name)", cut=2),
    Column("size", Kind.COUNT, "Size", live=True, about="The waiting jobs."),
    Column(
        "latency_s", Kind.SECONDS, "Latency", value=QueueStats.latency_s, live=True,
        about="The seconds that the next job has been waiting.",
    ),
    Column("rate_per_min", Kind.RATE, "Jobs/min", nullable=True, live=True, about=_RATE),
    Column("failed_per_min", Kind.RATE, nullable=True, about="The failed jobs among them."),
    Column("in_progress", Kind.COUNT, "In progress", live=True),
    Column("in_progress_by", Kind.PARTS, value=_by_owner, schema=by_name(COUNT), about="By server."),
    Column("servers", Kind.COUNT, "Servers", live=True, only_shown=True),
    Column("paused", Kind.FLAG),
    Column("served", Kind.FLAG),
    Column("active", optional=True, about="The server that runs the jobs of an ordered queue."),
    Column("head", Kind.RECORD, table=HEAD, optional=True),
    Column("state", Kind.WORDS, "State", value=QueueStats.words, live=True, cut=1),
)  # fmt: skip


def read_queue(keys: Keys, name: str) -> Steps[QueueStats]:
    """Read one queue, in a time that does not grow with the number of queues. An unknown one is empty."""
    return stats_of((yield from one_queue(keys, name)))


def stats_of(view: QueueView) -> QueueStats:
    """The queue as people see it."""
    return QueueStats(
        view.name,
        view.size,
        view.in_progress,
        view.next_enqueued_at,
        view.paused,
        view.served,
        view.in_progress_by,
        view.active,
        view.rate_per_min,
        view.failed_per_min,
        None if view.head is None else _head(view.head),
        view.servers,
    )


def _head(held: HeldHead) -> QueueHead:
    job = JobRecord(held.raw)
    misfit_at = timestamps.read(job.data.get("misfit_at"))
    failed_at = timestamps.read(job.data.get("failed_at"))
    return QueueHead(
        job.jid,
        job.job_class,
        job.error_class,
        misfit_at is not None,
        failed_at if misfit_at is None else misfit_at,
        held.until,
    )
