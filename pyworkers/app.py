"""Worker: the declarations of an application: its handlers, cron entries, middleware and hooks.

Filled while the application is imported; read by the fork server (``manifest``) and the worker processes
(``lookup``, ``links``, ``hooks``). The master never imports it. Only its client connects to Redis, when the
application first enqueues.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from pyworkers.client import Client
from pyworkers.config.fields import RedisConfig
from pyworkers.encryption import Encryption, KeySource
from pyworkers.errors import DeclarationError
from pyworkers.groups import GroupOptions, group_facts
from pyworkers.handler import (
    CronOptions,
    Handler,
    HandlerOptions,
    JobOptions,
    call_with_args,
    call_with_message,
    check_function,
    check_takes_message,
    declaration,
    function_name,
    refuse_unknown,
    with_typed_result,
)
from pyworkers.job import Job, cron_entry, declared_job
from pyworkers.middleware import AnyMiddleware, ClientMiddleware, EffectsOf, is_async
from pyworkers.producer import Producer
from pyworkers.protocol.call import Call
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.draft import Draft, PushedJob, Writing, draft
from pyworkers.protocol.limits import By, Limit, LimitStats
from pyworkers.protocol.message import Message
from pyworkers.protocol.status import JobStatus
from pyworkers.protocol.terms import Others
from pyworkers.registry import Registry
from pyworkers.store.transport.connections import config_for
from pyworkers.typed.arguments import arguments_of, message_arguments_of, returned_of

if TYPE_CHECKING:
    from pyworkers.ipc.control import GroupFacts, JobFacts, Manifest
    from pyworkers.plugins.batches import Batch

__all__ = ["CronEntry", "Handler", "Job", "Worker"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., object])

HOOKS = ("on_startup", "on_shutdown", "before_start", "during_drain", "on_exhausted")


class _Declare(Protocol):
    """The decorator that ``@worker.job(…)`` returns."""

    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...


class Worker(Producer):
    """An application: decorate functions with it, and name it as ``app`` in the configuration.

    ``url``, ``namespace`` and ``config``, the path of a configuration file, are for enqueueing only. The
    first two are those of ``Client``. The file is read at the first use: its ``[redis]`` fields are used
    where these and the environment give no value. In a job, the Redis of its server is used instead.

    ``encryption`` are the keys of jobs with ``encrypt=True``: the path of a file with a base64 key a line, or
    a list of keys, the newest first. Without it: those of the server, in its jobs; elsewhere the file that
    ``PYWORKERS_ENCRYPTION__KEYS`` or the configuration names.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        config: str | Path | None = None,
        encryption: KeySource | None = None,
    ) -> None:
        self._url = url
        self._namespace = namespace
        # Absolute: a program may change its working directory before it enqueues.
        self._config = None if config is None else Path(config).absolute()
        self.encryption = Encryption(encryption, self._config)
        """The keys for jobs with the option ``encrypt``."""
        self._writing = Writing(encryption=self.encryption)
        self._client: Client | None = None
        self._registry = Registry()
        self._groups: dict[str, GroupFacts] = {}
        self._limits: dict[str, Limit] = {}
        self._declared: list[str] = []
        self._producers: dict[str, Job[..., Any]] = {}
        self._draft = self.draft
        self._hooks: dict[str, list[Callable[..., object]]] = {kind: [] for kind in HOOKS}
        self.links: list[AnyMiddleware] = []
        """The global middleware, the outermost first."""
        self.client_links: list[ClientMiddleware] = []
        self.effects: list[EffectsOf] = []
        """For plug-ins: called in the worker process for each outcome, also of a job that raised."""
        self.cron_entries: list[CronEntry] = []

    # --- handlers -------------------------------------------------------------------------------------------

    def process(
        self, queue: str, **options: Unpack[HandlerOptions]
    ) -> Callable[[Callable[[Message[Any]], R]], Callable[[Message[Any]], R]]:
        """Declare the handler of all jobs of ``queue``, of any class; it gets the Message.

        With the annotation ``Message[…]`` (extra ``types``), ``message.args`` are of that type.

        Raises DeclarationError. Options and defaults (see ``pyworkers.handler.HandlerOptions``):
          concurrency=10      the number of jobs that run at a time
          processes=None      the number of worker processes that share them; None: the cores
          mode=None           ``process``, ``async`` or ``thread``; None: by the function
          retry=0             retries of a job that has no ``retry``; True: 25, 0: keep it in ``dead``
          timeout=None        seconds that a job may run
          dead=True           keep a job in ``dead`` when its retries are used up
          backtrace=False     lines of the traceback to store with a failed job; True: all
          retry_for=None      seconds for which a job without a number of retries is retried instead
          ordered=False       one job at a time over all servers, in the order of the queue
          skip_dead=True      continue an ordered queue after a job that is dead; False: pause it
          retry_on=()         the exceptions that are retried; others are dead at once; empty: all are retried
          discard_on=()       the exceptions after which a job is dropped
          dead_on=()          the exceptions after which a job is dead at once
          retry_in=None       ``(earlier failures, error, message)`` -> seconds until the retry
          on_exhausted=None   called with message and error of a job that is not tried again
          middleware=()       links around this handler alone
          limits=()           the limits over all servers that each job keeps to (``limit``)
        """
        refuse_unknown(options, HandlerOptions, "process")
        if not isinstance(queue, str):
            raise DeclarationError("process needs the name of a queue", hint='@worker.process("myqueue")')
        make = declaration("process", queue, options)

        def declare(function: Callable[[Message[Any]], R]) -> Callable[[Message[Any]], R]:
            _check_undeclared(function, f"the handler of {queue!r}")
            check_takes_message(function, f"the handler of {queue!r}")
            name = getattr(function, "__name__", queue)
            types = message_arguments_of(function)
            run = call_with_message(function, types)
            self._registry.add(make(name, run=run, is_async=is_async(function), arguments=types))
            return function

        return declare

    @overload
    def job(self, function: Callable[P, R], /) -> Job[P, R]: ...

    @overload
    def job(self, function: None = None, /, **options: Unpack[JobOptions]) -> _Declare: ...

    def job(self, function: Callable[..., Any] | None = None, /, **options: Unpack[JobOptions]) -> Any:
        """Declare the function that runs the jobs of one class, by default its name; it gets the arguments.

        Returns a Job. Raises DeclarationError. Options and defaults (see ``pyworkers.handler.JobOptions``):
          queue="default"     the queue of the jobs
          name=None           the class of the jobs, instead of the function's name
          concurrency=None    the jobs that run at a time; of several jobs on one queue the largest counts
          processes=None      the number of worker processes that share them; None: the cores
          mode=None           ``process``, ``async`` or ``thread``; None: by the functions of the queue
          timeout=None        seconds that a job may run
          ordered=False       run the jobs of the queue one at a time over all servers, in their order
          skip_dead=True      continue an ordered queue after a job that is dead; False: pause it
          retry_on=()         the exceptions that are retried; others are dead at once; empty: all are retried
          discard_on=()       the exceptions after which a job is dropped
          dead_on=()          the exceptions after which a job is dead at once
          retry_in=None       ``(earlier failures, error, message)`` -> seconds until the retry
          on_exhausted=None   called with message and error of a job that is not tried again
          middleware=()       links around this handler alone
          limits=()           the limits over all servers that each job keeps to (``limit``)

        These travel with each job that is enqueued:
          retry=True          the number of retries; True: 25, False: drop a failed job
          retry_for=None      seconds for which a job is retried, instead of a number of retries
          expires_in=None     seconds from when a job is due until it is dropped if it has not started
          dead=True           keep a job in ``dead`` when its retries are used up
          backtrace=False     lines of the traceback to store with a failed job; True: all
          tags=()             labels, which Sidekiq's Web UI shows
          extra=None          fields of the application's own, e.g. ``{"tenant": 7}``
          track=None          seconds after its end for which status and result can be asked for

        These decide whether a job is enqueued:
          unique_for=None     seconds (and the job's delay) for which the same job is a duplicate
          unique_until="success"  the end of that: ``success`` (done or dead), ``start`` or ``expiry``
          unique_by=None      ``(*args)`` -> what counts as the same, instead of all arguments
          on_duplicate="skip"  or ``raise`` DuplicateJobError, or ``replace`` a job that is scheduled
          encrypt=False       seal the arguments with the newest key of ``[encryption]`` (extra ``crypto``)
          max_waiting=None    with so many jobs in the queue, QueueFullError is raised
          wait=0              seconds to wait for room in the queue first
        """
        refuse_unknown(options, JobOptions, "job")
        make = declaration("job", options.get("queue", "default"), options)
        name = options.get("name")

        def declare(function: Callable[P, R]) -> Job[P, R]:
            what = f"the job {name!r}" if name else f"the job {getattr(function, '__name__', function)!r}"
            _check_undeclared(function, what)
            job_class = function_name(function, what) if name is None else name
            types = arguments_of(function)
            run, awaits = call_with_args(function, types), is_async(function)
            run = with_typed_result(run, returned_of(function), is_async=awaits)
            handler = make(job_class, run=run, is_async=awaits, arguments=types)
            self._registry.add(handler)
            writing = Writing(types.to_json, self.encryption) if types else self._writing
            job = declared_job(function, handler, options, lambda: self.client, writing)
            self._producers[job_class] = job
            return job

        return declare if function is None else declare(function)

    def group(self, name: str, **options: Unpack[GroupOptions]) -> None:
        """Have the workers of one pool run the jobs of several queues. Raises DeclarationError.

        A queue stands in one group. It may have no job of its own: any job can be enqueued there.
        Options and defaults (see ``pyworkers.handler.GroupOptions``):
          queues=             a list, in strict order, or a dict with weights: ``{"critical": 5, "low": 1}``
          concurrency=None    the number of jobs that run at a time; None: the largest of its queues
          processes=None      the number of worker processes that share them; None: the cores
          mode=None           ``process``, ``async`` or ``thread``; None: by the functions of its queues
        """
        refuse_unknown(options, GroupOptions, "group")
        facts = group_facts(name, options)
        if name in self._groups:
            raise DeclarationError(f"two groups are named {name!r}")
        for other, declared in self._groups.items():
            if shared := [queue for queue in facts["queues"] if queue in declared["queues"]]:
                raise DeclarationError(
                    f"the queue {shared[0]!r} stands in two groups, {other!r} and {name!r}",
                    hint="a queue stands in one group",
                )
        self._groups[name] = facts

    def limit(
        self,
        name: str,
        *,
        rate: int | None = None,
        per: float = 1.0,
        concurrency: int | None = None,
        by: By | None = None,
    ) -> Limit:
        """Declare a limit over all servers, for ``limits=[…]`` of jobs. Raises DeclarationError.

        Either ``rate``: so many starts in any ``per`` seconds; or ``concurrency``: so many jobs at once. With
        ``by``, a function of the job's arguments, each value that it returns has a limit of its own. A job
        that may not start yet is put off, which is not an attempt, and its worker takes the next one. The
        same name stands for the same limit in all applications on one Redis.
        """
        if by is not None:
            check_function(by, f"by of the limit {name!r}")
        limit = Limit(name, rate, per, concurrency, by)
        other = self._limits.setdefault(name, limit)
        if replace(other, by=None) != replace(limit, by=None) or (other.by is None) != (by is None):
            raise DeclarationError(
                f"the limit {name!r} is declared twice, with other numbers",
                hint="declare it once, and name it in limits=[…] of several jobs",
            )
        return limit

    def limits(self) -> list[LimitStats]:
        """The limits that are in use in the application's Redis, with the jobs that wait for them.

        Raises the errors of ``Client.enqueue``.
        """
        # Here, because a worker process never needs them.
        from pyworkers.store.admin import Admin
        from pyworkers.store.flow import limits

        admin = Admin(self.redis_config())
        return admin.run(limits.uses(admin.keys))

    def cron(
        self, schedule: str | None = None, **options: Unpack[CronOptions]
    ) -> Callable[[Job[P, R]], Job[P, R]]:
        """Enqueue the job below on a schedule, as ``[[cron]]`` does. Raises DeclarationError.

        Options and defaults (see ``pyworkers.handler.CronOptions``):
          every=None       instead of ``schedule``: ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``
          timezone="UTC"   a name of the tz database
          misfire="once"   what happens to missed slots: ``skip``, ``once``, ``all``
          grace=300.0      seconds after which a slot is missed
          name=None        the entry's name, by which each slot fires once; a job's second entry needs one
          args=()          the job's arguments
        """
        refuse_unknown(options, CronOptions, "cron")
        every = options.get("every")
        if (schedule is None) == (every is None):
            raise DeclarationError('cron takes either a schedule or every="30s"')
        line = f"every {every}" if schedule is None else schedule

        def declare(job: Job[P, R]) -> Job[P, R]:
            if not isinstance(job, Job):
                raise DeclarationError("@worker.cron must stand directly above @worker.job")
            entry = cron_entry(job, line, options)
            if any(other.name == entry.name for other in self.cron_entries):
                raise DeclarationError(
                    f"two cron entries are named {entry.name!r}", hint='give one another name: name="…"'
                )
            self.cron_entries.append(entry)
            return job

        return declare

    def lookup(self, queue: str, job_class: str) -> Handler:
        """The handler of a job: the owner of its queue, or else that of its class. Raises UnknownJobError."""
        return self._registry.lookup(queue, job_class)

    def owns(self, queue: str) -> bool:
        """True if one ``process`` handler runs all jobs of the queue."""
        return self._registry.owns(queue)

    def handlers(self) -> tuple[Handler, ...]:
        """All handlers: those of jobs, then those of whole queues, in the order of their declaration."""
        return self._registry.handlers()

    def handler_numbers(self) -> dict[str, int]:
        """The number of each handler in the manifest, from 1: outcomes refer to it.

        Handlers that were declared after the manifest was made have none.
        """
        return {name: number for number, name in enumerate(self._declared, 1)}

    def manifest(self) -> Manifest:
        """The application's declarations as JSON values, for the master."""
        self._declared = [handler.name for handler in self.handlers()]
        jobs: dict[str, JobFacts] = {
            name: {"envelope": job.given(), **self._registry.job_facts(name)}
            for name, job in self._producers.items()
        }
        return {
            "queues": self._registry.queue_facts(),
            "groups": self._groups,
            "jobs": jobs,
            "handlers": self._declared,
            "cron": [asdict(entry) for entry in self.cron_entries],
            "hooks": {kind: len(functions) for kind, functions in self._hooks.items()},
        }

    # --- middleware and hooks -------------------------------------------------------------------------------

    def middleware(self, link: F) -> F:
        """Put a link around every job: ``(message, call_next) -> outcome``. The first one is outermost.

        A ``def`` link calls ``call_next``, an ``async def`` link awaits it, also if the next link or the job
        is of the other kind. Where a process or thread runs one job at a time, async code runs on an event
        loop of that thread, and ``def`` code in the thread itself. In an async group, ``def`` links and jobs
        run on threads of the process, and wait there while the async code inside them runs on its loop.
        """
        check_function(link, "a middleware", may_be_async=True)
        self.links.append(link)  # type: ignore[arg-type]
        return link

    def client_middleware(self, link: F) -> F:
        """Put a link around every enqueue call: ``(draft, call_next) -> jid``. The first one is outermost.

        It is called once for each job, in the program that enqueues, before anything is written; not for
        retries, and not for cron slots, which the server enqueues. It returns the jid of ``call_next(draft)``
        or, without this call, "": then the job is not enqueued. ``draft.with_extra(tenant=7)`` adds a field.
        """
        check_function(link, "a client middleware")
        self.client_links.append(link)  # type: ignore[arg-type]
        return link

    def on_startup(self, function: F) -> F:
        """Call the function in each worker process before its first job.

        It may be ``async def``: it runs on the loop of the process, on which its async jobs run; in mode
        ``thread``, each thread has another one.
        """
        return self._hook("on_startup", function, may_be_async=True)

    def on_shutdown(self, function: F) -> F:
        """Call the function in each worker process after its last job, unless it is killed.

        It may be ``async def``, as a function of ``on_startup`` may.
        """
        return self._hook("on_shutdown", function, may_be_async=True)

    def before_start(self, function: F) -> F:
        """Call the function once, before the first worker process is forked; it must not start threads."""
        return self._hook("before_start", function)

    def during_drain(self, function: F) -> F:
        """Call the function once when the server begins to stop, while the last jobs run."""
        return self._hook("during_drain", function)

    def on_exhausted(self, function: F) -> F:
        """Call ``function(message, error)`` in a worker process for each failed job that is not tried again.

        ``error`` is None if no exception ended the job.
        """
        return self._hook("on_exhausted", function)

    def hooks(self, kind: str) -> tuple[Callable[..., object], ...]:
        """The hooks of one kind, in the order of their declaration."""
        return tuple(self._hooks[kind])

    # --- enqueueing -----------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client of this application, made at its first use. Raises ConfigError."""
        if self._client is None:
            self._client = Client.of(self)
        return self._client

    def batch(
        self,
        description: str = "",
        *,
        on_success: Call | None = None,
        on_complete: Call | None = None,
        on_death: Call | None = None,
    ) -> Batch:
        """A batch, whose members are the jobs that are enqueued inside its ``with``; sent at its end.

        The callbacks are jobs: ``finish.call(7)``. ``on_complete`` is enqueued when each member has run at
        least once, ``on_success`` when all are done, ``on_death`` when the first one is dead; each once.
        Raises BadArgumentError.
        """
        # Imported at the first batch.
        from pyworkers.plugins.batches import new_batch

        return new_batch(
            self.client, description, on_success=on_success, on_complete=on_complete, on_death=on_death
        )

    def redis_config(self) -> RedisConfig:
        """The ``[redis]`` configuration for enqueueing. Raises ConfigError."""
        return config_for(self._url, self._namespace, os.environ, self._config)

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

    def _hook(self, kind: str, function: F, *, may_be_async: bool = False) -> F:
        check_function(function, kind, may_be_async=may_be_async)
        self._hooks[kind].append(function)
        return function


def _check_undeclared(function: object, what: str) -> None:
    if isinstance(function, Job):
        raise DeclarationError(f"{what} is declared as a job already")
    check_function(function, what, may_be_async=True)
