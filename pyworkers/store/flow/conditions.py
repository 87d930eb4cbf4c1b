"""Conditions: pushes jobs that have conditions, by one script for all jobs of a call.

Used by ``producer``. A push whose connection was lost is reported and never repeated, as any push. A push
that was refused is repeated if that may help: nothing was written.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import redis
from redis.exceptions import NoScriptError

from pyworkers.errors import BatchCancelledError, BatchError, DuplicateJobError, QueueFullError
from pyworkers.protocol.conditions import NO_OTHERS, Conditions, Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts
from pyworkers.store.flow import deadlines
from pyworkers.store.transport.errors import code_of
from pyworkers.store.transport.replies import integer
from pyworkers.store.wiresteps import Pause, WireSteps, sent

# Refusals before anything is written; the next connection may lead to the new primary (Sidekiq's client.rb).
REFUSALS = frozenset({"READONLY", "NOREPLICAS", "UNBLOCKED"})

# A full queue is looked at again after these pauses: short ones first, because most queues drain quickly.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GROWTH = 0.01, 0.25, 1.5


def pushing(keys: Keys, jobs: Sequence[PushedJob]) -> WireSteps[Others]:
    """Push ``jobs``, all but the duplicates or none. Waits for room in a full queue if a condition says so.

    Raises QueueFullError, DuplicateJobError, BatchError and StoreError, after which none was pushed, and
    RedisUnavailableError, after which they may have been pushed or not.
    """
    arguments = call_of(keys, jobs)
    due = deadlines.now_s() + max(job.conditions.wait_s for job in jobs if job.conditions)
    pauses = _pauses()
    while True:
        reply = yield from _called(keys, *arguments)
        try:
            return read(reply, jobs)
        except QueueFullError as error:
            full, room = error, room_of(reply, jobs)
        if not (yield from _comes(keys.queue(room.queue), room.most, due, pauses)):
            raise full


def _comes(queue: str, most: int, due: float, pauses: Iterator[float]) -> WireSteps[bool]:
    """Wait for room in a queue, without its jobs; False if there is none in the time."""
    while most >= 0 and (left_s := due - deadlines.now_s()) > 0:
        yield Pause(min(next(pauses), left_s))
        [length] = yield sent(("LLEN", queue), refusals=REFUSALS)
        if isinstance(length, Exception):
            raise length
        if length <= most:
            return True
    return False


def _pauses() -> Iterator[float]:
    """Random ones: many producers may wait for the same queue."""
    pause_s = _FIRST_PAUSE_S
    while True:
        yield pause_s * random.uniform(0.5, 1.0)
        pause_s = min(pause_s * _GROWTH, _LONGEST_PAUSE_S)


def _called(keys: Keys, names: Sequence[str], args: Sequence[Any]) -> WireSteps[Any]:
    """Call ``push.lua``; the reply, or the error."""
    script = scripts.load("push")
    parts = script.parts(keys.namespace, names, args)
    call = sent(("EVALSHA", script.sha, *parts), refusals=REFUSALS)
    [reply] = yield call
    if _is_refusal(reply):
        [reply] = yield call
    if isinstance(reply, NoScriptError):
        [reply] = yield sent(("EVAL", script.text, *parts), refusals=REFUSALS)
    return reply


def _is_refusal(reply: Any) -> bool:
    return isinstance(reply, redis.ResponseError) and code_of(reply) in REFUSALS


def call_of(keys: Keys, jobs: Sequence[PushedJob]) -> tuple[list[str], list[Any]]:
    """The keys and the arguments of ``push.lua``; the last ones of another script that pushes jobs."""
    queues: dict[str, int] = {}
    locks: list[str] = []
    rows: list[Any] = []
    for queue, payload, jid, at, conditions in jobs:
        options = [] if at is None else ["at", at]
        if conditions is not None:
            options += _options(conditions)
            if lock := conditions.lock:
                locks += (keys.own(lock.key), keys.own(lock.score_key))
        place = queues.setdefault(queue, len(queues) + 1)
        rows += (place, jid, payload, len(options) // 2, *options)
    names = [keys.queues, keys.schedule, *map(keys.queue, queues), *locks]
    return names, [len(jobs), len(queues), *queues, *rows]


def _options(asked: Conditions) -> list[Any]:
    """The names and values for the script."""
    options: list[Any] = []
    if asked.max_waiting:
        options += ("max_waiting", asked.max_waiting)
    if asked.lock:
        options += ("lock", asked.lock.life_ms, "on_duplicate", asked.lock.on_duplicate)
    if asked.status_s:
        options += ("status", asked.status_s)
    if asked.history:
        options += ("history", 1)
    if asked.batch:
        options += ("batch", asked.batch)
    if run := asked.run:
        options += ("run", encode([run.key, run.run, run.facts.decode(), run.ttl_s]))
    return options


class Room(NamedTuple):
    """What a push into a full queue waits for."""

    queue: str
    most: int
    """With at most this many jobs in its list the push has room; below 0, it needs more than the limit."""


def room_of(reply: Sequence[Any], jobs: Sequence[PushedJob]) -> Room:
    """What a push waits for whose reply is ``full``."""
    return Room(jobs[integer(reply[1]) - 1].queue, integer(reply[2]))


def read(reply: Any, jobs: Sequence[PushedJob]) -> Others:
    """The duplicates, by the reply of ``push.lua``.

    Raises redis-py's errors, QueueFullError, DuplicateJobError and BatchError.
    """
    if isinstance(reply, Exception):
        raise reply
    about, *rest = reply
    if about == b"pushed":
        pairs = zip(jobs, rest, strict=True)
        return {job.jid: other.decode(errors="replace") for job, other in pairs if other} or NO_OTHERS
    queue, _, _, _, conditions = jobs[integer(rest[0]) - 1]
    if about == b"duplicate":
        raise DuplicateJobError(rest[1].decode(errors="replace"))
    if about == b"batch":
        raise batch_refused(rest[1], conditions.batch if conditions else "")
    raise QueueFullError(queue, conditions.max_waiting if conditions else 0)


_REFUSED = {
    b"unknown": "the batch {} is unknown: it has expired, or was deleted",
    b"ended": "the batch {} has ended: all its members are done",
    b"exists": "the batch {} exists already",
    b"cancelled": "the batch {} is cancelled: it takes no more members",
}


def batch_refused(why: bytes, batch: str) -> BatchError:
    """The error for a batch that is not made, or takes no members; ``why`` is the script's word."""
    error = BatchCancelledError if why == b"cancelled" else BatchError
    return error(_REFUSED[why].format(batch))
