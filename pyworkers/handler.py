"""Handlers: the declarations of ``Worker``'s decorators as values, their options and their checks.

Pure; made when the application is imported, read by the worker process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pyworkers.config.cron_entries import check_entry
from pyworkers.config.groups import Sizes
from pyworkers.errors import DeclarationError, JobTimeout
from pyworkers.functions import check_function, check_takes
from pyworkers.groups import SizeOptions, check_sizes, sizes_of
from pyworkers.middleware import AnyMiddleware
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.fates import Fates, fates_of
from pyworkers.protocol.keeping import check_keep
from pyworkers.protocol.keys import check_queue_name
from pyworkers.protocol.limits import Limit, check_limits
from pyworkers.protocol.message import Message
from pyworkers.protocol.options import (
    OPTIONS,
    EncryptOptions,
    FailureOptions,
    FieldOptions,
    QueueLimitOptions,
    TrackOptions,
    UniqueOptions,
    is_number,
    suggestion,
)
from pyworkers.protocol.retry import Policy
from pyworkers.typed.arguments import Arguments, MessageArguments

if TYPE_CHECKING:
    from pyworkers.ipc.control import HandlerFacts

RetryIn = Callable[[int, BaseException, Message], float | None]
"""``(earlier failures, error, message)`` → seconds until the next attempt, or None for Sidekiq's delay."""

OnExhausted = Callable[[Message, BaseException | None], object]
"""Called for a failed job that will not be tried again."""


class HandlerOptions(FailureOptions, SizeOptions, total=False):
    """Options of ``@worker.process`` and ``@worker.job``. The defaults that differ are in ``_DEFAULTS``."""

    retry: bool | int
    """The number of retries, True for 25, False to drop a failed job; 0 keeps it in ``dead``."""
    timeout: float | None
    """Seconds that a job may run. Default: None, no limit."""
    retry_for: float | None
    """Seconds for which a job is retried, instead of a number of retries. Default: None."""
    retry_on: Sequence[type[BaseException]]
    """The exceptions after which a job is retried, at most ``retry`` times; after others it is dead at once.
    Default: none, then all are retried. The most specific class of the three lists counts."""
    discard_on: Sequence[type[BaseException]]
    """The exceptions after which a job is dropped. Default: none."""
    dead_on: Sequence[type[BaseException]]
    """The exceptions after which a job is dead at once. Default: none."""
    ordered: bool
    """Run the jobs of the queue one at a time over all servers, in the order of the queue. Default: False."""
    skip_dead: bool
    """Continue an ordered queue after a job that is dead; False: pause it. Default: True."""
    fenced: bool
    """End a job before its server's lease can end, so that no second run overlaps it. Default: False."""
    keep: Sequence[int] | None
    """Finished jobs to keep: about how many, for how many seconds: ``(1000, 86400)``. Default: None."""
    keep_args: bool
    """Keep finished jobs with their arguments. Default: True."""
    retry_in: RetryIn | None
    """Computes the delay of a retry. Default: None, Sidekiq's delay."""
    on_exhausted: OnExhausted | None
    """Called before the application's ``on_exhausted`` hooks. Default: None."""
    middleware: Sequence[AnyMiddleware]
    """Links around this handler alone, inside the application's, the first outermost. Default: none."""
    limits: Sequence[Limit]
    """The limits over all servers (``Worker.limit``) that each job keeps to. Default: none."""


class JobOptions(
    HandlerOptions, FieldOptions, TrackOptions, UniqueOptions, QueueLimitOptions, EncryptOptions, total=False
):
    """Options of ``@worker.job``."""

    queue: str
    """The queue of the jobs. Default: ``default``."""
    expires_in: float | timedelta | None
    """Seconds from the time when a job is due until it is dropped if it has not started. Default: None."""
    name: str | None
    """The job class in the envelope. Default: None, the name of the function behind ``name_prefix``."""
    name_prefix: str | None
    """The text in front of the function's name: ``"shop."``. Default: None, the text of the Worker."""


class CronOptions(TypedDict, total=False):
    """Options of ``@worker.cron``: the keys and values of ``[[cron]]`` in the configuration file."""

    every: str | None
    """Instead of a schedule: ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"``."""
    timezone: str
    """A name of the tz database. Default: ``UTC``."""
    misfire: str
    """What happens to missed slots: ``skip``, ``once`` (default), ``all``."""
    grace: float
    """Seconds after which a slot is missed. Default: 300."""
    name: str | None
    """The name of the entry, by which each slot fires once. Default: None, the job's name."""
    args: Sequence[Any]
    """The job's arguments. Default: none."""


_DEFAULTS: dict[str, HandlerOptions] = {
    "process": {"retry": 0, "concurrency": 10},
    "job": {"retry": True, "concurrency": None},
}
# What the functions among the options are called with.
_ARGUMENTS = {"retry_in": ("failures", "error", "message"), "on_exhausted": ("message", "error")}


@dataclass(frozen=True)
class Handler:
    """The function that runs the jobs of one queue (kind ``process``) or of one class (kind ``job``)."""

    name: str
    queue: str
    kind: Literal["process", "job"]
    run: Callable[[Message], object]
    policy: Policy = field(default_factory=Policy)
    timeout: float | None = None
    """Seconds; None: no limit."""
    sizes: Sizes = field(default_factory=Sizes)
    ordered: bool = False
    skip_dead: bool = True
    fenced: bool = False
    """A job ends before the lease of its server can end; jobs of ordered queues do so anyway."""
    keep: tuple[int, int] | tuple[()] | None = None
    """How many finished jobs are kept, and for how many seconds; empty: none; None: as the server says."""
    keep_args: bool = True
    fates: Fates = field(default_factory=Fates)
    retry_in: RetryIn | None = None
    on_exhausted: OnExhausted | None = None
    middleware: tuple[AnyMiddleware, ...] = ()
    limits: tuple[Limit, ...] = ()
    is_async: bool = False
    """``run`` returns an awaitable."""
    arguments: Arguments | MessageArguments | None = None
    """The codecs of typed parameters, if there are any."""
    place: str = ""
    """``FILE:LINE`` of its function."""
    function: Callable[..., object] | None = None
    """The function of a ``job``, which ``run`` calls with the arguments of a message."""

    def manifest(self) -> HandlerFacts:
        """The declaration as JSON values, for the master, which has no user code."""
        retry, dead = self.policy.retry, self.policy.dead
        facts: HandlerFacts = {"name": self.name, "retry": retry, "dead": dead, "is_async": self.is_async}
        if self.policy.retry_for is not None:
            facts["retry_for"] = self.policy.retry_for
        if (overdue := self.fates.of(JobTimeout)) is not None:
            facts["overdue"] = overdue
        if self.limits:
            facts["limited"] = True
        return facts


def declaration(kind: Literal["process", "job"], queue: str, options: HandlerOptions) -> partial[Handler]:
    """A Handler without its name and function. Raises DeclarationError."""
    given: HandlerOptions = {**_DEFAULTS[kind], **options}
    if options.get("retry_on"):
        # It asks for retries, also on a queue whose jobs have none by default.
        given["retry"] = options.get("retry", True)
    if _ordered(given, options):
        given["concurrency"] = None
    timeout = given.get("timeout")
    return partial(
        Handler,
        queue=queue,
        kind=kind,
        policy=Policy(
            given["retry"],
            given.get("dead", True),
            given.get("backtrace"),
            retry_for=given.get("retry_for"),
        ),
        ordered=_ordered(given, options),
        skip_dead=given.get("skip_dead", True),
        fenced=given.get("fenced", False),
        keep=_keep_of(given.get("keep")),
        keep_args=given.get("keep_args", True),
        fates=fates_of(options),
        timeout=None if timeout == 0 else timeout,
        sizes=sizes_of(given),
        retry_in=given.get("retry_in"),
        on_exhausted=given.get("on_exhausted"),
        middleware=_links_of(given.get("middleware", ())),
        limits=check_limits(given.get("limits", ()), f"a handler of {queue!r}"),
    )


def check_cron(entry: CronEntry) -> None:
    """Raise DeclarationError by the rules of ``[[cron]]`` in the configuration file."""
    try:
        check_entry(entry)
    except ValueError as error:
        raise DeclarationError(f"cron {entry.name!r}: {error}") from error


def check_handler(handler: Handler) -> None:
    """Raise DeclarationError for an invalid option of a decorator."""
    try:
        check_queue_name(handler.queue)
    except ValueError as error:
        raise DeclarationError(f"{handler.name}: {error}") from error
    for name in ("retry", "backtrace", "dead"):
        option, value = OPTIONS[name], getattr(handler.policy, name)
        unset = name == "backtrace" and value is None
        _check(unset or option.fits(value), handler, f"{name} must be {option.rule}", value)
    if (retry_for := handler.policy.retry_for) is not None:
        option = OPTIONS["retry_for"]
        _check(option.fits(retry_for), handler, f"retry_for must be {option.rule}", retry_for)
        _check(handler.policy.retry is not False, handler, "retry_for needs retries", False)
    timeout = handler.timeout
    valid_timeout = timeout is None or (is_number(timeout) and 0 <= timeout < math.inf)
    _check(valid_timeout, handler, "timeout must be in seconds", timeout)
    _check(isinstance(handler.fenced, bool), handler, "fenced must be True or False", handler.fenced)
    _check(isinstance(handler.keep_args, bool), handler, "keep_args must be True or False", handler.keep_args)
    check_sizes(handler.sizes, handler.name)
    for name, arguments in _ARGUMENTS.items():
        if (function := getattr(handler, name)) is not None:
            check_function(function, f"{name} of {handler.name}")
            check_takes(function, f"{name} of {handler.name}", *arguments)
    for link in handler.middleware:
        check_function(link, f"middleware of {handler.name}", may_be_async=True)
        check_takes(link, f"middleware of {handler.name}", "message", "call_next")


_CRON_LINE = 'write a cron line: @worker.cron("30 4 * * *")'
# The options of other libraries' decorators, with those to use instead.
_ELSEWHERE: dict[type, dict[str, str]] = {
    JobOptions: {
        "acks_late": "leave it out: each job is acknowledged at its end",
        "actor_name": "use name=…",
        "autoretry_for": "use retry_on=(…)",
        "bind": "leave it out: current_message() has the jid, and more",
        "cron": "put @worker.cron(…) above @worker.job",
        "default_retry_delay": "use retry_in=…, a function",
        "ignore_result": "leave it out: a result is kept with track=SECONDS",
        "max_retries": "use retry=NUMBER",
        "on_failure": "declare a function with @worker.on_error",
        "on_success": "the next job of a chain(…) runs then",
        "priority": "use its own queue, with a weight in worker.group(…)",
        "queue_name": "use queue=NAME",
        "rate_limit": "use limits=[worker.limit(NAME, rate=…)]",
        "result_ttl": "use track=SECONDS",
        "soft_time_limit": "use timeout=SECONDS",
        "time_limit": "use timeout=SECONDS",
        **dict.fromkeys(("max_backoff", "min_backoff", "retry_backoff"), "use retry_in=…, a function"),
        **dict.fromkeys(("retry_jitter", "retry_kwargs"), "use retry=NUMBER, and retry_in=…, a function"),
    },
    CronOptions: dict.fromkeys(
        ("day", "day_of_month", "day_of_week", "hour", "minute", "month", "second", "weekday"), _CRON_LINE
    ),
}


def refuse_unknown(given: Mapping[str, object], known: type, decorator: str) -> None:
    """Raise DeclarationError, with the nearest name, for an option that the TypedDict ``known`` lacks."""
    names = known.__annotations__.keys()
    for name in given:
        if name not in names:
            instead = _ELSEWHERE.get(known, {}).get(name)
            near = instead or suggestion(name, names) or f"it has: {', '.join(sorted(names))}"
            raise DeclarationError(f"{decorator} has no option {name}", hint=near)


def _ordered(given: HandlerOptions, options: HandlerOptions) -> bool:
    """True if the queue is ordered. Raises DeclarationError for options that contradict it."""
    ordered, skip_dead = given.get("ordered", False), given.get("skip_dead", True)
    for name, value in (("ordered", ordered), ("skip_dead", skip_dead)):
        if not isinstance(value, bool):
            raise DeclarationError(f"{name} must be True or False, not {value!r}")
    if not ordered:
        if not skip_dead:
            raise DeclarationError("skip_dead=False is for an ordered queue", hint="add ordered=True")
        return False
    for name in ("concurrency", "processes"):
        if options.get(name) is not None:
            raise DeclarationError(f"an ordered queue takes no {name}: it runs one job at a time")
    return True


def _keep_of(value: Any) -> tuple[int, int] | tuple[()] | None:
    """The ``keep=`` of a decorator; empty for an empty list. Raises DeclarationError."""
    try:
        return None if value is None else check_keep(value) or ()
    except ValueError as error:
        raise DeclarationError(str(error)) from error


def _links_of(middleware: Sequence[AnyMiddleware]) -> tuple[AnyMiddleware, ...]:
    """The ``middleware=`` of a decorator as a tuple. Raises DeclarationError for anything but a list."""
    if callable(middleware):
        raise DeclarationError("middleware must be a list of functions, not one", hint="middleware=[…]")
    if not isinstance(middleware, Sequence) or isinstance(middleware, str):
        raise DeclarationError(f"middleware must be a list of functions, not {middleware!r}")
    return tuple(middleware)


def _check(fits: bool, handler: Handler, rule: str, value: object) -> None:
    if not fits:
        raise DeclarationError(f"{handler.name}: {rule}, not {value!r}")
