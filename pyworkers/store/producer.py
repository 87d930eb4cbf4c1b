"""Producer: builds the commands that push jobs, and sends them over a blocking or an asyncio connection.

Used by ``client`` and ``admin``. A push whose connection was lost is reported and never repeated: perhaps
only its reply was lost, and then each job would run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import hiredis
import redis

from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.keys import Keys
from pyworkers.store.transport.blocking import AsyncWires, Wires
from pyworkers.store.transport.connections import errors_translated, translate
from pyworkers.store.transport.errors import code_of

# Refusals before anything is written; the next connection may lead to the new primary (Sidekiq's client.rb).
_REFUSALS = frozenset({"READONLY", "NOREPLICAS", "UNBLOCKED"})

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
_MULTI, _EXEC = _pack(("MULTI",)), _pack(("EXEC",))


def packed(keys: Keys, jobs: Sequence[PushedJob]) -> tuple[bytes, int]:
    """The commands that put ``jobs`` into their queues or into ``schedule``, and the number of their replies.

    Ready to be sent. Several commands are one transaction.
    """
    waiting: dict[str, list[bytes]] = {}
    later: list[bytes | float] = []
    for queue, payload, _, at in jobs:
        if at is None:
            waiting.setdefault(queue, []).append(payload)
        else:
            later += (at, payload)
    commands: list[bytes] = []
    for queue, payloads in waiting.items():
        listing, key = _known(keys.namespace, queue)
        commands += (listing, _pack(("LPUSH", key, *payloads)))
    if later:
        commands.append(_pack(("ZADD", keys.schedule, *later)))
    if len(commands) > 1:
        commands = [_MULTI, *commands, _EXEC]
    return b"".join(commands), len(commands)


@lru_cache(maxsize=256)
def _known(namespace: str, queue: str) -> tuple[bytes, str]:
    """The parts that all jobs of a queue share: the command that adds it to ``queues``, and its key."""
    keys = Keys(namespace)
    return _pack(("SADD", keys.queues, queue)), keys.queue(queue)


def push(wires: Wires, keys: Keys, jobs: Sequence[PushedJob]) -> None:
    """Push ``jobs``, all or none.

    Raises RedisUnavailableError, after which the jobs may have been pushed or not, and StoreError, after
    which none was pushed.
    """
    commands, count = packed(keys, jobs)
    try:
        try:
            _check(wires.exchange(commands, count))
        except redis.ResponseError as error:
            if code_of(error) not in _REFUSALS:
                raise
            wires.close()
            _check(wires.exchange(commands, count))
    except (redis.RedisError, OSError) as error:
        raise translate(error) from error


async def push_async(wires: AsyncWires, keys: Keys, jobs: Sequence[PushedJob]) -> None:
    """As ``push``, in an event loop."""
    commands, count = packed(keys, jobs)
    with errors_translated():
        try:
            _check(await wires.exchange(commands, count, _REFUSALS))
        except redis.ResponseError as error:
            if code_of(error) not in _REFUSALS:
                raise
            _check(await wires.exchange(commands, count))


def _check(replies: Iterable[Any]) -> None:
    """Raise the first refusal. In a transaction, the refusal of a command comes before the refusal of EXEC,
    which has no reason of its own, or is inside the reply to EXEC.
    """
    for reply in replies:
        for answer in reply if type(reply) is list else (reply,):
            if isinstance(answer, redis.RedisError):
                raise answer
