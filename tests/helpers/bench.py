"""The base of tests of coroutines: one Redis with its keys, whose connections and tasks end with the test.

Read by the tests alone, in the process of the test. It decides nothing about the keys it finds.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest
from redis.asyncio import Redis

from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.server.changes import Changes, Follower
from pyworkers.server.health import Health
from pyworkers.server.waiting import cancel
from pyworkers.store.transport.connections import connect_async
from tests.helpers.replies import as_list


class RedisBench:
    """A namespace of one Redis. What was opened or started here ends in ``close``, the latest first."""

    def __init__(self, url: str, namespace: str) -> None:
        self.config = RedisConfig(url=url, namespace=namespace)
        self.keys = Keys(namespace)
        self.ends = AsyncExitStack()
        self.redis = self.connection()

    async def prepare(self) -> None:
        """Write the keys that each test needs; none here, a subclass may need some."""

    def connection(self) -> Redis:
        """Another connection by ``config`` as it is now."""
        redis: Redis = connect_async(self.config)
        self.ends.push_async_callback(redis.aclose)
        return redis

    async def waiting(self, queue: str = "q") -> list[bytes]:
        """The jobs of a queue, the one that is popped next first."""
        return as_list(await self.redis.lrange(self.keys.queue(queue), 0, -1))[::-1]

    def follow(self, part: Follower) -> None:
        """Pass on to a part of the master what others change, until ``close``."""
        health = Health(time.monotonic, random.Random())
        changes = Changes(self.config, self.keys, health, lambda: None, [part], self.redis.aclose)
        self.ends.push_async_callback(changes.close)
        changes.follow("host:1:x")
        self.start(changes.run())

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that runs until ``close``; an error that ends it earlier is raised there."""
        task = asyncio.create_task(work)
        self.ends.push_async_callback(_ended, task)
        return task

    async def close(self) -> None:
        """End the tasks and close the connections, also if some of them fail."""
        await self.ends.aclose()


async def _ended(task: asyncio.Task[None]) -> None:
    await cancel([task])
    with suppress(asyncio.CancelledError):
        task.result()


B = TypeVar("B", bound=RedisBench)


def bench_fixture(kind: type[B]) -> object:
    """A fixture, to be named ``bench``: a bench for each test, open as long as the test runs."""

    @pytest.fixture
    @asynccontextmanager
    async def bench(redis_url: str, namespace: str) -> AsyncIterator[B]:
        bench = kind(redis_url, namespace)
        try:
            await bench.prepare()
            yield bench
        finally:
            await bench.close()

    return bench
