"""Pushing jobs: the commands, and how they are sent.

Used by ``client``. What is sent is built once, by pure functions, for the blocking and the asyncio client. A
push whose connection was lost is reported and not repeated: nobody can tell it from one whose reply was
lost, and the job would run twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hiredis
import redis

from pyworkers.drafts import PushedJob
from pyworkers.keys import Keys
from pyworkers.store.connection import AsyncConnection, errors_translated, translate
from pyworkers.store.refusals import code_of
from pyworkers.store.wire import Wires

# Refusals before anything is written; the next connection may lead to the new master (Sidekiq's client.rb).
_REFUSALS = frozenset({"READONLY", "NOREPLICAS", "UNBLOCKED"})

Command = tuple[Any, ...]


def push_commands(keys: Keys, jobs: Sequence[PushedJob]) -> list[Command]:
    """What puts ``jobs`` into their queues or into ``schedule``, to be sent as one transaction."""
    waiting: dict[str, list[bytes]] = {}
    later: list[bytes | float] = []
    for queue, payload, _, at in jobs:
        if at is None:
            waiting.setdefault(queue, []).append(payload)
        else:
            later += (at, payload)
    commands: list[Command] = []
    if waiting:
        commands.append(("SADD", keys.queues, *waiting))
    commands += [("LPUSH", keys.queue(queue), *payloads) for queue, payloads in waiting.items()]
    if later:
        commands.append(("ZADD", keys.schedule, *later))
    return commands


def push(wires: Wires, keys: Keys, jobs: Sequence[PushedJob]) -> None:
    """Push ``jobs``, all or none.

    Raises RedisUnavailableError (after which the jobs may have been pushed or not) and StoreError (not).
    """
    commands = push_commands(keys, jobs)
    try:
        try:
            _send(wires, commands)
        except redis.ResponseError as error:
            if not _is_refusal(error):
                raise
            wires.close()
            _send(wires, commands)
    except (redis.RedisError, OSError) as error:
        raise translate(error) from error


async def push_async(connection: AsyncConnection, keys: Keys, jobs: Sequence[PushedJob]) -> None:
    """As ``push``."""
    commands = push_commands(keys, jobs)
    with errors_translated():
        try:
            await _send_async(connection, commands)
        except redis.RedisError as error:
            if not _is_refusal(error):
                raise
            await connection.connection_pool.disconnect(inuse_connections=False)
            await _send_async(connection, commands)


def _send(wires: Wires, commands: list[Command]) -> None:
    if len(commands) > 1:
        commands = [("MULTI",), *commands, ("EXEC",)]
    packed = b"".join(map(hiredis.pack_command, commands))
    for reply in wires.exchange(packed, len(commands)):
        for answer in reply if type(reply) is list else (reply,):
            if isinstance(answer, redis.RedisError):
                raise answer


async def _send_async(connection: AsyncConnection, commands: list[Command]) -> None:
    if len(commands) == 1:
        await connection.execute_command(*commands[0])
        return
    async with connection.pipeline(transaction=True) as pipeline:
        _fill(pipeline, commands)
        await pipeline.execute()


def _fill(pipeline: Any, commands: list[Command]) -> None:
    for command in commands:
        pipeline.execute_command(*command)


def _is_refusal(error: Exception) -> bool:
    return code_of(error) in _REFUSALS
