"""Worker: an application; its declarations, and the clients that enqueue its jobs.

Filled while the application is imported; read by the fork server and the worker processes. The master never
imports it. Only its client connects to Redis, when the application first enqueues.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pyworkers.client import Client
from pyworkers.config.carrying import checked, names_for
from pyworkers.config.fields import RedisConfig
from pyworkers.config.producers import queues_of_file, stores_for
from pyworkers.config.stores import Stores
from pyworkers.declaring import Declarations
from pyworkers.encryption import Encryption, KeySource
from pyworkers.enqueueing.carrying import Carrying
from pyworkers.enqueueing.producer import Producer
from pyworkers.errors import BadArgumentError
from pyworkers.functions import NamePrefix
from pyworkers.handler import Handler
from pyworkers.job import Clients, Job
from pyworkers.middleware import ClientMiddleware
from pyworkers.protocol.call import Call
from pyworkers.protocol.conditions import Others
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.draft import Draft, PushedJob, draft
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.limits import LimitStats
from pyworkers.protocol.options import suggestion
from pyworkers.protocol.status import Cancelled, JobStatus

if TYPE_CHECKING:
    from pyworkers.asyncclient import AsyncClient
    from pyworkers.config.sources import Place
    from pyworkers.ipc.control import Manifest
    from pyworkers.plugins.batches import Batch

__all__ = ["CronEntry", "Handler", "Job", "Worker"]

_RUN = "a server runs it: pyworkers run --app module:attribute"
_CONFIG = "the configuration is a file: pyworkers run --config FILE"
_CRON = 'declare it with @worker.cron("* * * * *") above @worker.job'
# The names of other libraries' applications, with what to use instead.
_ELSEWHERE = {
    "AsyncResult": "call result(jid), or status(jid)",
    "actor": "declare a job with @worker.job",
    "add_middleware": "declare a link with @worker.middleware",
    "add_periodic_task": _CRON,
    "autodiscover_tasks": "import the modules with its jobs in the module that is named with --app",
    "conf": _CONFIG,
    "config_from_object": _CONFIG,
    "control": "cancel(jid) ends a job; pyworkers --help lists the commands for servers",
    "enqueue_job": "call enqueue(queue, job_class, args)",
    "on_after_configure": _CRON,
    "periodic_task": _CRON,
    "run": _RUN,
    "send_task": "call enqueue(queue, job_class, args)",
    "shared_task": "declare a job with @worker.job",
    "start": _RUN,
    "task": "declare a job with @worker.job",
    "work": _RUN,
    "worker_main": _RUN,
}


class Worker(Declarations, Producer):
    """An application: decorate functions with it, and name it as ``app`` in the configuration.

    ``url``, ``namespace`` and ``config``, the path of a configuration file, are for enqueueing only. The
    first two mean the same as in ``Client``. The file is read at the first use: its ``[redis]`` fields are
    used where these and the environment give no value. In a job, the Redis of its server is used instead.

    ``encryption`` are the keys of jobs with ``encrypt=True``: the path of a file with a base64 key a line, or
    a list of keys, the newest first. Default: in a job the keys of its server; elsewhere the file that
    ``PYWORKERS_ENCRYPTION__KEYS`` or the configuration names.

    ``name_prefix`` is put in front of the name of each job without its own ``name``: with ``"shop."``
    the function ``notify`` has the class ``shop.notify``. It may be a function: it gets the job's function
    and returns the prefix.

    ``carry`` are variables of structlog's context that jobs carry into their log lines. Default: in a
    job the variables of its server; elsewhere ``PYWORKERS_LOG__CARRY`` or ``[log] carry`` of the file.
    """

    client_links: list[ClientMiddleware]

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        config: str | Place | None = None,
        encryption: KeySource | None = None,
        name_prefix: NamePrefix = "",
        carry: Sequence[str] | None = None,
    ) -> None:
        # Absolute: a program may change its working directory before it enqueues.
        self._config = Path(config).absolute() if isinstance(config, str | Path) else config
        super().__init__(name_prefix, Encryption(encryption, self._config))
        self._url = url
        self._namespace = namespace
        self._carry = None if carry is None else checked(carry)
        self._carried: tuple[str, ...] | None = None
        self._client: Client | None = None
        self._async_client: AsyncClient | None = None
        self._draft = self.draft

    if not TYPE_CHECKING:  # With it, a type checker would take any name.

        def __getattr__(self, name):
            """Raise AttributeError; for a name of another library's with ours."""
            if instead := _ELSEWHERE.get(name):
                # Without obj: a traceback with it proposes another attribute.
                raise AttributeError(f"a Worker has no {name}: {instead}", name=name)
            return object.__getattribute__(self, name)

    def check_queue(self, queue: str) -> None:
        """Raise BadArgumentError for a queue that the application and its configuration do not know."""
        file = partial(queues_of_file, self._config, os.environ)
        _check_known(queue, self._registry.queues(), file)

    def manifest(self) -> Manifest:
        """The application's declarations as JSON values, for the master."""
        manifest = super().manifest()
        stores = self.stores()
        if stores.several:
            self._registry.check_limits(stores)
        if carried := self.carried():
            manifest["carry"] = list(carried)
        return manifest

    @property
    def client(self) -> Client:
        """The client of this application, made at its first use. Raises ConfigError."""
        if self._client is None:
            self._client = Client.of(self)
        return self._client

    @property
    def async_client(self) -> AsyncClient:
        """The client of this application for event loops, made at its first use. Raises ConfigError.

        ``aenqueue`` and the other async forms use it. Its connections are closed with their loop.
        """
        if self._async_client is None:
            # Imported at the first use in an event loop.
            from pyworkers.asyncclient import AsyncClient

            self._async_client = AsyncClient.of(self)
        return self._async_client

    def clients_for(self, *, on_commit: bool) -> Clients:
        """The clients of ``options(on_commit=…)``. Raises BadArgumentError: there are no transactions."""
        if on_commit:
            raise BadArgumentError(
                "on_commit=True needs an application with transactions",
                hint="of Django, or enqueue_after_commit of pyworkers.integrations.sqlalchemy",
            )
        return self

    def batch(
        self,
        description: str = "",
        *,
        on_success: Call | None = None,
        on_complete: Call | None = None,
        on_death: Call | None = None,
        on_cancel: Call | None = None,
        missing: Literal["fail", "ignore"] = "fail",
        flush: int = 0,
        tags: Sequence[str] = (),
    ) -> Batch:
        """A batch, whose members are the jobs that are enqueued inside its ``with``; sent at its end.

        The callbacks are jobs: ``finish.call(7)``. ``on_complete`` is enqueued when each member has run at
        least once or has ended, ``on_success`` when all are done, ``on_death`` when a member first ends
        without being done, ``on_cancel`` when the batch is cancelled; each once. ``missing="ignore"`` leaves
        members out that are cancelled, deleted, expired or missing.

        ``flush=1000``: each thousand members are sent at once, and may run before the end of the ``with``;
        callbacks wait for it. If the body raises, those that were sent are cancelled. If the program
        dies, a server cancels them after an hour without a push. ``tags``: texts by which people find the
        batch; its jobs have their own. Raises BadArgumentError.
        """
        # Imported at the first batch.
        from pyworkers.plugins.batches import new_batch

        callbacks = {
            "on_success": on_success,
            "on_complete": on_complete,
            "on_death": on_death,
            "on_cancel": on_cancel,
        }
        return new_batch(self.client, description, missing, flush, tags, **callbacks)

    def redis_config(self) -> RedisConfig:
        """The ``[redis]`` configuration for enqueueing. Raises ConfigError."""
        return self.stores().default

    def stores(self) -> Stores:
        """The Redis servers for enqueueing, and the one of each queue. Raises ConfigError."""
        stores = stores_for(self._url, self._namespace, os.environ, self._config)
        return self._registry.with_limited(stores)

    def carried(self) -> tuple[str, ...]:
        """The names of ``carry``, found at the first call; from then on, its enqueue calls carry the values.

        Raises ConfigError.
        """
        if self._carried is None:
            self._carried = names_for(self._carry, os.environ, self._config)
            if self._carried:
                self.client_links.append(Carrying(self._carried))
        return self._carried

    def draft(
        self,
        queue: str,
        job_class: str,
        retry: bool | int | None,
        options: Mapping[str, Any],
        at: float | None = None,
        /,
    ) -> Draft:
        """``draft`` with the options that the job declares, unless a ``process`` handler owns the queue."""
        known = type(queue) is type(job_class) is str and not self._registry.owns(queue)
        job = self._producers.get(job_class) if known else None
        if job is None:
            return draft(queue, job_class, retry, options, at, self._writing)
        return job.draft(queue, retry, options, at)

    def push(self, jobs: list[PushedJob]) -> Others:
        """Send jobs through the application's client; called by the enqueue methods."""
        return self.client.push(jobs)

    def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        return self.client.status(jid)

    def result(self, jid: str, timeout: float | None = 10.0) -> Any:
        """As ``Client.result``."""
        return self.client.result(jid, timeout)

    def history(self, jid: str) -> JobHistory | None:
        """As ``Client.history``."""
        return self.client.history(jid)

    def logs(self, jid: str) -> list[LogLine]:
        """As ``Client.logs``."""
        return self.client.logs(jid)

    def find(self, jid: str) -> JobStatus:
        """As ``Client.find``."""
        return self.client.find(jid)

    def cancel(self, jid: str) -> Cancelled:
        """As ``Client.cancel``."""
        return self.client.cancel(jid)

    def limits(self) -> list[LimitStats]:
        """The limits that are in use in the application's Redis servers, with the jobs that wait for them.

        Raises the errors of ``Client.enqueue``.
        """
        # Here, because a worker process never needs them.
        from pyworkers.store.admin import Admin
        from pyworkers.store.flow import limituses

        admins = map(Admin, self.stores().by_name.values())
        return [use for admin in admins for use in admin.run(limituses.uses(admin.keys))]


def _check_known(
    queue: str, declared: Collection[str], configured: Callable[[], Collection[str] | None]
) -> None:
    """Raise BadArgumentError for a queue without a handler and without a group.

    ``declared`` are the queues of the jobs, handlers and groups of the application; ``configured`` returns
    the queues of the configuration file, or None if this program knows no file. A server may have groups in a
    file that this program does not know: then only a name that is like a declared one is an error.
    """
    if queue in declared:
        return
    others = configured()
    if others is not None and queue in others:
        return
    near = suggestion(queue, (*declared, *(others or ())))
    if near or others is not None:
        names = "any_queue=True, if another application or a group of the server has it"
        hint = f"{near} Otherwise: {names}" if near else names
        raise BadArgumentError(f"the application does not know the queue {queue!r}", hint=hint)
