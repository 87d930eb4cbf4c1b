"""Progress: writes how far a running job is, before its end: the progress of a tracked one, and checkpoints.

Runs in the worker process, in the threads of the job. A checkpoint is the state from which another run of
the job continues: Sidekiq's of an iterable job, from 7.3 (its job/iterable.rb), the HASH ``it-JID`` with
``c`` (the value as JSON), ``ex`` (runs) and ``rt`` (seconds).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import simplejson

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.effects import DeleteIteration, Effect, StoreIteration
from pyworkers.protocol.envelope import check_value, encode
from pyworkers.protocol.flow.track import progressed
from pyworkers.protocol.message import as_count
from pyworkers.protocol.status import Progress

# At most four notes a second.
_PROGRESS_APART_S = 0.25
# A value is written at most once a second.
_CHECKPOINT_APART_S = 1.0
# Sidekiq's STATE_TTL.
_TTL_S = 30 * 86_400
MAX_BYTES = 512 * 1024
"""The largest value, as JSON: the server keeps the last one of each running job in memory."""


class ProgressNotes:
    """The progress of one run, written at most four times a second; ``note`` sends an effect."""

    def __init__(self, jid: str, note: Callable[[Effect], None], clock: Callable[[], float]) -> None:
        self._jid = jid
        self._note = note
        self._clock = clock
        self._due_s = 0.0
        self._last: Progress | None = None

    def report(self, progress: Progress) -> None:
        """Write the progress, or keep it if one was written just now."""
        now_s = self._clock()
        if now_s < self._due_s:
            self._last = progress
            return
        self._due_s, self._last = now_s + _PROGRESS_APART_S, None
        self._note(progressed(self._jid, progress))

    def rest(self) -> list[Effect]:
        """The effects of the last progress, if it was kept: they belong to the end of the job."""
        return [] if self._last is None else [progressed(self._jid, self._last)]


class CheckpointNotes:
    """The checkpoint of one run; ``note`` sends an effect. Only this module makes one."""

    def __init__(self, jid: str, note: Callable[[Effect], None], clock: Callable[[], float]) -> None:
        self._jid = jid
        self._note = note
        self._clock = clock
        self._began_s = clock()
        self._due_s = 0.0
        self._runs, self._ran_s = 0, 0.0
        self._text = ""
        self._open = self._unwritten = self._saved = False

    def open(self, read: Callable[[], Mapping[str, bytes]], default: Any) -> Any:
        """The last saved value, or else the default; the first call begins from the stored state."""
        if not self._open:
            self._begin(read())
            self._open = True
        return simplejson.loads(self._text) if self._text else default

    def _begin(self, state: Mapping[str, bytes]) -> None:
        self._runs = as_count(state.get("ex", b"0").decode(errors="replace")) or 0
        try:
            self._ran_s = max(0.0, float(state.get("rt", b"0")))
            text = state["c"].decode()
            simplejson.loads(text)
        except (KeyError, ValueError, RecursionError):
            return
        self._text, self._saved = text, True

    def save(self, value: Any) -> None:
        """Write the value, or keep it if one was written in this second. Raises BadArgumentError."""
        # As JSON at once: the job may change a list or a dict before it is written, and has not saved that.
        self._text, self._unwritten = encoded(value), True
        now_s = self._clock()
        if now_s >= self._due_s:
            self._note(self._effect())
            self._due_s, self._unwritten, self._saved = now_s + _CHECKPOINT_APART_S, False, True

    def rest(self, final: bool) -> list[Effect]:
        """The effects for the end of the run, after which there is no other one if it is ``final``."""
        if final:
            return [DeleteIteration(self._jid)] if self._saved or self._unwritten else []
        return [self._effect()] if self._unwritten else []

    def _effect(self) -> Effect:
        ran_s = self._ran_s + self._clock() - self._began_s
        fields = {"ex": str(self._runs + 1), "c": self._text, "rt": f"{ran_s:.3f}"}
        return StoreIteration(self._jid, encode(fields).encode(), _TTL_S)


def encoded(value: Any) -> str:
    """A value as JSON. Raises BadArgumentError for one that is not JSON, or too large."""
    try:
        check_value(value, "value")
        text = encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, BadArgumentError):
            raise
        raise BadArgumentError(f"value cannot be written as JSON: {error}") from error
    if (size := len(text.encode())) > MAX_BYTES:
        raise BadArgumentError(f"value has {size} bytes as JSON; the limit is {MAX_BYTES}")
    return text
