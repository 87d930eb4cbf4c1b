"""The places that hold jobs: the columns of each list, the ages, and the actions.

Pure, except that a place opens its jobs in Redis.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.api import (
    DeadSet,
    JobRecord,
    JobSet,
    Queue,
    RetrySet,
    ScheduledSet,
    SortedEntry,
)
from pyworkers.api.columns import Column
from pyworkers.api.record import JOB
from pyworkers.api.sets import ENTRY
from pyworkers.config.fields import RedisConfig

Jobs = Queue | JobSet


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
    columns: Sequence[Column[Any]]
    actions: Sequence[BulkAction]
    reschedules: bool = False
    """True if its jobs may get another time."""

    def age_s(self, job: JobRecord, now: float) -> float | None:
        """The age of a job in seconds; None if unknown."""
        since = self.since(job)
        return None if since is None else now - since


def _score(job: JobRecord) -> float:
    return job.score if isinstance(job, SortedEntry) else 0.0


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
    JOB.shown("enqueued_at", "jid", "class", "arguments"),
    (_FIRST, _KILL, _DELETE),
)
SCHEDULED = ListedPlace(
    "scheduled",
    lambda config, _: ScheduledSet(config),
    _earliest_first,
    lambda job: job.created_at,
    "the time since it was created",
    "the next one first",
    ENTRY.shown("due", "jid", "queue", "class", "arguments"),
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
    ENTRY.shown("due", "failures", "jid", "queue", "class", "error"),
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
    ENTRY.shown("died", "jid", "queue", "class", "error"),
    (_RETRY, _DELETE),
)
