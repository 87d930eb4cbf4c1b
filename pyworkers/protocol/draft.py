"""Drafts: queue, class and options of an enqueue call, checked once for any number of jobs.

Pure; used by producers, and by the server for cron entries. All text around the arguments is made once per
draft, because a bulk enqueue spends its time here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, NoReturn, Protocol

from pyworkers.errors import BadArgumentError, EncryptionKeyError
from pyworkers.protocol import timestamps
from pyworkers.protocol.conditions import Conditions
from pyworkers.protocol.envelope import MAX_BYTES, check_value, encode, encode_args, encode_text
from pyworkers.protocol.flow import unique
from pyworkers.protocol.flow.entry import Entering, entry_of
from pyworkers.protocol.keys import check_queue_name
from pyworkers.protocol.options import CONDITION_OPTIONS, check_options, fields_of, is_number
from pyworkers.protocol.portions import MOST_BYTES, portions
from pyworkers.protocol.sealing import Sealing

_JID_BYTES = 12
_ARGS = "args"
# Options whose text differs from job to job.
_PER_JOB = frozenset(("jid", "expires_in"))
_RETRY_TYPES = (bool, int, type(None))

ToJson = Callable[[Sequence[Any], str], Sequence[Any]]
"""Turns typed arguments into JSON values. The text names them in the BadArgumentError for an invalid one."""


@dataclass(frozen=True, slots=True, eq=False)
class Writing:
    """How arguments are written: by the types of a job, and, if it is encrypted, with a producer's keys.

    Compared by identity, because it is a part of the key of the cache of drafts.
    """

    to_json: ToJson | None = None
    encryption: Sealing | None = None


PLAIN = Writing()


class PushedJob(NamedTuple):
    """A job to be pushed to Redis. ``at`` is the epoch time in seconds at which it is due, None for now."""

    queue: str
    payload: bytes
    jid: str
    at: float | None = None
    conditions: Conditions | None = None
    """Conditions of the push; nearly all jobs have none."""


_payload = itemgetter(PushedJob._fields.index("payload"))


def parts_of(jobs: Sequence[PushedJob], most: int) -> list[list[PushedJob]]:
    """The jobs in parts to send together: up to ``most`` jobs, and fewer if they are large."""
    # Nearly always one part; this takes 0.05 µs a job.
    if len(jobs) <= most and sum(map(len, map(_payload, jobs))) <= MOST_BYTES:
        return [[*jobs]] if jobs else []
    return [*portions(jobs, most, lambda job: len(job.payload))]


@dataclass(frozen=True, slots=True, eq=False)
class Bulk:
    """A part of a bulk enqueue, whose jobs are pushed together. Compared by identity."""

    size: int
    """The number of its jobs."""


@dataclass(frozen=True, slots=True)
class JobDraft:
    """One job before its envelope is made: the argument of client middleware."""

    queue: str
    job_class: str
    args: Sequence[Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of the enqueue call and of the job's declaration: ``retry``, ``at`` (epoch seconds), …;
    an option without a value is missing."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the application's own."""
    writing: Writing = field(default=PLAIN, repr=False, compare=False)
    """How the arguments are written. A copy of another class has no types."""
    bulk: Bulk | None = field(default=None, repr=False, compare=False)
    """The part of a bulk enqueue that has the job, one object for all of its jobs; None for a single job."""

    def with_extra(self, **fields: Any) -> JobDraft:
        """A copy with more fields of the application's own."""
        return replace(self, extra={**self.extra, **fields})

    def with_options(self, **options: Any) -> JobDraft:
        """A copy with other options."""
        return replace(self, options={**self.options, **options})

    def replace(self, **changes: Any) -> JobDraft:
        """A copy with another ``queue``, ``job_class`` or ``args``."""
        if changes.get("job_class", self.job_class) != self.job_class:
            changes = {"writing": replace(self.writing, to_json=None), **changes}
        return replace(self, **changes)

    def job(self, now: float, path: str) -> PushedJob:
        """The job. ``path`` names ``args`` in errors. Raises BadArgumentError."""
        rest = {**self.options, "extra": self.extra} if self.extra else dict(self.options)
        retry, at = rest.pop("retry", None), rest.pop("at", None)
        plan = draft(self.queue, self.job_class, retry, rest, moment(None, at, now), self.writing)
        return plan.job(self.args, now, path)


@dataclass(frozen=True, slots=True)
class Draft:
    """Queue, class and options of jobs that differ in their arguments. ``at``: epoch seconds, None: now."""

    queue: str
    at: float | None
    head: str
    tail: str
    jid: str | None = None
    job_class: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    """All options except queue, class and time; with ``retry`` and ``extra``."""
    expires_s: float | None = None
    writing: Writing = PLAIN

    def job(self, args: Sequence[Any], now: float, path: str = "args") -> PushedJob:
        """One job. ``path`` names ``args`` in the BadArgumentError for invalid arguments."""
        if self.writing.to_json is not None:
            args = self._typed(args, path)
        return self._job(args, self.jid or os.urandom(_JID_BYTES).hex(), now, self._times(now), path)

    def jobs(self, args_list: Sequence[Sequence[Any]], now: float, start: int = 0) -> list[PushedJob]:
        """One job for each of ``args_list``, which is the batch from index ``start`` of the caller's list."""
        self.refuse_jid()
        if self.writing.to_json is not None:
            args_list = [self._typed(args, f"args_list[{start + i}]") for i, args in enumerate(args_list)]
        times = self._times(now)
        # One system call for all ids: otherwise they take a third of the time of a small job.
        ids, width = os.urandom(_JID_BYTES * len(args_list)).hex(), 2 * _JID_BYTES
        return [
            self._job(
                args, ids[width * index : width * (index + 1)], now, times, f"args_list[{start + index}]"
            )
            for index, args in enumerate(args_list)
        ]

    def refuse_jid(self) -> None:
        """Raise BadArgumentError if a jid is given, because a jid belongs to one job only."""
        if self.jid:
            raise BadArgumentError("jid cannot be given for several jobs")

    def one(self, args: Sequence[Any], bulk: Bulk | None = None) -> JobDraft:
        """The draft of the job with these arguments, in a part of a bulk enqueue or alone."""
        options = {name: value for name, value in self.options.items() if name != "extra"}
        if self.at is not None:
            options["at"] = self.at
        extra = self.options.get("extra", {})
        return JobDraft(self.queue, self.job_class, args, options, extra, self.writing, bulk)

    def _typed(self, args: Sequence[Any], path: str) -> Sequence[Any]:
        """Typed arguments as JSON values; ``_job`` refuses any other object than a list of arguments."""
        to_json = self.writing.to_json
        return to_json(args, path) if to_json and isinstance(args, list | tuple) else args

    def _times(self, now: float) -> str:
        time = repr(now)
        enqueued = f',"enqueued_at":{time}' if self.at is None else ""
        if self.expires_s is not None:
            due = now if self.at is None else self.at
            enqueued += f',"expiry":{due + self.expires_s!r}'
        return f',"created_at":{time}{enqueued}}}'

    def _job(self, args: Sequence[Any], jid: str, _now: float, times: str, path: str) -> PushedJob:
        if not isinstance(args, list | tuple):
            raise unlisted(args, path)
        try:
            payload = f"{self.head}{encode_args(args, path)}{self.tail}{encode_text(jid)}{times}".encode()
        except (TypeError, ValueError, RecursionError) as error:
            _explain(args, path, error)
        if len(payload) > MAX_BYTES:
            message = f"{path}: a job of {len(payload)} bytes; the limit is {MAX_BYTES}"
            raise BadArgumentError(message, field=_ARGS)
        return PushedJob(self.queue, payload, jid, self.at)


@dataclass(frozen=True, slots=True)
class ConditionalDraft(Draft):
    """A draft of jobs with conditions of their push; its own class, so that the other jobs pay nothing."""

    def _job(self, args: Sequence[Any], jid: str, now: float, times: str, path: str) -> PushedJob:
        options, digest = self.options, self._digest
        job = Entering(self.queue, self.job_class, args, jid, options, now, self.at, path, digest)
        fields, conditions = entry_of(job)
        more = f",{encode(fields)[1:-1]}" if fields else ""
        sent = self._sent(args, jid, path)
        pushed = Draft._job(self, sent, jid, now, more + times, path)
        return pushed._replace(conditions=conditions)

    def _digest(self, text: bytes) -> bytes:
        """The digest of the arguments, for the key of a unique job."""
        return unique.digest(text)

    def _sent(self, args: Sequence[Any], _jid: str, _path: str) -> Sequence[Any]:
        """The arguments of the envelope, after the conditions were made from the arguments of the call."""
        return args


@dataclass(frozen=True, slots=True)
class SealedDraft(ConditionalDraft):
    """A draft of encrypted jobs. A client's own keys, or the keys of the process, seal the arguments."""

    def _digest(self, text: bytes) -> bytes:
        """With the key: without it, a short list of possible arguments could be tried."""
        return self._sealing().digest(text)

    def _sealing(self) -> Sealing:
        if self.writing.encryption is None:
            raise EncryptionKeyError("encrypt=True, but this producer has no keys")
        return self.writing.encryption

    def _sent(self, args: Sequence[Any], jid: str, path: str) -> Sequence[Any]:
        try:
            return [self._sealing().seal(encode_args(args, path), jid, self.job_class)]
        except (TypeError, ValueError, RecursionError) as error:
            _explain(args, path, error)


class Drafting(Protocol):
    """Builds a draft from the parameters of ``enqueue``: ``draft`` below, or ``Worker.draft``."""

    def __call__(
        self,
        queue: str,
        job_class: str,
        retry: bool | int | None,
        options: Mapping[str, Any],
        at: float | None = None,
        /,
    ) -> Draft: ...


def draft(
    queue: str,
    job_class: str,
    retry: bool | int | None,
    options: Mapping[str, Any],
    at: float | None = None,
    writing: Writing = PLAIN,
) -> Draft:
    """Make a draft: check everything but the arguments. Raises BadArgumentError.

    The order of the fields is Sidekiq's. Without ``retry`` (None) the consumer's own policy decides: the
    handler's in pyworkers, the class's in Sidekiq, and no retry in go-workers.
    """
    if at is None and not options and type(queue) is type(job_class) is str and type(retry) in _RETRY_TYPES:
        return _plain_draft(queue, job_class, retry, writing)
    return _draft(queue, job_class, retry, options, at, writing)


# Cached: most programs enqueue few kinds of jobs, each many times. Typed, because True and 1 differ here.
@lru_cache(maxsize=256, typed=True)
def _plain_draft(queue: str, job_class: str, retry: bool | int | None, writing: Writing) -> Draft:
    return _draft(queue, job_class, retry, {}, None, writing)


def _draft(
    queue: str,
    job_class: str,
    retry: bool | int | None,
    options: Mapping[str, Any],
    at: float | None,
    writing: Writing,
) -> Draft:
    _check_queue(queue, "queue")
    _check_class(job_class)
    policy = {} if retry is None else {"retry": retry}
    check_options({**policy, **options})
    about = {**policy, "queue": queue, "class": job_class}
    head = encode(about)[:-1] + ',"args":'
    others = {name: value for name, value in fields_of(options).items() if name not in _PER_JOB}
    tail = ("," + encode(others)[1:-1] if others else "") + ',"jid":'
    kind = Draft if CONDITION_OPTIONS.isdisjoint(options) else ConditionalDraft
    if options.get("encrypt"):
        kind = SealedDraft
    expires_in = options.get("expires_in")
    expires_s = None if expires_in is None else seconds(expires_in)
    return kind(
        queue, at, head, tail, options.get("jid"), job_class, {**policy, **options}, expires_s, writing
    )


def moment(delay: float | timedelta | None, at: Any, now: float) -> float | None:
    """The time at which a job is due, in epoch seconds; None if it is not in the future."""
    if delay is None and at is None:
        return None
    if delay is not None and at is not None:
        raise BadArgumentError("delay and at exclude each other", field="at")
    due = timestamps.due(at) if delay is None else now + seconds(delay)
    if due > timestamps.LATEST:
        raise BadArgumentError(f"{_shown(delay)} from now is after the year 9999", field="delay")
    return due if due > now else None


def seconds(delay: float | timedelta) -> float:
    """A delay in seconds. Raises BadArgumentError for an invalid delay."""
    number = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not is_number(number) or not 0 <= number <= sys.float_info.max:
        raise BadArgumentError(
            f"{_shown(delay)} is not a delay: write seconds from 0, or a timedelta",
            hint="a time is for enqueue_at, or at=…" if isinstance(delay, datetime) else "",
            field="delay",
        )
    return float(number)


def _shown(delay: object) -> str:
    try:
        return repr(delay)
    except Exception:  # of a job, or of Python for too many digits
        return f"This {type(delay).__name__}"


def _check_queue(queue: str, name: str) -> None:
    try:
        check_queue_name(queue)
    except ValueError as error:
        raise BadArgumentError(f"{name} {error}", hint=_method_of(queue), field=name) from error


def _check_class(job_class: str) -> None:
    # Sidekiq's metrics separate their fields by "|" (metrics/query.rb).
    if not isinstance(job_class, str) or not job_class or "|" in job_class:
        message = f"{job_class!r} cannot be a job class: a name without '|'"
        raise BadArgumentError(message, hint=_method_of(job_class), field="job_class")
    check_value(job_class, "job_class")


def unlisted(args: object, path: str) -> BadArgumentError:
    """The error for arguments that are not in a list; ``path`` names them."""
    form = "[a, b]" if path == "args" else "[[a, b], [c, d]], a list for each job"
    kind = f"of type {type(args).__name__}"
    message = f"{path} is {kind}, not a list or tuple of arguments"
    return BadArgumentError(message, hint=f"write {form}", field=_ARGS)


def _method_of(given: object) -> str:
    """How to enqueue a function, or a job of pyworkers, in place of a name; empty for anything else."""
    return "a job is enqueued by its own method: job.enqueue(…)" if callable(given) else ""


def _explain(args: Sequence[Any], path: str, error: Exception) -> NoReturn:
    """Raise a BadArgumentError that names the invalid value."""
    if isinstance(error, BadArgumentError):
        raise error
    with suppress(RecursionError):
        check_value(args, path)
    # The other cause: a call stack that was deep before.
    raise BadArgumentError(f"{path} cannot be written as JSON: {error}", field=_ARGS) from error
