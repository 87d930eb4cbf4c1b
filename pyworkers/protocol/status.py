"""Status: the state, the progress and the result of a tracked job, and how Redis holds them.

Pure; read by the clients. They are written as effects, by the rule in flow/track.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeGuard

import simplejson

from pyworkers.errors import BadArgumentError, JobFailedError
from pyworkers.protocol import timestamps
from pyworkers.protocol.envelope import check_value, encode
from pyworkers.protocol.options import is_number

MAX_TEXT = 1000
"""The longest text of a progress, in characters; the rest is cut off."""


class JobState(StrEnum):
    """Where a job is."""

    WAITING = "waiting"
    """In its queue."""
    SCHEDULED = "scheduled"
    """In ``schedule``, until its time."""
    RUNNING = "running"
    RETRYING = "retrying"
    """It failed, or does not fit the server that had it, and waits in ``retry``."""
    DONE = "done"
    FAILED = "failed"
    """It failed for good and was dropped."""
    DEAD = "dead"
    """It failed for good, or was killed by hand, and is kept in ``dead``."""
    CANCELLED = "cancelled"
    """It was cancelled, or deleted from its queue or set."""
    EXPIRED = "expired"
    UNKNOWN = "unknown"
    """It is not tracked, its status has expired, or there was no such job."""

    @property
    def final(self) -> bool:
        """True if the job has ended."""
        return self in _FINAL


_BY_NAME: dict[str | None, JobState] = {state.value: state for state in JobState}
_FINAL = frozenset({JobState.DONE, JobState.FAILED, JobState.DEAD, JobState.CANCELLED, JobState.EXPIRED})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: ``done`` of ``total``, which is None if it is not known."""

    done: float
    total: float | None = None
    text: str = ""

    def __post_init__(self) -> None:
        """Raise BadArgumentError for values that are not numbers and text."""
        for name, number in (("done", self.done), ("total", self.total)):
            if (number is not None or name == "done") and not is_finite(number):
                raise BadArgumentError(f"{name} must be a finite number, not {number!r}")
        if not isinstance(self.text, str):
            raise BadArgumentError(f"text must be a string, not of type {type(self.text).__name__}")
        check_value(self.text, "text")

    def encoded(self) -> str:
        """As JSON, for the field ``progress``."""
        return encode([self.done, self.total, self.text[:MAX_TEXT]])


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job. Times are in epoch seconds; they are of the last run."""

    state: JobState
    queue: str = ""
    attempt: int = 0
    """The number of earlier failures."""
    progress: Progress | None = None
    started_at: float | None = None
    finished_at: float | None = None
    error: str | None = None
    """Class and message of the last failure; None if it has not failed, or is done."""

    def as_dict(self) -> dict[str, Any]:
        """The status as JSON values."""
        return asdict(self)


class Cancelled(StrEnum):
    """The result of a cancellation."""

    REMOVED = "removed"
    """It was waiting, in a queue or for its time, and is removed."""
    RUNNING = "running"
    """It is running. Its server asks it to end, and kills its worker if it still runs two seconds later."""
    ELSEWHERE = "elsewhere"
    """Another program's server runs it. Sidekiq ends an iterable job within seconds; other jobs continue."""
    UNKNOWN = "unknown"
    """It was not found; servers refuse to start it for one day."""


UNKNOWN = JobStatus(JobState.UNKNOWN)
_MOST_DIGITS = 20
FIELDS = ("state", "queue", "attempt", "progress", "started_at", "finished_at", "error")
"""The fields of the HASH, in the order of ``read_status``."""


def read_status(values: list[bytes | None]) -> JobStatus:
    """The status from the values of ``FIELDS``; invalid ones count as missing."""
    texts = [None if value is None else value.decode(errors="replace") for value in values]
    state, queue, attempt, progress, started_at, finished_at, error = texts
    if state not in _BY_NAME:
        return UNKNOWN
    return JobStatus(
        _BY_NAME[state],
        queue or "",
        int(attempt) if attempt and attempt.isdecimal() and len(attempt) < _MOST_DIGITS else 0,
        _progress(progress),
        timestamps.of_text(started_at),
        timestamps.of_text(finished_at),
        error or None,
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a tracked job, for those who wait for its result."""

    state: JobState
    result: Any = None
    error_class: str = ""
    error: str = field(default="", repr=False)
    member: str = ""
    """The member with which a batch ended."""
    reason: str = ""
    """How that member ended."""

    def value_of(self, jid: str) -> Any:
        """What the job with this id returned. Raises JobFailedError."""
        if self.member:
            raise JobFailedError(self.member, self.reason, kind="batch", whole=jid)
        if self.state is not JobState.DONE:
            raise JobFailedError(jid, self.state.value, self.error_class, self.error)
        return self.result


def pack_answer(state: JobState, result: bytes, error_class: str, error: str) -> bytes:
    """An answer as JSON. ``result`` is JSON; it counts only if the job is done."""
    if state is JobState.DONE:
        return b'{"state":"done","result":' + result + b"}"
    return encode({"state": state.value, "error_class": error_class, "error": error}).encode(
        errors="backslashreplace"
    )


def read_answer(packed: bytes) -> Answer:
    """The inverse of ``pack_answer``. Raises ValueError for invalid bytes."""
    try:
        found = simplejson.loads(packed.decode())
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(found, Mapping):
        raise ValueError("an answer is a JSON object")
    return Answer(
        JobState(str(found.get("state"))),
        found.get("result"),
        str(found.get("error_class") or ""),
        str(found.get("error") or ""),
        str(found.get("jid") or ""),
        str(found.get("reason") or ""),
    )


def _progress(text: str | None) -> Progress | None:
    try:
        return Progress(*simplejson.loads(text)) if text else None
    except (ValueError, TypeError, RecursionError):
        return None


def is_finite(value: object) -> TypeGuard[float]:
    """True for a number that a float can hold, but for infinity and NaN."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:
        # An integer of more than 308 digits.
        return False
