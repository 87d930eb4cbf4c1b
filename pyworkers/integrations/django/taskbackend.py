"""TaskBackend: runs the tasks of Django's task framework as jobs of pyworkers.

Used in each process of a project that enqueues tasks or reads their results. It imports nothing that a stored
job names: a task is known once its module is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from pyworkers import BadArgumentError
from pyworkers.integrations.django import worker
from pyworkers.integrations.django.application import import_tasks
from pyworkers.integrations.django.taskframework import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_enqueued,
)
from pyworkers.integrations.django.taskjobs import tasks
from pyworkers.integrations.django.taskoptions import options_of
from pyworkers.integrations.django.taskqueues import queue_of, ranges
from pyworkers.integrations.django.taskresults import FIELD, About, result_of
from pyworkers.protocol.options import OPTIONS, suggestion

_KEPT_S = 86_400


class TaskBackend(BaseTaskBackend):
    """``TASKS = {"default": {"BACKEND": "pyworkers.integrations.django.TaskBackend"}}``.

    ``OPTIONS``: ``track`` is how long results are kept, in seconds after the end of the task; default: a day.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        for name in self.options:
            if name != "track":
                hint = suggestion(name, ("track",)) or "it has: track"
                raise ImproperlyConfigured(f"TASKS[{alias!r}]: OPTIONS has no key {name!r}: {hint}")
        option = OPTIONS["track"]
        self._track = self.options.get("track", _KEPT_S)
        if self._track is None or not option.fits(self._track):
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]: track is {option.rule.removesuffix(', or None')}, not {self._track!r}"
            )

    @property
    def supports_priority(self) -> bool:
        """True if ``PYWORKERS["task_queues"]`` maps queues to ranges of priorities."""
        return bool(ranges())

    def validate_task(self, task: Task) -> None:
        """Raise InvalidTask for a task that cannot be enqueued. Called at its declaration, too."""
        super().validate_task(task)
        queue_of(task)
        tasks.add(task)

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Enqueue the task. Inside ``atomic()`` the job is pushed after the commit, as any other.

        Raises InvalidTask, TypeError for arguments that are not JSON, and the errors of ``Job.enqueue``.
        """
        self.validate_task(task)
        given, named = normalize_json(list(args)), normalize_json(dict(kwargs))
        tasks.declare(task)
        about = About.of(task, self.alias)
        options = {"track": self._track, **options_of(task.func)}
        extra = {**options.pop("extra", {}), FIELD: about.as_json()}
        try:
            jid = worker.enqueue(
                queue_of(task),
                task.module_path,
                [given, named],
                at=about.run_after,
                history=True,
                extra=extra,
                **options,
            )
        except BadArgumentError as error:
            raise InvalidTask(f"{task.module_path}: {error}") from error
        result = about.result(task, jid, TaskResultStatus.READY, given, named)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """The result of a task of this backend. Raises TaskResultDoesNotExist, and the errors of Redis."""
        try:
            found = worker.history(result_id)
        except BadArgumentError as error:
            raise TaskResultDoesNotExist(result_id) from error
        if found is None or About.read(found.job).backend != self.alias:
            raise TaskResultDoesNotExist(result_id)
        path = str(found.job.get("class"))
        task = tasks.find(path)
        if task is None:
            import_tasks()
            task = tasks.find(path)
        if task is None:
            raise TaskResultDoesNotExist(f"{result_id} belongs to {path}, which is not imported here")
        return result_of(found, task)
