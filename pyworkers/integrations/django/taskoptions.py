"""The options of tasks that Django's ``@task`` does not have.

Read when a task is enqueued, and when it is declared as a job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from pyworkers.errors import DeclarationError
from pyworkers.handler import JobOptions, refuse_unknown
from pyworkers.protocol.options import EnqueueOptions

F = TypeVar("F")

# An attribute of the function: the task, which is frozen, may not exist yet.
_ATTRIBUTE = "pyworkers_job_options"
_OF_THE_TASK = {
    "queue": "@task(queue_name=…)",
    "name": "the name of a task is its path",
    "history": "the results of tasks have it",
}
# The limit of the handler counts.
_PER_JOB = EnqueueOptions.__annotations__.keys() | {"retry"} - {"timeout"}


def job_options(**options: Unpack[JobOptions]) -> Callable[[F], F]:
    """The options of ``@worker.job`` for a task, above or below ``@task``: ``@job_options(retry=5)``.

    All but ``queue``, ``name`` and ``history``. A task without ``retry`` is not retried. Raises
    DeclarationError.
    """
    refuse_unknown(options, JobOptions, "job_options")
    for name in options:
        if name in _OF_THE_TASK:
            raise DeclarationError(f"job_options does not take {name}", hint=_OF_THE_TASK[name])

    def declare(task: F) -> F:
        function: Any = getattr(task, "func", task)
        setattr(function, _ATTRIBUTE, {**getattr(function, _ATTRIBUTE, {}), **options})
        return task

    return declare


def declared(function: Callable[..., Any]) -> dict[str, Any]:
    """The options of a task's function, for ``worker.job``."""
    options: dict[str, Any] = getattr(function, _ATTRIBUTE, {})
    asks = options.get("retry_on") or options.get("retry_for") is not None
    return {"retry": True if asks else 0, **options}


def options_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The options of a task that each of its jobs has."""
    return {name: value for name, value in declared(function).items() if name in _PER_JOB}
