"""Client and AsyncClient: enqueue jobs from any program.

Used in applications, also inside workers. A client connects at its first use in a process, a thread or an
event loop: connections are never shared across a fork or between loops.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack

from pyworkers.config.fields import RedisConfig, mask_url
from pyworkers.encryption import Encryption, KeySource
from pyworkers.errors import QueueFullError
from pyworkers.middleware import ClientMiddleware
from pyworkers.producer import BATCH_SIZE, Producer, many_jobs, one_job
from pyworkers.protocol import timestamps
from pyworkers.protocol.draft import Draft, Drafting, PushedJob, Writing, batches, draft, moment, seconds
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.options import EnqueueOptions
from pyworkers.protocol.status import UNKNOWN, JobStatus
from pyworkers.protocol.terms import NO_OTHERS, Others
from pyworkers.store.admin import Admin
from pyworkers.store.calls import arun
from pyworkers.store.cancel import Cancelled, cancel
from pyworkers.store.flow import tracking
from pyworkers.store.flow.finding import find
from pyworkers.store.producer import push, push_async
from pyworkers.store.transport.blocking import AsyncWires, Wires
from pyworkers.store.transport.connections import (
    config_for,
    config_of_file,
    connect,
    connect_async,
    errors_translated,
)

if TYPE_CHECKING:
    from pyworkers.app import Worker

__all__ = ["AsyncClient", "Client", "PushedJob", "Transport", "intercept"]

_IDLE_S = 1.0


class Transport(Protocol):
    """A destination of pushed jobs other than Redis."""

    def push(self, jobs: list[PushedJob], owner: object) -> Others | None:
        """Take the jobs, as ``Producer.push``; None: all of them.

        The enqueue call raises the errors of this call. ``owner``: see ``Client.owner``.
        """
        ...

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        """Take a batch and its jobs."""
        ...

    def batch_status(self, batch: str) -> BatchStatus | None:
        """The status of a batch; None for an unknown one."""
        ...

    def batch_result(self, batch: str) -> str | None:
        """What a batch has returned, as JSON; None for an unknown one."""
        ...

    def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        ...

    def result(self, jid: str) -> Any:
        """As ``Client.result``, without a wait."""
        ...

    def iteration(self, jid: str) -> Mapping[str, bytes]:
        """As ``Client.iteration``."""
        ...


class Gatherer(Protocol):
    """Takes the jobs that are enqueued inside the ``with`` of a batch."""

    def takes(self, client: _Base) -> bool:
        """True if the jobs that this client pushes are members."""
        ...

    def gather(self, jobs: list[PushedJob], owner: object) -> None:
        """Keep jobs until the end of the ``with``. ``owner``: see ``Client.owner``."""
        ...


gathering: ContextVar[Gatherer | None] = ContextVar("pyworkers_batch", default=None)
"""The batch whose ``with`` is open in this context."""


# Module-level state, because pyworkers.testing intercepts the pushes of all clients, in every thread.
_interceptor: Transport | None = None


def intercept(transport: Transport | None) -> Transport | None:
    """Redirect the pushes of all clients of this process to ``transport``; None: to Redis again.

    Returns the previous transport, which the caller restores.
    """
    global _interceptor
    previous, _interceptor = _interceptor, transport
    return previous


def interceptor() -> Transport | None:
    """The transport to which the pushes of this process are redirected, if any."""
    return _interceptor


def _drafting_with(encryption: Encryption) -> Drafting:
    """``draft`` for the jobs of a client with these keys."""
    writing = Writing(encryption=encryption)

    # Not a partial of draft, which takes twice as long to call with a keyword.
    def make(
        queue: str,
        job_class: str,
        retry: bool | int | None,
        options: Mapping[str, Any],
        at: float | None = None,
        /,
    ) -> Draft:
        return draft(queue, job_class, retry, options, at, writing)

    return make


# One for all clients with the keys of the process, so that they share the cache of drafts.
_drafting = _drafting_with(Encryption())


class _Base:
    """Configuration and constructors of both clients."""

    def __init__(
        self,
        url: str | RedisConfig | None = None,
        *,
        namespace: str | None = None,
        middleware: Sequence[ClientMiddleware] = (),
        encryption: KeySource | None = None,
        owner: Worker | None = None,
    ) -> None:
        """Without ``url`` and ``namespace``: in a job those of its server; elsewhere
        ``PYWORKERS_REDIS__URL`` and ``…__NAMESPACE``, then ``REDIS_URL``, then the file that
        ``PYWORKERS_CONFIG`` names, then ``redis://127.0.0.1:6379/0`` and no namespace. Raises ConfigError.

        ``middleware`` are links around each enqueue call, ``(draft, call_next) -> jid``, the first outermost;
        a client of an application has those of the application (``Worker.client_middleware``).

        ``encryption`` are the keys of jobs with ``encrypt=True``: the path of a file with a base64 key on
        each line, or a list of keys, the newest first; default: those of the server in a job, elsewhere the
        file that ``PYWORKERS_ENCRYPTION__KEYS`` or the configuration names.

        A RedisConfig and ``owner`` come from ``from_config`` and ``of``.
        """
        self.config = url if isinstance(url, RedisConfig) else config_for(url, namespace, os.environ)
        self.owner = owner
        """The Worker whose declarations this client uses, if any."""
        drafting = _drafting if encryption is None else _drafting_with(Encryption(encryption))
        self._draft: Drafting = drafting if owner is None else owner.draft
        self.client_links: Sequence[ClientMiddleware] = (
            tuple(middleware) if owner is None else owner.client_links
        )
        self._keys = Keys(self.config.namespace)

    @classmethod
    def from_config(cls, config: str | Path | RedisConfig, *, encryption: KeySource | None = None) -> Self:
        """A client with the ``[redis]`` part of a configuration: the path of the file, or a RedisConfig.

        Environment variables override the file. Raises ConfigError.
        """
        redis = config if isinstance(config, RedisConfig) else config_of_file(config, os.environ)
        return cls(redis, encryption=encryption)

    @classmethod
    def of(cls, worker: Worker) -> Self:
        """A client of an application: its jobs are enqueued with the options that they declare.

        It enqueues where ``worker`` does. Raises ConfigError.
        """
        return cls(worker.redis_config(), owner=worker)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({mask_url(self.config.url)!r}, namespace={self.config.namespace!r})"


class Client(_Base, Producer):
    """Enqueues jobs. Safe to share between threads, and to use on both sides of a fork."""

    _open: Wires | None = None

    def push(self, jobs: list[PushedJob]) -> Others:
        """Send the jobs to Redis, or to the transport that intercepts them; a batch keeps them for later."""
        if not jobs:
            return NO_OTHERS
        if (batch := gathering.get()) is not None and batch.takes(self):
            batch.gather(jobs, self.owner)
            return NO_OTHERS
        if _interceptor is not None:
            return _interceptor.push(jobs, self.owner) or NO_OTHERS
        return push(self._wires(), self._keys, jobs)

    def enlist(self, plan: BatchPlan, owner: object = None) -> None:
        """Make a batch and push its jobs; called by batches. ``owner``: that of the jobs, if it is another.

        Raises BatchError, RedisUnavailableError and StoreError.
        """
        if _interceptor is not None:
            _interceptor.enlist(plan, owner or self.owner)
            return
        # Imported at the first batch.
        from pyworkers.store.flow.batches import enlist

        enlist(self._wires(), self._keys, plan)

    def cancel(self, jid: str) -> Cancelled:
        """Cancel a job, waiting or running, and return the result.

        In a running job JobCancelled is raised; its worker is killed two seconds later. Reads all waiting
        jobs. Raises BadArgumentError, RedisUnavailableError and StoreError.
        """
        return Admin(self.config).run(cancel(self._keys, jid))

    def status(self, jid: str) -> JobStatus:
        """The status of a job that is enqueued with ``track``; ``unknown`` for any other.

        Raises BadArgumentError, RedisUnavailableError and StoreError.
        """
        tracking.check_jid(jid)
        if _interceptor is not None:
            return _interceptor.status(jid)
        return tracking.look(self._wires(), self._keys, jid).status

    def result(self, jid: str, timeout: float | None = 10.0) -> Any:
        """What a job returned that is enqueued with ``track``; waits for it, None: without a limit.

        The wait is one blocking command on a connection of its own. Any number of callers may wait, and read
        it again. Raises JobFailedError if the job has ended without a result, ResultTimeout, and
        UntrackedJobError at once if nothing is known of the job; and the errors of ``status``.
        """
        tracking.check_jid(jid)
        deadline = tracking.deadline_of(timeout)
        if _interceptor is not None:
            return _interceptor.result(jid)
        return tracking.result(self._wires(), self.config, self._keys, jid, deadline)

    def iteration(self, jid: str) -> Mapping[str, bytes]:
        """The state of a long job: ``c`` is its last checkpoint, as JSON; empty if it has none."""
        tracking.check_jid(jid)
        if _interceptor is not None:
            return _interceptor.iteration(jid)
        return tracking.iteration(self._wires(), self._keys, jid)

    def find(self, jid: str) -> JobStatus:
        """Where a job is that is not tracked; ``unknown`` if it is nowhere, because it has ended, too.

        Reads all jobs that wait, run or are dead: a million take seconds. Raises the errors of ``status``.
        """
        tracking.check_jid(jid)
        found = Admin(self.config).run(find(self._keys, jid))
        return found.status if found else UNKNOWN

    def close(self) -> None:
        """Close the connections of this process. A later call opens new ones."""
        wires, self._open = self._open, None
        if wires is not None:
            wires.close()

    def _wires(self) -> Wires:
        # No lock: a fork could copy it locked. If two threads connect at the first use, one Wires is dropped.
        wires = self._open
        if wires is None:
            wires = self._open = Wires(connect(self.config))
        return wires

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Base):
    """``Client`` with ``await``. Works in any event loop, also in several one after the other."""

    def __init__(
        self,
        url: str | RedisConfig | None = None,
        *,
        namespace: str | None = None,
        middleware: Sequence[ClientMiddleware] = (),
        encryption: KeySource | None = None,
        owner: Worker | None = None,
    ) -> None:
        super().__init__(url, namespace=namespace, middleware=middleware, encryption=encryption, owner=owner)
        self._open: dict[tuple[int, asyncio.AbstractEventLoop], _LoopConnection] = {}

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
        now = time.time()
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
        at: datetime | float | None = None,
        retry: bool | int | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[str]:
        """As ``Client.enqueue_bulk``."""
        plan = self._draft(queue, job_class, retry, options, moment(delay, at, time.time()))
        jids: list[str] = []
        for batch in batches(args_list, BATCH_SIZE):
            fresh, jobs = many_jobs(plan, batch, time.time(), len(jids), self.client_links)
            others = await self.push(jobs)
            jids += [others.get(jid, jid) for jid in fresh] if others else fresh
        return jids

    async def push(self, jobs: list[PushedJob]) -> Others:
        """As ``Client.push``."""
        if not jobs:
            return NO_OTHERS
        if (batch := gathering.get()) is not None and batch.takes(self):
            batch.gather(jobs, self.owner)
            return NO_OTHERS
        if _interceptor is not None:
            return _interceptor.push(jobs, self.owner) or NO_OTHERS
        connection = await self._connection()
        await connection.wake()
        return await push_async(connection.wires, self._keys, jobs)

    async def cancel(self, jid: str) -> Cancelled:
        """As ``Client.cancel``."""
        # A connection of its own: many commands, rarely needed.
        async with connect_async(self.config) as redis:
            return await arun(redis, cancel(self._keys, jid))

    async def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        tracking.check_jid(jid)
        if _interceptor is not None:
            return _interceptor.status(jid)
        connection = await self._connection()
        await connection.wake()
        return (await tracking.look_async(connection.wires, self._keys, jid)).status

    async def result(self, jid: str, timeout: float | None = 10.0) -> Any:
        """As ``Client.result``."""
        tracking.check_jid(jid)
        deadline = tracking.deadline_of(timeout)
        if _interceptor is not None:
            return _interceptor.result(jid)
        connection = await self._connection()
        await connection.wake()
        return await tracking.result_async(connection.wires, self.config, self._keys, jid, deadline)

    async def find(self, jid: str) -> JobStatus:
        """As ``Client.find``."""
        tracking.check_jid(jid)
        async with connect_async(self.config) as redis:
            found = await arun(redis, find(self._keys, jid))
        return found.status if found else UNKNOWN

    async def close(self) -> None:
        """Close the connections of this event loop. A later call opens new ones."""
        connection = self._open.pop((os.getpid(), asyncio.get_running_loop()), None)
        if connection is not None:
            await connection.close()

    async def _connection(self) -> _LoopConnection:
        key = (os.getpid(), asyncio.get_running_loop())
        if key not in self._open:
            self._forget_closed_loops()
            self._open[key] = _LoopConnection(self.config)
            await self._open[key].open()
        return self._open[key]

    def _forget_closed_loops(self) -> None:
        # Not the loops of the parent process: closing a connection of a loop that was running there would
        # remove it from the epoll set, which both processes share.
        for pid, loop in list(self._open):
            if pid == os.getpid() and loop.is_closed():
                self._open.pop((pid, loop), None)

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
