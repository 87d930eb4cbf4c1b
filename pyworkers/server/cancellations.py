"""Cancellations: the cancelled jobs that this master knows.

    cancel(jid) ──► note in Redis ──► every master, within a second (Remote) ──► here
    batch.cancel() ──► one note for all its members
                                           │ a job that arrives: settled as cancelled, it never starts
                                           │ a job that runs: SIGURG, JobCancelled in the job, later the kill
                                           ▼
                                      settled as cancelled ──► the note is removed

Pure; used by the pools. While there is no note, a job costs one check of an empty set; while there are notes,
a search of its bytes for an id. A job is decoded only if its id seems to be noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import simplejson

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope
from pyworkers.protocol.flow.batch import note_of

# Possessive: anybody may push a text of a hundred megabytes, and each character would have a place of return.
_IDS = re.compile(rb'"(jid|batch)"\s*:\s*("[^"\\]*+(?:\\.[^"\\]*+)*+")')


class Cancellations:
    """Shared by the pools of one master."""

    def __init__(self) -> None:
        self.noted: frozenset[str] = frozenset()
        """The ids of the cancelled jobs that have not ended, and the names of cancelled batches."""
        self._settled: set[str] = set()

    def use(self, noted: Iterable[str]) -> None:
        """Take these ids, except the ids of jobs that have ended."""
        self.noted = frozenset(noted) - self._settled

    def jid_of(self, raw: bytes) -> str:
        """The id of a job that is cancelled, or is a member of a cancelled batch; empty for all others."""
        for match in _IDS.finditer(raw):
            name = _text(match[2])
            if (name if match[1] == b"jid" else note_of(name)) in self.noted:
                return self._jid_in(raw)
        return ""

    def _jid_in(self, raw: bytes) -> str:
        try:
            job = envelope.decode(raw)
        except BadMessageError:
            return ""
        jid, batch = job.get("jid"), job.get("batch")
        if not isinstance(jid, str):
            return ""
        in_batch = isinstance(batch, str) and note_of(batch) in self.noted
        return jid if in_batch or jid in self.noted else ""

    def settle(self, jid: str) -> None:
        """Note that the job has ended and its outcome is in Redis: its cancellation can be removed there."""
        self._settled.add(jid)
        self.noted -= {jid}

    def take_settled(self) -> list[str]:
        """The ids whose notes are to be removed; call ``removed`` then."""
        return list(self._settled)

    def removed(self, jids: Iterable[str]) -> None:
        """Forget these ids, whose notes are removed."""
        self._settled.difference_update(jids)


def _text(literal: bytes) -> str:
    if b"\\" not in literal:
        return literal[1:-1].decode(errors="replace")
    try:
        return str(simplejson.loads(literal))
    except ValueError:
        return ""
