"""Options: the fields of the envelope that a producer may set, each with its type and its rule.

Pure; used by clients, applications and cron. A call takes the options of one TypedDict, by ``Unpack``; those
of the decorators are in handler.py. An unknown option is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypedDict

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.conditions import OnDuplicate
from pyworkers.protocol.envelope import check_value
from pyworkers.protocol.keys import is_queue_name

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
    """Seconds after the end of the job for which ``status`` and ``result`` know it. Default: None, not."""
    history: bool
    """Keep the job as it was enqueued, and each run with its error, as long (``Client.history``). Default:
    False."""


class UniqueOptions(TypedDict, total=False):
    """Options of a job of which no second one may be enqueued."""

    unique_for: float | timedelta | None
    """Seconds, after the job's delay, for which a job with the same class, queue and arguments is a
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
    """Options of an enqueue call, with ``retry``."""

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
    """The queue of the job."""
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
CONDITION_OPTIONS = frozenset(
    name for options in (TrackOptions, UniqueOptions, QueueLimitOptions) for name in options.__annotations__
)
"""The options from which the conditions of a push are made."""
# Other parameters of the calls that take options.
_PARAMETERS = ("queue", "delay", "at")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise BadArgumentError for an option that does not exist, or for an invalid value."""
    for name, value in options.items():
        if (option := OPTIONS.get(name)) is None:
            raise _unknown(name)
        if not option.fits(value):
            raise BadArgumentError(f"{name} must be {option.rule}, not {value!r}")
        if option.needs and option.needs not in options:
            raise BadArgumentError(f"{name} has no effect without {option.needs}")
        if name == "extra":
            _check_extra(value)
        elif not (isinstance(value, timedelta) or callable(value)):
            check_value(value, name)


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as fields of the envelope; the fields of ``extra`` are on the same level as the others."""
    fields = {name: value for name, value in options.items() if OPTIONS[name].is_field}
    if fields.get("unique_for", 0) is None:
        fields.pop("unique_until", None)
    for name in ("unique_for", "track"):
        if name in fields and fields[name] is None:
            del fields[name]
        elif name in fields:
            fields[name] = seconds_of(fields[name])
    if not fields.get("history", True):
        del fields["history"]
    if options.get("encrypt"):
        fields["encrypted"] = True
    return {**fields, **options.get("extra", {})}


def conditions_asked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of CONDITION_OPTIONS that have a value, as JSON values but for a function."""
    given = {
        name: value for name, value in options.items() if name in CONDITION_OPTIONS and value is not None
    }
    return {name: seconds_of(value) for name, value in given.items()}


def seconds_of(value: float | timedelta) -> float:
    """A time in seconds; a whole number stays one, as Sidekiq Enterprise writes it."""
    if not isinstance(value, timedelta):
        return value
    number = value.total_seconds()
    return int(number) if number == int(number) else number


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
    near = suggestion(name, (*OPTIONS, *_PARAMETERS))
    message = f"{name} is not an option: {near}" if near else f"{name} is not an option"
    return BadArgumentError(message, hint=f'a field of your own goes into extra={{"{name}": …}}')


def _check_extra(extra: Mapping[str, Any]) -> None:
    for name in extra:
        if name in OPTIONS:
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


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_flag_or_count(value) and not isinstance(value, bool)


class JobOption(NamedTuple):
    """The rule of an option; its type and its meaning are in the TypedDicts above."""

    fits: Callable[[Any], bool]
    """True for a valid value."""
    rule: str
    """The valid values, in words."""
    origin: str = ""
    """The program whose option it is; empty: that of pyworkers alone."""
    needs: str = ""
    """The option without which it is an error."""
    is_field: bool = True
    """It is written into the envelope under its name."""


_LIFE = f"seconds above 0 and up to {_LONGEST_LIFE_S:.0e}, a timedelta, or None"
_ENTERPRISE = "Sidekiq Enterprise"

OPTIONS: Mapping[str, JobOption] = {
    "retry": JobOption(_is_flag_or_count, "True, False or a number of retries", "Sidekiq"),
    "backtrace": JobOption(_is_flag_or_count, "True, False or a number of lines", "Sidekiq"),
    "dead": JobOption(_is_flag, "True or False", "Sidekiq"),
    "tags": JobOption(_is_tags, "a list of strings", "Sidekiq"),
    "retry_for": JobOption(
        lambda value: _is_number(value) and 0 <= value <= _MAX_RETRY_FOR_S,
        f"seconds up to {_MAX_RETRY_FOR_S:.0e}",
        "Sidekiq 7",
    ),
    "expires_in": JobOption(_is_life, _LIFE, "Sidekiq Pro"),
    "retry_queue": JobOption(is_queue_name, "the name of a queue", "Sidekiq"),
    # It reads no number from ``retry``.
    "retry_max": JobOption(_is_count, "a number of retries", "go-workers2"),
    "timeout": JobOption(lambda value: _is_number(value) and 0 < value < math.inf, "seconds above 0"),
    "track": JobOption(_is_life, _LIFE),
    "history": JobOption(_is_flag, "True or False", needs="track"),
    "unique_for": JobOption(_is_life, _LIFE, _ENTERPRISE),
    "unique_until": JobOption(
        lambda value: value in ("success", "start", "expiry"),
        "success, start or expiry",
        _ENTERPRISE,
        needs="unique_for",
    ),
    "unique_by": JobOption(
        lambda value: True,
        "a function of the arguments, or what it returns",
        needs="unique_for",
        is_field=False,
    ),
    "on_duplicate": JobOption(
        lambda value: value in ("skip", "raise", "replace"),
        "skip, raise or replace",
        needs="unique_for",
        is_field=False,
    ),
    "max_waiting": JobOption(
        lambda value: value is None or (_is_count(value) and value >= 1),
        "a number of jobs from 1, or None",
        is_field=False,
    ),
    "wait": JobOption(
        lambda value: _is_number(value) and 0 <= value < math.inf,
        "seconds from 0",
        needs="max_waiting",
        is_field=False,
    ),
    "encrypt": JobOption(_is_flag, "True or False", is_field=False),
    "jid": JobOption(
        lambda value: isinstance(value, str) and value != "", "a string that is not empty", "Sidekiq"
    ),
    "extra": JobOption(
        lambda value: isinstance(value, Mapping), "a dict with fields of your own", is_field=False
    ),
}
"""The options of an enqueue call, by name."""
