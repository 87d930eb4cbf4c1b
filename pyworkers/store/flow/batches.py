"""Batches in Redis: makes them with their members, reads their results, deletes them.

Run by clients and ``api``, never by the server, which only counts members, as effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import hiredis
import redis

from pyworkers.errors import DuplicateJobError, PyworkersError, QueueFullError
from pyworkers.protocol.draft import PushedJob, parts_of
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.portions import portions
from pyworkers.store import scripts
from pyworkers.store.calls import Request, one, script
from pyworkers.store.flow import conditions
from pyworkers.store.flow.conditions import REFUSALS
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.transport.connections import errors_translated
from pyworkers.store.transport.errors import code_of
from pyworkers.store.wiresteps import run

PORTION = 1000
"""Members that one script adds."""
# Portions up to this many bytes are sent before the reply to the first of them is read.
_AT_ONCE_BYTES = 4_000_000
_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
_Parts = tuple[Any, ...]
"""The call of a script: the number of its keys, the keys, the arguments."""


def enlist(wires: Wires, keys: Keys, plan: BatchPlan) -> None:
    """Make a batch and those inside it, and push their jobs, in portions.

    Raises BatchError if the batch does not exist, or has ended, and what a push raises. If one of several
    portions fails, the batch stays open: some of its members exist, and no callback fires.
    """
    with errors_translated():
        _enlist(wires, keys, plan)


def _enlist(wires: Wires, keys: Keys, plan: BatchPlan) -> None:
    mode = "open" if plan.exists else "create"
    jobs = [job for job in plan.jobs if job.conditions is None]
    # In the order of the jobs, so that none is pushed before it is a member.
    members = [*(job.jid for job in jobs), *plan.members]
    parts = parts_of(jobs, PORTION)
    several = (
        len(members) > PORTION or len(parts) > 1 or len(jobs) < len(plan.jobs) or plan.inner or plan.starts
    )
    if not several and plan.closes and not plan.begun:
        # The hold may be from an earlier run of the job that adds members.
        _send(wires, plan, [call_of(keys, plan, mode, members, jobs, release=plan.token)])
        return
    if not plan.begun:
        _send(wires, plan, [call_of(keys, plan, mode, hold=plan.token)])
    _push_conditional(wires, keys, plan)
    _send(wires, plan, _portions(keys, plan, members, parts))
    for inner in plan.inner:
        _enlist(wires, keys, inner)
    _send(wires, plan, _portions(keys, plan, (), parts_of(plan.starts, PORTION)))
    if plan.closes:
        _send(wires, plan, [call_of(keys, plan, "add", release=plan.token)])


def _portions(
    keys: Keys, plan: BatchPlan, members: Sequence[str], parts: Sequence[Sequence[PushedJob]]
) -> Iterator[_Parts]:
    # No part of the jobs is ahead of its ids: it has at most as many jobs.
    for ids, part in zip_longest(portions(members, PORTION), parts, fillvalue=()):
        yield call_of(keys, plan, "add", ids, part)


def _push_conditional(wires: Wires, keys: Keys, plan: BatchPlan) -> None:
    """Push the members that have conditions: first, as the push may be refused. A duplicate is no member."""
    jobs = [
        job._replace(conditions=job.conditions._replace(batch=plan.id))
        for job in plan.jobs
        if job.conditions is not None
    ]
    for number, part in enumerate(parts_of(jobs, PORTION)):
        try:
            run(wires, conditions.pushing(keys, part))
        except (DuplicateJobError, QueueFullError):
            # If this fails, the batch stays open; the caller gets the refusal nevertheless.
            with suppress(PyworkersError), errors_translated():
                if not number and not plan.exists:
                    list(_call_all(wires, [call_of(keys, plan, "delete")]))
                elif not number and not plan.begun:
                    _send(wires, plan, [call_of(keys, plan, "add", release=plan.token)])
            raise


def call_of(
    keys: Keys,
    plan: BatchPlan,
    mode: str,
    members: Sequence[str] = (),
    jobs: Sequence[PushedJob] = (),
    *,
    hold: str = "",
    release: str = "",
) -> _Parts:
    """The number of keys, the keys and the arguments of ``enlist.lua``, for some members and jobs."""
    fields: list[str] = []
    then: Sequence[str] = ()
    if mode == "create":
        fields = [part for item in plan.fields.items() for part in item]
        then = plan.then
    args = [plan.id, mode, hold, release, len(fields) // 2, len(then), len(members)]
    names = [keys.queues, keys.schedule, keys.batches]
    pushes: list[Any] = []
    for queue, parts in _by_queue(jobs).items():
        if queue:
            names.append(keys.queue(queue))
        pushes += (queue, len(names) if queue else 2, len(parts), *parts)
    args += (*fields, *then, *members, *pushes)
    return scripts.load("batches/enlist").parts(keys.namespace, names, args)


def _send(wires: Wires, plan: BatchPlan, calls: Iterable[_Parts]) -> None:
    """Add members and jobs. Raises BatchError, and the first error of Redis."""
    for answer in _call_all(wires, calls):
        if answer != b"ok":
            raise conditions.batch_refused(answer, plan.id)


def _call_all(wires: Wires, calls: Iterable[_Parts]) -> Iterator[Any]:
    """The replies of the script, in the order of its calls. Raises an error in place of a reply."""
    loaded = scripts.load("batches/enlist")
    calls = iter(calls)
    while together := list(_together(("EVALSHA", loaded.sha, *parts) for parts in calls)):
        replies = wires.exchange(b"".join([packed for _, packed in together]), len(together))
        for (parts, _), reply in zip(together, replies, strict=True):
            yield _repeated(wires, (loaded.text, *parts[2:]), reply)


def _together(calls: Iterable[_Parts]) -> Iterator[tuple[_Parts, bytes]]:
    """The next calls that are sent at once, and their bytes."""
    size = 0
    for parts in calls:
        packed = _pack(parts)
        yield parts, packed
        size += len(packed)
        if size >= _AT_ONCE_BYTES:
            break


def _repeated(wires: Wires, parts: _Parts, reply: Any) -> Any:
    """The reply. A call is repeated only if it was refused before anything was written."""
    if isinstance(reply, redis.exceptions.NoScriptError):
        [reply] = wires.exchange(_pack(("EVAL", *parts)), 1)
    if isinstance(reply, redis.ResponseError) and code_of(reply) in REFUSALS:
        wires.close()
        [reply] = wires.exchange(_pack(("EVAL", *parts)), 1)
    if isinstance(reply, Exception):
        raise reply
    return reply


def _by_queue(jobs: Iterable[PushedJob]) -> Mapping[str, list[Any]]:
    """What is pushed to each queue; under "" time and job in turn, for the schedule."""
    pushes: dict[str, list[Any]] = {}
    for job in jobs:
        if job.at is None:
            pushes.setdefault(job.queue, []).append(job.payload)
        else:
            pushes.setdefault("", []).extend((repr(job.at), job.payload))
    return pushes


def result(keys: Keys, batch: str) -> Request[dict[bytes, bytes]]:
    """What the members of a batch returned, as JSON, by their places."""
    return one("HGETALL", keys.batch(batch) + ":results", read=dict)


def delete(keys: Keys, batch: str) -> Request[bool]:
    """Delete a batch and those inside it, not their jobs. False for an unknown one."""
    names = [keys.queues, keys.schedule, keys.batches]
    args = [batch, "delete", "", "", 0, 0, 0]
    return script("batches/enlist", names, args, lambda reply: bool(reply == b"ok"), keys.namespace)
