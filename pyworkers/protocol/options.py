"""Options: the fields of the envelope that a producer may set, each with its type and its rule.

Pure; used by clients, applications and cron. A call takes the options of one TypedDict, by ``Unpack``; those
of the decorators are in handler.py. An unknown option is an error that names the nearest known one. The table
``OPTIONS`` has what each one means: the reference, the help of commands and OpenAPI are made from it.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypedDict, TypeGuard, get_args

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.conditions import OnDuplicate
from pyworkers.protocol.envelope import check_value
from pyworkers.protocol.keys import is_queue_name

_MAX_RETRY_FOR_S = 1e9  # Sidekiq's job_util.rb
_LONGEST_LIFE_S = 1e9

UniqueUntil = Literal["success", "start", "expiry"]


class FailureOptions(TypedDict, total=False):
    """Options of every handler and of every job."""

    backtrace: bool | int
    dead: bool


class FieldOptions(TypedDict, total=False):
    """Options that are fields of the envelope for display and for middleware, without another effect."""

    tags: Sequence[str]
    extra: Mapping[str, Any]


class TrackOptions(TypedDict, total=False):
    """Options of a job whose status and result can be asked for."""

    track: float | timedelta | None
    history: bool


class UniqueOptions(TypedDict, total=False):
    """Options of a job of which no second one may be enqueued."""

    unique_for: float | timedelta | None
    unique_until: UniqueUntil
    unique_by: Any
    on_duplicate: OnDuplicate


class QueueLimitOptions(TypedDict, total=False):
    """Options of a job whose queue has a limit."""

    max_waiting: int | None
    wait: float


class EncryptOptions(TypedDict, total=False):
    """The option of a job whose arguments are encrypted (extra ``crypto``)."""

    encrypt: bool


class EnqueueOptions(
    FailureOptions, FieldOptions, TrackOptions, UniqueOptions, QueueLimitOptions, EncryptOptions, total=False
):
    """Options of an enqueue call, with ``retry``."""

    timeout: float
    expires_in: float | timedelta
    retry_for: float
    retry_queue: str
    retry_max: int
    jid: str


class JobOverrides(EnqueueOptions, total=False):
    """Options of ``Job.options``; None leaves ``queue`` and ``retry`` as declared."""

    queue: str | None
    """The queue of the job."""
    any_queue: bool
    """Take a queue that the application does not know, e.g. one of another application. Default: False."""
    retry: bool | int | None
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
    "checkpoint",
)
_OF_AN_ERROR = ("error_class", "error_message", "error_backtrace")
_OF_A_BATCH = ("batch", "batch_index", "then", "fill")
RESERVED = frozenset((*_OF_THE_PUSH, *_OF_A_FAILURE, *_OF_AN_ERROR, *_OF_A_BATCH))
"""All of these fields."""
_DECORATOR = "the decorator of the job takes it"
# Parameters of other calls, each with the fix.
_ELSEWHERE = {
    "delay": "use enqueue_in",
    "at": "use enqueue_at",
    "expiry": "use expires_in",
    # Names of Celery, Dramatiq, RQ and arq.
    **dict.fromkeys(("countdown", "_defer_by"), "use enqueue_in"),
    **dict.fromkeys(("eta", "_defer_until"), "use enqueue_at"),
    "kwargs": "its values are in args, in the order of the parameters",
    "priority": "use its own queue, with a weight in worker.group(…)",
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
            raise BadArgumentError(f"{name} must be {option.rule}, not {value!r}", field=name)
        if option.needs and option.needs not in options:
            raise BadArgumentError(f"{name} has no effect without {option.needs}", field=name)
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
    """The CONDITION_OPTIONS that have a value, as JSON values but for a function."""
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
        return BadArgumentError(f"{name} is not an option here: {_ELSEWHERE[name]}", field=name)
    if name in RESERVED:
        return BadArgumentError(f"{name} is not an option: it is written by pyworkers itself", field=name)
    near = suggestion(name, (*OPTIONS, *_PARAMETERS))
    message = f"{name} is not an option: {near}" if near else f"{name} is not an option"
    hint = f'a field of your own goes into extra={{"{name}": …}}'
    return BadArgumentError(message, hint=hint, field=name)


def _check_extra(extra: Mapping[str, Any]) -> None:
    for name in extra:
        if name in OPTIONS:
            message = f"extra[{name!r}] is not a field of your own: it is the option {name}=…"
            raise BadArgumentError(message, field="extra")
        if name in RESERVED:
            message = f"extra[{name!r}] is not a field of your own: pyworkers writes it"
            raise BadArgumentError(message, field="extra")
    check_value(dict(extra), "extra")


def is_number(value: object) -> TypeGuard[float]:
    """True for a number, false for a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_life(value: Any) -> bool:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    return value is None or (is_number(number) and 0 < number <= _LONGEST_LIFE_S)


def _is_flag_or_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 0


def _is_tags(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(tag, str) for tag in value)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_flag_or_count(value) and not isinstance(value, bool)


Kind = Literal["flag", "count", "flag or count", "seconds", "text", "texts", "choice", "object", "value"]
"""What a value is in JSON and on a command line: a ``flag`` is a boolean, a ``count`` an integer from 0,
``texts`` an array of strings, a ``choice`` one of some words, a ``value`` any JSON."""


class JobOption(NamedTuple):
    """What an option means, and its rule; its type is in the TypedDicts above."""

    meaning: str
    kind: Kind
    fits: Callable[[Any], bool]
    """True for a valid value."""
    rule: str
    """The valid values, in words."""
    origin: str = ""
    """The program whose option it is; empty: pyworkers alone."""
    needs: str = ""
    """The option without which it is an error."""
    is_field: bool = True
    """It is written into the envelope under its name."""
    choices: tuple[str, ...] = ()
    """The words of a ``choice``."""


_LIFE = f"seconds above 0 and up to {_LONGEST_LIFE_S:.0e}, a timedelta, or None"
_ENTERPRISE = "Sidekiq Enterprise"
_UNTIL: tuple[UniqueUntil, ...] = get_args(UniqueUntil)
_ON_DUPLICATE: tuple[OnDuplicate, ...] = get_args(OnDuplicate)

OPTIONS: Mapping[str, JobOption] = {
    "retry": JobOption(
        "The number of retries, true for 25, false to drop a failed job. Default: the handler's.",
        "flag or count",
        _is_flag_or_count,
        "True, False or a number of retries",
        "Sidekiq",
    ),
    "backtrace": JobOption(
        "Lines of the traceback to store with a failed job; true for all (at most 1000), false for none. "
        "Default: ``[retry] backtrace``, 20.",
        "flag or count",
        _is_flag_or_count,
        "True, False or a number of lines",
        "Sidekiq",
    ),
    "dead": JobOption(
        "Keep a job in ``dead`` when its retries are used up. Default: true.",
        "flag",
        _is_flag,
        "True or False",
        "Sidekiq",
    ),
    "tags": JobOption(
        "Labels, which Sidekiq's Web UI shows.", "texts", _is_tags, "a list of strings", "Sidekiq"
    ),
    "retry_for": JobOption(
        "Retry for this number of seconds (Sidekiq 7).",
        "seconds",
        lambda value: is_number(value) and 0 <= value <= _MAX_RETRY_FOR_S,
        f"seconds up to {_MAX_RETRY_FOR_S:.0e}",
        "Sidekiq 7",
    ),
    "expires_in": JobOption(
        "Seconds from the time when the job is due until it is dropped if it has not started.",
        "seconds",
        _is_life,
        _LIFE,
        "Sidekiq Pro",
    ),
    "retry_queue": JobOption(
        "The queue of the job's retries.", "text", is_queue_name, "the name of a queue", "Sidekiq"
    ),
    # It reads no number from ``retry``.
    "retry_max": JobOption(
        "The number of retries if ``retry`` is true, instead of 25 (go-workers2 reads no other limit).",
        "count",
        _is_count,
        "a number of retries",
        "go-workers2",
    ),
    "timeout": JobOption(
        "Seconds that the job may run, instead of its handler's limit.",
        "seconds",
        lambda value: is_number(value) and 0 < value < math.inf,
        "seconds above 0",
    ),
    "track": JobOption(
        "Seconds after the end of the job for which its status and result are kept. "
        "Default: none, not tracked.",
        "seconds",
        _is_life,
        _LIFE,
    ),
    "history": JobOption(
        "Keep the job as it was enqueued, and each run with its error, for this time (``Client.history``). "
        "Default: false.",
        "flag",
        _is_flag,
        "True or False",
        needs="track",
    ),
    "unique_for": JobOption(
        "Seconds, after the job's delay, for which a job with the same class, queue and arguments is a "
        "duplicate: it is not enqueued, and the call returns the other jid. Default: none, not unique.",
        "seconds",
        _is_life,
        _LIFE,
        _ENTERPRISE,
    ),
    "unique_until": JobOption(
        "When this ends earlier: when the job is done or dead, at its start, or never. Default: ``success``.",
        "choice",
        lambda value: value in _UNTIL,
        "success, start or expiry",
        _ENTERPRISE,
        needs="unique_for",
        choices=_UNTIL,
    ),
    "unique_by": JobOption(
        "The value that is compared instead of all arguments; in Python also a function of the arguments.",
        "value",
        lambda value: True,
        "a function of the arguments, or its result",
        needs="unique_for",
        is_field=False,
    ),
    "on_duplicate": JobOption(
        "``skip``, ``raise`` DuplicateJobError, or ``replace`` a job that is still scheduled. Default: skip.",
        "choice",
        lambda value: value in _ON_DUPLICATE,
        "skip, raise or replace",
        needs="unique_for",
        is_field=False,
        choices=_ON_DUPLICATE,
    ),
    "max_waiting": JobOption(
        "With this many jobs in its queue, a job that is due now is refused (QueueFullError). "
        "Default: no limit.",
        "count",
        lambda value: value is None or (_is_count(value) and value >= 1),
        "a number of jobs from 1, or None",
        is_field=False,
    ),
    "wait": JobOption(
        "Seconds to wait for room in the queue first. Default: 0.",
        "seconds",
        lambda value: is_number(value) and 0 <= value < math.inf,
        "seconds from 0",
        needs="max_waiting",
        is_field=False,
    ),
    "encrypt": JobOption(
        "Seal the arguments with the newest key of ``[encryption]``. Default: false.",
        "flag",
        _is_flag,
        "True or False",
        is_field=False,
    ),
    "jid": JobOption(
        "The job's id, for a call that enqueues one job. Default: a random one.",
        "text",
        lambda value: isinstance(value, str) and value != "",
        "a string that is not empty",
        "Sidekiq",
    ),
    "extra": JobOption(
        'Fields of the application\'s own, e.g. ``{"tenant": 7}``; a job reads them in ``message.data``.',
        "object",
        lambda value: isinstance(value, Mapping),
        "a dict with fields of your own",
        is_field=False,
    ),
}
"""The options of an enqueue call, by name."""
