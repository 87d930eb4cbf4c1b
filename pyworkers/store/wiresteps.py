"""Steps over wires: what a client asks of Redis, built without a connection, and run blocking or by asyncio.

As the steps of ``calls``, for the connections of producers (``Wires``, ``AsyncWires``), which send packed
commands and check no reply. This module never chooses the commands.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import hiredis
import redis

from pyworkers.config.fields import RedisConfig
from pyworkers.store import calls
from pyworkers.store.transport.blocking import Wires
from pyworkers.store.transport.connections import connect, connect_async, errors_translated
from pyworkers.store.transport.wire import AsyncWires

T = TypeVar("T")


class Sent(NamedTuple):
    """Packed commands; the step returns their replies (a number of them), refusals as exceptions.

    After a refusal with one of the codes ``refusals``, the next commands go over another connection.
    """

    packed: bytes
    replies: int
    refusals: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Apart:
    """Steps over their own connection, on which a reply may take ``timeout_s``; returns their result."""

    config: RedisConfig
    timeout_s: float
    steps: WireSteps[Any]


@dataclass(frozen=True, slots=True)
class OverClient:
    """Many commands, over a client of redis-py; the step returns the result of the operation."""

    config: RedisConfig
    operation: calls.Operation[Any]


WireSteps = Generator[Sent | Pause | Apart | OverClient, Any, T]
"""Steps that yield the above, and return a value. Errors of Redis are raised where the step is yielded."""


def sent(*commands: tuple[Any, ...], refusals: Collection[str] = ()) -> Sent:
    """The step that sends these commands."""
    return Sent(b"".join(map(hiredis.pack_command, commands)), len(commands), refusals)


def asked(*commands: tuple[Any, ...]) -> WireSteps[list[Any]]:
    """The replies to commands. Raises the first refusal."""
    replies: list[Any] = yield sent(*commands)
    for reply in replies:
        if isinstance(reply, redis.RedisError):
            raise reply
    return replies


def run(wires: Wires, steps: WireSteps[T]) -> T:
    """Run steps. Raises RedisUnavailableError and StoreError."""
    with errors_translated():
        return calls.drive(steps, partial(_done, wires))


async def run_async(wires: AsyncWires, steps: WireSteps[T]) -> T:
    """As ``run``, in an event loop."""
    with errors_translated():
        return await calls.adrive(steps, partial(_done_async, wires))


def _done(wires: Wires, step: Sent | Pause | Apart | OverClient) -> Any:
    if isinstance(step, Sent):
        with errors_translated():
            return wires.exchange(*step)
    if isinstance(step, Pause):
        return time.sleep(step.seconds)
    if isinstance(step, OverClient):
        with closing(connect(step.config)) as redis:
            return calls.run(redis, step.operation)
    with closing(Wires(connect(step.config, socket_timeout=step.timeout_s))) as own:
        return run(own, step.steps)


async def _done_async(wires: AsyncWires, step: Sent | Pause | Apart | OverClient) -> Any:
    if isinstance(step, Sent):
        with errors_translated():
            return await wires.exchange(*step)
    if isinstance(step, Pause):
        return await asyncio.sleep(step.seconds)
    if isinstance(step, OverClient):
        async with connect_async(step.config) as redis:
            return await calls.arun(redis, step.operation)
    own = AsyncWires(connect_async(step.config, socket_timeout=step.timeout_s))
    try:
        return await run_async(own, step.steps)
    finally:
        with errors_translated():
            await own.aclose()
