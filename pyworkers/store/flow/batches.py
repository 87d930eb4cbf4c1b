"""Batches in Redis: makes them with their members, reads their numbers, deletes them.

Run by clients and ``api``, never by the server, which only counts members, as effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import hiredis
import redis

from pyworkers.errors import BatchError, DuplicateJobError, QueueFullError
from pyworkers.protocol.draft import PushedJob, batches
from pyworkers.protocol.effects import AddMember
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus
from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts
from pyworkers.store.calls import Call, Steps, command, decoded, every, one, script
from pyworkers.store.flow import terms
from pyworkers.store.flow.terms import REFUSALS
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.transport.connections import errors_translated
from pyworkers.store.transport.errors import code_of
from pyworkers.store.transport.replies import blobs, integer

PORTION = 1000
"""Members that one script adds."""
_SETS = (":members", ":failed", ":dead")
_REFUSED = {
    b"unknown": "the batch {} is unknown: it has expired, or was deleted",
    b"ended": "the batch {} has ended: all its members are done",
}
_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command


def enlist(wires: Wires, keys: Keys, plan: BatchPlan) -> None:
    """Make a batch and those inside it, and push their jobs, in portions.

    Raises BatchError if the batch does not exist, or has ended, and what a push raises. If one of several
    portions fails, the batch stays open: some of its members exist, and no callback fires.
    """
    with errors_translated():
        _enlist(wires, keys, plan)


def _enlist(wires: Wires, keys: Keys, plan: BatchPlan) -> None:
    mode = "open" if plan.exists else "create"
    jobs = [job for job in plan.jobs if job.terms is None]
    members = [*plan.members, *(job.jid for job in jobs)]
    several = len(members) > PORTION or len(jobs) < len(plan.jobs) or plan.inner or plan.starts
    if not several:
        # The hold may be that of an earlier run of the job that adds members.
        _add(wires, keys, plan, mode, members, jobs, release=plan.token)
        return
    _add(wires, keys, plan, mode, hold=plan.token)
    _push_under_terms(wires, keys, plan)
    for ids, part in zip_longest(batches(members, PORTION), batches(jobs, PORTION), fillvalue=()):
        _add(wires, keys, plan, "add", ids, part)
    for inner in plan.inner:
        _enlist(wires, keys, inner)
    for part in batches(plan.starts, PORTION):
        _add(wires, keys, plan, "add", (), part)
    _add(wires, keys, plan, "add", release=plan.token)


def _push_under_terms(wires: Wires, keys: Keys, plan: BatchPlan) -> None:
    """Push the members that have terms: first, because the push may be refused. A duplicate is no member."""
    jobs = [
        job._replace(terms=job.terms._replace(effects=(*job.terms.effects, AddMember(plan.id, job.jid))))
        for job in plan.jobs
        if job.terms is not None
    ]
    for number, part in enumerate(batches(jobs, PORTION)):
        try:
            terms.push(wires, keys, part)
        except (DuplicateJobError, QueueFullError):
            if not number and not plan.exists:
                _call(wires, "unlist", [keys.queues], [plan.id])
            elif not number:
                _add(wires, keys, plan, "add", release=plan.token)
            raise


def _add(
    wires: Wires,
    keys: Keys,
    plan: BatchPlan,
    mode: str,
    members: Sequence[str] = (),
    jobs: Sequence[PushedJob] = (),
    *,
    hold: str = "",
    release: str = "",
) -> None:
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
        pushes += (len(names) if queue else 2, len(parts), *parts)
    answer = _call(wires, "enlist", names, [*args, *fields, *then, *members, *pushes])
    if answer in _REFUSED:
        raise BatchError(_REFUSED[answer].format(plan.id))


def _call(wires: Wires, name: str, names: Sequence[str], args: Sequence[Any]) -> Any:
    """The reply of a script. It is sent again only if it was refused before anything was written."""
    loaded = scripts.load(f"batches/{name}")
    parts = (len(names), *names, *args)
    reply = _sent(wires, ("EVALSHA", loaded.sha, *parts))
    if isinstance(reply, redis.exceptions.NoScriptError):
        reply = _sent(wires, ("EVAL", loaded.text, *parts))
    if isinstance(reply, redis.ResponseError) and code_of(reply) in REFUSALS:
        wires.close()
        reply = _sent(wires, ("EVAL", loaded.text, *parts))
    if isinstance(reply, Exception):
        raise reply
    return reply


def _sent(wires: Wires, parts: tuple[Any, ...]) -> Any:
    [reply] = wires.exchange(_pack(parts), 1)
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


def status(keys: Keys, batch: str) -> Call[BatchStatus | None]:
    """The status of a batch; None for an unknown one."""
    key = keys.batch(batch)
    commands = [command("HGETALL", key), *(command("SCARD", key + part) for part in _SETS)]
    return Call(commands, lambda found: _status(batch, *found))


def result(keys: Keys, batch: str) -> Call[dict[bytes, bytes]]:
    """What the members of a batch returned, as JSON, by their places."""
    return one("HGETALL", keys.batch(batch) + ":results", read=dict)


def known(keys: Keys) -> Steps[list[BatchStatus]]:
    """All batches, the newest first."""
    ids = yield from one("ZRANGE", keys.batches, 0, -1, read=blobs)
    found: list[BatchStatus] = []
    for some in batches(map(decoded, ids), PORTION):
        calls = [status(keys, batch) for batch in some]
        answers = iter((yield from every([sent for call in calls for sent in call.commands])))
        for call in calls:
            about = call.read([next(answers) for _ in call.commands])
            found += [about] if about else []
    return sorted(found, key=lambda about: about.created_at, reverse=True)


def members(keys: Keys, batch: str, state: str, most: int) -> Steps[list[str]]:
    """Ids of some members: ``members`` have not run yet, others are ``failed`` or ``dead``."""
    found = yield from one(
        "SSCAN", f"{keys.batch(batch)}:{state}", 0, "COUNT", most, read=lambda page: page[1]
    )
    return sorted(name for name in map(decoded, found[:most]) if not name.startswith("hold:"))


def conclude(keys: Keys, batch: str) -> Call[bool]:
    """Fire the callbacks that are due, should Redis have refused them before. False for an unknown batch."""
    return script("batches/conclude", [keys.queues], [batch], lambda reply: integer(reply) == 1)


def delete(keys: Keys, batch: str) -> Call[bool]:
    """Delete a batch and those inside it, not their jobs. False for an unknown one."""
    return script("batches/unlist", [keys.queues], [batch], lambda reply: integer(reply) == 1)


def _status(
    batch: str, facts: Mapping[bytes, bytes], waiting: int, failed: int, dead: int
) -> BatchStatus | None:
    about = {name.decode(): value.decode(errors="replace") for name, value in facts.items()}
    if "open" not in about:
        return None
    holds = int(about["open"])
    times = [about.get(name) for name in ("complete_at", "success_at", "death_at")]
    complete_at, success_at, death_at = (None if time is None else float(time) for time in times)
    return BatchStatus(
        id=batch,
        description=about.get("description", ""),
        kind=about.get("kind", "batch"),
        open=holds > 0,
        total=int(about["total"]),
        pending=waiting - holds + failed,
        lost=int(about["total"]) - int(about["done"]) - (waiting - holds) - failed - dead,
        done=int(about["done"]),
        failed=failed,
        dead=dead,
        created_at=float(about["created_at"]),
        parent=about.get("parent", "").partition(" ")[2],
        complete_at=complete_at,
        success_at=success_at,
        death_at=death_at,
    )
