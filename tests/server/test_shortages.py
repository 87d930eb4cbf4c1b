"""The periodic parts of a master go on while the system has no thread, descriptor or memory for them."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from pyworkers.config.fields import Config, RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.server.health import ServerHealth
from pyworkers.server.heartbeat.facts import Facts
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.parts import Tasks
from pyworkers.server.proc import Memory
from pyworkers.server.queues import Queues
from pyworkers.server.services import ServerParts, Services
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import AsyncConnection, connect_async
from tests.helpers.support import async_wait_for


@contextmanager
def no_descriptor(_monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Of stdin, stdout and stderr: what is open stays open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_arguments: object, **_options: object) -> object:
        raise error

    return fail


@contextmanager
def no_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # The present one may have idle threads.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
        yield


Shortage = Callable[[pytest.MonkeyPatch], AbstractContextManager[None]]


def refused(error: Exception) -> Shortage:
    """Whatever a part does with Redis ends with this error, which is none of Redis'."""

    @contextmanager
    def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(Store, "arun", raising(error))
            yield

    return refusing


SHORTAGES: dict[str, Shortage] = {
    "no descriptor": no_descriptor,
    "no thread": no_thread,
    "no memory": refused(MemoryError()),
    "a full disk": refused(OSError(errno.ENOSPC, "No space left on device")),
    "a read-only disk": refused(OSError(errno.EROFS, "Read-only file system")),
    "no file": refused(FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/1")),
}


Look = Callable[[], Coroutine[Any, Any, float]]


class Parts:
    """The parts of a server without queues, how often each looked, and the failures that would end it."""

    def __init__(self, redis: AsyncConnection, config: Config) -> None:
        self.redis = redis
        self.config = config
        self.looks: Counter[str] = Counter()
        self.failures: list[tuple[str, BaseException]] = []
        self.health = ServerHealth(time.monotonic, random.Random())
        self.tasks = Tasks(lambda name, error: self.failures.append((name, error)))
        incarnations = Incarnations("host:1:x", config.log, lambda _: None)
        self.store = Store(redis, Keys(config.redis.namespace))
        queues = Queues(raising(AssertionError("no queue")), self.tasks, 1.0, lambda _: None)  # type: ignore[arg-type]
        facts = Facts("host:1:x", {}, [], False, [os.getpid()])
        memory = Memory(time.monotonic, self.health.of("memory"))
        self.services = Services(
            ServerParts(
                config,
                self.store,
                incarnations,
                self.health,
                queues,
                lambda: facts,
                {},
                memory,
                lambda *_: None,
                lambda _: None,
                self.store.close,
            )
        )
        for part in self.services._parts:
            part.look = self._counting(part.name, part.look)  # type: ignore[method-assign]

    def _counting(self, name: str, look: Look) -> Look:
        async def counted() -> float:
            self.looks[name] += 1
            return await look()

        return counted

    async def all_look_again(self) -> None:
        """Wait until each part has looked twice more: it has gone on after the first of both."""
        before = self.looks.copy()

        def have_looked() -> bool:
            for part in self.services._parts:
                part.nudge()
            return self.failures != [] or all(
                self.looks[part.name] >= before[part.name] + 2 for part in self.services._parts
            )

        await async_wait_for(have_looked, message=f"all parts look: {self.looks - before}")
        assert self.failures == []

    async def drop_connections(self) -> None:
        """Have each part connect anew, which takes a descriptor, and for a name a thread."""
        await self.services.changes.connect_to(self.config.redis)
        await self.redis.connection_pool.disconnect()


@asynccontextmanager
async def running(url: str, namespace: str) -> AsyncIterator[Parts]:
    address = urlsplit(url)
    named = url.replace(str(address.hostname), "localhost", 1)
    config = replace(Config(), redis=RedisConfig(url=named, namespace=namespace))
    redis = connect_async(config.redis)
    parts = Parts(redis, config)
    parts.services.lease.serve([])
    await parts.services.register(asyncio.Event(), fail_fast=True)
    parts.services.start(parts.tasks)
    try:
        yield parts
    finally:
        await parts.tasks.cancel()
        await parts.services.close()
        await redis.aclose()


@pytest.mark.parametrize("short_of", SHORTAGES)
async def test_every_part_goes_on(
    redis_url: str, namespace: str, short_of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(redis_url, namespace) as parts:
        await parts.all_look_again()
        with SHORTAGES[short_of](monkeypatch):
            await parts.drop_connections()
            await parts.all_look_again()
            assert parts.health.troubles
        await parts.all_look_again()
        await async_wait_for(lambda: not parts.health.troubles, message="all parts work again")
