"""Reader: the numbers that people look at, in a few round trips, however many queues there are.

Used by ``api``, in the command line and in users' programs; never by the server. It changes nothing, and it
never asks Redis for the names of keys, which costs as much as there are keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import simplejson

from pyworkers.store import registry
from pyworkers.store.admin import Admin
from pyworkers.store.registry import ProcessView


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue; ``next_job`` is the job that is popped next, None if none waits.

    ``served``: a server that reports itself takes jobs from it. Go's first go-workers report nothing.
    """

    name: str
    size: int
    in_progress: int
    next_job: bytes | None
    paused: bool = False
    served: bool = True


@dataclass(frozen=True, slots=True)
class Overview:
    """All counts at about one moment. ``busy`` are the running jobs of all ``processes``."""

    processed: int
    failed: int
    scheduled: int
    retries: int
    dead: int
    busy: int
    processes: int
    queues: list[QueueView]
    servers: list[ProcessView]


def overview(admin: Admin, now: float) -> Overview:
    """Read everything. ``now`` is in epoch seconds. Raises RedisUnavailableError and StoreError."""
    keys = admin.keys
    processed, failed, scheduled, retries, dead, names, paused, stored = admin.run_all(
        [
            ("GET", keys.stat("processed")),
            ("GET", keys.stat("failed")),
            ("ZCARD", keys.schedule),
            ("ZCARD", keys.retry),
            ("ZCARD", keys.dead),
            ("SMEMBERS", keys.queues),
            ("SMEMBERS", keys.paused),
            ("HGETALL", keys.owners),
        ]
    )
    owners = {_text(identity): _queues(queues) for identity, queues in stored.items()}
    servers = list(registry.processes(admin))
    leased = _leased(admin, owners)
    # A bare LPUSH leaves no name in the set, but the server of such a queue says that it serves it.
    claimed = (*owners.values(), *(server.queues for server in servers))
    known = {_text(name) for name in (*names, *paused)}.union(*claimed)
    served = _served(servers, {name: owners[name] for name in leased}, now)
    queues = _look(admin, sorted(known), owners, {_text(name) for name in paused}, served)
    foreign = sum(server.busy for server in servers if server.identity not in owners)
    return Overview(
        int(processed or 0),
        int(failed or 0),
        scheduled,
        retries,
        dead,
        busy=foreign + sum(queue.in_progress for queue in queues),
        processes=len(leased | {server.identity for server in servers}),
        queues=queues,
        servers=servers,
    )


def owners(admin: Admin) -> dict[str, set[str]]:
    """All pyworkers servers, each with the queues of which it may hold jobs. Raises PyworkersError."""
    stored = admin.run("HGETALL", admin.keys.owners)
    return {_text(identity): _queues(queues) for identity, queues in stored.items()}


def _leased(admin: Admin, owners: Mapping[str, set[str]]) -> set[str]:
    """The owners that are alive."""
    replies = admin.run_all([("EXISTS", admin.keys.lease(identity)) for identity in owners])
    return {identity for identity, lives in zip(owners, replies, strict=True) if lives}


def _served(servers: list[ProcessView], leased: Mapping[str, set[str]], now: float) -> set[str]:
    """The queues that somebody takes jobs from."""
    found: set[str] = set()
    for server in servers:
        if not server.quiet and not server.silent(now):
            found.update(server.queues)
    described = {server.identity for server in servers}
    return found.union(*(queues for identity, queues in leased.items() if identity not in described))


def _look(
    admin: Admin, names: list[str], owners: Mapping[str, set[str]], paused: set[str], served: set[str]
) -> list[QueueView]:
    """The named queues."""
    keys = admin.keys
    claims = [(identity, name) for identity, queues in owners.items() for name in queues]
    commands: list[tuple[Any, ...]] = [("LLEN", keys.inprogress(name, owner)) for owner, name in claims]
    for name in names:
        commands += [("LLEN", keys.queue(name)), ("LINDEX", keys.queue(name), -1)]
    replies = iter(admin.run_all(commands))
    in_progress = dict.fromkeys(names, 0)
    for _, name in claims:
        in_progress[name] += next(replies)
    return [
        QueueView(name, next(replies), in_progress[name], next(replies), name in paused, name in served)
        for name in names
    ]


def _text(stored: bytes) -> str:
    """A name, also if another program wrote one that is not UTF-8."""
    return stored.decode(errors="surrogateescape")


def _queues(stored: bytes) -> set[str]:
    """The queues of one owner; none if that is not the JSON list that a server writes."""
    try:
        names: Any = simplejson.loads(stored)
    except ValueError:
        return set()
    return set(registry.names_of(names))
