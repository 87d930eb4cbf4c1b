"""Outcome: the result of a job's run, as a value: done, to be retried, dead …

Pure; made in the worker process (or by the master for a lost worker), applied by the store. A worker only
reports an outcome; the removal from the in-progress list and its consequence are one script of the store.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from pyworkers.protocol import effects
from pyworkers.protocol.effects import Effect

_REPORT = struct.Struct("!BBdIH")
_EFFECTS_SIZE = struct.Struct("!I")
_FAILED, _CRASHED, _RETIRING, _EFFECTS = 1, 2, 4, 8
_MAX_ELAPSED_MS = 0xFFFF_FFFF
_MOST_KNOWN = 1000


class Fate(IntEnum):
    """The destination of the job. The numbers are those of the settle scripts."""

    DONE = 0
    RETRY = 1
    """Into ``retry`` until ``at``."""
    DEAD = 2
    """Into ``dead``."""
    DISCARD = 3
    """Nowhere: it failed and is dropped."""
    REQUEUE = 4
    """Back to its queue, at the end that is popped next, as if it had not been fetched."""
    SNOOZE = 5
    """Into ``schedule`` until ``at``."""
    CANCELLED = 6
    """Nowhere: the job chose it, or it was cancelled."""
    NOTE = 7
    """It stays: it runs, and only its effects are applied."""
    EXPIRED = 8
    """Nowhere: it had not started by the time in its ``expiry``."""
    ASK = 32
    """It is not settled: its limits decide whether it may start, and the payload is its ask (limits.py)."""


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
        """The bytes that the outcome adds to those of its job."""
        return len(self.payload) + (effects.size_of(self.effects) if self.effects else 0)

    @property
    def final(self) -> bool:
        """True for a failed job that will not be tried again: the exhaustion hooks run."""
        return self.failed and self.fate in (Fate.DEAD, Fate.DISCARD)


DONE = Outcome(Fate.DONE)
CANCELLED = Outcome(Fate.CANCELLED)
REQUEUE = Outcome(Fate.REQUEUE)
EXPIRED = Outcome(Fate.EXPIRED)


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

    @property
    def asks(self) -> bool:
        """True if the job has not started, but asks for its limits."""
        return self.outcome.fate is Fate.ASK

    def pack(self, handler: int = 0) -> bytes:
        """The report as the payload of an OUTCOME frame; ``handler`` is the number for its name."""
        outcome = self.outcome
        if outcome is DONE and not self.retiring:
            return _REPORT.pack(Fate.DONE, 0, 0.0, min(self.elapsed_ms, _MAX_ELAPSED_MS), handler)
        flags = outcome.failed * _FAILED | outcome.crashed * _CRASHED | self.retiring * _RETIRING
        rest = outcome.payload
        if outcome.effects:
            flags |= _EFFECTS
            packed = effects.pack(outcome.effects)
            rest = _EFFECTS_SIZE.pack(len(packed)) + packed + rest
        elapsed_ms = min(self.elapsed_ms, _MAX_ELAPSED_MS)
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
        failed, crashed = bool(flags & _FAILED), bool(flags & _CRASHED)
        outcome = Outcome(Fate(fate), at, payload, failed, crashed, effects=found)
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
            if report.outcome is DONE and len(self._known) < _MOST_KNOWN:
                self._known[data] = report
        return report


@dataclass(frozen=True, slots=True)
class Loss:
    """A job that ended with its worker and will not be tried again: the payload of an EXHAUSTED frame."""

    raw: bytes
    error_class: str
    error_message: str

    def pack(self) -> bytes:
        """Error class, error message and the job, separated by NUL, which the first two cannot contain."""
        return b"\0".join((self.error_class.encode(), self.error_message.encode(), self.raw))

    @classmethod
    def unpack(cls, data: bytes) -> Loss:
        """The inverse of ``pack``."""
        error_class, error_message, raw = data.split(b"\0", 2)
        return cls(raw, error_class.decode(), error_message.decode())
