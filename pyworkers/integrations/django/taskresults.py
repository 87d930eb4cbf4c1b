"""The results of tasks: what the history of their jobs says, as Django's ``TaskResult``.

Used where tasks are enqueued and results are read, and in worker processes, for signals and contexts.
"""

from __future__ import annotations

import builtins
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from pyworkers import JobHistory, JobRun, JobState, Message, errors
from pyworkers.integrations.django.taskframework import (
    InvalidTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from pyworkers.observing.readable import pieces_of

FIELD = "django_task"
"""The field of the envelope with the rest of a task."""

_STATUS = {
    JobState.RUNNING: TaskResultStatus.RUNNING,
    JobState.DONE: TaskResultStatus.SUCCESSFUL,
    JobState.FAILED: TaskResultStatus.FAILED,
    JobState.DEAD: TaskResultStatus.FAILED,
    JobState.CANCELLED: TaskResultStatus.FAILED,
    JobState.EXPIRED: TaskResultStatus.FAILED,
}
_KINDS: Mapping[str, Any] = {
    "backend": str,
    "queue_name": str,
    "priority": int,
    "run_after": int | float,
    "enqueued_at": int | float,
}


@dataclass(frozen=True, slots=True)
class About:
    """What Django knows of a task apart from its function and arguments. Times are in epoch seconds."""

    backend: str = ""
    queue_name: str = ""
    priority: int = 0
    run_after: float | None = None
    enqueued_at: float | None = None

    @classmethod
    def of(cls, task: Task, alias: str) -> About:
        """Of a task that is enqueued now."""
        at = None if task.run_after is None else task.run_after.timestamp()
        return cls(alias, task.queue_name, task.priority, at, time.time())

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> About:
        """From an envelope; an invalid value counts as missing."""
        stored = data.get(FIELD)
        known = stored if isinstance(stored, Mapping) else {}
        return cls(
            **{name: known[name] for name, kind in _KINDS.items() if isinstance(known.get(name), kind)}
        )

    def as_json(self) -> dict[str, Any]:
        """The field of the envelope."""
        return asdict(self)

    def task(self, declared: Task) -> Task:
        """The task as it was enqueued; as it is declared if its backend does not allow that any more."""
        try:
            return declared.using(
                priority=self.priority,
                queue_name=self.queue_name or None,
                run_after=moment(self.run_after),
                backend=self.backend or None,
            )
        except InvalidTask:
            return declared

    def result(self, task: Task, jid: str, status: TaskResultStatus, args: Any, kwargs: Any) -> TaskResult:
        """The result of a task that has not run."""
        return TaskResult(
            task=task,
            id=jid,
            status=status,
            enqueued_at=moment(self.enqueued_at),
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.backend or task.backend,
            errors=[],
            worker_ids=[],
        )


def running(task: Task, message: Message) -> TaskResult:
    """The result of a task that starts in this process. Of earlier runs only the number is known here."""
    args, kwargs = message.args
    about = About.read(message.data)
    result = about.result(about.task(task), message.jid, TaskResultStatus.RUNNING, args, kwargs)
    result.worker_ids.extend([""] * (message.attempt + message.crash_count))
    result.worker_ids.append(f"{os.uname().nodename}:{os.getpid()}")
    now = moment(time.time())
    return changed(result, started_at=now, last_attempted_at=now)


def succeeded(result: TaskResult, value: Any) -> TaskResult:
    """The same result after the task has returned ``value``."""
    now = moment(time.time())
    return changed(result, status=TaskResultStatus.SUCCESSFUL, finished_at=now, _return_value=value)


def failed(result: TaskResult, error: BaseException | None) -> TaskResult:
    """The same result after the last failure; without an error if the worker was lost."""
    if error is not None:
        kind = type(error)
        text = "".join(pieces_of((type(error), error, error.__traceback__)))
        path = f"{kind.__module__}.{kind.__qualname__}"
        result.errors.append(TaskError(exception_class_path=path, traceback=text))
    return changed(result, status=TaskResultStatus.FAILED, finished_at=moment(time.time()))


def result_of(found: JobHistory, task: Task) -> TaskResult:
    """The result of a task from the history of its job. Raises TaskResultDoesNotExist for another job."""
    about, status = About.read(found.job), _STATUS.get(found.status.state, TaskResultStatus.READY)
    match found.job.get("args"):
        case [list(args), dict(kwargs)]:
            result = about.result(about.task(task), found.jid, status, args, kwargs)
        case _:
            raise TaskResultDoesNotExist(f"the job {found.jid} is not a task")
    result.worker_ids.extend(run.worker for run in found.runs)
    result.errors.extend(_error(run) for run in found.runs if run.error_class)
    times = [run.started_at for run in found.runs if run.started_at is not None]
    changed(
        result,
        started_at=moment(times[0]) if times else None,
        last_attempted_at=moment(times[-1]) if times else None,
        finished_at=moment(found.status.finished_at) if found.status.state.final else None,
    )
    return changed(result, _return_value=found.result) if status is TaskResultStatus.SUCCESSFUL else result


def moment(epoch_s: float | None) -> datetime | None:
    """A time as Django has it: aware if USE_TZ is on, else naive and local."""
    return None if epoch_s is None else datetime.fromtimestamp(epoch_s, UTC if settings.USE_TZ else None)


def changed(result: TaskResult, **values: Any) -> TaskResult:
    """The same result with other values: it is frozen, and Django's own backends write it like this."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
    return result


def _error(run: JobRun) -> TaskError:
    """The error of a run. A worker that was lost has reported no traceback."""
    text = run.traceback or f"{run.error_class}: {run.error}\n"
    return TaskError(exception_class_path=_path(run.error_class), traceback=text)


def _path(error_class: str) -> str:
    """The import path of the class: it is stored without a module for Python's and pyworkers' own."""
    if "." in error_class:
        return error_class
    home = errors if hasattr(errors, error_class) else builtins
    return f"{home.__name__}.{error_class}"
