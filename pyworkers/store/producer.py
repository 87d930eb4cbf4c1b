"""Pushing jobs: the commands, and how they are sent.

Used by ``client``. What is sent is built once, by pure functions, for the blocking and the asyncio client. A
push whose connection was lost is reported and not repeated: nobody can tell it from one whose reply was
lost, and the job would run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import hiredis
import redis

from pyworkers.drafts import PushedJob
from pyworkers.keys import Keys
from pyworkers.store.connection import AsyncConnection, errors_translated, translate
from pyworkers.store.refusals import code_of
from pyworkers.store.wire import Wires, exchange_async

# Refusals before anything is written; the next connection may lead to the new master (Sidekiq's client.rb).
_REFUSALS = frozenset({"READONLY", "NOREPLICAS", "UNBLOCKED"})

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
_MULTI, _EXEC = _pack(("MULTI",)), _pack(("EXEC",))


def push_commands(keys: Keys, jobs: Sequence[PushedJob]) -> list[bytes]:
    """What puts ``jobs`` into their queues or into ``schedule``: a command, or a transaction of several."""
    waiting: dict[str, list[bytes]] = {}
    later: list[bytes | float] = []
    for queue, payload, _, at in jobs:
        if at is None:
            waiting.setdefault(queue, []).append(payload)
        else:
            later += (at, payload)
    commands = [_pack(("LPUSH", keys.queue(queue), *payloads)) for queue, payloads in waiting.items()]
    if waiting:
        commands.insert(0, _sadd(keys.queues, *waiting))
    if later:
        commands.append(_pack(("ZADD", keys.schedule, *later)))
    return [_MULTI, *commands, _EXEC] if len(commands) > 1 else commands


# The same for each job of a queue.
@lru_cache(maxsize=256)
def _sadd(*parts: str) -> bytes:
    return _pack(("SADD", *parts))


def push(wires: Wires, keys: Keys, jobs: Sequence[PushedJob]) -> None:
    """Push ``jobs``, all or none.

    Raises RedisUnavailableError (after which the jobs may have been pushed or not) and StoreError (not).
    """
    commands = push_commands(keys, jobs)
    packed, count = b"".join(commands), len(commands)
    try:
        try:
            _check(wires.exchange(packed, count))
        except redis.ResponseError as error:
            if code_of(error) not in _REFUSALS:
                raise
            wires.close()
            _check(wires.exchange(packed, count))
    except (redis.RedisError, OSError) as error:
        raise translate(error) from error


async def push_async(connection: AsyncConnection, keys: Keys, jobs: Sequence[PushedJob]) -> None:
    """As ``push``."""
    commands = push_commands(keys, jobs)
    packed, count = b"".join(commands), len(commands)
    with errors_translated():
        try:
            _check(await exchange_async(connection, packed, count))
        except redis.ResponseError as error:
            if code_of(error) not in _REFUSALS:
                raise
            await connection.connection_pool.disconnect(inuse_connections=False)
            _check(await exchange_async(connection, packed, count))


def _check(replies: Iterable[Any]) -> None:
    """Raise the first refusal. Those of the members of a transaction stand before that of EXEC, which says
    no more than that there was one, or inside of its reply.
    """
    for reply in replies:
        for answer in reply if type(reply) is list else (reply,):
            if isinstance(answer, redis.RedisError):
                raise answer
