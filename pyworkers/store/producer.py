"""Pushing jobs: the commands, and how they are sent.

Used by ``client``. What is sent is built once, by pure functions, for the blocking and the asyncio client. A
push whose connection was lost is reported and not repeated: nobody can tell it from one whose reply was
lost, and the job would run twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import hiredis
import redis

from pyworkers.drafts import PushedJob
from pyworkers.keys import Keys
from pyworkers.store.connection import AsyncConnection, Connection, errors_translated
from pyworkers.store.refusals import code_of

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


def push(connection: Connection, keys: Keys, jobs: Sequence[PushedJob]) -> None:
    """Push ``jobs``, all or none.

    Raises RedisUnavailableError (after which the jobs may have been pushed or not) and StoreError (not).
    """
    commands = push_commands(keys, jobs)
    with errors_translated():
        try:
            _send(connection, commands)
        except redis.RedisError as error:
            if not _is_refusal(error):
                raise
            connection.connection_pool.disconnect(inuse_connections=False)
            _send(connection, commands)


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


# A connection that Redis has closed since its last use does not get as far as the commands: the pools of
# redis-py look at the socket before they hand it out, and connect anew (ConnectionPool.get_connection).


def _send(connection: Connection, commands: list[Command]) -> None:
    """All in one write, past redis-py's pipeline, which takes as long as the rest of the push."""
    if len(commands) > 1:
        commands = [("MULTI",), *commands, ("EXEC",)]
    pool = connection.connection_pool
    wire = pool.get_connection()
    try:
        wire.send_packed_command([b"".join(map(hiredis.pack_command, commands))])
        answers = [_answer(wire) for _ in commands]
    except BaseException:
        # What is still to come would be taken for the answer to something else.
        wire.disconnect()
        raise
    finally:
        pool.release(wire)
    for error in _errors(answers):
        raise error


def _answer(wire: Any) -> Any:
    try:
        return wire.read_response()
    except redis.ResponseError as error:
        return error


def _errors(answers: Iterable[Any]) -> Iterator[redis.ResponseError]:
    """The refusals, those of the members of a transaction first: EXEC only says that there was one."""
    for answer in answers:
        yield from filter(_is_error, answer if isinstance(answer, list) else [answer])


def _is_error(answer: Any) -> bool:
    return isinstance(answer, redis.ResponseError)


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
