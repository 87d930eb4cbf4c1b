"""Watched: settles and takes large jobs by transactions, while nothing else changes their in-progress list.

Run by the master. A job that passes through a script is copied several times: 1.5 ms for one of 1 MB, three
times as long as the move itself. A transaction does without, because of what WATCH proves: nothing has
changed the list since it held the jobs that this server knows, in an order that it knows; no peer has
recovered it; and the owner is registered. EXEC ends the watch, so nothing is done late or twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from pyworkers.store.jobs import Exchange, InProgress
from pyworkers.store.transport.connections import errors_translated, translate
from pyworkers.store.transport.link import Link
from pyworkers.store.transport.replies import blobs, read
from pyworkers.store.transport.wire import Wire


class Watched(NamedTuple):
    """A list that holds exactly the jobs that this server knows: see ``watch``."""

    queue: str
    wire: Wire
    """The connection that watches it."""


class WatchedExchange(NamedTuple):
    """The result of an exchange with a watched list."""

    found: Exchange
    watched: Watched | None
    """The list as it is afterwards; None if it may hold other jobs."""


async def watch(lists: InProgress, link: Link, queue: str, held: int) -> Watched | None:
    """Watch the list of a queue; None unless it holds ``held`` jobs and this server may take others.

    Raises PyworkersError.
    """
    with errors_translated():
        # An earlier watch may have failed already, and a new one would not change that.
        wire, replies = await link.send_together([("UNWATCH",), *_watching(lists, queue)])
    return Watched(queue, wire) if _is_watched(replies[1:], held) else None


async def exchange_watched(
    lists: InProgress, link: Link, watched: Watched, places: Sequence[int], wanted: int, held: int
) -> WatchedExchange | None:
    """Remove the jobs at these indexes of a watched list of ``held`` jobs, and take up to ``wanted``.

    None if nothing was done: the list may have changed, or Redis refuses it. Raises PyworkersError.
    """
    queue, key = watched.queue, lists.key(watched.queue)
    steps: list[tuple[Any, ...]] = [("LSET", key, place, b"") for place in places]
    # A list of large jobs holds no empty one.
    steps.append(("LREM", key, 0, b""))
    steps += [("RPOPLPUSH", lists.source(queue), key)] * wanted
    commands = [("MULTI",), *steps, ("EXEC",), *_watching(lists, queue)]
    with errors_translated():
        _, replies = await link.send_together(commands, watched.wire)
        done = replies[len(steps) + 1]
        if done is None or isinstance(done, Exception):
            return None
        found = read("EXEC", partial(_moved, queue, len(places), wanted), done)
    held += len(found.jobs[0][1]) - len(places)
    still = _is_watched(replies[len(steps) + 2 :], held)
    return WatchedExchange(found, Watched(queue, watched.wire) if still else None)


def _watching(lists: InProgress, queue: str) -> list[tuple[Any, ...]]:
    """The commands that watch a list, and then look at it."""
    key, tombstone, owners = lists.key(queue), lists.keys.tombstone(lists.identity), lists.keys.owners
    return [
        ("WATCH", key, tombstone, owners),
        ("LLEN", key),
        ("EXISTS", tombstone),
        ("HEXISTS", owners, lists.identity),
    ]


def _is_watched(replies: list[Any], held: int) -> bool:
    return replies == [b"OK", held, 0, 1]


def _moved(queue: str, removed: int, wanted: int, reply: list[Any]) -> Exchange:
    """The result of a transaction."""
    if len(reply) != removed + 1 + wanted or reply[removed] != removed:
        raise ValueError
    taken = [raw for raw in reply[removed + 1 :] if raw is not None]
    refusals = [raw for raw in taken if isinstance(raw, ResponseError)]
    if refusals:
        return Exchange([(queue, [])], [], refused={queue: translate(refusals[0])})
    return Exchange([(queue, blobs(taken))], [])
