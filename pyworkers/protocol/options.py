"""Options: the fields of the envelope that a producer may set, each with its type and its rule.

Pure; used by clients, applications and cron. A call takes the options of one TypedDict, by ``Unpack``; those
of the decorators are in handler.py. An unknown option is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.envelope import check_value
from pyworkers.protocol.keys import check_queue_name

_MAX_RETRY_FOR_S = 1e9  # Sidekiq's job_util.rb


class FailureOptions(TypedDict, total=False):
    """Options of every handler and of every job."""

    backtrace: bool | int
    """Lines of the traceback to store with a failed job; True for all. Default: False, none."""
    dead: bool
    """Keep a job in ``dead`` when its retries are used up. Default: True."""


class FieldOptions(TypedDict, total=False):
    """Options that are fields of the envelope for display and for middleware, without another effect."""

    tags: Sequence[str]
    """Labels, which Sidekiq's Web UI shows."""
    extra: Mapping[str, Any]
    """Fields of the application's own, e.g. ``{"tenant": 7}``; a job reads them in ``message.data``."""


class EnqueueOptions(FailureOptions, FieldOptions, total=False):
    """Options of an enqueue call, beside ``retry``."""

    timeout: float
    """Seconds that the job may run, instead of its handler's limit."""
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
    retry: bool | int | None
    """The number of retries, True for 25, False to drop a failed job."""


# Fields that no producer sets.
_OF_THE_PUSH = ("args", "class", "queue", "at", "created_at", "enqueued_at", "cron")
_OF_A_FAILURE = ("failed_at", "retried_at", "discarded_at", "retry_count", "crash_count")
_OF_AN_ERROR = ("error_class", "error_message", "error_backtrace")
_RESERVED = frozenset((*_OF_THE_PUSH, *_OF_A_FAILURE, *_OF_AN_ERROR))
_DECORATOR = "the decorator of the job takes it"
# Parameters of other calls, each with the fix.
_ELSEWHERE = {
    "delay": "use enqueue_in",
    "at": "use enqueue_at",
    **dict.fromkeys(("concurrency", "middleware", "on_exhausted", "retry_in"), _DECORATOR),
    **dict.fromkeys(("retry_on", "discard_on", "dead_on"), _DECORATOR),
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
        if name == "extra":
            _check_extra(value)
        else:
            check_value(value, name)


def fields_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as fields of the envelope; the fields of ``extra`` are on the same level as the others."""
    return {**{name: value for name, value in options.items() if name != "extra"}, **options.get("extra", {})}


def rule_of(name: str) -> tuple[Callable[[Any], bool], str]:
    """A test of an option's value, and a description of the valid values."""
    return _RULES[name]


def suggestion(name: str, known: Iterable[str]) -> str:
    """``did you mean timeout?`` for ``timeot``; empty if no known name is near."""
    close = difflib.get_close_matches(name, known, n=1)
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


def _is_queue(value: Any) -> bool:
    try:
        check_queue_name(value)
    except ValueError:
        return False
    return True


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
    "retry_queue": (_is_queue, "the name of a queue"),
    # go-workers2's limit, since it reads no number from ``retry``.
    "retry_max": (
        lambda value: _is_flag_or_count(value) and not isinstance(value, bool),
        "a number of retries",
    ),
    "timeout": (lambda value: _is_number(value) and 0 < value < math.inf, "seconds above 0"),
    "jid": (lambda value: isinstance(value, str) and value != "", "a string that is not empty"),
    "extra": (lambda value: isinstance(value, Mapping), "a dict with fields of your own"),
}
OPTIONS = frozenset(_RULES)
