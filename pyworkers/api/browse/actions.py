"""Actions: what people do with jobs of a place, through the conditional moves of ``Queue`` and ``JobSet``.

Blocking; run in a thread of the dashboard, or by programs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from pyworkers.api import actions
from pyworkers.api.actions import Acted, Performed
from pyworkers.api.browse.pages import Row, read_rows
from pyworkers.api.browse.places import SETS, Place
from pyworkers.api.editing import EditableJob
from pyworkers.api.parameters import Parameter
from pyworkers.api.queue import Queue, QueuedJob
from pyworkers.api.record import JobRecord
from pyworkers.api.sets import JobSet, ScheduledSet, SortedEntry
from pyworkers.api.target import Admin
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.keys import Keys
from pyworkers.store.flow.removal import Clearing, KeptFor
from pyworkers.store.sets import DEAD_MAX_JOBS
from pyworkers.store.undo import new_id, offered
from pyworkers.text import counted


class JobAction(StrEnum):
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


Action = JobAction
"""Its former name."""


class How(NamedTuple):
    """What a move needs besides the jobs: their new time, or the id with which they can be put back."""

    at: float | None = None
    deletion: str = ""


class MoveCommand(NamedTuple):
    """A move as a command on a place: its verb, what it has done with jobs, and its sentence."""

    verb: str
    done: str
    about: str


@dataclass(frozen=True, slots=True)
class TaskAction:
    """What a task does with jobs, in words."""

    action: str
    label: str
    """The text of its button."""
    done: str
    """What was done with several jobs, after their number; ``done_one`` if it differs for one."""
    _: KW_ONLY
    done_one: str = ""
    dangerous: bool = False

    def warning(self, _number: int) -> str:
        """What a person should know before it is done with this many jobs; empty for most."""
        return ""

    def done_with(self, number: int) -> str:
        """What was done with this many jobs: ``put into its queue``, ``put into their queues``."""
        return self.done_one if self.done_one and number == 1 else self.done


@dataclass(frozen=True, slots=True)
class JobMove(TaskAction):
    """One action on jobs in all its forms: one job, several jobs, all that a filter selects."""

    action: JobAction
    about: str
    about_one: str
    act: Callable[[Any, Iterable[JobRecord], How], int]
    """Moves jobs of a Queue or a JobSet, each of which can be moved so; returns how many were still there.

    Raises BadMessageError, RedisUnavailableError and StoreError.
    """
    commands: Mapping[str, MoveCommand]
    """Its command for each kind of place that has it."""
    _: KW_ONLY
    fields: Sequence[Parameter] = ()
    """What it needs to know besides the jobs."""
    refusal: Callable[[Any, JobRecord], str] = lambda _jobs, _job: ""
    """Why a job of a place cannot be moved so; empty if it can be."""
    at_once: int = 200
    """The jobs of one call of a command: what an error or Ctrl-C in it can leave uncounted."""
    on_all: bool = True
    """True if it has a button for all jobs that match."""
    in_rows: bool = True
    """True if each row of a list has its button."""
    asks: str = ""
    """The question before it is done with selected jobs, whose number is in braces."""

    @property
    def label_all(self) -> str:
        """The text of the button for all jobs that match."""
        head, *rest = self.label.split(" ", 1)
        return " ".join([head, "all", *rest])

    def warning(self, number: int) -> str:
        """What a person should know before it is done with this many jobs."""
        if self.action is JobAction.KILL and number > DEAD_MAX_JOBS:
            return f"Dead keeps its last {DEAD_MAX_JOBS:,} jobs: the others are lost."
        return ""


def _run(jobs: JobSet, chosen: Iterable[JobRecord], _how: How) -> int:
    return jobs.enqueue_jobs(chosen) if isinstance(jobs, ScheduledSet) else jobs.retry_jobs(chosen)


def _first(jobs: Queue, chosen: Iterable[JobRecord], _how: How) -> int:
    return jobs.run_first(chosen)


def _reschedule(jobs: JobSet, chosen: Iterable[JobRecord], how: How) -> int:
    return jobs.reschedule_jobs(chosen, how.at or 0.0)


def _kill(jobs: Queue | JobSet, chosen: Iterable[JobRecord], _how: How) -> int:
    return jobs.kill_jobs(chosen)


def _delete(jobs: Queue | JobSet, chosen: Iterable[JobRecord], how: How) -> int:
    return jobs.delete_jobs(chosen, deletion=how.deletion)


PLACES = f"{', '.join(SETS)}, or queue:NAME."
NEW_TIME = Parameter("time", "The new time in epoch seconds.", "number", least=0, most=1e11, required=True)
_KILLED = MoveCommand("kill", "killed", "Move jobs to the dead set.")
_RETRIED = MoveCommand("retry", "retried", "Enqueue failed jobs now; their last failure is not counted.")
_DELETED = MoveCommand("delete", "deleted", "Delete jobs.")
_RESCHEDULED = MoveCommand("reschedule", "rescheduled", "Give jobs another time.")
MOVES = (
    JobMove(
        JobAction.RUN,
        "Run now",
        "put into their queues",
        "Put jobs into their queues now.",
        "Put the job into its queue now.",
        _run,
        {
            "scheduled": MoveCommand("retry", "enqueued", "Enqueue scheduled jobs now, before they are due."),
            "retries": _RETRIED,
            "dead": _RETRIED,
        },
        done_one="put into its queue",
        refusal=JobSet.refusal,
    ),
    JobMove(
        JobAction.FIRST,
        "Run first",
        "moved to the front",
        "Have jobs run first.",
        "Have the job run first.",
        _first,
        {"queue": MoveCommand("run-first", "moved ahead", "Run jobs before all others of their queue.")},
        # Jobs that run first keep their order only within one call.
        at_once=sys.maxsize,
        on_all=False,
    ),
    JobMove(
        JobAction.RESCHEDULE,
        "Reschedule",
        "rescheduled",
        "Give jobs another time.",
        "Give the job another time.",
        _reschedule,
        {"scheduled": _RESCHEDULED, "retries": _RESCHEDULED},
        fields=[NEW_TIME],
        at_once=1,
        in_rows=False,
    ),
    JobMove(
        JobAction.KILL,
        "Kill",
        "moved to the dead jobs",
        "Move jobs to the dead ones.",
        "Move the job to the dead ones.",
        _kill,
        {"queue": _KILLED, "scheduled": _KILLED, "retries": _KILLED},
        in_rows=False,
    ),
    JobMove(
        JobAction.DELETE,
        "Delete",
        "deleted",
        "Delete jobs.",
        "Delete the job.",
        _delete,
        {"queue": _DELETED, "scheduled": _DELETED, "retries": _DELETED, "dead": _DELETED},
        dangerous=True,
        asks="Delete {} now? This can be undone for ten minutes.",
    ),
)
_MOVES = {move.action: move for move in MOVES}


@dataclass(frozen=True, slots=True)
class Order:
    """One action on jobs of a place. ``at``: the new time of jobs that are rescheduled, in epoch seconds."""

    place: Place
    action: JobAction
    at: float | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for an action that the place does not have, or without a time."""
        if self.move not in moves_of(self.place):
            raise ValueError(f"jobs in {self.place.word} cannot be moved by this action: {self.action}")
        if (self.at is None) == (NEW_TIME in self.move.fields):
            raise ValueError("only reschedule takes a time, and it needs one")

    @property
    def move(self) -> JobMove:
        """The declaration of the action."""
        return _MOVES[self.action]

    @property
    def given(self) -> dict[str, Any]:
        """The fields of the action, but for the jobs."""
        return {"place": self.place.word} | ({} if self.at is None else {"time": self.at})

    def run(self, admin: Admin, rows: Sequence[Row], deletion: str = "") -> Acted:
        """Act on jobs that were read whole. Raises RedisUnavailableError and StoreError.

        ``deletion``: the id with which deleted jobs can be put back.
        """
        jobs, entries = _opened(admin, self.place, rows)
        reasons = [self.move.refusal(jobs, entry) for entry in entries]
        fit = [entry for entry, reason in zip(entries, reasons, strict=True) if not reason]
        done = self.move.act(jobs, fit, How(self.at, deletion))
        reason = next(filter(None, reversed(reasons)), "")
        kept = deletion if done and self.action is JobAction.DELETE else ""
        return Acted(done, len(entries) - len(fit), reason, kept)

    def clearing(self, keys: Keys, deletion: str) -> Clearing:
        """The deletion of all jobs of the place, page by page; ``deletion`` as in ``run``."""
        kept = KeptFor(deletion, self.place.word)
        return Clearing(keys, self.place.key(keys), time.time(), self.place.queue, kept)


def _opened(admin: Admin, place: Place, rows: Sequence[Row]) -> tuple[Queue | JobSet, Sequence[EditableJob]]:
    """The place, and the jobs in it."""
    if name := place.queue:
        queue = Queue(name, admin)
        size = queue.size
        return queue, [QueuedJob(row.job.raw, queue, max(0, size - 1 - row.index)) for row in rows]
    jobs = SETS[place.word](admin)
    return jobs, [SortedEntry(row.job.raw, row.score or 0.0, jobs) for row in rows]


def moves_of(place: Place) -> tuple[JobMove, ...]:
    """The moves that jobs of a place have."""
    return tuple(move for move in MOVES if place.kind in move.commands)


def act_on(admin: Admin, order: Order, ats: Sequence[str]) -> Acted:
    """Act on the jobs that a page has named (``Row.at``); those that are gone are left out.

    Raises RedisUnavailableError and StoreError.
    """
    rows = admin.run(read_rows(admin.keys, order.place, ats))
    acted = order.run(admin, [row for row in rows if row is not None], new_id())
    return acted._replace(undo=admin.run(offered(admin.keys, acted.undo)))


def _place(word: str) -> Place:
    """Raises BadArgumentError."""
    place = Place.read(word)
    if place is None:
        raise BadArgumentError(f"place must be {PLACES}")
    return place


def _order(move: JobMove, word: str, at: float | None) -> Order:
    """Raises BadArgumentError."""
    place = _place(word)
    try:
        return Order(place, move.action, at)
    except ValueError as error:
        raise BadArgumentError(str(error)) from error


def _said(move: JobMove, performed: Performed) -> str:
    """What became of the jobs."""
    acted: Acted = performed.result
    parts = [f"{counted(acted.done, 'job')} {move.done_with(acted.done)}"] if acted.done else []
    if acted.refused:
        parts.append(f"{counted(acted.refused, 'job')} cannot be moved: {acted.reason}")
    named = performed.given.get("jobs")
    if gone := (1 if named is None else len(named)) - acted.done - acted.refused:
        where = "is no longer here" if gone == 1 else "are no longer here"
        parts.append(f"{counted(gone, 'job')} {where}: taken, moved or deleted in the meantime")
    return ". ".join(parts)


_NAMED = (
    Parameter("jid", "The id of the job.", required=True),
    Parameter("place", f"Where it was seen: {PLACES}", required=True),
    Parameter("at", "Its at in that place.", required=True),
)
"""What names one job."""


def _queues(admin: Admin, given: actions.Given) -> Iterable[str]:
    """The queues of named jobs: also the queue into which a move may bring a job."""
    place = _place(given["place"])
    rows = admin.run(read_rows(admin.keys, place, given["jobs"] if "jobs" in given else [given["at"]]))
    found = {row.job.queue for row in rows if row is not None}
    return (found - {""}) | {place.queue} if place.queue else found


def _on_one(move: JobMove) -> actions.Action[Any]:
    return actions.Action(
        f"job.{move.action}",
        move.about_one,
        [*_NAMED, *move.fields],
        lambda admin, jid, place, at, time=None: act_on(admin, _order(move, place, time), [at]),
        queues=_queues,
        done=partial(_said, move),
        missing="job",
    )


def _on_several(move: JobMove) -> actions.Action[Any]:
    return actions.Action(
        f"jobs.{move.action}",
        move.about,
        [
            Parameter("place", f"Where they are: {PLACES}", required=True),
            Parameter("jobs", "The jobs, by their at.", "array", required=True),
            *move.fields,
        ],
        lambda admin, place, jobs, time=None: act_on(admin, _order(move, place, time), jobs),
        queues=_queues,
        done=partial(_said, move),
        target="{place} ({jobs})",
        missing="job",
    )


ON_ONE = {move.action: _on_one(move) for move in MOVES}
"""The moves as actions on one job."""
ON_SEVERAL = {move.action: _on_several(move) for move in MOVES}
"""The moves as actions on named jobs of a place."""


def _seen(admin: Admin, word: str, at: str) -> EditableJob | None:
    """The job that a page has named; None if it is no longer there."""
    place = _place(word)
    rows = admin.run(read_rows(admin.keys, place, [at]))
    _, entries = _opened(admin, place, [row for row in rows if row is not None])
    return next(iter(entries), None)


def _edit(
    admin: Admin, jid: str, place: str, at: str, args: list[Any] | None = None, time: float | None = None
) -> bool:
    job = _seen(admin, place, at)
    return job is not None and job.edit(args, time)


def _copy(
    admin: Admin, jid: str, place: str, at: str, args: list[Any] | None = None, time: float | None = None
) -> str | bool:
    job = _seen(admin, place, at)
    return job is not None and job.enqueue_copy(args, time)


_CHANGED = (
    *_NAMED,
    Parameter("args", "The new arguments; without them, they stay.", "list"),
    replace(NEW_TIME, required=False),
)
EDIT: actions.Action[Any] = actions.Action(
    "job.edit",
    "Give the job other arguments, another time, or both. With a time, a waiting or dead one is scheduled.",
    _CHANGED,
    _edit,
    queues=_queues,
    done="The job is edited",
    missing="job",
)
COPY: actions.Action[Any] = actions.Action(
    "job.copy",
    "Enqueue another job with the options of the job, with its arguments or others.",
    _CHANGED,
    _copy,
    queues=_queues,
    done="A copy is enqueued: {result}",
    missing="job",
    label="Enqueue a copy",
)
