"""Draining: reads what is left of the jobs of some queues: where they wait, run elsewhere, and come due.

Run by a master that ends when nothing is left (server/draining.py). It changes nothing, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Command, Mode, Steps, command, decoded, every
from pyworkers.store.transport.replies import blobs, integer
from pyworkers.store.values import names_in

# Members that the first read returns: if there are many, most belong to other queues.
_FIRST = 10


class Sight(NamedTuple):
    """The jobs of some queues at one moment."""

    waiting: dict[str, int]
    """The number in each queue, without the empty ones."""
    paused: frozenset[str]
    """The queues that are paused."""
    mine: int
    """The number in the in-progress lists of this server."""
    due: list[bytes]
    """Members of the sorted sets that are due by then, of any queue: some, if there are many."""
    more: bool
    """True if more are due by then."""


class Elsewhere(NamedTuple):
    """The jobs of some queues that are in progress on other servers: live ones, and those without a lease."""

    running: int
    lost: int


class Rest(NamedTuple):
    """The numbers of jobs that are left when a server ends; those in the sets are of all queues."""

    waiting: int
    paused: int
    scheduled: int
    retries: int
    elsewhere: int


def see(keys: Keys, identity: str, queues: Sequence[str], zsets: Sequence[str], until: float) -> Steps[Sight]:
    """Read all places of a job in one transaction: between two reads, a job could move from one to another.

    ``until``: a member with that score or a lower one is due by then, in epoch seconds.
    """
    sent = [
        command("SMEMBERS", keys.paused),
        *(command("LLEN", keys.queue(queue), read=integer) for queue in queues),
        *(command("LLEN", keys.inprogress(queue, identity), read=integer) for queue in queues),
        *(_due(zset, until, 0, _FIRST) for zset in zsets),
    ]
    paused, *found = yield from every(sent, Mode.TRANSACTION)
    lengths, lists, sets = (
        found[: len(queues)],
        found[len(queues) : 2 * len(queues)],
        found[2 * len(queues) :],
    )
    return Sight(
        {queue: length for queue, length in zip(queues, lengths, strict=True) if length},
        frozenset(map(decoded, paused)),
        sum(lists),
        [member for members in sets for member in members],
        any(len(members) == _FIRST for members in sets),
    )


def due(zset: str, until: float, start: int, most: int) -> Steps[list[bytes]]:
    """Read the next members that are due by then, from the place ``start`` on; none after the last one."""
    [found] = yield from every([_due(zset, until, start, most)])
    return list(found)


def _due(zset: str, until: float, start: int, most: int) -> Command:
    # The latest first: the others leave the set at its other end, and shift none.
    return command("ZRANGE", zset, repr(until), "-inf", "BYSCORE", "REV", "LIMIT", start, most, read=blobs)


def elsewhere(keys: Keys, identity: str, queues: Collection[str]) -> Steps[Elsewhere]:
    """Count the jobs in progress on the other servers of pyworkers."""
    [stored] = yield from every([command("HGETALL", keys.owners)])
    owners = {decoded(name): set(names_in(text)) & set(queues) for name, text in stored.items()}
    others = [name for name, served in owners.items() if served and name != identity]
    counted = [
        (command("EXISTS", keys.lease(name)), command("LLEN", keys.inprogress(queue, name)))
        for name in others
        for queue in sorted(owners[name])
    ]
    replies = yield from every([sent for pair in counted for sent in pair], Mode.LENIENT)
    facts = list(zip(replies[::2], replies[1::2], strict=True))
    running = sum(jobs or 0 for lease, jobs in facts if lease)
    return Elsewhere(running, sum(jobs or 0 for _, jobs in facts) - running)


def rest(keys: Keys, identity: str, queues: Sequence[str]) -> Steps[Rest]:
    """Count what is left."""
    sent = [command("SMEMBERS", keys.paused), command("ZCARD", keys.schedule), command("ZCARD", keys.retry)]
    sent += [command("LLEN", keys.queue(queue)) for queue in queues]
    paused, scheduled, retries, *lengths = yield from every(sent, Mode.LENIENT)
    names = set(map(decoded, paused or ()))
    waiting = [(queue in names, length or 0) for queue, length in zip(queues, lengths, strict=True)]
    others = yield from elsewhere(keys, identity, queues)
    return Rest(
        sum(length for is_paused, length in waiting if not is_paused),
        sum(length for is_paused, length in waiting if is_paused),
        scheduled or 0,
        retries or 0,
        sum(others),
    )
