"""Tasks: the tasks of this process, declared as jobs of the project's worker, and how one runs.

Used where tasks are enqueued, by the fork server, and by the worker processes. The class of the jobs is the
path of the task, ``shop.tasks.notify``; their arguments are ``[args, kwargs]``.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from pyworkers import Message, Worker, current_message
from pyworkers.errors import BadMessageError
from pyworkers.handler import OnExhausted
from pyworkers.integrations.django import worker
from pyworkers.integrations.django.taskframework import (
    Task,
    TaskContext,
    TaskResult,
    normalize_json,
    task_finished,
    task_started,
)
from pyworkers.integrations.django.taskoptions import declared
from pyworkers.integrations.django.taskqueues import queue_of, serve
from pyworkers.integrations.django.taskresults import failed, running, succeeded
from pyworkers.protocol.flow.track import encode_result


class ProjectTasks:
    """The tasks whose backends are of pyworkers, by their paths."""

    def __init__(self) -> None:
        self._known: dict[str, Task] = {}
        self._declared: dict[str, object] = {}

    def add(self, task: Task) -> None:
        """Know a task by its path. A task made with ``using`` does not replace the declared one."""
        known = self._known.get(task.module_path)
        if known is None or known.func is not task.func:
            self._known[task.module_path] = task

    def of(self, path: str) -> Task:
        """The task with this path, which is known."""
        return self._known[path]

    def find(self, path: str) -> Task | None:
        """The task with this path, if its module is imported."""
        return self._known.get(path)

    def declare(self, task: Task) -> None:
        """Declare the task as a job, once."""
        path, mine = task.module_path, object()
        # One step, in which another thread cannot be.
        if self._declared.setdefault(path, mine) is mine:
            self._declare(self._known.get(path, task))

    def load(self, into: Worker) -> None:
        """Declare all tasks, and have all queues of their backends served. Called by the server."""
        queues = [queue for task in self._known.values() for queue in task.get_backend().queues]
        for task in list(self._known.values()):
            self.declare(task)
        serve(into, queues)

    def _declare(self, task: Task) -> None:
        path = task.module_path
        options = declared(task.func)
        options["on_exhausted"] = _exhausted(path, self, options.get("on_exhausted"))
        run = _coroutine(path, self) if iscoroutinefunction(task.func) else _function(path, self)
        worker.job(name=path, queue=queue_of(task), **options)(run)


# Module-level state: Django makes a backend for each thread, and a task is declared once.
tasks = ProjectTasks()
worker.when_loaded(tasks.load)


def _function(path: str, known: ProjectTasks) -> Callable[..., Any]:
    def run(*_stored: Any) -> Any:
        task, result = _begun(known.of(path))
        task_started.send_robust(_sender(task), task_result=result)
        value = _kept(task.func(*_context(task, result), *result.args, **result.kwargs))
        task_finished.send_robust(_sender(task), task_result=succeeded(result, value))
        return value

    return run


def _coroutine(path: str, known: ProjectTasks) -> Callable[..., Any]:
    async def run(*_stored: Any) -> Any:
        task, result = _begun(known.of(path))
        await task_started.asend_robust(_sender(task), task_result=result)
        value = _kept(await task.func(*_context(task, result), *result.args, **result.kwargs))
        await task_finished.asend_robust(_sender(task), task_result=succeeded(result, value))
        return value

    return run


def _kept(returned: Any) -> Any:
    """The result as JSON values. Raises BadResultError before a receiver gets it as a success."""
    value = normalize_json(returned)
    encode_result(value)
    return value


def _exhausted(path: str, known: ProjectTasks, own: OnExhausted | None) -> OnExhausted:
    """The hook of a task that has failed for good: sends ``task_finished``, then calls the task's own."""

    def exhausted(message: Message, error: BaseException | None) -> None:
        task = known.of(path)
        if _is_call(message.args):
            result = failed(running(task, message), error)
            task_finished.send_robust(_sender(task), task_result=result)
        if own is not None:
            own(message, error)

    return exhausted


def _begun(task: Task) -> tuple[Task, TaskResult]:
    """The task and its result so far. Raises BadMessageError, after which the job is dead at once."""
    message = current_message()
    if not _is_call(message.args):
        raise BadMessageError(f"the arguments of the task {task.module_path} are not [args, kwargs]")
    return task, running(task, message)


def _is_call(stored: list[Any]) -> bool:
    match stored:
        case [list(), dict()]:
            return True
    return False


def _context(task: Task, result: TaskResult) -> list[TaskContext]:
    return [TaskContext(task_result=result)] if task.takes_context else []


def _sender(task: Task) -> type:
    return type(task.get_backend())
