"""Actions: what people do with jobs of a place, through the conditional moves of ``Queue`` and ``JobSet``.

Blocking; run in a thread of the dashboard, or by programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pyworkers.api.browse.pages import Row, read_rows
from pyworkers.api.browse.places import SETS, Place
from pyworkers.api.queue import Queue, QueuedJob
from pyworkers.api.record import JobRecord
from pyworkers.api.sets import JobSet, ScheduledSet, SortedEntry
from pyworkers.api.target import Admin


class Action(StrEnum):
    """What is done with a job."""

    RUN = "run"
    """It returns to its queue now; the last failure of a failed one is not counted."""
    FIRST = "first"
    """It is popped next from its queue."""
    RESCHEDULE = "reschedule"
    """It gets another time."""
    KILL = "kill"
    """It moves to the dead jobs."""
    DELETE = "delete"


class Verb(NamedTuple):
    """An action in words: its button, that for all jobs, what was done with jobs, and its sentences."""

    label: str
    label_all: str
    done: str
    about: str
    about_one: str


VERBS = {
    Action.RUN: Verb(
        "Run now",
        "Run all now",
        "put into their queues",
        "Put jobs into their queues now.",
        "Put the job into its queue now.",
    ),
    Action.FIRST: Verb(
        "Run first", "", "moved to the front", "Have jobs run first.", "Have the job run first."
    ),
    Action.RESCHEDULE: Verb(
        "Reschedule",
        "Reschedule all",
        "rescheduled",
        "Give jobs another time.",
        "Give the job another time.",
    ),
    Action.KILL: Verb(
        "Kill",
        "Kill all",
        "moved to the dead jobs",
        "Move jobs to the dead ones.",
        "Move the job to the dead ones.",
    ),
    Action.DELETE: Verb("Delete", "Delete all", "deleted", "Delete jobs.", "Delete the job."),
}


class Acted(NamedTuple):
    """How many jobs were moved or removed, and how many cannot be; ``reason`` is that of the last one."""

    done: int = 0
    refused: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """One action on jobs of a place. ``at``: the new time of jobs that are rescheduled, in epoch seconds."""

    place: Place
    action: Action
    at: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an action that the place does not have, or without a time."""
        if self.action not in actions_of(self.place):
            raise ValueError(f"jobs in {self.place.word} cannot be moved so: {self.action}")
        if (self.at is None) == (self.action is Action.RESCHEDULE):
            raise ValueError("a time is needed to reschedule, and for nothing else")

    def run(self, admin: Admin, rows: Sequence[Row]) -> Acted:
        """Act on jobs that were read whole. Raises RedisUnavailableError and StoreError."""
        jobs, entries = self._opened(admin, rows)
        reasons = [refusal(jobs, self.action, entry) for entry in entries]
        fit = [entry for entry, reason in zip(entries, reasons, strict=True) if not reason]
        done = act(jobs, self.action, fit, self.at)
        return Acted(done, len(entries) - len(fit), next(filter(None, reversed(reasons)), ""))

    def clear(self, admin: Admin) -> int:
        """Delete all jobs of the place at once; returns their number. Raises as ``run``."""
        if queue := self.place.queue:
            return Queue(queue, admin).clear()
        return SETS[self.place.word](admin).clear()

    def _opened(self, admin: Admin, rows: Sequence[Row]) -> tuple[Queue | JobSet, Sequence[JobRecord]]:
        """The place, and the jobs in it."""
        if name := self.place.queue:
            queue = Queue(name, admin)
            size = queue.size
            return queue, [QueuedJob(row.job.raw, queue, max(0, size - 1 - row.index)) for row in rows]
        jobs = SETS[self.place.word](admin)
        return jobs, [SortedEntry(row.job.raw, row.score or 0.0, jobs) for row in rows]


def act(jobs: Queue | JobSet, action: Action, chosen: Iterable[JobRecord], at: float | None = None) -> int:
    """Act on jobs of a place, each of which can be moved so; returns how many were still there.

    The dashboard, its tasks, the JSON and the commands act by this. Raises BadMessageError,
    RedisUnavailableError and StoreError.
    """
    if isinstance(jobs, Queue):
        moves = {Action.FIRST: jobs.run_first, Action.KILL: jobs.kill_jobs, Action.DELETE: jobs.delete_jobs}
    elif action is Action.RESCHEDULE:
        return jobs.reschedule_jobs(chosen, at or 0.0)
    else:
        run = jobs.enqueue_jobs if isinstance(jobs, ScheduledSet) else jobs.retry_jobs
        moves = {Action.RUN: run, Action.KILL: jobs.kill_jobs, Action.DELETE: jobs.delete_jobs}
    return moves[action](chosen)


def refusal(jobs: Queue | JobSet, action: Action, job: JobRecord) -> str:
    """Why a job cannot be moved so; empty if it can be."""
    return jobs.refusal(job) if action is Action.RUN and isinstance(jobs, JobSet) else ""


def actions_of(place: Place) -> tuple[Action, ...]:
    """The actions on jobs of a place."""
    if place.queue:
        return Action.FIRST, Action.KILL, Action.DELETE
    if place.word == "dead":
        return Action.RUN, Action.DELETE
    return Action.RUN, Action.RESCHEDULE, Action.KILL, Action.DELETE


def act_on(admin: Admin, order: Order, ats: Sequence[str]) -> Acted:
    """Act on the jobs that a page has named (``Row.at``); those that are gone are left out.

    Raises RedisUnavailableError and StoreError.
    """
    rows = admin.run(read_rows(admin.keys, order.place, ats))
    return order.run(admin, [row for row in rows if row is not None])
