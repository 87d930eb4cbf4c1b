"""Enqueueing: jobs that people and programs describe by names and values, with the checks of the client.

Used by ``pyworkers enqueue`` and by the JSON of the dashboard: one reader, one way into Redis.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyworkers.api.target import Admin
from pyworkers.encryption import Encryption, KeySource
from pyworkers.errors import BadArgumentError, EncryptionKeyError
from pyworkers.protocol.draft import Writing, draft, moment
from pyworkers.protocol.envelope import MAX_DEPTH, check_value
from pyworkers.protocol.options import OPTIONS, suggestion
from pyworkers.protocol.portions import portions
from pyworkers.store.flow.classes import KnownClass, known_classes
from pyworkers.store.flow.enqueueing import (
    PORTION,
    Answered,
    BatchedJob,
    Enqueued,
    PushRefusal,
    Receipt,
    enqueue,
)

__all__ = [
    "FIELDS",
    "PORTION",
    "Answered",
    "BatchedJob",
    "Enqueued",
    "KnownClass",
    "PushRefusal",
    "Receipt",
    "enqueue",
    "enqueue_all",
    "known_classes",
    "pause_s",
    "place_of",
    "read",
    "wait_s",
    "writing_with",
]

FIELDS: Mapping[str, str] = {
    "queue": "The queue.",
    "class": "The job class.",
    "args": "The arguments. Default: none.",
    "in": "Seconds until the job is due. Default: now.",
    "at": "When the job is due, in epoch seconds. A time in the past is now.",
    "batch": "The id of a batch, of which the job becomes a member.",
}
"""What describes a job, apart from the options of an enqueue call, each with its meaning."""
# Until a full queue is looked at again.
_PAUSE_S = 0.1
_REQUIRED = ("queue", "class")
# The parameters of the client that have another name here.
_RENAMED = {"delay": "in", "job_class": "class"}


def writing_with(keys: KeySource | None) -> Writing:
    """How the arguments of these jobs are written: with these keys, or else the keys of the environment."""
    return Writing(encryption=Encryption(keys or None))


def read(given: Mapping[str, Any], now: float, writing: Writing) -> BatchedJob:
    """The job that these fields and options describe. Nothing is sent.

    Raises BadArgumentError, with the field, for anything that the client refuses.
    """
    for name in given:
        if name not in FIELDS and name not in OPTIONS:
            near = suggestion(name, (*FIELDS, *OPTIONS))
            message = f"{name} is not a field of a job{f': {near}' if near else ''}"
            raise BadArgumentError(message, hint="a field of your own goes into extra", field=name)
    for name in _REQUIRED:
        if name not in given:
            raise BadArgumentError(f"{name} is missing", field=name)
    try:
        return _member(given, now, writing)
    except BadArgumentError as error:
        field = _RENAMED.get(error.field, error.field)
        raise BadArgumentError(error.message, hint=error.hint, field=field) from error
    except EncryptionKeyError as error:
        raise BadArgumentError(error.message, hint=error.hint, field="encrypt") from error


def _member(given: Mapping[str, Any], now: float, writing: Writing) -> BatchedJob:
    batch = given.get("batch")
    if "batch" in given and not (isinstance(batch, str) and batch):
        raise BadArgumentError(f"batch must be the id of a batch, not {batch!r}", field="batch")
    check_value(batch, "batch")
    options = {name: value for name, value in given.items() if name in OPTIONS}
    retry = options.pop("retry", None)
    due = moment(given.get("in"), given.get("at"), now)
    plan = draft(given["queue"], given["class"], retry, options, due, writing)
    return BatchedJob(plan.job(given.get("args", ()), now), batch or "")


def enqueue_all(admin: Admin, jobs: Iterable[BatchedJob]) -> list[Enqueued]:
    """Push jobs, a thousand at a time, each of them all or none; waits for room in a full queue if asked to.

    Raises the error of a refusal, and the errors of ``enqueue``; then the thousands before are in Redis.
    """
    found: list[Enqueued] = []
    for portion in portions(jobs, PORTION):
        found += _with_room(admin, portion)
    return found


def _with_room(admin: Admin, jobs: Sequence[BatchedJob]) -> Sequence[Enqueued]:
    until = time.monotonic() + wait_s(jobs)
    answered = admin.run(enqueue(admin.keys, jobs))
    while answered.refusal is not None:
        time.sleep(pause_s(answered.refusal, until))
        answered = admin.run(enqueue(admin.keys, jobs, after=answered.refusal))
    return answered.jobs


def pause_s(refusal: PushRefusal, until: float) -> float:
    """The seconds after which a push is tried again, as its queue is full. Raises the error otherwise.

    ``until``: when it is not tried any more, by the monotonic clock.
    """
    left_s = until - time.monotonic()
    if left_s <= 0 or refusal.room is None or refusal.room.most < 0:
        raise refusal.error
    return min(_PAUSE_S, left_s)


def wait_s(jobs: Iterable[BatchedJob]) -> float:
    """How long the push of these jobs waits for room in their queues."""
    return max((job.conditions.wait_s for job, _ in jobs if job.conditions), default=0.0)


def place_of(given: Mapping[str, Any], field: str) -> str:
    """The place of the invalid value in a field, as a JSON Pointer (RFC 6901): ``/args/0/name``."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in _way(given, field))


def _way(given: Mapping[str, Any], first: str) -> list[str]:
    """To the first invalid value below a field, by one walk: a request must not block the dashboard."""
    levels: list[Iterator[tuple[Any, Any]]] = [iter([(first, given.get(first))])]
    way: list[str] = []
    while levels:
        name, value = next(levels[-1], (None, None))
        if name is None:
            levels.pop()
            del way[-1:]
        elif not isinstance(value, list | dict):
            if not _is_valid(value):
                return [*way, str(name)]
        elif len(levels) > MAX_DEPTH + 1 or (isinstance(value, dict) and not all(map(_is_valid, value))):
            return [*way, str(name)]
        else:
            levels.append(iter(enumerate(value) if isinstance(value, list) else value.items()))
            way.append(str(name))
    return [first]


def _is_valid(value: Any) -> bool:
    try:
        check_value(value, "")
    except BadArgumentError:
        return False
    return True
