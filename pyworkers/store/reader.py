"""Reader: all counts of queues, sets and servers, in a few round trips for any number of queues.

Used by ``api``, in the command line and in users' programs; never by the server. It changes nothing. Only
a ``Search`` asks Redis for the names of keys, which costs as much as there are keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import simplejson

from pyworkers.protocol.keys import INPROGRESS_SUFFIX, Keys
from pyworkers.store import processes
from pyworkers.store.admin import Admin
from pyworkers.store.processes import ProcessView
from pyworkers.store.search import Search


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue; ``next_job`` is the job that is popped next, None if none waits.

    ``served``: a server that reports itself takes jobs from it. Go's first go-workers report nothing.
    ``in_progress_by``: how many of the jobs in progress each owner has, for those that have any: a server's
    identity, or what a Go process calls itself in its list's name.
    """

    name: str
    size: int
    in_progress: int
    next_job: bytes | None
    paused: bool = False
    served: bool = True
    in_progress_by: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """An in-progress list holds jobs of a queue for its owner."""

    queue: str
    owner: str


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


def overview(admin: Admin, now: float, search: Search | None = None) -> Overview:
    """Read everything. ``now`` is in epoch seconds. Raises RedisUnavailableError and StoreError.

    Without ``search``, the jobs of Go processes that report no lists are not seen.
    """
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
    servers = list(processes.processes(admin))
    leased = _leased(admin, owners)
    # A bare LPUSH leaves no name in the set, but the server of such a queue says that it serves it.
    claimed = (*owners.values(), *(server.queues for server in servers))
    known = {_text(name) for name in (*names, *paused)}.union(*claimed)
    claims = _claims(admin.keys, owners, servers)
    for key in search.keys() if search else ():
        claims.setdefault(key, _claim(key.removeprefix(admin.keys.queue("")), known))
    held = _held(admin, claims)
    known.update(claim.queue for claim in held)
    served = _served(servers, {name: owners[name] for name in leased}, now)
    queues = _look(admin, sorted(known), held, {_text(name) for name in paused}, served)
    foreign = {server.identity: server.busy for server in servers if server.identity not in owners}
    return Overview(
        int(processed or 0),
        int(failed or 0),
        scheduled,
        retries,
        dead,
        # A server of another kind has counted the jobs in its lists.
        busy=sum(foreign.values()) + sum(jobs for claim, jobs in held.items() if claim.owner not in foreign),
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
    """The queues that a server takes jobs from."""
    found: set[str] = set()
    for server in servers:
        if not server.quiet and not server.silent(now):
            found.update(server.queues)
    described = {server.identity for server in servers}
    return found.union(*(queues for identity, queues in leased.items() if identity not in described))


def _claims(keys: Keys, owners: Mapping[str, set[str]], servers: list[ProcessView]) -> dict[str, Claim]:
    """The in-progress lists that servers report, by key."""
    own = {
        keys.inprogress(name, owner): Claim(name, owner) for owner, names in owners.items() for name in names
    }
    told = {
        keys.queue(name): Claim(queue.removeprefix(keys.namespace), server.identity)
        for server in servers
        for queue, name in server.lists
    }
    return told | own


def _claim(name: str, known: set[str]) -> Claim:
    """What the name of a list says, ``QUEUE:OWNER:inprogress``; both parts may have colons."""
    rest = name.removesuffix(INPROGRESS_SUFFIX)
    places = [place for place, char in enumerate(rest) if char == ":"]
    place = max((place for place in places if rest[:place] in known), default=rest.rfind(":"))
    return Claim(rest[:place], rest[place + 1 :]) if place >= 0 else Claim(rest, "")


def _held(admin: Admin, claims: Mapping[str, Claim]) -> Counter[Claim]:
    """How many jobs there are in the lists that hold any."""
    held: Counter[Claim] = Counter()
    for claim, jobs in zip(claims.values(), admin.look([("LLEN", key) for key in claims]), strict=True):
        if jobs:
            held[claim] += jobs
    return held


def _look(
    admin: Admin, names: list[str], held: Mapping[Claim, int], paused: set[str], served: set[str]
) -> list[QueueView]:
    """The named queues."""
    commands: list[tuple[Any, ...]] = []
    for name in names:
        commands += [("LLEN", admin.keys.queue(name)), ("LINDEX", admin.keys.queue(name), -1)]
    owners: dict[str, dict[str, int]] = {name: {} for name in names}
    for claim, jobs in held.items():
        owners[claim.queue][claim.owner] = jobs
    replies = admin.run_all(commands)
    return [
        QueueView(name, size, sum(by.values()), next_job, name in paused, name in served, by)
        for (name, by), size, next_job in zip(owners.items(), replies[::2], replies[1::2], strict=True)
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
    return set(processes.names_of(names))
