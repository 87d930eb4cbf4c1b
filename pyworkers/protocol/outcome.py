"""Outcome: the result of a job's run, as a value: done, to be retried, dead …

Pure; made in the worker process (or by the master for a lost worker), applied by the store. A worker only
reports an outcome; the removal from the in-progress list and its consequence are one script of the store.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

from pyworkers.protocol import effects
from pyworkers.protocol.effects import Effect

_REPORT = struct.Struct("!BBdIH")
# The same for a member: its places instead of the time, which a job that is done has not.
_MEMBER_REPORT = struct.Struct("!BBIIIH")
_EFFECTS_SIZE = struct.Struct("!I")
# Fate, flags, time, and the sizes of error class, error message, id and payload, which the job follows.
_LOSS = struct.Struct("!BBdIIII")
_FAILED, _CRASHED, _RETIRING, _EFFECTS, _MEMBER, _MISFIT = 1, 2, 4, 8, 16, 32
_MAX_ELAPSED_MS = 0xFFFF_FFFF
_MOST_KNOWN = 1000


class Fate(IntEnum):
    """The destination of the job. exchange.lua gets those below 10 alone, as a digit of a code."""

    DONE = 0
    RETRY = 1
    """Into ``retry`` until ``at``."""
    DEAD = 2
    """Into ``dead``."""
    DISCARD = 3
    """Removed: it failed and is dropped."""
    REQUEUE = 4
    """Back to its queue, at the end that is popped next, as if it had not been fetched."""
    SNOOZE = 5
    """Into ``schedule`` until ``at``."""
    CANCELLED = 6
    """Removed: the job chose it, or it was cancelled."""
    NOTE = 7
    """It stays: it runs, and only its effects are applied."""
    EXPIRED = 8
    """Removed: it had not started by the time in its ``expiry``."""
    ASK = 32
    """It is not settled: its limits decide whether it may start, and the payload is its ask (limits.py)."""
    ANSWER = 33
    """It is no job, but a request of the master; the payload is the answer (flow/slots.py)."""


class MemberAt(NamedTuple):
    """Where a stored job names its batch and itself: the distances of both ids from its end."""

    batch: int
    jid: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happens to one job. ``at`` is in epoch seconds; an empty ``payload`` means the raw bytes."""

    fate: Fate
    at: float = 0.0
    payload: bytes = b""
    failed: bool = False
    crashed: bool = False
    error_class: str = ""
    error_message: str = ""
    effects: tuple[Effect, ...] = ()
    """Writes that are made in the same script as the settlement."""
    result: bytes | None = None
    """What the job returned, as JSON, if its envelope asks to keep it; it does not leave the worker."""
    chosen: bool = False
    """The job chose to be discarded. For its effects: it does not leave the worker."""
    member: MemberAt | None = None
    """Counts the job as a done member of its batch, in place of an effect; see ``flow.member_at``."""
    misfit: bool = False
    """It did not run, because it does not fit this server; ``failed`` only if it is not tried again."""

    def with_effects(self, *more: Effect) -> Outcome:
        """A copy with further effects, for a link to return. Raises ValueError if they are too large."""
        if not more:
            return self
        together = (*self.effects, *more)
        if effects.size_of(together) > effects.MAX_BYTES:
            raise ValueError(f"the effects of a job are larger than {effects.MAX_BYTES} bytes")
        if self is DONE:
            # The outcome of most members of batches; ``replace`` takes five times as long.
            return Outcome(Fate.DONE, effects=together)
        return replace(self, effects=together)

    @property
    def size(self) -> int:
        """The bytes that the outcome adds to its job."""
        return len(self.payload) + (effects.size_of(self.effects) if self.effects else 0)

    @property
    def final(self) -> bool:
        """True for a failed job that will not be tried again: the exhaustion hooks run."""
        return self.failed and self.fate in (Fate.DEAD, Fate.DISCARD)


DONE = Outcome(Fate.DONE)
_DONE = Fate.DONE
CANCELLED = Outcome(Fate.CANCELLED)
REQUEUE = Outcome(Fate.REQUEUE)
EXPIRED = Outcome(Fate.EXPIRED)
BURIED = Outcome(Fate.DEAD, failed=True)
"""The outcome of a job whose own one cannot be computed or sent: it is kept in ``dead``, as it is stored."""


@lru_cache(maxsize=1000)
def done_member(batch: int, jid: int) -> Outcome:
    """The outcome of a done member, by the places in its stored job. Most members have the same."""
    return Outcome(Fate.DONE, member=MemberAt(batch, jid))


class Report(NamedTuple):
    """A worker's report about one job: the outcome, and facts about the run."""

    outcome: Outcome
    elapsed_ms: int = 0
    retiring: bool = False
    """The worker takes no further job."""
    job_class: str = ""
    """The name of the handler that ran the job; empty if there is none. Never a name from a payload."""
    cancelled: str = ""
    """The jid of a job whose cancellation was requested, else empty. Only the master sets it."""

    def pack(self, handler: int = 0) -> bytes:
        """The report as the payload of an OUTCOME frame; ``handler`` is the number for its name."""
        outcome = self.outcome
        elapsed_ms = self.elapsed_ms if self.elapsed_ms < _MAX_ELAPSED_MS else _MAX_ELAPSED_MS
        if not self.retiring:
            # The outcomes of most jobs.
            if outcome is DONE:
                return _REPORT.pack(_DONE, 0, 0.0, elapsed_ms, handler)
            if outcome.member is not None and not outcome.effects:
                return _MEMBER_REPORT.pack(_DONE, _MEMBER, *outcome.member, elapsed_ms, handler)
        flags = outcome.failed * _FAILED | outcome.crashed * _CRASHED | self.retiring * _RETIRING
        flags |= outcome.misfit * _MISFIT
        rest = outcome.payload
        if outcome.effects:
            flags |= _EFFECTS
            packed = effects.pack(outcome.effects)
            rest = _EFFECTS_SIZE.pack(len(packed)) + packed + rest
        if outcome.member is not None:
            flags |= _MEMBER
            return _MEMBER_REPORT.pack(outcome.fate, flags, *outcome.member, elapsed_ms, handler) + rest
        return _REPORT.pack(outcome.fate, flags, outcome.at, elapsed_ms, handler) + rest

    @classmethod
    def unpack(cls, data: bytes, handlers: Sequence[str] = ("",)) -> Report:
        """The inverse of ``pack``, without error class and message, which the worker has logged.

        ``handlers`` are the names by number. Raises ValueError for a number without one, and ValueError or
        struct.error for other invalid bytes.
        """
        fate, flags, at, elapsed_ms, handler = _REPORT.unpack_from(data)
        if handler >= len(handlers):
            raise ValueError(f"unknown handler number {handler}")
        job_class = handlers[handler]
        if fate == Fate.DONE and not flags:
            return cls(DONE, elapsed_ms, False, job_class)
        payload = data[_REPORT.size :]
        found: tuple[Effect, ...] = ()
        if flags & _EFFECTS:
            end = _EFFECTS_SIZE.size + _EFFECTS_SIZE.unpack_from(payload)[0]
            found, payload = effects.unpack(payload[_EFFECTS_SIZE.size : end]), payload[end:]
        failed, crashed, member = bool(flags & _FAILED), bool(flags & _CRASHED), None
        misfit = bool(flags & _MISFIT)
        if flags & _MEMBER:
            member, at = MemberAt(*_MEMBER_REPORT.unpack_from(data)[2:4]), 0.0
        outcome = Outcome(
            Fate(fate), at, payload, failed, crashed, effects=found, member=member, misfit=misfit
        )
        return cls(outcome, elapsed_ms, bool(flags & _RETIRING), job_class)


class Reports:
    """Reads the reports of workers; ``handlers`` are the names by number, and may grow.

    The reports of most jobs are equal: the same handler, the same few milliseconds. Each is read once.
    """

    def __init__(self, handlers: Sequence[str]) -> None:
        self._handlers = handlers
        self._known: dict[bytes, Report] = {}

    def read(self, data: bytes) -> Report:
        """``Report.unpack``, with its errors."""
        report = self._known.get(data)
        if report is None:
            report = Report.unpack(data, self._handlers)
            brief = report.outcome.fate is _DONE and len(data) == _REPORT.size
            if brief and len(self._known) < _MOST_KNOWN:
                self._known[data] = report
        return report


@dataclass(frozen=True, slots=True)
class Loss:
    """A job that ended with its worker, as it ran, and its outcome: the payload of a LOST packet."""

    raw: bytes
    jid: str
    """The id, which the job itself may lack."""
    outcome: Outcome
    """It has no effects."""

    def pack(self) -> bytes:
        """The loss as bytes."""
        outcome = self.outcome
        names = (outcome.error_class, outcome.error_message, self.jid)
        parts = (*(name.encode(errors="replace") for name in names), outcome.payload)
        flags = outcome.failed * _FAILED | outcome.crashed * _CRASHED
        head = _LOSS.pack(outcome.fate, flags, outcome.at, *map(len, parts))
        return b"".join((head, *parts, self.raw))

    @classmethod
    def unpack(cls, data: bytes) -> Loss:
        """The inverse of ``pack``."""
        fate, flags, at, *sizes = _LOSS.unpack_from(data)
        parts, start = [], _LOSS.size
        for size in sizes:
            parts.append(data[start : start + size])
            start += size
        error_class, error_message, jid = (part.decode() for part in parts[:3])
        failed, crashed = bool(flags & _FAILED), bool(flags & _CRASHED)
        outcome = Outcome(Fate(fate), at, parts[3], failed, crashed, error_class, error_message)
        return cls(data[start:], jid, outcome)
