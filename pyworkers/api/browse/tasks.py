"""Task: an action on all jobs of a place that meet a filter: first counted, then confirmed, then done.

The undo of a deletion is one, too: its place has the deleted jobs.

The state is in Redis, so that each dashboard may show, confirm and stop it; ``work.py`` does the work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite
from typing import Any

import simplejson

from pyworkers.api.browse.actions import JobAction, Order
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.places import Place
from pyworkers.api.browse.search import Sought, read_stretch
from pyworkers.api.browse.undo import PutBack, read_deletions
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.schemas import OBJECT
from pyworkers.api.target import Admin
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.keys import Keys
from pyworkers.store.browse import tasks
from pyworkers.store.browse.parts import Position
from pyworkers.store.calls import Steps

_NUMBERS = ("total", "looked_at", "selected", "done", "refused", "counted")


class TaskState(StrEnum):
    """How far a task is."""

    COUNTING = "counting"
    COUNTED = "counted"
    """It waits for a person to confirm it."""
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    """A person stopped it, or its dashboard ended."""
    FAILED = "failed"
    """Redis refused a command: ``reason``."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """The numbers of jobs: in the place, looked at, selected by the filter, moved or removed, refused.

    ``counted``: how many were selected when a person confirmed the task.
    """

    total: int = 0
    looked_at: int = 0
    selected: int = 0
    done: int = 0
    refused: int = 0
    counted: int = 0
    reason: str = ""

    @property
    def left(self) -> int:
        """The selected jobs that had left the place before the task came to them, at its end."""
        return max(0, max(self.counted, self.selected) - self.done - self.refused)


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it was read; ``by`` is the person who gave the order. ``alive``: its process runs."""

    id: str
    order: Order | PutBack
    sought: Sought
    by: str
    state: TaskState
    progress: TaskProgress
    alive: bool = field(default=True, compare=False)

    @property
    def lost(self) -> bool:
        """True if the process that worked on it has ended."""
        return self.state in (TaskState.COUNTING, TaskState.RUNNING) and not self.alive

    @property
    def working(self) -> bool:
        """True while it counts or acts."""
        return self.state in (TaskState.COUNTING, TaskState.RUNNING) and self.alive

    @property
    def clears(self) -> bool:
        """True for the deletion of all jobs of the place, which is one step."""
        return self.order.action is JobAction.DELETE and self.sought.wanted.empty

    @property
    def undo(self) -> str:
        """The id of the deletion with which its jobs can be put back; empty for another action."""
        return self.id if self.order.action is JobAction.DELETE else ""

    def as_dict(self) -> dict[str, Any]:
        """The task for JSON."""
        return TASK.as_dict(self)


def _conditions(task: Task, _now: float) -> dict[str, Any]:
    return task.sought.wanted.as_dict()


_COUNTS: Sequence[Column[TaskProgress]] = [Column(name, Kind.COUNT) for name in _NUMBERS]
TASK: Table[Task] = Table(
    "Task",
    Column("id"),
    Column("place", value=lambda task, _now: task.order.place.word),
    Column("action", value=lambda task, _now: str(task.order.action)),
    Column("at", Kind.MOMENT, "New time", value=lambda task, _now: task.order.at, nullable=True),
    Column("filter", Kind.PARTS, "Jobs", value=_conditions, schema=OBJECT),
    Column("by", title="Ordered by"),
    Column("state", value=lambda task, _now: TaskState.STOPPED.value if task.lost else task.state.value),
    *Table("", *_COUNTS).within(lambda task: task.progress),
    Column("reason", value=lambda task, _now: "its dashboard ended" if task.lost else task.progress.reason),
    Column("ordered", Kind.MOMENT, "Ordered", value=lambda task, _now: task.sought.now, only_shown=True),
)  # fmt: skip


def read_task(keys: Keys, task: str) -> Steps[Task | None]:
    """Read a task; None for an unknown one, or one that another program has overwritten."""
    stored, alive = yield from tasks.read(keys, task)
    fields = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in stored.items()}
    try:
        (word, action, at), wanted, now, mask, by = simplejson.loads(fields["order"])
        order = _order_of(str(word), action, at)
        if order is None:
            return None
        return Task(
            task,
            order,
            Sought(order.place, Filter.of(dict(wanted)), _time(now), tuple(map(str, mask))),
            str(by),
            TaskState(fields["state"]),
            _progress(fields),
            alive,
        )
    except (KeyError, ValueError, TypeError, OverflowError, RecursionError):
        return None


def _order_of(word: str, action: Any, at: Any) -> Order | PutBack | None:
    """Raises ValueError and TypeError."""
    if deletion := Place(word).deletion:
        return PutBack(deletion)
    place = Place.read(word)
    return None if place is None else Order(place, JobAction(action), None if at is None else _time(at))


def _time(value: Any) -> float:
    """Epoch seconds. Raises ValueError, TypeError and OverflowError."""
    moment = float(value)
    if not isfinite(moment):
        raise ValueError
    return moment


def _progress(fields: Mapping[str, str]) -> TaskProgress:
    numbers = {name: int(fields.get(name, 0)) for name in _NUMBERS}
    return TaskProgress(**numbers, reason=fields.get("reason", ""))


def create_task(admin: Admin, order: Order | PutBack, sought: Sought, by: str) -> Task:
    """Note an order. Without a filter the number of jobs is known; else ``work_on`` counts them.

    Raises RedisUnavailableError and StoreError.
    """
    total = admin.run(_total(admin.keys, sought))
    is_known = sought.wanted.empty or isinstance(order, PutBack)
    state, selected = (TaskState.COUNTED, total) if is_known else (TaskState.COUNTING, 0)
    task = Task(os.urandom(12).hex(), order, sought, by, state, TaskProgress(total, selected=selected))
    about = encode(
        [
            [order.place.word, str(order.action), order.at],
            sought.wanted.as_dict(),
            sought.now,
            list(sought.mask),
            by,
        ]
    )
    admin.run(tasks.report(admin.keys, task.id, {"order": about, **fields_of(task.state, task.progress)}))
    return task


def _total(keys: Keys, sought: Sought) -> Steps[int]:
    """The number of jobs in the place."""
    if not sought.place.deletion:
        return (yield from read_stretch(keys, sought, Position(0))).total
    numbers = (yield from read_deletions(keys)).get(sought.place.deletion)
    return numbers.kept if numbers else 0


def confirm_task(admin: Admin, task: Task) -> Task | None:
    """Let a counted task run, which ``work_on`` does then; None if it was confirmed already.

    Raises RedisUnavailableError and StoreError.
    """
    if task.state is not TaskState.COUNTED or not admin.run(tasks.claim(admin.keys, task.id)):
        return None
    ready = replace(
        task,
        state=TaskState.RUNNING,
        progress=TaskProgress(task.progress.total, counted=task.progress.selected),
    )
    admin.run(tasks.report(admin.keys, task.id, fields_of(ready.state, ready.progress)))
    return ready


def stop_task(admin: Admin, task: Task) -> bool:
    """Stop a task that works, after its present portion; False if it works no more, or clears its place."""
    is_stoppable = task.working and not task.clears
    if is_stoppable:
        admin.run(tasks.stop(admin.keys, task.id))
    return is_stoppable


def fields_of(state: TaskState, progress: TaskProgress) -> Mapping[str, Any]:
    """The fields of the hash."""
    numbers = {name: getattr(progress, name) for name in _NUMBERS}
    return {"state": state.value, **numbers, "reason": progress.reason}
