"""Client: enqueues jobs from any program; BaseClient: its configuration, which AsyncClient shares.

Used in applications, also inside workers. A client connects at its first use in a process or a thread:
connections are never shared across a fork.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pyworkers.config.carrying import names_for
from pyworkers.config.checks import mask_url
from pyworkers.config.fields import RedisConfig
from pyworkers.config.producers import stores_for, stores_of_file
from pyworkers.config.stores import Stores, one_store
from pyworkers.encryption import Encryption, KeySource
from pyworkers.enqueueing.carrying import Carrying
from pyworkers.enqueueing.interception import Transport, gathering, in_thread, interceptor, warn_in_loop
from pyworkers.enqueueing.producer import Producer
from pyworkers.middleware import ClientMiddleware
from pyworkers.protocol.conditions import NO_OTHERS, Others
from pyworkers.protocol.draft import Draft, Drafting, PushedJob, Writing, draft
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.status import Cancelled, JobStatus
from pyworkers.store.cancel import check_id
from pyworkers.store.flow import tracking
from pyworkers.store.routes import Routes

if TYPE_CHECKING:
    from pyworkers.app import Worker

R = TypeVar("R")


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


class BaseClient:
    """Configuration and constructors of both clients."""

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
        """Without ``url`` and ``namespace``: in a job, the Redis of its server; elsewhere
        ``PYWORKERS_REDIS__URL`` and ``…__NAMESPACE``, then ``REDIS_URL``, then the file that
        ``PYWORKERS_CONFIG`` names, then ``redis://127.0.0.1:6379/0`` and no namespace. Raises ConfigError.

        ``middleware`` are links around each enqueue call, ``(draft, call_next) -> jid``, the first outermost;
        a client of an application has the links of the application (``Worker.client_middleware``).

        ``encryption`` are the keys of jobs with ``encrypt=True``: the path of a file with a base64 key on
        each line, or a list of keys, the newest first. The default in a job are the keys of its server, and
        elsewhere the file that ``PYWORKERS_ENCRYPTION__KEYS`` or the configuration names.

        ``carry`` are variables of structlog's context that the jobs carry into their log lines; default: in
        a job the variables of its server, elsewhere ``PYWORKERS_LOG__CARRY`` or ``[log] carry`` of the file.

        With several Redis servers in the configuration, a job goes to the one that has its queue; with a
        given ``url``, all go there.

        A RedisConfig, Stores and ``owner`` come from ``from_config`` and ``of``. Raises DeclarationError for
        a link of another shape.
        """
        if isinstance(url, RedisConfig):
            url = one_store(url)
        self.stores = url if isinstance(url, Stores) else stores_for(url, namespace, os.environ)
        """The Redis servers, and the one of each queue."""
        self.config = self.stores.default
        self.owner = owner
        """The Worker whose declarations this client uses, if any."""
        drafting = _drafting if encryption is None else _drafting_with(Encryption(encryption))
        self._draft: Drafting = drafting if owner is None else owner.draft
        if middleware:
            # Imported for links alone.
            from pyworkers.functions import check_client_link

            for link in middleware:
                check_client_link(link)
        names = names_for(carry, os.environ) if owner is None else owner.carried()
        carrying = (Carrying(names),) if names else ()
        self.client_links: Sequence[ClientMiddleware] = (
            (*middleware, *carrying) if owner is None else owner.client_links
        )

    @classmethod
    def from_config(
        cls,
        config: str | Path | RedisConfig,
        *,
        encryption: KeySource | None = None,
        carry: Sequence[str] | None = None,
    ) -> Self:
        """A client with ``[redis]`` and ``carry`` of a configuration: the path of its file, or a RedisConfig.

        Environment variables override the file. Raises ConfigError.
        """
        if isinstance(config, RedisConfig):
            return cls(config, encryption=encryption, carry=carry)
        stores, names = stores_of_file(config, os.environ), names_for(carry, os.environ, config)
        return cls(stores, encryption=encryption, carry=names)

    @classmethod
    def of(cls, worker: Worker) -> Self:
        """A client of an application: its jobs are enqueued with the options that they declare.

        It enqueues where ``worker`` does. Raises ConfigError.
        """
        return cls(worker.stores(), owner=worker)

    async def aside(self, function: Callable[[], R]) -> R:
        """Run code that uses this client, and blocks, on a thread."""
        return await in_thread(function)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({mask_url(self.config.url)!r}, namespace={self.config.namespace!r})"


class Client(BaseClient, Producer):
    """Enqueues jobs. Safe to share between threads, and to use on both sides of a fork."""

    @cached_property
    def _routes(self) -> Routes:
        return Routes(self.stores)

    def _transport(self) -> Transport:
        """Who answers a call that blocks: the Redis servers, or the transport that replaces them."""
        warn_in_loop()
        return interceptor() or self._routes

    def push(self, jobs: list[PushedJob]) -> Others:
        """Send the jobs to Redis, or to the transport that intercepts them; a batch keeps them for later."""
        if not jobs:
            return NO_OTHERS
        if (batch := gathering.get()) is not None and batch.takes(self):
            if (send := batch.gather(jobs, self.owner)) is not None:
                send()
            return NO_OTHERS
        warn_in_loop()
        if (other := interceptor()) is not None:
            return other.push(jobs, self.owner) or NO_OTHERS
        return self._routes.push(jobs)

    def enlist(self, plan: BatchPlan, owner: object = None) -> None:
        """Make a batch and push its jobs; called by batches. ``owner``: the owner of the jobs, if another.

        Raises BatchError, BadArgumentError, RedisUnavailableError and StoreError.
        """
        self._transport().enlist(plan, owner or self.owner)

    def defer(self, _action: Callable[[], object]) -> bool:
        """Keep the action until the end of a transaction; False if it is to be done now. For subclasses."""
        return False

    def cancel(self, jid: str) -> Cancelled:
        """Cancel a job, waiting or running, and return the result.

        A running job is asked to end by JobCancelled; if it still runs two seconds later, its worker is
        killed. Reads all waiting jobs. Raises BadArgumentError, RedisUnavailableError and StoreError.
        """
        check_id(jid)
        return self._transport().cancel(jid, self.owner)

    def status(self, jid: str) -> JobStatus:
        """The status of a job that is enqueued with ``track``; ``unknown`` for any other.

        Raises BadArgumentError, RedisUnavailableError and StoreError.
        """
        tracking.check_jid(jid)
        return self._transport().status(jid)

    def result(self, jid: str, timeout: float | None = 10.0) -> Any:
        """The result of a job that is enqueued with ``track``; waits for it, None: without a limit.

        With the id of a batch, chain or group, its result (``Batch.result``).
        The wait is one blocking command on its own connection. Any number of callers may wait, and read
        it again. Raises JobFailedError if the job has ended without a result, ResultTimeout, and
        UntrackedJobError at once if the job is unknown; and the errors of ``status``.
        """
        tracking.check_jid(jid)
        return self._transport().result(jid, tracking.deadline_of(timeout))

    def history(self, jid: str) -> JobHistory | None:
        """A job that is enqueued with ``track`` and ``history``: its envelope, its runs, its result.

        None for any other. Raises the errors of ``status``.
        """
        tracking.check_jid(jid)
        return self._transport().history(jid)

    def logs(self, jid: str) -> list[LogLine]:
        """The log of a job: the lines of ``message.log`` and, if it is tracked, its other log lines.

        Empty without one. Raises the errors of ``status``.
        """
        tracking.check_jid(jid)
        return self._transport().logs(jid)

    def iteration(self, jid: str) -> Mapping[str, bytes]:
        """The state of a long job: ``c`` is its last checkpoint, as JSON; empty if it has none.

        Raises the errors of ``status``.
        """
        warn_in_loop()
        return self.saved(jid)

    def saved(self, jid: str, queue: str | None = None) -> Mapping[str, bytes]:
        """As ``iteration``, without the warning: ``checkpoint`` reads once, in async jobs, too.

        ``queue``: the queue of the job, if it is known.
        """
        tracking.check_jid(jid)
        if (other := interceptor()) is not None:
            return other.iteration(jid)
        return self._routes.iteration(jid, queue)

    def find(self, jid: str) -> JobStatus:
        """Where an untracked job is; ``unknown`` if it is nowhere, for example because it has ended.

        Reads all jobs that wait, run or are dead: a million take seconds. Raises the errors of ``status``.
        """
        tracking.check_jid(jid)
        return self._transport().find(jid)

    def close(self) -> None:
        """Close the connections of this process. A later call opens new ones."""
        self._routes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
