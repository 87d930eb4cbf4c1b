"""The tables of jobs: the columns, ages and actions of each place that holds jobs.

Pure, except that a place opens its jobs in Redis.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyworkers.api import (
    DeadSet,
    JobRecord,
    JobSet,
    Queue,
    RetrySet,
    ScheduledSet,
    SortedEntry,
)
from pyworkers.cli.output.tables import Column
from pyworkers.cli.output.times import Times
from pyworkers.cli.text import printable
from pyworkers.config.fields import RedisConfig

Jobs = Queue | JobSet

_LONGEST_TEXT = 1000


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a table of jobs, and its text for a job; or, for a time, the job's epoch seconds."""

    column: Column
    text: Callable[[JobRecord], str | float | None]


@dataclass(frozen=True, slots=True)
class BulkAction:
    """One action on jobs; ``run`` returns how many jobs this call moved."""

    verb: str
    done: str
    sentence: str
    run: Callable[[Jobs, Iterable[JobRecord]], int]
    to_queue: bool = False
    at_once: int = 200
    """The jobs of one call of ``run``: what an error or Ctrl-C in it can leave uncounted."""


def rescheduling(at: float) -> BulkAction:
    """The action that gives jobs of a set another time."""

    def run(jobs: Jobs, chosen: Iterable[JobRecord]) -> int:
        return jobs.reschedule_jobs(chosen, at) if isinstance(jobs, JobSet) else 0

    return BulkAction("reschedule", "rescheduled", "Give jobs another time.", run, at_once=1)


@dataclass(frozen=True, slots=True)
class ListedPlace:
    """A place that holds jobs. ``since`` is the time from which an age counts, ``age_is`` its description."""

    name: str
    open: Callable[[RedisConfig, str], Jobs]
    walk: Callable[[Jobs], Iterator[JobRecord]]
    since: Callable[[JobRecord], float | None]
    age_is: str
    order: str
    fields: Sequence[Field]
    actions: Sequence[BulkAction]
    reschedules: bool = False
    """True if its jobs may get another time."""

    def age_s(self, job: JobRecord, now: float) -> float | None:
        """The age of a job in seconds; None if unknown."""
        since = self.since(job)
        return None if since is None else now - since


def row(place: ListedPlace, job: JobRecord, now: float, times: Times) -> list[str]:
    """The texts of the columns, each safe for the terminal."""
    values = (field.text(job) for field in place.fields)
    return [
        printable(_clipped(value)) if isinstance(value, str) else times.cell(value, now) for value in values
    ]


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def _score(job: JobRecord) -> float:
    return job.score if isinstance(job, SortedEntry) else 0.0


def _arguments(job: JobRecord) -> str:
    if job.unreadable:
        return job.error
    return json.dumps(job.args, ensure_ascii=False, separators=(", ", ": "))[1:-1]


def _retries(job: JobRecord) -> str:
    return "" if job.retry_count is None else str(job.retry_count + 1)


_JID = Field(Column("jid", cut=4), lambda job: job.jid)
_QUEUE = Field(Column("queue", cut=2), lambda job: job.queue)
_CLASS = Field(Column("class", cut=3), lambda job: job.job_class)
_ARGUMENTS = Field(Column("arguments", cut=1), _arguments)
_ERROR = Field(Column("error", cut=1), lambda job: job.error)
_DUE = Field(Column("due"), _score)

_RETRY = BulkAction(
    "retry", "retried", "Enqueue failed jobs now; their last failure is not counted.",
    lambda jobs, chosen: jobs.retry_jobs(chosen) if isinstance(jobs, JobSet) else 0, to_queue=True,
)  # fmt: skip
_ENQUEUE = BulkAction(
    "retry", "enqueued", "Enqueue scheduled jobs now, before they are due.",
    lambda jobs, chosen: jobs.enqueue_jobs(chosen) if isinstance(jobs, JobSet) else 0, to_queue=True,
)  # fmt: skip
_KILL = BulkAction(
    "kill", "killed", "Move jobs to the dead set.", lambda jobs, chosen: jobs.kill_jobs(chosen)
)  # fmt: skip
_FIRST = BulkAction(
    "run-first", "moved ahead", "Run jobs before all others of their queue.",
    lambda jobs, chosen: jobs.run_first(chosen) if isinstance(jobs, Queue) else 0,
    at_once=sys.maxsize,  # their order is that of one call
)  # fmt: skip
_DELETE = BulkAction(
    "delete", "deleted", "Delete jobs.", lambda jobs, chosen: jobs.delete_jobs(chosen)
)  # fmt: skip


def _earliest_first(jobs: Jobs) -> Iterator[JobRecord]:
    return reversed(jobs) if isinstance(jobs, JobSet) else iter(jobs)


QUEUE = ListedPlace(
    "jobs",
    lambda config, name: Queue(name, config),
    iter,
    lambda job: job.enqueued_at,
    "the time since it was enqueued",
    "the newest first",
    (Field(Column("enqueued"), lambda job: job.enqueued_at), _JID, _CLASS, _ARGUMENTS),
    (_FIRST, _KILL, _DELETE),
)
SCHEDULED = ListedPlace(
    "scheduled",
    lambda config, _: ScheduledSet(config),
    _earliest_first,
    lambda job: job.created_at,
    "the time since it was created",
    "the next one first",
    (_DUE, _JID, _QUEUE, _CLASS, _ARGUMENTS),
    (_ENQUEUE, _KILL, _DELETE),
    reschedules=True,
)
RETRIES = ListedPlace(
    "retries",
    lambda config, _: RetrySet(config),
    _earliest_first,
    lambda job: job.failed_at,
    "the time since its last failure",
    "the next one first",
    (_DUE, Field(Column("failures", right=True), _retries), _JID, _QUEUE, _CLASS, _ERROR),
    (_RETRY, _KILL, _DELETE),
    reschedules=True,
)
DEAD = ListedPlace(
    "dead",
    lambda config, _: DeadSet(config),
    iter,
    _score,
    "the time since it died",
    "the latest first",
    (Field(Column("died"), _score), _JID, _QUEUE, _CLASS, _ERROR),
    (_RETRY, _DELETE),
)
