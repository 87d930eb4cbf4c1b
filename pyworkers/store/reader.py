"""Reader: the numbers that people look at, in two round trips, however many queues there are.

Used by ``api``, in the command line and in users' programs; never by the server. It changes nothing, and it
never asks Redis for the names of keys, which costs as much as there are keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import simplejson

from pyworkers.config import RedisConfig
from pyworkers.keys import Keys
from pyworkers.store.connection import Connection, connect, errors_translated


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue; ``next_job`` is the job that is popped next, None if none waits."""

    name: str
    size: int
    in_progress: int
    next_job: bytes | None


@dataclass(frozen=True, slots=True)
class Overview:
    """All counts at about one moment. ``processes`` are the servers whose lease is valid."""

    processed: int
    failed: int
    scheduled: int
    retries: int
    dead: int
    processes: int
    queues: list[QueueView]


def overview(config: RedisConfig) -> Overview:
    """Read everything, over a connection of its own. Raises RedisUnavailableError and StoreError."""
    keys = Keys(config.namespace)
    with errors_translated(), connect(config) as connection:
        return _overview(connection, keys)


def _overview(connection: Connection, keys: Keys) -> Overview:
    with connection.pipeline(transaction=False) as pipe:
        pipe.get(keys.stat("processed"))
        pipe.get(keys.stat("failed"))
        for zset in (keys.schedule, keys.retry, keys.dead):
            pipe.zcard(zset)
        pipe.smembers(keys.queues)
        pipe.hgetall(keys.owners)
        processed, failed, scheduled, retries, dead, names, stored = pipe.execute()
    owners = {_text(identity): _queues(queues) for identity, queues in stored.items()}
    # A bare LPUSH leaves no name in the set, but the server of such a queue says that it serves it.
    known = {_text(name) for name in names}.union(*owners.values())
    processes, queues = _look(connection, keys, sorted(known), owners)
    return Overview(int(processed or 0), int(failed or 0), scheduled, retries, dead, processes, queues)


def _look(
    connection: Connection, keys: Keys, names: list[str], owners: dict[str, set[str]]
) -> tuple[int, list[QueueView]]:
    """The number of live owners, and the named queues."""
    claims = [(identity, name) for identity, served in owners.items() for name in served]
    with connection.pipeline(transaction=False) as pipe:
        for identity in owners:
            pipe.exists(keys.lease(identity))
        for identity, name in claims:
            pipe.llen(keys.inprogress(name, identity))
        for name in names:
            pipe.llen(keys.queue(name))
            pipe.lindex(keys.queue(name), -1)
        replies = iter(pipe.execute())
    processes = sum(next(replies) for _ in owners)
    in_progress = dict.fromkeys(names, 0)
    for _, name in claims:
        in_progress[name] += next(replies)
    return processes, [QueueView(name, next(replies), in_progress[name], next(replies)) for name in names]


def _text(stored: bytes) -> str:
    """A name for showing, also if another program wrote one that is not UTF-8."""
    return stored.decode(errors="backslashreplace")


def _queues(stored: bytes) -> set[str]:
    """The queues of one owner; none if that is not the JSON list that a server writes."""
    try:
        names: Any = simplejson.loads(stored)
    except ValueError:
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
