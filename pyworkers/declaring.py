"""Declarations: the handlers, groups, limits and cron entries of an application.

Filled while the application is imported; read by the fork server (``manifest``) and the worker processes
(``lookup``, ``links``, ``hooks``). It never connects to Redis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from pyworkers.encryption import Encryption
from pyworkers.enqueueing.carrying import Carrying
from pyworkers.errors import DeclarationError
from pyworkers.functions import (
    NamePrefix,
    call_with_args,
    call_with_message,
    check_function,
    check_takes,
    job_class_of,
    place,
    takes_of,
    with_typed_result,
)
from pyworkers.groups import GroupOptions, group_facts
from pyworkers.handler import CronOptions, Handler, HandlerOptions, JobOptions, declaration, refuse_unknown
from pyworkers.hooks import Hooks
from pyworkers.job import Clients, Job, cron_entry, declared_job
from pyworkers.middleware import is_async
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.draft import Writing
from pyworkers.protocol.limits import By, Limit
from pyworkers.protocol.message import Message
from pyworkers.registry import Registry
from pyworkers.typed.arguments import arguments_of, message_arguments_of, returned_of

if TYPE_CHECKING:
    from pyworkers.ipc.control import JobFacts, Manifest

P = ParamSpec("P")
R = TypeVar("R")


class _Declare(Protocol):
    """The decorator that ``@worker.job(…)`` returns."""

    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...


class Declarations(Hooks, Clients):
    """The part of ``Worker`` that declares; its jobs are enqueued through the clients of its subclass."""

    def __init__(self, name_prefix: NamePrefix, encryption: Encryption) -> None:
        super().__init__()
        self.encryption = encryption
        """The keys for jobs with the option ``encrypt``."""
        self._name_prefix = name_prefix
        self._writing = Writing(encryption=encryption)
        self._registry = Registry()
        self._declared: list[str] = []
        self._producers: dict[str, Job[..., Any]] = {}
        self.cron_entries: list[CronEntry] = []

    def process(
        self, queue: str, **options: Unpack[HandlerOptions]
    ) -> Callable[[Callable[[Message[Any]], R]], Callable[[Message[Any]], R]]:
        """Declare the handler of all jobs of ``queue``, of any class; it gets the Message.

        With the annotation ``Message[…]`` (extra ``types``), ``message.args`` are of that type.

        Raises DeclarationError. Options and defaults (see ``pyworkers.handler.HandlerOptions``):
          concurrency=10      the number of jobs that run at a time
          processes=None      the number of worker processes that share them; None: the cores
                              ``"auto"``: none without a job; ``"1-4"``: from one to four
          mode=None           ``process``, ``async`` or ``thread``; None: by the function
          retry=0             retries of a job that has no ``retry``; True: 25, 0: keep it in ``dead``
          timeout=None        seconds that a job may run
          dead=True           keep a job in ``dead`` when its retries are used up
          backtrace=None      lines of the traceback to store with a failed job; None: 20; True: all
          retry_for=None      seconds for which a job without a number of retries is retried instead
          ordered=False       one job at a time over all servers, in the order of the queue
          skip_dead=True      continue an ordered queue after a job that is dead; False: pause it
          fenced=False        end a job before its server's lease can end: no second run overlaps it
          keep=None           the finished jobs to keep: ``(1000, 86400)``, the last 1000, for a day
          keep_args=True      keep them with their arguments
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
            check_takes(function, f"the handler of {queue!r}", "message")
            name = getattr(function, "__name__", queue)
            types = message_arguments_of(function)
            run = call_with_message(function, types)
            handler = make(name, run=run, is_async=is_async(function), arguments=types, place=place(function))
            self._registry.add(handler)
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
          name_prefix=None    the text in front of the function's name, instead of the Worker's
          concurrency=None    the jobs that run at a time; of several jobs on one queue the largest
          processes=None      the number of worker processes that share them; None: the cores
                              ``"auto"``: none without a job; ``"1-4"``: from one to four
          mode=None           ``process``, ``async`` or ``thread``; None: by the functions of the queue
          timeout=None        seconds that a job may run
          ordered=False       run the jobs of the queue one at a time over all servers, in their order
          skip_dead=True      continue an ordered queue after a job that is dead; False: pause it
          fenced=False        end a job before its server's lease can end: no second run overlaps it
          keep=None           the finished jobs to keep: ``(1000, 86400)``, the last 1000, for a day
          keep_args=True      keep them with their arguments
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
          backtrace=None      lines of the traceback to store with a failed job; None: 20; True: all
          tags=()             labels, which Sidekiq's Web UI shows
          extra=None          the application's own fields, e.g. ``{"tenant": 7}``
          track=None          seconds after its end for which status and result are kept
          history=False       keep the job and each run with its error for this time (``Worker.history``)

        These decide whether a job is enqueued:
          unique_for=None     seconds (and the job's delay) for which the same job is a duplicate
          unique_until="success"  the end of this time: ``success`` (done or dead), ``start`` or ``expiry``
          unique_by=None      ``(*args)`` -> the value that is compared, instead of all arguments
          on_duplicate="skip"  or ``raise`` DuplicateJobError, or ``replace`` a job that is scheduled
          encrypt=False       seal the arguments with the newest key of ``[encryption]`` (extra ``crypto``)
          max_waiting=None    with this many jobs in the queue, QueueFullError is raised
          wait=0              seconds to wait for room in the queue first
        """
        refuse_unknown(options, JobOptions, "job")
        make = declaration("job", options.get("queue", "default"), options)
        declare = partial(self._declare_job, make, options)
        return declare if function is None else declare(function)

    def _declare_job(
        self, make: Callable[..., Handler], options: JobOptions, function: Callable[P, R], /
    ) -> Job[P, R]:
        if isinstance(function, str):
            raise DeclarationError(
                f"job takes no text: {function!r}", hint="name the queue or the class: queue=…, name=…"
            )
        name = options.get("name")
        what = f"the job {name!r}" if name else f"the job {getattr(function, '__name__', function)!r}"
        _check_undeclared(function, what)
        job_class = job_class_of(function, what, options, self._name_prefix)
        types = arguments_of(function)
        run, awaits = call_with_args(function, types), is_async(function)
        run = with_typed_result(run, returned_of(function), is_async=awaits)
        handler = make(
            job_class, run=run, is_async=awaits, arguments=types, place=place(function), function=function
        )
        self._registry.add(handler)
        writing = Writing(types.to_json, self.encryption) if types else self._writing
        job = declared_job(function, handler, options, self, writing)
        self._producers[job_class] = job
        return job

    def group(self, name: str, **options: Unpack[GroupOptions]) -> None:
        """Let several queues share one pool of workers. Raises DeclarationError.

        A queue is in one group. It need not have its own job: any job can be enqueued there.
        Options and defaults (see ``pyworkers.groups.GroupOptions``):
          queues=             a list, in strict order, or a dict with weights: ``{"critical": 5, "low": 1}``
          concurrency=None    the number of jobs that run at a time; None: the largest of its queues
          processes=None      the number of worker processes that share them; None: the cores
                              ``"auto"``: none without a job; ``"1-4"``: from one to four
          mode=None           ``process``, ``async`` or ``thread``; None: by the functions of its queues
        """
        refuse_unknown(options, GroupOptions, "group")
        self._registry.add_group(name, group_facts(name, options))

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

        Either ``rate``: this many starts in any ``per`` seconds; or ``concurrency``: this many at once. With
        ``by``, a function of the job's arguments, each value that it returns has its own limit. A job
        that may not start yet is postponed, which is not an attempt, and its worker takes the next one. The
        same name means the same limit in all applications on one Redis.
        """
        if by is not None:
            check_function(by, f"by of the limit {name!r}")
        return self._registry.add_limit(Limit(name, rate, per, concurrency, by))

    def cron(
        self, schedule: str | None = None, **options: Unpack[CronOptions]
    ) -> Callable[[Job[P, R]], Job[P, R]]:
        """Enqueue the job below on a schedule, as ``[[cron]]`` does. Raises DeclarationError.

        Options and defaults (see ``pyworkers.handler.CronOptions``):
          every=None       instead of ``schedule``: ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``
          timezone="UTC"   a name of the tz database
          misfire="once"   what happens to missed slots: ``skip``, ``once``, ``all``
          grace=300.0      seconds after which a missed slot is dropped
          name=None        the entry's name, by which each slot fires once; a job's second entry needs one
          args=()          the job's arguments
        """
        refuse_unknown(options, CronOptions, "cron")
        every = options.get("every")
        if not isinstance(schedule, str | None):
            raise DeclarationError("cron needs a schedule", hint='@worker.cron("*/5 * * * *"), or every="5m"')
        if (schedule is None) == (every is None):
            raise DeclarationError('cron takes either a schedule or every="30s"')
        line = f"every {every}" if schedule is None else schedule

        def declare(job: Job[P, R]) -> Job[P, R]:
            if not isinstance(job, Job):
                raise DeclarationError("@worker.cron must be directly above @worker.job")
            entry = cron_entry(job, line, options)
            if any(other.name == entry.name for other in self.cron_entries):
                raise DeclarationError(
                    f"two cron entries are named {entry.name!r}", hint='give one another name: name="…"'
                )
            self.cron_entries.append(entry)
            return job

        return declare

    def lookup(self, queue: str, job_class: str) -> Handler:
        """The handler that owns a job's queue, or else the handler of its class. Raises UnknownJobError."""
        return self._registry.lookup(queue, job_class)

    def owns(self, queue: str) -> bool:
        """True if one ``process`` handler runs all jobs of the queue."""
        return self._registry.owns(queue)

    def handlers(self) -> tuple[Handler, ...]:
        """All handlers: first of jobs, then of whole queues, in the order of their declaration."""
        return self._registry.handlers()

    def handler_numbers(self) -> dict[str, int]:
        """The number of each handler in the manifest, from 1: outcomes refer to it.

        Handlers that were declared after the manifest was made have none.
        """
        return {name: number for number, name in enumerate(self._declared, 1)}

    def enter(self, mode: str) -> None:
        """Prepare a worker process of this mode; called before its hooks. For subclasses."""

    def manifest(self) -> Manifest:
        """The application's declarations as JSON values, for the master."""
        self._declared = [handler.name for handler in self.handlers()]
        functions = {handler.name: handler.function for handler in self.handlers() if handler.function}
        jobs: dict[str, JobFacts] = {
            name: {
                "envelope": job.given(),
                "takes": takes_of(functions[name]) if name in functions else None,
                **self._registry.job_facts(name),
            }
            for name, job in self._producers.items()
        }
        manifest: Manifest = {
            "queues": self._registry.queue_facts(),
            "groups": self._registry.groups,
            "jobs": jobs,
            "handlers": self._declared,
            "cron": [asdict(entry) for entry in self.cron_entries],
            "hooks": self.hook_counts(),
        }
        # A cron slot has no context to carry.
        if any(not isinstance(link, Carrying) for link in self.client_links):
            manifest["client_middleware"] = True
        return manifest


def _check_undeclared(function: object, what: str) -> None:
    if isinstance(function, Job):
        raise DeclarationError(f"{what} is declared as a job already")
    check_function(function, what, may_be_async=True)
