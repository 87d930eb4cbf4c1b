"""Retry rules: decide whether a failed job is retried, and when, or moved to ``dead``, or dropped.

Pure: facts, the time and a source of randomness come in, an Outcome goes out. Used by the worker's retry
step and, for jobs whose worker died, by the master. The rules are Sidekiq's (job_retry.rb;
protocol.md, Retries).
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyworkers.errors import BadMessageError, JobTimeout
from pyworkers.protocol import envelope, timestamps
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.keys import is_queue_name
from pyworkers.protocol.message import Message, as_count
from pyworkers.protocol.outcome import REQUEUE, Fate, Outcome

MAX_RETRIES = 25
MAX_CRASHES = 3
MISFIT_S = 3600.0
"""Seconds for which a job is kept that fits no server."""
MIN_MISFITS = 10
"""The times that a job is given to a server, however long that takes, before it is dead as a misfit."""
MAX_ERROR_MESSAGE = 10_000
"""Characters of ``error_message`` that are kept (Sidekiq's job_retry.rb)."""
BACKTRACE = 20
"""Lines of the traceback that are kept where neither the job nor its handler gives a number."""
MAX_BACKTRACE = 1000
"""Lines of the traceback that are kept at most: Python's recursion limit."""
MAX_BACKTRACE_CHARS = 100_000
_MISFIT_DELAYS_S = (5, 10, 20, 40, 80, 120)
_OF_A_MISFIT = ("misfits", "misfit_at")
_LONGEST_DELAY_S = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The handler's options about failures, used where the job has none.

    ``retry``: True for ``max_retries`` retries, a number, or False to drop a failed job. ``retry_for``:
    seconds for which a job is retried instead, if it has no number itself; None: as ``retry`` says.
    ``backtrace``: the number of lines of the traceback to store, True for all, False or None for none.
    """

    retry: bool | int = True
    dead: bool = True
    backtrace: bool | int | None = None
    max_retries: int = MAX_RETRIES
    retry_for: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure. A ``fate`` or ``delay_s`` that is set overrides the rules."""

    error_class: str
    error_message: str
    backtrace: Sequence[str] = ()
    crashed: bool = False
    fate: Fate | None = None
    delay_s: float | None = None


def decide(message: Message, failure: Failure, policy: Policy, now: float, rng: Rng) -> Outcome:
    """The outcome of a failed job. ``now`` is in epoch seconds."""
    count = message.attempt
    if failure.crashed:
        return _after_crash(message, failure, policy, now)
    limit = _limit(message.data, policy)
    fields = _error_fields(message, failure, policy, now) | {"retry_count": count}
    if failure.fate is Fate.DISCARD or (limit is None and failure.fate is not Fate.DEAD):
        return replace(_outcome(Fate.DISCARD, message, failure, fields), chosen=failure.fate is Fate.DISCARD)
    if failure.fate is Fate.DEAD or _exhausted(message.data, count, limit or 0, policy, now):
        return _bury(message, failure, fields, policy)
    delay = failure.delay_s if _usable(failure.delay_s) else default_delay(count, rng)
    return _outcome(Fate.RETRY, message, failure, fields, now + min(delay or 0.0, _LONGEST_DELAY_S))


def misfit(message: Message, failure: Failure, now: float, rng: Rng) -> Outcome:
    """The outcome of a job that this server cannot run: its class, or a parameter, is of another release.

    Not an attempt: with any ``retry``, it returns to its queue for the other servers, first after
    seconds, later after minutes. After an hour it is dead, also with ``dead: false``. ``misfits`` counts in
    the envelope, and ``misfit_at`` is the time of the first one; so is ``failed_at`` if it is missing, which
    Sidekiq's Web UI needs.
    """
    number, since = misfit_number(message), _misfit_since(message)
    fields: dict[str, Any] = {
        "jid": message.jid,
        "queue": message.queue,
        **_error(failure.error_message, failure.error_class),
        **_known_times(message),
        "misfits": number,
    }
    if timestamps.read(message.data.get("failed_at")) is None:
        fields["failed_at"] = now
    if message.retry_count is not None:
        fields["retried_at"] = now
    if since is not None and number > MIN_MISFITS and now - since >= MISFIT_S:
        outcome = _outcome(Fate.DEAD, message, failure, fields, remove=("at", "crash_count", "misfit_at"))
    else:
        fields["misfit_at"] = now if since is None else min(since, now)
        delay_s = _MISFIT_DELAYS_S[min(number, len(_MISFIT_DELAYS_S)) - 1]
        at = now + delay_s + rng.randrange(delay_s // 2 + 1)
        outcome = _outcome(Fate.RETRY, message, failure, fields, at)
    return replace(outcome, failed=outcome.fate is Fate.DEAD, misfit=True)


def misfit_number(message: Message) -> int:
    """The number of the next misfit, from 1. A job that is retried from ``dead`` starts at 1 again."""
    return 1 if _misfit_since(message) is None else message.misfits + 1


def _misfit_since(message: Message) -> float | None:
    return timestamps.read(message.data.get("misfit_at"))


def first_failure(get: Callable[[str], object]) -> float | None:
    """The time of the first failure; None before it. A misfit, which is none, has written its own time."""
    failed_at = timestamps.read(get("failed_at"))
    return None if failed_at == timestamps.read(get("misfit_at")) else failed_at


def of_misfits(data: Mapping[str, Any]) -> list[str]:
    """The fields to remove from a job that was a misfit before, and has now run."""
    names = ("failed_at", *_OF_A_MISFIT) if first_failure(data.get) is None else _OF_A_MISFIT
    return [name for name in names if name in data]


def refused(raw: bytes, reason: str, queue: str, now: float) -> bytes:
    """The payload of an invalid job for ``dead``: its JSON object with the reason, and a queue if missing.

    Empty for other JSON and for undecodable bytes, which are moved to ``dead`` unchanged.
    """
    try:
        members = envelope.Members(raw)
    except BadMessageError:
        return b""
    fields = _error(reason, BadMessageError.__name__)
    if members.get("queue") is None:
        fields["queue"] = queue
    return members.splice(fields | _failure_times(members.get, now))


def given_back(raw: bytes) -> Outcome:
    """The outcome of a job that has started and is given back: it does not expire any more."""
    try:
        remove = ["expiry"] if b'"expiry"' in raw else []
        if b'"misfit_at"' in raw:
            remove += of_misfits(envelope.decode(raw))
        return Outcome(Fate.REQUEUE, payload=envelope.splice(raw, {}, remove)) if remove else REQUEUE
    except BadMessageError:
        return REQUEUE


def default_delay(count: int, rng: Rng) -> float:
    """Seconds until the next attempt after ``count`` earlier failures (Sidekiq 8's job_retry.rb)."""
    return float(count**4 + 15 + rng.randrange(10 * (count + 1)))


def error_name(error: BaseException) -> str:
    """The ``error_class`` of an exception: its name, with its module unless Python's or pyworkers' own."""
    kind = type(error)
    bare = kind.__module__ in ("builtins", JobTimeout.__module__)
    return kind.__qualname__ if bare else f"{kind.__module__}.{kind.__qualname__}"


def compress_backtrace(lines: Sequence[str]) -> str:
    """``error_backtrace`` as Sidekiq writes it since 6.0.1: base64 of the deflated JSON list, no newlines."""
    return base64.b64encode(zlib.compress(envelope.encode(list(lines)).encode())).decode()


def crash_number(message: Message) -> int:
    """The number of the next crash, from 1. A job that is retried from ``dead`` starts at 1 again."""
    return 1 if message.crash_count >= MAX_CRASHES else message.crash_count + 1


def _after_crash(message: Message, failure: Failure, policy: Policy, now: float) -> Outcome:
    """The outcome after a crash, which is not counted as a retry: a run within seconds, dead at the third.

    A failure with the fate DEAD is of the whole server: the deaths of servers are counted elsewhere.
    """
    if failure.fate is Fate.DEAD:
        return _bury(message, failure, _error_fields(message, failure, policy, now), policy)
    crashes = crash_number(message)
    if crashes < MAX_CRASHES:
        fields = _error_fields(message, failure, policy, now) | {"crash_count": crashes}
        return _outcome(Fate.RETRY, message, failure, fields, now + crashes)
    failure = replace(failure, error_message=f"{failure.error_message}; dead after {crashes} crashes")
    return _bury(message, failure, _error_fields(message, failure, policy, now), policy)


def _limit(data: dict[str, Any], policy: Policy) -> int | None:
    """The number of retries; None if a failed job is dropped (protocol.md, Retries)."""
    retry = data.get("retry")
    if isinstance(retry, str):
        retry = as_count(retry.strip()) if retry.strip().isdecimal() else {"false": False}.get(retry, True)
    if retry is None:
        retry = policy.retry
    if isinstance(retry, bool):
        retry_max = as_count(data.get("retry_max"))
        unlimited = policy.max_retries if retry_max is None else retry_max
        return unlimited if retry else None
    if isinstance(retry, float) and math.isfinite(retry):
        retry = math.floor(retry)
    return as_count(retry) or 0 if isinstance(retry, int) else policy.max_retries


def _exhausted(data: dict[str, Any], count: int, limit: int, policy: Policy, now: float) -> bool:
    """True if no retry is left. ``retry_for`` replaces the count (Sidekiq 8.1's job_retry.rb)."""
    retry_for = timestamps.seconds(data.get("retry_for"))
    if retry_for is None and not _has_number(data):
        retry_for = policy.retry_for
    if retry_for is None:
        return count >= limit
    failed_at = first_failure(data.get)
    return (now if failed_at is None else failed_at) + retry_for < now


def _has_number(data: dict[str, Any]) -> bool:
    """True if the job says how often it is retried."""
    retry = data.get("retry")
    return not (retry is None or isinstance(retry, bool)) or data.get("retry_max") is not None


def _error_fields(message: Message, failure: Failure, policy: Policy, now: float) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "jid": message.jid,
        "queue": _retry_queue(message),
        **_error(failure.error_message, failure.error_class),
        **_times(message, now),
    }
    wanted = message.data.get("backtrace")
    if wanted is None:
        wanted = policy.backtrace
    if wanted and failure.backtrace:
        fields["error_backtrace"] = compress_backtrace(_nearest(failure.backtrace, wanted))
    return fields


def _nearest(lines: Sequence[str], wanted: object) -> list[str]:
    """The wanted lines, those nearest to the error, within the limits of their number and their size."""
    count = None if wanted is True else as_count(wanted)
    kept: list[str] = []
    room = MAX_BACKTRACE_CHARS
    for line in lines[: MAX_BACKTRACE if count is None else min(count, MAX_BACKTRACE)]:
        room -= len(line)
        if room < 0:
            break
        kept.append(_clean(line))
    return kept


def _times(message: Message, now: float) -> dict[str, float]:
    """The times of the first and the last failure, and the other times in a form that every Sidekiq reads.

    Sidekiq's Web UI answers 500 for a time that go-workers wrote as text, and for a ``retry_count`` above 0
    without ``retried_at``, from any program (6.4.1's _job_info.erb). Sidekiq 8 reads whole seconds as
    milliseconds (protocol.md, Envelope).
    """
    return _known_times(message) | _failure_times(message.data.get, now)


def _known_times(message: Message) -> dict[str, float]:
    stored = {name: message.data.get(name) for name in ("created_at", "enqueued_at", "failed_at")}
    known = {name: timestamps.rewritten(value) for name, value in stored.items()}
    return {name: time for name, time in known.items() if time is not None}


def _failure_times(get: Callable[[str], object], now: float) -> dict[str, float]:
    """``failed_at`` if missing, ``retried_at`` after an earlier failure; ``get`` reads a stored field."""
    first = first_failure(get) is None
    fields = {"failed_at": now} if first else {}
    if not first or as_count(get("retry_count")) is not None:
        fields["retried_at"] = now
    return fields


def _error(message: str, error_class: str) -> dict[str, Any]:
    return {"error_message": _clean(message)[:MAX_ERROR_MESSAGE], "error_class": _clean(error_class)}


def _retry_queue(message: Message) -> str:
    retry_queue = message.data.get("retry_queue")
    return str(retry_queue) if is_queue_name(retry_queue) else message.queue


def _clean(text: str) -> str:
    """Text that UTF-8 can carry: lone surrogates become question marks."""
    return text.encode(errors="replace").decode()


def _usable(delay_s: float | None) -> bool:
    return delay_s is not None and math.isfinite(delay_s) and delay_s >= 0


def _bury(message: Message, failure: Failure, fields: dict[str, Any], policy: Policy) -> Outcome:
    """Move the job to ``dead``, or drop it. Removes the crash count, which a retry by Sidekiq would keep."""
    keep = message.data.get("dead", policy.dead) is not False
    fate = Fate.DEAD if keep else Fate.DISCARD
    return _outcome(fate, message, failure, fields, remove=("at", "crash_count"))


def _outcome(
    fate: Fate,
    message: Message,
    failure: Failure,
    fields: dict[str, Any],
    at: float = 0.0,
    remove: Sequence[str] = ("at",),
) -> Outcome:
    # The traceback of an earlier error must not be with the message of this one.
    stale = () if "error_backtrace" in fields else ("error_backtrace",)
    # A job that has run fits.
    gone = [name for name in _OF_A_MISFIT if name not in fields]
    payload = b"" if fate is Fate.DISCARD else envelope.splice(message.raw, fields, (*remove, *stale, *gone))
    return Outcome(fate, at, payload, True, failure.crashed, failure.error_class, failure.error_message)
