"""Producer: builds the commands that push jobs, and sends them over a blocking or an asyncio connection.

Used by the clients and ``api``. A push whose connection was lost is reported and never repeated: perhaps
only its reply was lost, and then each job would run twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import hiredis
import redis

from pyworkers.protocol.conditions import NO_OTHERS, Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.keys import Keys
from pyworkers.store.flow import conditions
from pyworkers.store.flow.conditions import REFUSALS
from pyworkers.store.transport.blocking import AsyncWires, Wires
from pyworkers.store.transport.connections import errors_translated
from pyworkers.store.transport.errors import code_of
from pyworkers.store.wiresteps import run, run_async

if TYPE_CHECKING:
    from pyworkers.store.admin import Admin

_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
_MULTI, _EXEC = _pack(("MULTI",)), _pack(("EXEC",))


def packed(keys: Keys, jobs: Sequence[PushedJob]) -> tuple[bytes, int]:
    """The commands that put ``jobs`` into their queues or into ``schedule``, and the number of their replies.

    Ready to be sent. Several commands are one transaction. No command if a job has conditions.
    """
    waiting: dict[str, list[bytes]] = {}
    later: list[bytes | float] = []
    for queue, payload, _, at, asked in jobs:
        if asked is not None:
            return b"", 0
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


def push(wires: Wires, keys: Keys, jobs: Sequence[PushedJob]) -> Others:
    """Push ``jobs``, all or none; but of jobs that have conditions, none that is a duplicate: returns these.

    Raises RedisUnavailableError, after which the jobs may have been pushed or not, and StoreError,
    QueueFullError or DuplicateJobError, after which none was pushed.
    """
    commands, count = packed(keys, jobs)
    if not commands:
        return run(wires, conditions.pushing(keys, jobs))
    # Not as steps, which take a fifth of the time of a push.
    with errors_translated():
        if _is_refused(wires.exchange(commands, count, REFUSALS)):
            _check(wires.exchange(commands, count))
    return NO_OTHERS


async def push_async(wires: AsyncWires, keys: Keys, jobs: Sequence[PushedJob]) -> Others:
    """As ``push``, in an event loop."""
    commands, count = packed(keys, jobs)
    if not commands:
        return await run_async(wires, conditions.pushing(keys, jobs))
    with errors_translated():
        if _is_refused(await wires.exchange(commands, count, REFUSALS)):
            _check(await wires.exchange(commands, count))
    return NO_OTHERS


def push_by(admin: Admin, jobs: Sequence[PushedJob]) -> Others:
    """As ``push``, from ``api``."""
    with closing(Wires(admin.redis)) as wires:
        return push(wires, admin.keys, jobs)


def _is_refused(replies: Iterable[Any]) -> bool:
    """True if another connection may lead to a server that takes the commands. Raises any other refusal."""
    try:
        _check(replies)
    except redis.ResponseError as error:
        if code_of(error) not in REFUSALS:
            raise
        return True
    return False


def _check(replies: Iterable[Any]) -> None:
    """Raise the first refusal. In a transaction, the refusal of a command comes before the refusal of EXEC,
    which has no reason of its own, or is inside the reply to EXEC.
    """
    for reply in replies:
        for answer in reply if type(reply) is list else (reply,):
            if isinstance(answer, redis.RedisError):
                raise answer
