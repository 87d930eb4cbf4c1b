"""AsyncClient: enqueues jobs from asyncio programs.

Used in applications, also inside async jobs. It connects at its first use in an event loop: connections are
never shared between loops or across a fork.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from pyworkers.client import BaseClient
from pyworkers.config.fields import RedisConfig
from pyworkers.config.stores import DEFAULT, Stores
from pyworkers.encryption import KeySource
from pyworkers.enqueueing import clock
from pyworkers.enqueueing.interception import Transport, gathering, in_thread, interceptor, running_loop
from pyworkers.enqueueing.producer import Moments, bulk, one_job, push_portions_async, timed
from pyworkers.errors import QueueFullError
from pyworkers.middleware import ClientMiddleware
from pyworkers.protocol import timestamps
from pyworkers.protocol.conditions import NO_OTHERS, Others
from pyworkers.protocol.draft import PushedJob, moment, seconds
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.options import EnqueueOptions
from pyworkers.protocol.status import Cancelled, JobStatus
from pyworkers.store.calls import adrive
from pyworkers.store.cancel import check_id
from pyworkers.store.flow import tracking
from pyworkers.store.questions import At, Question, Questions
from pyworkers.store.routes import apart, keys_of, push_async
from pyworkers.store.transport.connections import connect_async, errors_translated
from pyworkers.store.transport.wire import AsyncWires
from pyworkers.store.wiresteps import run_async

if TYPE_CHECKING:
    from pyworkers.app import Worker

T = TypeVar("T")

_IDLE_S = 1.0


class AsyncClient(BaseClient):
    """``Client`` with ``await``. Works in any event loop, also in several one after the other."""

    def __init__(
        self,
        url: str | RedisConfig | Stores | None = None,
        *,
        namespace: str | None = None,
        middleware: Sequence[ClientMiddleware] = (),
        encryption: KeySource | None = None,
        carry: Sequence[str] | None = None,
        owner: Worker | None = None,
    ) -> None:
        super().__init__(
            url, namespace=namespace, middleware=middleware, encryption=encryption, carry=carry, owner=owner
        )
        self._several = self.stores.several
        self._keys = keys_of(self.stores)
        self._questions = Questions(self.stores)
        self._open: dict[tuple[int, asyncio.AbstractEventLoop, str], _LoopConnection] = {}

    async def enqueue(
        self,
        queue: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        delay: float | timedelta | None = None,
        at: datetime | float | None = None,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """As ``Client.enqueue``."""
        now = clock.time()
        plan = self._draft(queue, job_class, retry, options, moment(delay, at, now))
        jid, jobs = one_job(plan, args, now, self.client_links)
        others = await self.push(jobs)
        return others.get(jid, jid) if others else jid

    async def try_enqueue(
        self,
        queue: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        delay: float | timedelta | None = None,
        at: datetime | float | None = None,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str | None:
        """As ``Client.try_enqueue``."""
        try:
            return await self.enqueue(queue, job_class, args, delay=delay, at=at, retry=retry, **options)
        except QueueFullError:
            return None

    async def enqueue_in(
        self,
        delay: float | timedelta,
        queue: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """As ``Client.enqueue_in``."""
        return await self.enqueue(queue, job_class, args, delay=seconds(delay), retry=retry, **options)

    async def enqueue_at(
        self,
        at: datetime | float,
        queue: str,
        job_class: str,
        args: Sequence[Any] = (),
        *,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """As ``Client.enqueue_at``."""
        return await self.enqueue(queue, job_class, args, at=timestamps.due(at), retry=retry, **options)

    async def enqueue_bulk(
        self,
        queue: str,
        job_class: str,
        args_list: Iterable[Sequence[Any]],
        *,
        delay: float | timedelta | None = None,
        at: Moments | None = None,
        spread: float | timedelta | None = None,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[str]:
        """As ``Client.enqueue_bulk``."""
        rows, due, times = timed(args_list, delay, at, spread, clock.time())
        plan = self._draft(queue, job_class, retry, options, due)
        return await push_portions_async(self.push, bulk(plan, rows, self.client_links, times))

    async def push(self, jobs: list[PushedJob]) -> Others:
        """As ``Client.push``."""
        if not jobs:
            return NO_OTHERS
        if (batch := gathering.get()) is not None and batch.takes(self):
            if (send := batch.gather(jobs, self.owner)) is not None:
                await in_thread(send)
            return NO_OTHERS
        if (other := interceptor()) is not None:
            return other.push(jobs, self.owner) or NO_OTHERS
        if not self._several:
            return await push_async(await self._wires(DEFAULT), self._keys[DEFAULT], jobs)
        others: dict[str, str] = {}
        for name, part in apart(self.stores, jobs).items():
            others |= await push_async(await self._wires(name), self._keys[name], part)
        return others

    async def cancel(self, jid: str) -> Cancelled:
        """As ``Client.cancel``."""
        check_id(jid)
        return await self._ask(lambda other: other.cancel(jid, self.owner), self._questions.cancel(jid))

    async def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        tracking.check_jid(jid)
        return await self._ask(lambda other: other.status(jid), self._questions.status(jid))

    async def result(self, jid: str, timeout: float | None = 10.0) -> Any:
        """As ``Client.result``."""
        tracking.check_jid(jid)
        deadline = tracking.deadline_of(timeout)
        question = self._questions.result(jid, deadline)
        return await self._ask(lambda other: other.result(jid, deadline), question)

    async def history(self, jid: str) -> JobHistory | None:
        """As ``Client.history``."""
        tracking.check_jid(jid)
        return await self._ask(lambda other: other.history(jid), self._questions.history(jid))

    async def logs(self, jid: str) -> list[LogLine]:
        """As ``Client.logs``."""
        tracking.check_jid(jid)
        return await self._ask(lambda other: other.logs(jid), self._questions.logs(jid))

    async def iteration(self, jid: str) -> Mapping[str, bytes]:
        """As ``Client.iteration``."""
        tracking.check_jid(jid)
        return await self._ask(lambda other: other.iteration(jid), self._questions.iteration(jid, None))

    async def find(self, jid: str) -> JobStatus:
        """As ``Client.find``."""
        tracking.check_jid(jid)
        return await self._ask(lambda other: other.find(jid), self._questions.find(jid))

    async def _ask(self, instead: Callable[[Transport], T], question: Question[T]) -> T:
        """The answer to a question; ``instead`` asks the transport that replaces the Redis servers."""
        if (other := interceptor()) is not None:
            return await in_thread(partial(instead, other))
        return await adrive(question, self._asked)

    async def _asked(self, at: At) -> Any:
        return await run_async(await self._wires(at.name), at.steps)

    async def close(self) -> None:
        """Close the connections of this event loop. A later call opens new ones."""
        here = (os.getpid(), running_loop())
        for name in self._keys:
            connection = self._open.pop((*here, name), None)
            if connection is not None:
                await connection.close()

    async def _wires(self, name: str) -> AsyncWires:
        key = (os.getpid(), running_loop(), name)
        if (connection := self._open.get(key)) is None:
            self._forget_closed_loops()
            connection = self._open[key] = _LoopConnection(self.stores.by_name[name])
            await connection.open()
        await connection.wake()
        return connection.wires

    def _forget_closed_loops(self) -> None:
        # Not the loops of the parent process: closing a connection of a loop that was running there would
        # remove it from the epoll set, which both processes share.
        for pid, loop, name in list(self._open):
            if pid == os.getpid() and loop.is_closed():
                self._open.pop((pid, loop, name), None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()


class _LoopConnection:
    """The connections of one event loop, which closes them when it ends."""

    def __init__(self, config: RedisConfig) -> None:
        self.wires = AsyncWires(connect_async(config))
        self._used = time.monotonic()
        self._lifetime = self._until_closed()

    async def open(self) -> None:
        """Prepare the connections; nothing is sent yet."""
        await anext(self._lifetime)

    async def close(self) -> None:
        """Close the connections now."""
        await self._lifetime.aclose()

    async def wake(self) -> None:
        """Let the loop notice that Redis has closed an idle connection: it may have been busy since then."""
        now = time.monotonic()
        if now - self._used > _IDLE_S:
            # The first round finds the socket readable, the second one reads.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        self._used = now

    async def _until_closed(self) -> AsyncGenerator[None, None]:
        """Close the connections at the end of the loop: ``asyncio.run`` closes started generators first.

        A loop has no other hook for its end. The generator and ``self`` refer to each other, so that both
        are not freed with the last reference to the client.
        """
        try:
            yield
        finally:
            with errors_translated():
                await self.wires.aclose()
