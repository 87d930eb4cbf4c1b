"""Servers: reads servers with their leases, their worker processes, and the ordered queues that they hold.

Used by ``api``; never by the server. Descriptions are as in ``processes``; any field may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from pyworkers.protocol import timestamps
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Mode, Steps, command, decoded, every
from pyworkers.store.flow.ordered import still_active
from pyworkers.store.processes.decoding import described, reading
from pyworkers.store.processes.reading import Identities
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.transport.replies import maybe_blob, nonzero
from pyworkers.store.values import as_int, decoded_json, encodable

# Servers in one round trip: a thousand workers in each are some megabytes.
_PER_ROUND_TRIP = 100
_WORKER_FIELDS = 6


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker process; ``rss_kb`` is 0 before it is measured, ``started_at`` is in epoch seconds."""

    group: str
    pid: int
    state: str
    rss_kb: int
    jobs_done: int
    started_at: float


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server: its description, and what other keys hold of it."""

    about: ProcessView
    registered: bool
    """False for a server that has stopped, or was removed because it was silent."""
    leased: bool | None
    """True while its lease holds; None for another program's server, which has none."""
    active: tuple[str, ...] = ()
    """The ordered queues whose jobs this server runs."""
    workers: tuple[WorkerView, ...] = ()
    """Empty if they are many and no viewer is active; ``about.groups`` counts them."""


def identities(keys: Keys) -> Steps[list[str]]:
    """The names of all registered servers, sorted; a few of them may have crashed."""
    return sorted((yield from Identities(keys).rest()))


def read_servers(keys: Keys, names: Sequence[str]) -> Steps[list[ServerView]]:
    """The servers with these names; one without a description is left out."""
    found: list[ServerView] = []
    for begin in range(0, len(names), _PER_ROUND_TRIP):
        found += yield from _servers(keys, names[begin : begin + _PER_ROUND_TRIP])
    return found


def read_workers(keys: Keys, names: Sequence[str]) -> Steps[dict[str, tuple[WorkerView, ...]]]:
    """The worker processes of these servers."""
    reads = [command("HGET", keys.process(name), "workers", read=maybe_blob) for name in names]
    stored = yield from every(reads, Mode.LENIENT)
    return {name: tuple(_workers(text)) for name, text in zip(names, stored, strict=True)}


def _servers(keys: Keys, names: Sequence[str]) -> Steps[list[ServerView]]:
    replies = yield from every(
        [
            sent
            for name in names
            for sent in (
                reading(keys, name),
                command("SISMEMBER", keys.processes, name, read=nonzero),
                command("EXISTS", keys.lease(name), read=nonzero),
                command("HGET", keys.process(name), "workers", read=maybe_blob),
            )
        ],
        Mode.LENIENT,
    )
    rows = zip(names, replies[::4], replies[1::4], replies[2::4], replies[3::4], strict=True)
    views = [(described(name, values), *more) for name, values, *more in rows]
    leased = {about.identity for about, _, leased, _ in views if about is not None and leased}
    active = yield from _active(keys, [about for about, *_ in views if about is not None], leased)
    return [
        ServerView(
            about,
            bool(registered),
            None if about.look is None else bool(leased),
            tuple(queue for queue in about.queues if active.get(queue) == about.identity),
            tuple(_workers(workers)),
        )
        for about, registered, leased, workers in views
        if about is not None
    ]


def _active(keys: Keys, servers: Sequence[ProcessView], leased: Collection[str]) -> Steps[dict[str, str]]:
    """The ordered queues of which one of these servers is the active one."""
    groups = (group for server in servers for group in server.groups if group.ordered)
    queues = list(dict.fromkeys(queue for group in groups for queue in group.queues))
    stored = yield from every(
        [command("HGET", keys.ordered(queue), "identity") for queue in queues], Mode.LENIENT
    )
    holders = {queue: decoded(holder) for queue, holder in zip(queues, stored, strict=True) if holder}
    shown = {server.identity for server in servers}
    ours = {queue: holder for queue, holder in holders.items() if holder in shown}
    return (yield from still_active(keys, ours, leased))


def _workers(stored: bytes | None) -> Iterator[WorkerView]:
    for worker in decoded_json(stored, list) or ():
        if isinstance(worker, list) and len(worker) == _WORKER_FIELDS:
            group, pid, state, rss_kb, jobs_done, started_at = worker
            if encodable(group) and encodable(state):
                started = timestamps.read(started_at) or 0.0
                yield WorkerView(group, as_int(pid), state, as_int(rss_kb), as_int(jobs_done), started)
