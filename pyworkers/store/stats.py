"""Stats: all counts of queues, sets and servers, in a few round trips for any number of queues.

Used by ``api``, in the command line and in users' programs; never by the server. Only ``set_counters``
changes anything. Only a ``Search`` scans the names of all keys, which takes longer the more keys there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import simplejson

from pyworkers.protocol.keys import INPROGRESS_SUFFIX, Keys
from pyworkers.store.calls import Call, Mode, Steps, command, decoded, every, one
from pyworkers.store.processes import Processes, ProcessView, names_of
from pyworkers.store.search import Search
from pyworkers.store.transport.replies import integer


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue; ``next_job`` is the job that is popped next, None if none waits.

    ``served``: a server with a heartbeat or a lease takes jobs from it; go-workers has neither.
    ``in_progress_by``: the number of jobs in progress by owner: a server's identity, or the name of a Go
    process in the key of its list; owners without jobs are omitted.
    """

    name: str
    size: int
    in_progress: int
    next_job: bytes | None
    paused: bool = False
    served: bool = True
    in_progress_by: Mapping[str, int] = field(default_factory=dict)
    active: str = ""
    """The active server of an ordered queue."""


@dataclass(frozen=True, slots=True)
class Claim:
    """An in-progress list: it holds jobs of a queue for its owner."""

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
    expired: int = 0


def overview(keys: Keys, now: float, search: Search | None = None) -> Steps[Overview]:
    """Read all counts. ``now`` is in epoch seconds.

    Without ``search``, the jobs of Go processes that report no lists are not counted.
    """
    processed, failed, expired, scheduled, retries, dead, names, paused, stored = yield from every(
        [
            command("GET", keys.stat("processed")),
            command("GET", keys.stat("failed")),
            command("GET", keys.stat("expired")),
            command("ZCARD", keys.schedule),
            command("ZCARD", keys.retry),
            command("ZCARD", keys.dead),
            command("SMEMBERS", keys.queues),
            command("SMEMBERS", keys.paused),
            command("HGETALL", keys.owners),
        ]
    )
    owners = _owners(stored)
    servers = yield from Processes(keys).rest()
    leased = yield from _leased(keys, owners)
    # A bare LPUSH does not add the queue to ``queues``, but a server that serves the queue reports it.
    claimed = (*owners.values(), *(server.queues for server in servers))
    known = {decoded(name) for name in (*names, *paused)}.union(*claimed)
    claims = _claims(keys, owners, servers)
    if search is not None:
        for key in (yield from search.lists()):
            claims.setdefault(key, _claim(key.removeprefix(keys.queue("")), known))
    held = yield from _held(claims)
    known.update(claim.queue for claim in held)
    served = _served(servers, {name: owners[name] for name in leased}, now)
    queues = yield from _queues(keys, sorted(known), held, {decoded(name) for name in paused}, served)
    foreign = {server.identity: server.busy for server in servers if server.identity not in owners}
    return Overview(
        _count(processed),
        _count(failed),
        scheduled,
        retries,
        dead,
        # The ``busy`` of another program's server includes the jobs in its in-progress lists.
        busy=sum(foreign.values()) + sum(jobs for claim, jobs in held.items() if claim.owner not in foreign),
        processes=len(leased | {server.identity for server in servers}),
        queues=queues,
        servers=servers,
        expired=_count(expired),
    )


def read_owners(keys: Keys) -> Call[dict[str, set[str]]]:
    """All pyworkers servers, each with the queues whose jobs it may hold."""
    return one("HGETALL", keys.owners, read=_owners)


def counters(keys: Keys, days: Sequence[str]) -> Call[list[tuple[int, int]]]:
    """The counts processed and failed of each day, ``YYYY-MM-DD`` in UTC; of all time for ``""``."""
    names = [keys.stat(name, day) for day in days for name in ("processed", "failed")]
    return Call([command("MGET", *names)], _in_pairs) if names else Call([], list)


def set_counters(keys: Keys, values: Mapping[str, int]) -> Call[bool]:
    """Set the counters of all time."""
    parts = (part for name, value in values.items() for part in (keys.stat(name), value))
    return one("MSET", *parts, read=bool)


def _owners(stored: Mapping[bytes, bytes]) -> dict[str, set[str]]:
    return {decoded(identity): _names_in(queues) for identity, queues in stored.items()}


def _leased(keys: Keys, owners: Collection[str]) -> Steps[set[str]]:
    """The owners whose lease has not expired."""
    replies = yield from every([command("EXISTS", keys.lease(identity)) for identity in owners])
    return {identity for identity, lives in zip(owners, replies, strict=True) if lives}


def _served(servers: list[ProcessView], leased: Mapping[str, set[str]], now: float) -> set[str]:
    """The queues from which a live server that is not quiet takes jobs."""
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
    reported = {
        keys.queue(name): Claim(queue.removeprefix(keys.namespace), server.identity)
        for server in servers
        for queue, name in server.lists
    }
    return reported | own


def _claim(name: str, known: set[str]) -> Claim:
    """Queue and owner in the name of a list, ``QUEUE:OWNER:inprogress``; both parts may have colons."""
    rest = name.removesuffix(INPROGRESS_SUFFIX)
    places = [place for place, char in enumerate(rest) if char == ":"]
    place = max((place for place in places if rest[:place] in known), default=rest.rfind(":"))
    return Claim(rest[:place], rest[place + 1 :]) if place >= 0 else Claim(rest, "")


def _held(claims: Mapping[str, Claim]) -> Steps[Counter[Claim]]:
    """The number of jobs in each list that is not empty."""
    held: Counter[Claim] = Counter()
    sizes = yield from every([command("LLEN", key) for key in claims], Mode.LENIENT)
    for claim, jobs in zip(claims.values(), sizes, strict=True):
        if jobs:
            held[claim] += jobs
    return held


def _queues(
    keys: Keys, names: list[str], held: Mapping[Claim, int], paused: set[str], served: set[str]
) -> Steps[list[QueueView]]:
    """Read the named queues."""
    commands = [
        sent
        for key in map(keys.queue, names)
        for sent in (command("LLEN", key, read=integer), command("LINDEX", key, -1))
    ]
    replies = yield from every(commands)
    active = yield from every(
        [command("HGET", keys.ordered(name), "identity") for name in names], Mode.LENIENT
    )
    owners: dict[str, dict[str, int]] = {name: {} for name in names}
    for claim, jobs in held.items():
        owners[claim.queue][claim.owner] = jobs
    return [
        QueueView(
            name, size, sum(by.values()), next_job, name in paused, name in served, by, decoded(owner or b"")
        )
        for (name, by), size, next_job, owner in zip(
            owners.items(), replies[::2], replies[1::2], active, strict=True
        )
    ]


def _names_in(stored: bytes) -> set[str]:
    """The queues of one owner; none if the bytes are not the JSON list that a server writes."""
    try:
        names: Any = simplejson.loads(stored)
    except ValueError:
        return set()
    return set(names_of(names))


def _in_pairs(replies: list[Any]) -> list[tuple[int, int]]:
    numbers = [_count(stored) for stored in replies[0]]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _count(stored: bytes | None) -> int:
    return int(stored) if stored and stored.isdigit() else 0
