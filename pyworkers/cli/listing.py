"""The places that hold jobs: the columns of each list, the ages, and the actions.

Pure, except that a place opens its jobs in Redis.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.api import JobRecord, JobSet, Queue
from pyworkers.api.browse.actions import Action
from pyworkers.api.browse.pages import Row
from pyworkers.api.browse.places import SETS, Place
from pyworkers.api.columns import Column
from pyworkers.api.queue import QueuedJob
from pyworkers.api.record import JOB
from pyworkers.api.sets import ENTRY, SortedEntry
from pyworkers.config.fields import RedisConfig

Jobs = Queue | JobSet


@dataclass(frozen=True, slots=True)
class BulkAction:
    """One action on jobs, in the words of the commands. ``at``: their new time, in epoch seconds."""

    verb: str
    done: str
    sentence: str
    action: Action
    at: float | None = None

    @property
    def at_once(self) -> int:
        """The jobs of one call: what an error or Ctrl-C in it can leave uncounted."""
        # The order of those that run first is that of one call.
        return {Action.FIRST: sys.maxsize, Action.RESCHEDULE: 1}.get(self.action, 200)


def rescheduling(at: float) -> BulkAction:
    """The action that gives jobs of a set another time."""
    return BulkAction("reschedule", "rescheduled", "Give jobs another time.", Action.RESCHEDULE, at)


@dataclass(frozen=True, slots=True)
class ListedPlace:
    """A place that holds jobs. ``age_is``: from when an age counts."""

    name: str
    age_is: str
    order: str
    actions: Sequence[BulkAction]

    @property
    def columns(self) -> Sequence[Column[Any]]:
        """The columns of a list of its jobs."""
        names = Place(self.name).columns
        return ENTRY.shown(*names) if self.name in SETS else JOB.shown(*names)

    def open(self, redis: RedisConfig, queue: str) -> Jobs:
        """The set, or this queue."""
        return SETS[self.name](redis) if self.name in SETS else Queue(queue, redis)

    def walk(self, jobs: Jobs) -> Iterator[JobRecord]:
        """The jobs in their ``order``."""
        if isinstance(jobs, JobSet) and not Place(self.name).descending:
            return reversed(jobs)
        return iter(jobs)

    def record(self, jobs: Jobs, row: Row) -> JobRecord:
        """The job of a row that is whole, as ``walk`` has it."""
        if isinstance(jobs, Queue):
            return QueuedJob(row.job.raw, jobs)
        return SortedEntry(row.job.raw, row.score or 0.0, jobs)

    def searched(self, jobs: Jobs) -> Place:
        """The place in the order of ``walk``."""
        if isinstance(jobs, Queue):
            return Place.of_queue(jobs.name, newest_first=True)
        return Place(self.name)

    def age_s(self, job: JobRecord, now: float) -> float | None:
        """The age of a job in seconds; None if unknown."""
        since = Place(self.name).since(job, getattr(job, "score", None))
        return None if since is None else now - since


_RETRY = BulkAction(
    "retry", "retried", "Enqueue failed jobs now; their last failure is not counted.", Action.RUN
)
_ENQUEUE = BulkAction("retry", "enqueued", "Enqueue scheduled jobs now, before they are due.", Action.RUN)
_KILL = BulkAction("kill", "killed", "Move jobs to the dead set.", Action.KILL)
_FIRST = BulkAction("run-first", "moved ahead", "Run jobs before all others of their queue.", Action.FIRST)
_DELETE = BulkAction("delete", "deleted", "Delete jobs.", Action.DELETE)

QUEUE = ListedPlace(
    "jobs",
    "the time since it was enqueued",
    "the newest first",
    (_FIRST, _KILL, _DELETE),
)
SCHEDULED = ListedPlace(
    "scheduled",
    "the time since it was created",
    "the next one first",
    (_ENQUEUE, _KILL, _DELETE),
)
RETRIES = ListedPlace(
    "retries",
    "the time since its last failure",
    "the next one first",
    (_RETRY, _KILL, _DELETE),
)
DEAD = ListedPlace(
    "dead",
    "the time since it died",
    "the latest first",
    (_RETRY, _DELETE),
)
