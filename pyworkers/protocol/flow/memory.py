"""Memory: the status and the result of jobs in this process, written by the same effects as in Redis.

Pure; used by ``pyworkers.testing``. What is kept expires as in Redis, by the clock that it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import simplejson

from pyworkers.errors import ResultTimeout, UntrackedJobError
from pyworkers.protocol.effects import (
    Announce,
    AppendLog,
    DeleteIteration,
    DeleteKey,
    Effect,
    EndLog,
    StoreFields,
    StoreIteration,
)
from pyworkers.protocol.effects.kinds import MAX_LOG_BYTES
from pyworkers.protocol.flow.history import JobHistory, read_history
from pyworkers.protocol.flow.joblog import LogLine, log_key, read_line
from pyworkers.protocol.flow.track import result_key, status_key
from pyworkers.protocol.status import FIELDS, JobState, JobStatus, read_answer, read_status

_Value = TypeVar("_Value")


class _Keys(Generic[_Value]):
    """Values by key, each with the time of its end."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[_Value, float]] = {}

    def put(self, key: str, value: _Value, ends_at: float) -> None:
        self._values[key] = value, ends_at

    def get(self, key: str, now: float) -> _Value | None:
        value, ends_at = self._values.get(key, (None, 0.0))
        return value if now < ends_at else None

    def delete(self, key: str) -> None:
        self._values.pop(key, None)


class EffectMemory:
    """What effects have written, without other features. ``now``: the time, in epoch seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._hashes = _Keys[dict[str, str]]()
        self._streams = _Keys[bytes]()
        self._iterations = _Keys[dict[str, str]]()
        self._logs = _Keys[list[bytes]]()

    def apply(self, effects: Iterable[Effect]) -> None:
        """Do what the script does."""
        # Read once: what is written together ends together.
        now = self._now()
        for effect in effects:
            if isinstance(effect, StoreFields):
                fields = (self._hashes.get(effect.key, now) or {}) | simplejson.loads(effect.fields)
                self._hashes.put(effect.key, fields, now + effect.ttl_s)
            elif isinstance(effect, Announce):
                self._streams.put(effect.key, effect.value, now + effect.ttl_s)
            elif isinstance(effect, StoreIteration):
                self._iterations.put(effect.key, simplejson.loads(effect.fields), now + effect.ttl_s)
            elif isinstance(effect, DeleteIteration):
                self._iterations.delete(effect.key)
            elif isinstance(effect, AppendLog):
                self._add_to_log(effect, effect.lines.split(b"\n"))
            elif isinstance(effect, EndLog):
                if self._logs.get(effect.key, now):
                    self._add_to_log(effect, [effect.line])
            elif isinstance(effect, DeleteKey):
                self._hashes.delete(effect.key)
                self._streams.delete(effect.key)

    def _add_to_log(self, effect: AppendLog | EndLog, lines: list[bytes]) -> None:
        lines = [*(self._logs.get(effect.key, self._now()) or []), *lines]
        while sum(map(len, lines)) > MAX_LOG_BYTES:
            del lines[0]
        self._logs.put(effect.key, lines, self._now() + effect.ttl_s)

    def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        fields = self._hashes.get(status_key(jid), self._now()) or {}
        return read_status([value.encode() if (value := fields.get(name)) else None for name in FIELDS])

    def history(self, jid: str) -> JobHistory | None:
        """As ``Client.history``."""
        now = self._now()
        stored = self._hashes.get(status_key(jid), now) or {}
        packed = self._streams.get(result_key(jid), now)
        answer = None if packed is None else read_answer(packed)
        return read_history(jid, {name.encode(): text.encode() for name, text in stored.items()}, answer)

    def logs(self, jid: str) -> list[LogLine]:
        """As ``Client.logs``."""
        return list(map(read_line, self._logs.get(log_key(jid), self._now()) or []))

    def iteration(self, jid: str) -> dict[str, bytes]:
        """As ``Client.iteration``."""
        stored = self._iterations.get(jid, self._now()) or {}
        return {name: text.encode() for name, text in stored.items()}

    def result(self, jid: str) -> Any:
        """As ``Client.result``, without a wait: nothing else runs. Raises its errors."""
        packed = self._streams.get(result_key(jid), self._now())
        if packed is None:
            state = self.status(jid).state
            if state is JobState.UNKNOWN:
                raise UntrackedJobError(f"no result of the job {jid}: it is not tracked, or there is none")
            raise ResultTimeout(f"the job {jid} is {state}", hint="call drain() first")
        return read_answer(packed).value_of(jid)
