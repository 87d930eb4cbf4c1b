"""History: the rule of tracked jobs with the option ``history``: the job as it was enqueued, and its runs.

Pure. Both are in the HASH of the status (track.py), and expire with it: ``job`` is the envelope, ``run:N``
has the start and the worker of run N, ``error:N`` the error with which it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import simplejson

from pyworkers.errors import BadMessageError
from pyworkers.protocol.effects import Effect, StoreFields
from pyworkers.protocol.envelope import decode, encode
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.flow.track import ALIVE_S, is_tracked, kept_s, status_key
from pyworkers.protocol.message import as_count
from pyworkers.protocol.status import FIELDS, Answer, JobStatus, is_finite, read_status

FIELD = "history"
MAX_TRACEBACK = 20_000
"""Characters of a traceback that are kept: the last ones, with the error."""
_MAX_MESSAGE = 2000


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job. Without an error if it is running, was given back, or is done."""

    number: int
    """From 0; a run that was given back to its queue has the number of the one that follows."""
    started_at: float | None = None
    """In epoch seconds."""
    worker: str = ""
    """``HOSTNAME:PID`` of the worker process."""
    error_class: str = ""
    error: str = ""
    traceback: str = field(default="", repr=False)
    """As Python prints it; empty if the worker did not report the error, because it was lost."""


@dataclass(frozen=True, slots=True)
class JobHistory:
    """A job with the option ``history``: how it was enqueued, its runs, and what it returned."""

    jid: str
    status: JobStatus
    job: dict[str, Any] = field(repr=False)
    """The envelope as it was enqueued; encrypted arguments are sealed."""
    runs: tuple[JobRun, ...] = ()
    result: Any = None
    """What the job returned; None until it is done."""

    def as_dict(self) -> dict[str, Any]:
        """The history as JSON values."""
        return asdict(self)


def entered(payload: bytes, jid: str, status_s: int) -> Effect:
    """The job as it is pushed, as push.lua writes it with the status."""
    return StoreFields.of(status_key(jid), {"job": payload.decode()}, status_s)


def started(start: JobStart) -> Iterable[Effect]:
    """The effects of the start of a run."""
    if is_asked(start.data) and is_tracked(start.data, start.jid):
        run = encode([start.now, start.worker()])
        yield StoreFields.of(status_key(start.jid), {f"run:{_number(start.data)}": run}, ALIVE_S)


def effects(ended: Ended) -> Iterable[Effect]:
    """The effects of the end of a run that failed."""
    if ended.ending is Ending.MISFIT:
        return
    if ended.error_class and is_asked(ended.data) and is_tracked(ended.data, ended.jid):
        texts = ended.error_class, ended.error_message[:_MAX_MESSAGE], ended.traceback[-MAX_TRACEBACK:]
        error = encode([text.encode(errors="replace").decode() for text in texts])
        fields = {f"error:{_number(ended.data)}": error}
        yield StoreFields.of(status_key(ended.jid), fields, kept_s(ended))


def is_asked(data: Mapping[str, Any]) -> bool:
    """True if the envelope asks for it."""
    return bool(data.get(FIELD))


def read_history(jid: str, stored: Mapping[bytes, bytes], answer: Answer | None) -> JobHistory | None:
    """The history from the HASH and the end of the job; invalid runs count as missing.

    None for a job without a history.
    """
    try:
        job = decode(stored[b"job"])
    except (KeyError, BadMessageError):
        return None
    status = read_status([stored.get(name.encode()) for name in FIELDS])
    result = None if answer is None else answer.result
    return JobHistory(jid, status, job, tuple(_runs(stored)), result)


def _number(data: Mapping[str, Any]) -> int:
    """The number of the run: the failures and the crashes before it, which have a count each."""
    failures, crashes = as_count(data.get("retry_count")), as_count(data.get("crash_count"))
    return (0 if failures is None else failures + 1) + (crashes or 0)


def _runs(stored: Mapping[bytes, bytes]) -> Iterator[JobRun]:
    numbers = {_suffix(name) for name in stored if name.startswith((b"run:", b"error:"))}
    for number in sorted(number for number in numbers if number is not None):
        begun = _list(stored.get(b"run:%d" % number), 2)
        texts = [str(text) for text in _list(stored.get(b"error:%d" % number), 3) or ("", "", "")]
        time, worker = begun or (None, "")
        yield JobRun(number, _time(time), str(worker), *texts)


def _suffix(name: bytes) -> int | None:
    digits = name.partition(b":")[2]
    return int(digits) if digits.isdigit() and len(digits) < 10 else None


def _list(packed: bytes | None, size: int) -> list[Any] | None:
    try:
        found = simplejson.loads(packed or b"")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and len(found) == size else None


def _time(value: object) -> float | None:
    return float(value) if is_finite(value) else None
