"""The places that hold jobs: the columns of each list, the ages, and the actions.

Pure, except that a place opens its jobs in Redis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyworkers.api import JobRecord, JobSet, Queue
from pyworkers.api.browse.actions import MOVES, JobMove, MoveCommand
from pyworkers.api.browse.pages import Row
from pyworkers.api.browse.places import SETS, Place
from pyworkers.api.columns import Column
from pyworkers.api.queue import QueuedJob
from pyworkers.api.record import JOB
from pyworkers.api.sets import ENTRY, SortedEntry
from pyworkers.config.fields import RedisConfig

Jobs = Queue | JobSet


@dataclass(frozen=True, slots=True)
class ListedPlace:
    """A place that holds jobs. ``age_is``: from when an age counts."""

    name: str
    age_is: str
    order: str

    @property
    def moves(self) -> Sequence[tuple[JobMove, MoveCommand]]:
        """The moves of its jobs, each with its command."""
        kind = self.name if self.name in SETS else "queue"
        return [(move, move.commands[kind]) for move in MOVES if kind in move.commands]

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
            return Place.of_queue(jobs.name, reversed=True)
        return Place(self.name)

    def age_s(self, job: JobRecord, now: float) -> float | None:
        """The age of a job in seconds; None if unknown."""
        since = Place(self.name).since(job, getattr(job, "score", None))
        return None if since is None else now - since


QUEUE = ListedPlace("jobs", "the time since it was enqueued", "the newest first")
SCHEDULED = ListedPlace("scheduled", "the time since it was created", "the next one first")
RETRIES = ListedPlace("retries", "the time since its last failure", "the next one first")
DEAD = ListedPlace("dead", "the time since it died", "the latest first")
