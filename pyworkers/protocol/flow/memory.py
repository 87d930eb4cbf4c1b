"""Memory: the status and the result of jobs in this process, written by the same effects as in Redis.

Pure; used by ``pyworkers.testing``. Nothing expires.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import simplejson

from pyworkers.errors import JobFailedError, ResultTimeout, UntrackedJobError
from pyworkers.protocol.effects import (
    Announce,
    DeleteIteration,
    DeleteKey,
    Effect,
    StoreFields,
    StoreIteration,
)
from pyworkers.protocol.flow.history import JobHistory, read_history
from pyworkers.protocol.flow.track import result_key, status_key
from pyworkers.protocol.status import FIELDS, JobState, JobStatus, read_answer, read_status


class Memory:
    """What effects have written; effects of other features are ignored."""

    def __init__(self) -> None:
        self._hashes: dict[str, dict[str, str]] = {}
        self._streams: dict[str, bytes] = {}
        self._iterations: dict[str, dict[str, str]] = {}

    def apply(self, effects: Iterable[Effect]) -> None:
        """Do what the script does."""
        for effect in effects:
            if isinstance(effect, StoreFields):
                self._hashes.setdefault(effect.key, {}).update(simplejson.loads(effect.fields))
            elif isinstance(effect, Announce):
                self._streams[effect.key] = effect.value
            elif isinstance(effect, StoreIteration):
                self._iterations[effect.key] = simplejson.loads(effect.fields)
            elif isinstance(effect, DeleteIteration):
                self._iterations.pop(effect.key, None)
            elif isinstance(effect, DeleteKey):
                self._hashes.pop(effect.key, None)
                self._streams.pop(effect.key, None)

    def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        fields = self._hashes.get(status_key(jid), {})
        return read_status([value.encode() if (value := fields.get(name)) else None for name in FIELDS])

    def history(self, jid: str) -> JobHistory | None:
        """As ``Client.history``."""
        stored = self._hashes.get(status_key(jid), {})
        packed = self._streams.get(result_key(jid))
        answer = None if packed is None else read_answer(packed)
        return read_history(jid, {name.encode(): text.encode() for name, text in stored.items()}, answer)

    def iteration(self, jid: str) -> dict[str, bytes]:
        """As ``Client.iteration``."""
        return {name: text.encode() for name, text in self._iterations.get(jid, {}).items()}

    def result(self, jid: str) -> Any:
        """As ``Client.result``, without a wait: nothing else runs. Raises its errors."""
        packed = self._streams.get(result_key(jid))
        if packed is None:
            state = self.status(jid).state
            if state is JobState.UNKNOWN:
                raise UntrackedJobError(f"no result of the job {jid}: it is not tracked, or there is none")
            raise ResultTimeout(f"the job {jid} is {state}", hint="call drain() first")
        answer = read_answer(packed)
        if answer.state is not JobState.DONE:
            raise JobFailedError(jid, answer.state.value, answer.error_class, answer.error)
        return answer.result
