"""The queues of tasks: which one a task goes to, and which ones the server serves for them.

``PYWORKERS["task_queues"]`` maps queues to ranges of priorities: ``{"high": [50, 100], "low": [-100, -1]}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from pyworkers import Worker
from pyworkers.integrations.django.configuration import django_settings, read_settings
from pyworkers.integrations.django.taskframework import DEFAULT_TASK_QUEUE_NAME, InvalidTask, Task
from pyworkers.protocol.keys import check_queue_name

_GROUP = "django-tasks"

Ranges = Mapping[str, tuple[int, int]]
"""The lowest and the highest priority of each queue."""


def ranges() -> Ranges:
    """The setting, checked. Raises ImproperlyConfigured."""
    found = {queue: _range(queue, value) for queue, value in django_settings().task_queues.items()}
    by_priority = sorted(found.items(), key=lambda item: item[1])
    for (one, (_, top)), (other, (bottom, _)) in pairwise(by_priority):
        if bottom <= top:
            raise ImproperlyConfigured(
                f'PYWORKERS["task_queues"]: the priority {bottom} has two queues, {one!r} and {other!r}'
            )
    return found


def queue_of(task: Task) -> str:
    """The queue of a task: by its priority, if its ``queue_name`` is the default. Raises InvalidTask."""
    known, named, priority = ranges(), str(task.queue_name), task.priority
    if named == DEFAULT_TASK_QUEUE_NAME:
        fitting = [queue for queue, (low, high) in known.items() if low <= priority <= high]
        if fitting or priority == 0:
            return fitting[0] if fitting else named
        raise InvalidTask(f'PYWORKERS["task_queues"] has no queue for the priority {priority}')
    low, high = known.get(named, (0, 0))
    if priority and not low <= priority <= high:
        raise InvalidTask(f"the queue {named!r} does not take tasks with the priority {priority}")
    return named


def serve(worker: Worker, queues: Iterable[str]) -> None:
    """Have the server serve all queues to which tasks may be enqueued, also those without a job.

    The queues of ``task_queues`` are one group, the highest priorities first, unless the configuration has a
    group or a table for one of them.
    """
    facts, config = Worker.manifest(worker), read_settings().data
    placed = set(_queues_of(facts["groups"])) | set(_queues_of(config.get("groups", {})))
    by_priority = sorted(ranges().items(), key=lambda item: item[1], reverse=True)
    ordered = [queue for queue, _ in by_priority]
    if (
        len(ordered) > 1
        and placed.isdisjoint(ordered)
        and config.get("queues", {}).keys().isdisjoint(ordered)
    ):
        worker.group(_GROUP, queues=ordered)
        placed.update(ordered)
    for queue in dict.fromkeys([*ordered, *queues]):
        if queue not in placed and queue not in facts["queues"]:
            worker.group(queue, queues=[queue])


def _queues_of(groups: Mapping[str, Any]) -> Iterator[str]:
    for group in groups.values():
        yield from group.get("queues", ())


def _range(queue: object, value: object) -> tuple[int, int]:
    place = f'PYWORKERS["task_queues"][{queue!r}]'
    try:
        check_queue_name(queue)
    except ValueError as error:
        raise ImproperlyConfigured(f"{place}: {error}") from error
    match value:
        case [int(low), int(high)] if -100 <= low <= high <= 100:
            return low, high
    raise ImproperlyConfigured(
        f"{place} must be the lowest and the highest priority, from -100 to 100: [0, 100], not {value!r}"
    )
