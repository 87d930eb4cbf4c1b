"""Work: counts the jobs of a task, or acts on them, in a thread of the process that took the order.

It acts in portions, each of them a conditional move: a task that ends early has left each job in one place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TypeVar

from pyworkers.api.browse.actions import JobAction, Order
from pyworkers.api.browse.pages import Row, read_rows
from pyworkers.api.browse.search import Stretch, read_stretch
from pyworkers.api.browse.tasks import Task, TaskState, fields_of
from pyworkers.api.browse.undo import PutBack, Restoring, restored_of
from pyworkers.api.target import Admin
from pyworkers.errors import PyworkersError, RedisUnavailableError
from pyworkers.protocol.portions import portions
from pyworkers.store.browse import tasks
from pyworkers.store.browse.parts import Position
from pyworkers.store.calls import Operation
from pyworkers.store.sets import PAGE

T = TypeVar("T")
# How long a task waits for Redis before it gives up.
_PATIENCE_S = 60.0
_PAUSE_S = 0.5
# How long jobs are gathered before they are moved: meanwhile, servers take some of them.
_GATHERING_S = 0.25
# Jobs that are added during a task move those behind them, which are then looked at twice.
_MOST_LOOKS, _SPARE_LOOKS = 2, 10_000


def start(admin: Admin, task: Task) -> None:
    """Work on a task in its own thread, which ends with its process: then the task says so."""
    Thread(target=work_on, args=(admin, task), name=f"task {task.id}", daemon=True).start()


def work_on(admin: Admin, task: Task, sleep: Callable[[float], None] = time.sleep) -> TaskState:
    """Count the jobs of a task, or act on them if it is confirmed, to its end. Run in its own thread.

    It never raises for what Redis does: it waits for Redis for a minute, and then fails.
    """
    try:
        return _TaskRun(admin, task, sleep).run()
    except RedisUnavailableError:
        # Nothing can be written either: the missing sign of life shows it.
        return TaskState.FAILED


class _TaskRun:
    """The work on one task, in one thread."""

    def __init__(self, admin: Admin, task: Task, sleep: Callable[[float], None]) -> None:
        self._admin = admin
        self._task = task
        self._sleep = sleep
        self._progress = task.progress

    def run(self) -> TaskState:
        """Work until all jobs are looked at, or a person stops it."""
        counting = self._task.state is TaskState.COUNTING
        try:
            stopped = self._walk(self._count) if counting else self._carry_out(self._task.order)
        except RedisUnavailableError:
            raise
        except PyworkersError as error:
            self._progress = replace(self._progress, reason=error.message)
            state = TaskState.FAILED
        else:
            state = TaskState.COUNTED if counting else TaskState.DONE
            state = TaskState.STOPPED if stopped else state
        self._report(state)
        return state

    def _carry_out(self, order: Order | PutBack) -> bool:
        """Do what was ordered; True if a person stopped it."""
        if isinstance(order, PutBack):
            return self._restore(order)
        return self._clear(order) if self._task.clears else self._walk(partial(self._act, order))

    def _restore(self, order: PutBack) -> bool:
        """Put the jobs of a deletion back; True if a person stopped it."""
        restoring, stopped = Restoring(self._admin.keys, order.deletion), False
        while not (restoring.ended or stopped):
            restored = restored_of(self._ask(restoring.next_page))
            refused, before = sum(restored.refused.values()), self._progress
            self._progress = replace(
                before,
                looked_at=before.looked_at + restored + refused,
                selected=before.selected + restored + refused,
                done=before.done + restored,
                refused=before.refused + refused,
                reason=next(iter(restored.refused), before.reason),
            )
            stopped = self._report(self._task.state)
        return stopped

    def _clear(self, order: Order) -> bool:
        """Delete all jobs of the place, which leave it in one step: after it, nothing can be stopped."""
        clearing = order.clearing(self._admin.keys, self._task.id)
        while not clearing.ended:
            jobs = sum(self._ask(clearing.next_page))
            before = self._progress
            self._progress = replace(
                before, looked_at=clearing.looked_at, selected=before.selected + jobs, done=before.done + jobs
            )
            self._report(self._task.state)
        return False

    def _walk(self, visit: Callable[[list[Row]], int]) -> bool:
        """Visit all jobs that the filter selects; True if a person stopped it."""
        begin: Position | None = Position()
        most = _MOST_LOOKS * self._progress.total + _SPARE_LOOKS
        while begin is not None and self._progress.looked_at < most:
            rows, following, stopped = self._some(begin)
            gone = 0
            for portion in portions(rows, PAGE):
                if stopped:
                    break
                gone += visit(portion)
                stopped = self._report(self._task.state)
            if stopped:
                return True
            begin = self._next(following, gone)
        return False

    def _some(self, begin: Position) -> tuple[list[Row], Position | None, bool]:
        """The jobs that the filter selects from a place on: about a portion of them, fewer after a while.

        Redis goes through half of a queue to take jobs out of its middle, be it one job or many. Returns the
        place after them, too, and True if a person stops the task.
        """
        rows: list[Row] = []
        deadline = time.monotonic() + _GATHERING_S
        while True:
            stretch = self._stretch(begin)
            looked_at = max(0, stretch.looked_at - begin.place)
            self._progress = replace(self._progress, looked_at=self._progress.looked_at + looked_at)
            rows += stretch.rows
            stopped = self._report(self._task.state)
            if stopped or stretch.after is None or len(rows) >= PAGE or time.monotonic() >= deadline:
                return rows, stretch.after, stopped
            begin = stretch.after

    def _stretch(self, begin: Position) -> Stretch:
        return self._ask(lambda: read_stretch(self._admin.keys, self._task.sought, begin))

    def _next(self, after: Position | None, gone: int) -> Position | None:
        """Where the next part begins, after jobs before it have left."""
        if after is None:
            return None
        place = max(0, after.place - gone)
        if gone and self._task.order.action is JobAction.RESCHEDULE:
            # The last job is in another place.
            return Position(place)
        return after._replace(place=place)

    def _count(self, rows: list[Row]) -> int:
        self._progress = replace(self._progress, selected=self._progress.selected + len(rows))
        return 0

    def _act(self, order: Order, rows: list[Row]) -> int:
        """Act on jobs. Returns how many have left their places."""
        chosen = [row for row in rows if not self._again(row)]
        whole = self._whole(chosen)
        acted = self._trying(lambda: order.run(self._admin, whole, self._task.id))
        before = self._progress
        self._progress = replace(
            before,
            selected=before.selected + len(chosen),
            done=before.done + acted.done,
            refused=before.refused + acted.refused,
            reason=acted.reason or before.reason,
        )
        return acted.done

    def _again(self, row: Row) -> bool:
        """True for a job that this task has moved, and that has failed or come back since."""
        order, began = self._task.order, self._task.sought.now
        if order.action is JobAction.RESCHEDULE:
            return row.score == order.at
        if order.place.word == "dead" and (row.score or 0.0) > began:
            return True
        return order.action is JobAction.RUN and (row.job.failed_at or 0.0) > began

    def _whole(self, rows: list[Row]) -> list[Row]:
        if not any(row.job.cut for row in rows):
            return rows
        ats = [row.at for row in rows]
        found = self._ask(lambda: read_rows(self._admin.keys, self._task.order.place, ats))
        return [row for row in found if row is not None]

    def _report(self, state: TaskState) -> bool:
        """Write the progress; True if a person wants the task to stop."""
        fields = fields_of(state, self._progress)
        return self._ask(lambda: tasks.report(self._admin.keys, self._task.id, fields))

    def _ask(self, operation: Callable[[], Operation[T]]) -> T:
        return self._trying(lambda: self._admin.run(operation()))

    def _trying(self, act: Callable[[], T]) -> T:
        """The result of a call, which is made again while Redis is away. Raises RedisUnavailableError."""
        waited_s = 0.0
        while True:
            try:
                return act()
            except RedisUnavailableError:
                if waited_s >= _PATIENCE_S:
                    raise
                self._sleep(_PAUSE_S)
                waited_s += _PAUSE_S
