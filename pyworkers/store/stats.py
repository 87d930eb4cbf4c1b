"""Stats: all counts of queues, sets and servers, in a few round trips for any number of queues.

Used by ``api``, in the command line and in users' programs; never by the server. Only ``set_counters``
changes anything. Only a ``Search`` scans the names of all keys, which takes longer the more keys there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pyworkers.config.thresholds import Threshold
from pyworkers.errors import StoreError
from pyworkers.protocol.flow.counted import COUNTERS
from pyworkers.protocol.keys import INPROGRESS_SUFFIX, Keys
from pyworkers.store import thresholds
from pyworkers.store.calls import Command, Mode, Request, Steps, command, decoded, every, one
from pyworkers.store.flow.ordered import HeldHead, held_heads, still_active
from pyworkers.store.measures import runs
from pyworkers.store.measures.look import look, present, since
from pyworkers.store.processes.reading import Processes
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.search import Search
from pyworkers.store.transport.replies import seconds
from pyworkers.store.values import as_count, names_in


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue; the job that is popped next was enqueued at ``next_enqueued_at`` (epoch seconds).

    That is None if none waits, or if it is unknown.
    ``served``: a server with a heartbeat or a lease takes jobs from it; go-workers has neither.
    ``in_progress_by``: the number of jobs in progress by owner: a server's identity, or the name of a Go
    process in the key of its list; owners without jobs are omitted.
    """

    name: str
    size: int
    in_progress: int
    next_enqueued_at: float | None
    paused: bool = False
    served: bool = True
    in_progress_by: Mapping[str, int] = field(default_factory=dict)
    active: str = ""
    """The active server of an ordered queue; empty if there is none."""
    rate_per_min: float | None = None
    """The runs in the last full minute and this one; None if no server that serves the queue counts them."""
    failed_per_min: float | None = None
    head: HeldHead | None = None
    """The failed job at the head of an ordered queue, while it waits."""
    servers: int = 0
    """The servers with a recent heartbeat that take jobs from it."""


class Claim(NamedTuple):
    """An in-progress list: it holds jobs of a queue for its owner."""

    queue: str
    owner: str


@dataclass(frozen=True, slots=True)
class Overview:
    """All counts at about one moment: ``now``, in epoch seconds by Redis' clock.

    ``busy`` are the running jobs of all ``processes``.
    """

    now: float
    counted: Mapping[str, int]
    """By the names of counted.py."""
    scheduled: int
    retries: int
    dead: int
    busy: int
    processes: int
    queues: list[QueueView]
    servers: list[ProcessView]
    lost: Sequence[str] = ()
    """The servers whose lease has expired, and whose jobs no other server has taken over yet."""
    thresholds: Sequence[Threshold] = ()
    """Those that people have set."""


def overview(keys: Keys, search: Search | None = None) -> Steps[Overview]:
    """Read all counts.

    Without ``search``, the jobs of Go processes that report no lists are not counted.
    """
    now, scheduled, retries, dead, names, paused, stored, found_thresholds, *numbers = yield from tolerant(
        [
            command("TIME", read=seconds),
            command("ZCARD", keys.schedule),
            command("ZCARD", keys.retry),
            command("ZCARD", keys.dead),
            command("SMEMBERS", keys.queues),
            command("SMEMBERS", keys.paused),
            command("HGETALL", keys.owners),
            thresholds.reading(keys),
            *(command("GET", keys.stat(name)) for name in COUNTERS),
        ]
    )
    owners = _owners(stored or {})
    servers = yield from Processes(keys).rest()
    leased = yield from _leased(keys, owners)
    paused_names = {decoded(name) for name in paused or ()}
    # A bare LPUSH does not add the queue to ``queues``, but a server that serves the queue reports it.
    claimed = (*owners.values(), *(server.queues for server in servers))
    known = {decoded(name) for name in names or ()}.union(paused_names, *claimed)
    claims = _claims(keys, owners, servers)
    if search is not None:
        for key in (yield from search.lists()):
            claims.setdefault(key, claim_of(key.removeprefix(keys.queue("")), known))
    held = yield from _held(claims)
    known.update(claim.queue for claim in held)
    facts = yield from _facts(keys, now, paused_names, owners, leased, servers)
    queues = yield from _queues(keys, sorted(known), held, facts)
    return Overview(
        now,
        dict(zip(COUNTERS, map(as_count, numbers), strict=True)),
        scheduled or 0,
        retries or 0,
        dead or 0,
        busy=_busy(servers, owners, held),
        processes=len(leased | {server.identity for server in servers}),
        queues=queues,
        servers=servers,
        lost=sorted(owners.keys() - leased),
        thresholds=thresholds.stored_in(found_thresholds),
    )


def _busy(servers: Sequence[ProcessView], owners: Collection[str], held: Mapping[Claim, int]) -> int:
    """The running jobs of all servers."""
    foreign = {server.identity: server.busy for server in servers if server.identity not in owners}
    # The ``busy`` of another program's server includes the jobs in its in-progress lists.
    return sum(foreign.values()) + sum(jobs for claim, jobs in held.items() if claim.owner not in foreign)


def one_queue(keys: Keys, name: str) -> Steps[QueueView]:
    """Read one queue, as ``overview`` reads all of them."""
    now, paused, stored = yield from tolerant(
        [command("TIME", read=seconds), command("SMEMBERS", keys.paused), command("HGETALL", keys.owners)]
    )
    owners = {identity: {name} for identity, queues in _owners(stored or {}).items() if name in queues}
    servers = yield from Processes(keys).rest()
    leased = yield from _leased(keys, owners)
    claims = _claims(keys, owners, servers)
    held = yield from _held({key: claim for key, claim in claims.items() if claim.queue == name})
    facts = yield from _facts(keys, now, {*map(decoded, paused or ())}, owners, leased, servers)
    [queue] = yield from _queues(keys, [name], held, facts)
    return queue


def tolerant(commands: Sequence[Command]) -> Steps[list[Any]]:
    """The replies to commands; None for a key of another type. Raises StoreError for a missing right."""
    try:
        return (yield from every(commands))
    except StoreError as error:
        if error.code == "NOPERM":
            raise
        return (yield from every(commands, Mode.LENIENT))


def read_owners(keys: Keys) -> Request[dict[str, set[str]]]:
    """All pyworkers servers, each with the queues whose jobs it may hold."""
    return one("HGETALL", keys.owners, read=_owners)


def read_in_progress(keys: Keys) -> Steps[dict[str, Claim]]:
    """The in-progress lists of pyworkers servers that hold jobs, by key."""
    owners = yield from read_owners(keys)
    claims = _claims(keys, owners, [])
    return {key: claims[key] for key in (yield from present(list(claims)))}


def counters(keys: Keys, days: Sequence[str]) -> Request[list[tuple[int, int]]]:
    """The counts processed and failed of each day, ``YYYY-MM-DD`` in UTC; of all time for ``""``."""
    names = [keys.stat(name, day) for day in days for name in ("processed", "failed")]
    return Request([command("MGET", *names)], _in_pairs) if names else Request([], list)


def set_counters(keys: Keys, values: Mapping[str, int]) -> Request[bool]:
    """Set the counters of all time."""
    parts = (part for name, value in values.items() for part in (keys.stat(name), value))
    return one("MSET", *parts, read=bool)


def _owners(stored: Mapping[bytes, bytes]) -> dict[str, set[str]]:
    return {decoded(identity): set(names_in(queues)) for identity, queues in stored.items()}


def _leased(keys: Keys, owners: Collection[str]) -> Steps[set[str]]:
    """The owners whose lease has not expired."""
    replies = yield from every([command("EXISTS", keys.lease(identity)) for identity in owners])
    return {identity for identity, lives in zip(owners, replies, strict=True) if lives}


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


def claim_of(name: str, known: Collection[str]) -> Claim:
    """Queue and owner in the name of a list, ``QUEUE:OWNER:inprogress``; both parts may have colons."""
    rest = name.removesuffix(INPROGRESS_SUFFIX)
    places = [place for place, char in enumerate(rest) if char == ":"]
    place = max((place for place in places if rest[:place] in known), default=rest.rfind(":"))
    return Claim(rest[:place], rest[place + 1 :]) if place >= 0 else Claim(rest, "")


def _held(claims: Mapping[str, Claim]) -> Steps[Counter[Claim]]:
    """The number of jobs in each list that is not empty."""
    held: Counter[Claim] = Counter()
    lists = yield from present(list(claims))
    sizes = yield from look([(key, "length") for key in lists])
    for key, jobs in zip(lists, sizes, strict=True):
        if jobs:
            held[claims[key]] += jobs
    return held


@dataclass(frozen=True, slots=True)
class _Facts:
    """The facts about queues that are read for all of them together."""

    paused: Collection[str]
    leased: Collection[str]
    """The servers whose lease exists."""
    served: Collection[str]
    takers: Mapping[str, int]
    """By queue, the number of live servers that are not quiet and take jobs from it."""
    counted: Collection[str]
    """The queues whose runs a live server of pyworkers counts."""
    rates: Mapping[str, float]

    def rate(self, queue: str, field: str) -> float | None:
        return self.rates.get(f"{queue}|{field}", 0.0 if queue in self.counted else None)


def _facts(
    keys: Keys,
    now: float,
    paused: Collection[str],
    owners: Mapping[str, Collection[str]],
    leased: Collection[str],
    servers: Sequence[ProcessView],
) -> Steps[_Facts]:
    takers = Counter(queue for server in servers if server.takes(now) for queue in set(server.queues))
    described = {server.identity for server in servers}
    # A server with a lease and no description may take jobs, too.
    served = set(takers).union(*(owners[identity] for identity in leased if identity not in described))
    counted = {queue for identity in leased for queue in owners[identity]}
    return _Facts(paused, leased, served, takers, counted, (yield from runs.read_rates(keys, now)))


def _queues(keys: Keys, names: list[str], held: Mapping[Claim, int], facts: _Facts) -> Steps[list[QueueView]]:
    """Read the named queues."""
    # In two requests: the rights of a role are checked for each kind of key.
    filled = yield from present([keys.queue(name) for name in names])
    ordered = yield from present([keys.ordered(name) for name in names])
    reads = [(key, how) for key in filled for how in ("length", "since")]
    reads += ((key, "active") for key in ordered)
    replies = dict(zip(reads, (yield from look(reads)), strict=True))
    active_of = ((name, replies.get((keys.ordered(name), "active"))) for name in names)
    holders = {name: decoded(holder) for name, holder in active_of if holder}
    active = yield from still_active(keys, holders, facts.leased)
    heads = yield from held_heads(keys, active)
    owners: dict[str, dict[str, int]] = {name: {} for name in names}
    for claim, jobs in held.items():
        owners[claim.queue][claim.owner] = jobs
    return [
        QueueView(
            name,
            replies.get((keys.queue(name), "length")) or 0,
            sum(by.values()),
            since(replies.get((keys.queue(name), "since"))),
            name in facts.paused,
            name in facts.served,
            by,
            active.get(name, ""),
            facts.rate(name, "p"),
            facts.rate(name, "f"),
            heads.get(name),
            facts.takers.get(name, 0),
        )
        for name, by in owners.items()
    ]


def _in_pairs(replies: list[Any]) -> list[tuple[int, int]]:
    numbers = [as_count(stored) for stored in replies[0]]
    return list(zip(numbers[::2], numbers[1::2], strict=True))
