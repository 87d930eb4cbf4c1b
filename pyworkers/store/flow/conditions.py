"""Conditions: pushes jobs that have conditions, by one script for all jobs of a call.

Used by ``producer``. A push whose connection was lost is reported and never repeated, as any push. A push
that was refused is repeated if that may help: nothing was written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import hiredis
import redis
from redis.exceptions import NoScriptError

from pyworkers.errors import DuplicateJobError, QueueFullError
from pyworkers.protocol.conditions import NO_OTHERS, Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts
from pyworkers.store.flow import deadlines
from pyworkers.store.flow.removal import ends, written
from pyworkers.store.transport.errors import code_of
from pyworkers.store.transport.replies import integer
from pyworkers.store.wiresteps import Pause, Sent, WireSteps

# Refusals before anything is written; the next connection may lead to the new primary (Sidekiq's client.rb).
REFUSALS = frozenset({"READONLY", "NOREPLICAS", "UNBLOCKED"})

# A full queue is looked at again after these pauses: short ones first, because most queues drain quickly.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S, _GROWTH = 0.01, 0.25, 1.5


def pushing(keys: Keys, jobs: Sequence[PushedJob]) -> WireSteps[Others]:
    """Push ``jobs``, all but the duplicates or none. Waits for room in a full queue if a condition says so.

    Raises QueueFullError, DuplicateJobError and StoreError, after which none was pushed, and
    RedisUnavailableError, after which they may have been pushed or not.
    """
    arguments = call_of(keys, jobs)
    due = deadlines.now_s() + max(job.conditions.wait_s for job in jobs if job.conditions)
    pause_s = _FIRST_PAUSE_S
    while True:
        reply = yield from _called(keys, "push", *arguments)
        try:
            others, replaced = read(reply, jobs)
            break
        except QueueFullError:
            left_s = due - deadlines.now_s()
            if left_s <= 0:
                raise
        # Random: many producers may wait for the same queue.
        yield Pause(min(pause_s * random.uniform(0.5, 1.0), left_s))
        pause_s = min(pause_s * _GROWTH, _LONGEST_PAUSE_S)
    if replaced and (left := ends(replaced, Ending.REPLACED, time.time())):
        # The jobs are pushed: what Redis refuses here is left to the sweep.
        yield from _called(keys, "removal/apply", *written(keys, ((1, effect) for _, effect in left)))
    return others


def _called(keys: Keys, name: str, names: Sequence[str], args: Sequence[Any]) -> WireSteps[Any]:
    """Call a script that makes names of keys; the reply, or the error."""
    script, parts = scripts.load(name), (len(names), *names, *args, keys.namespace)
    call = Sent(hiredis.pack_command(("EVALSHA", script.sha, *parts)), 1, REFUSALS)
    [reply] = yield call
    if _is_refusal(reply):
        [reply] = yield call
    if isinstance(reply, NoScriptError):
        [reply] = yield Sent(hiredis.pack_command(("EVAL", script.text, *parts)), 1, REFUSALS)
    return reply


def _is_refusal(reply: Any) -> bool:
    return isinstance(reply, redis.ResponseError) and code_of(reply) in REFUSALS


def call_of(keys: Keys, jobs: Sequence[PushedJob]) -> tuple[list[str], list[Any]]:
    """The keys and the arguments of ``push.lua``; the last ones of another script that pushes jobs."""
    queues: dict[str, int] = {}
    locks: list[str] = []
    rows: list[Any] = []
    effects: list[tuple[int, Effect]] = []
    for place, (queue, payload, jid, at, conditions) in enumerate(jobs, 1):
        rows += (queues.setdefault(queue, len(queues) + 1), jid, payload, "" if at is None else at)
        lock = None if conditions is None else conditions.lock
        limit = 0 if conditions is None else conditions.max_waiting
        if lock is None:
            rows += (limit, 0, "")
        else:
            rows += (limit, lock.life_ms, lock.on_duplicate)
            locks += (keys.own(lock.key), keys.own(lock.score_key))
        if conditions is not None:
            effects += ((place, effect) for effect in conditions.effects)
    more_names, more = written(keys, effects)
    names = [keys.queues, keys.schedule, *map(keys.queue, queues), *locks, *more_names]
    return names, [len(jobs), len(queues), *queues, *rows, *more]


def read(reply: Any, jobs: Sequence[PushedJob]) -> tuple[Others, list[bytes]]:
    """The duplicates and the replaced jobs, by the reply of ``push.lua``.

    Raises redis-py's errors, QueueFullError and DuplicateJobError.
    """
    if isinstance(reply, Exception):
        raise reply
    about, *rest = reply
    if about == b"pushed":
        pairs = zip(jobs, rest, strict=False)
        found = {job.jid: other.decode(errors="replace") for job, other in pairs if other != 0}
        return found or NO_OTHERS, rest[len(jobs) :]
    if about == b"failed":
        raise redis.ResponseError(rest[0].decode(errors="replace"))
    queue, _, _, _, conditions = jobs[integer(rest[0]) - 1]
    if about == b"duplicate":
        raise DuplicateJobError(rest[1].decode(errors="replace"))
    raise QueueFullError(queue, conditions.max_waiting if conditions else 0)
