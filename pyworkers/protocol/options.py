"""Options: the fields of the envelope that a producer may set, each with its type and its rule.

Pure; used by clients, applications and cron. A call takes the options of one TypedDict, by ``Unpack``; those
of the decorators are in handler.py. An unknown option is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.envelope import check_value
from pyworkers.protocol.keys import is_queue_name
from pyworkers.protocol.terms import OnDuplicate

_MAX_RETRY_FOR_S = 1e9  # Sidekiq's job_util.rb
_LONGEST_LIFE_S = 1e9


class FailureOptions(TypedDict, total=False):
    """Options of every handler and of every job."""

    backtrace: bool | int
    """Lines of the traceback to store with a failed job; True for all (at most 1000), False for none.
    Default: ``[retry] backtrace``, 20."""
    dead: bool
    """Keep a job in ``dead`` when its retries are used up. Default: True."""


class FieldOptions(TypedDict, total=False):
    """Options that are fields of the envelope for display and for middleware, without another effect."""

    tags: Sequence[str]
    """Labels, which Sidekiq's Web UI shows."""
    extra: Mapping[str, Any]
    """Fields of the application's own, e.g. ``{"tenant": 7}``; a job reads them in ``message.data``."""


class TrackOptions(TypedDict, total=False):
    """Options of a job whose status and result can be asked for."""

    track: float | timedelta | None
    """Seconds after its end for which they can be asked for, by the job's id. Default: None, not at all."""
    history: bool
    """Keep the job as it was enqueued, and each run with its error, as long (``Client.history``). Default:
    False."""


class UniqueOptions(TypedDict, total=False):
    """Options of a job of which no second one may be enqueued."""

    unique_for: float | timedelta | None
    """Seconds, beside the job's delay, for which a job with the same class, queue and arguments is a
    duplicate: ``enqueue`` returns the jid of the other. Default: None, never."""
    unique_until: Literal["success", "start", "expiry"]
    """When that ends earlier: when the job is done or dead, at its start, or never. Default: ``success``."""
    unique_by: Any
    """What counts as the same instead of all arguments: a function of the arguments, or its result."""
    on_duplicate: OnDuplicate
    """``skip``, ``raise`` DuplicateJobError, or ``replace`` a job that is still scheduled. Default: skip."""


class QueueLimitOptions(TypedDict, total=False):
    """Options of a job whose queue has a limit."""

    max_waiting: int | None
    """With this many jobs in its queue, a job that is due now raises QueueFullError. Default: no limit."""
    wait: float
    """Seconds to wait for room in the queue first. Default: 0."""


class EncryptOptions(TypedDict, total=False):
    """The option of a job whose arguments are encrypted (extra ``crypto``)."""

    encrypt: bool
    """Seal the arguments with the newest key of ``[encryption]``. Default: False."""


class EnqueueOptions(
    FailureOptions, FieldOptions, TrackOptions, UniqueOptions, QueueLimitOptions, EncryptOptions, total=False
):
    """Options of an enqueue call, beside ``retry``."""

    timeout: float
    """Seconds that the job may run, instead of its handler's limit."""
    expires_in: float | timedelta
    """Seconds from the time when the job is due until it is dropped if it has not started."""
    retry_for: float
    """Retry for this number of seconds (Sidekiq 7)."""
    retry_queue: str
    """The queue of the job's retries."""
    retry_max: int
    """The number of retries if ``retry`` is True, instead of 25 (go-workers2 reads no other limit)."""
    jid: str
    """The job's id, for a call that enqueues one job. Default: a random one."""


class JobOverrides(EnqueueOptions, total=False):
    """Options of ``Job.options``; None leaves ``queue`` and ``retry`` as declared."""

    queue: str | None
    any_queue: bool
    """Take a queue that the application does not know, e.g. one of another application. Default: False."""
    retry: bool | int | None
    """The number of retries, True for 25, False to drop a failed job."""
    on_commit: bool
    """False: enqueue at once, also inside a transaction. Default: as the application says (Django)."""


# Fields that no producer sets.
_OF_THE_PUSH = (
    "args",
    "class",
    "queue",
    "at",
    "created_at",
    "enqueued_at",
    "expiry",
    "cron",
    "unique_key",
    "encrypted",
)
_OF_A_FAILURE = (
    "failed_at",
    "retried_at",
    "discarded_at",
    "retry_count",
    "crash_count",
    "misfits",
    "misfit_at",
)
_OF_AN_ERROR = ("error_class", "error_message", "error_backtrace")
_OF_A_BATCH = ("batch", "batch_index", "then")
_RESERVED = frozenset((*_OF_THE_PUSH, *_OF_A_FAILURE, *_OF_AN_ERROR, *_OF_A_BATCH))
_DECORATOR = "the decorator of the job takes it"
# Parameters of other calls, each with the fix.
_ELSEWHERE = {
    "delay": "use enqueue_in",
    "at": "use enqueue_at",
    "expiry": "use expires_in",
    # Names of Celery, Dramatiq, RQ and arq.
    **dict.fromkeys(("countdown", "_defer_by"), "use enqueue_in"),
    **dict.fromkeys(("eta", "_defer_until"), "use enqueue_at"),
    "kwargs": "its values stand in args, in the order of the parameters",
    "priority": "use a queue of its own, with a weight in worker.group(…)",
    **dict.fromkeys(("depends_on", "link"), "use chain(…)"),
    **dict.fromkeys(("concurrency", "middleware", "on_exhausted", "retry_in"), _DECORATOR),
    **dict.fromkeys(("retry_on", "discard_on", "dead_on"), _DECORATOR),
}
# Names of other libraries, with ours; by spelling, another option is often nearer, or none is near.
_SYNONYMS = {
    **dict.fromkeys(("max_retries", "max_tries", "retries"), "retry"),
    **dict.fromkeys(("expires", "_expires", "max_age", "ttl"), "expires_in"),
    **dict.fromkeys(("job_timeout", "soft_time_limit", "time_limit"), "timeout"),
    **dict.fromkeys(("keep_result", "result", "result_ttl", "store_results"), "track"),
    **dict.fromkeys(("_job_id", "job_id", "task_id"), "jid"),
    **dict.fromkeys(("_queue_name", "queue_name"), "queue"),
    **dict.fromkeys(("headers", "meta"), "extra"),
    **dict.fromkeys(("lock", "unique"), "unique_for"),
}
TERM_OPTIONS = frozenset(
    name for options in (TrackOptions, UniqueOptions, QueueLimitOptions) for name in options.__annotations__
)
"""The options from which the terms of a push are made."""
# A timedelta among these is converted before anything is written.
_TIMED_OPTIONS = TERM_OPTIONS | {"expires_in"}
_LIVES = ("track", "unique_for")
# Those that are not written into the envelope.
_LOCAL = TERM_OPTIONS - {"track", "history", "unique_for", "unique_until"} | {"extra", "encrypt"}
# Options that change what another one does, and are an error without it.
_NEEDS = {
    **dict.fromkeys(("unique_until", "unique_by", "on_duplicate"), "unique_for"),
    "wait": "max_waiting",
    "history": "track",
}
# Other parameters of the calls that take options.
_PARAMETERS = ("queue", "delay", "at")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise BadArgumentError for an option that does not exist, or for an invalid value."""
    for name, value in options.items():
        if name not in _RULES:
            raise _unknown(name)
        fits, rule = _RULES[name]
        if not fits(value):
            raise BadArgumentError(f"{name} must be {rule}, not {value!r}")
        if name in _NEEDS and _NEEDS[name] not in options:
            raise BadArgumentError(f"{name} has no effect without {_NEEDS[name]}")
        if name == "extra":
            _check_extra(value)
        elif name not in _TIMED_OPTIONS or (name == "unique_by" and not callable(value)):
            check_value(value, name)


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as fields of the envelope; the fields of ``extra`` are on the same level as the others."""
    fields = {name: value for name, value in options.items() if name not in _LOCAL}
    if "unique_for" in fields:
        if fields["unique_for"] is None:
            fields.pop("unique_until", None)
            del fields["unique_for"]
        else:
            fields["unique_for"] = seconds_of(fields["unique_for"])
    if "track" in fields:
        if fields["track"] is None:
            del fields["track"]
        else:
            fields["track"] = seconds_of(fields["track"])
    if not fields.get("history", True):
        del fields["history"]
    if options.get("encrypt"):
        fields["encrypted"] = True
    return {**fields, **options.get("extra", {})}


def terms_asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of TERM_OPTIONS that have a value, as JSON values but for a function."""
    given = {name: value for name, value in options.items() if name in TERM_OPTIONS and value is not None}
    return {name: seconds_of(value) if name in _LIVES else value for name, value in given.items()}


def seconds_of(value: float | timedelta) -> float:
    """A time in seconds; a whole number stays one, as Sidekiq Enterprise writes it."""
    if not isinstance(value, timedelta):
        return value
    number = value.total_seconds()
    return int(number) if number == int(number) else number


def rule_of(name: str) -> tuple[Callable[[Any], bool], str]:
    """A test of an option's value, and a description of the valid values."""
    return _RULES[name]


def suggestion(name: str, known: Iterable[str]) -> str:
    """``did you mean timeout?`` for ``timeot``; empty if no known name is near or has the same meaning."""
    names = list(known)
    same = _SYNONYMS.get(name)
    close = [same] if same in names else difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else ""


def _unknown(name: str) -> BadArgumentError:
    if name in _ELSEWHERE:
        return BadArgumentError(f"{name} is not an option here: {_ELSEWHERE[name]}")
    if name in _RESERVED:
        return BadArgumentError(f"{name} is not an option: it is written by pyworkers itself")
    near = suggestion(name, (*_RULES, *_PARAMETERS))
    message = f"{name} is not an option: {near}" if near else f"{name} is not an option"
    return BadArgumentError(message, hint=f'a field of your own goes into extra={{"{name}": …}}')


def _check_extra(extra: Mapping[str, Any]) -> None:
    for name in extra:
        if name in _RULES:
            raise BadArgumentError(f"extra[{name!r}] is not a field of your own: it is the option {name}=…")
        if name in _RESERVED:
            raise BadArgumentError(f"extra[{name!r}] is not a field of your own: pyworkers writes it")
    check_value(dict(extra), "extra")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_life(value: Any) -> bool:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    return value is None or (_is_number(number) and 0 < number <= _LONGEST_LIFE_S)


def _is_flag_or_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _is_tags(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(tag, str) for tag in value)


_RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "retry": (_is_flag_or_count, "True, False or a number of retries"),
    "backtrace": (_is_flag_or_count, "True, False or a number of lines"),
    "dead": (lambda value: isinstance(value, bool), "True or False"),
    "tags": (_is_tags, "a list of strings"),
    "retry_for": (
        lambda value: _is_number(value) and 0 <= value <= _MAX_RETRY_FOR_S,
        f"seconds up to {_MAX_RETRY_FOR_S:.0e}",
    ),
    "expires_in": (_is_life, f"seconds above 0 and up to {_LONGEST_LIFE_S:.0e}, a timedelta, or None"),
    "retry_queue": (is_queue_name, "the name of a queue"),
    # go-workers2's limit, since it reads no number from ``retry``.
    "retry_max": (
        lambda value: _is_flag_or_count(value) and not isinstance(value, bool),
        "a number of retries",
    ),
    "timeout": (lambda value: _is_number(value) and 0 < value < math.inf, "seconds above 0"),
    "track": (_is_life, f"seconds above 0 and up to {_LONGEST_LIFE_S:.0e}, a timedelta, or None"),
    "history": (lambda value: isinstance(value, bool), "True or False"),
    "unique_for": (_is_life, f"seconds above 0 and up to {_LONGEST_LIFE_S:.0e}, a timedelta, or None"),
    "unique_until": (lambda value: value in ("success", "start", "expiry"), "success, start or expiry"),
    "unique_by": (lambda value: True, "a function of the arguments, or what it returns"),
    "on_duplicate": (lambda value: value in ("skip", "raise", "replace"), "skip, raise or replace"),
    "max_waiting": (
        lambda value: value is None or (_is_flag_or_count(value) and value >= 1 and value is not True),
        "a number of jobs from 1, or None",
    ),
    "wait": (lambda value: _is_number(value) and 0 <= value < math.inf, "seconds from 0"),
    "encrypt": (lambda value: isinstance(value, bool), "True or False"),
    "jid": (lambda value: isinstance(value, str) and value != "", "a string that is not empty"),
    "extra": (lambda value: isinstance(value, Mapping), "a dict with fields of your own"),
}
OPTIONS = frozenset(_RULES)
