"""Suspects: the jobs that were running when servers died, their mark and their entry in Redis.

Pure; used by the master. Recovery gives each job back with a mark behind its last byte, and counts it in an
entry (recover.lua). The mark is a blank that JSON ignores, and not the one that ``keep`` appends in
shared/prelude.lua: so the master sees without decoding, and without a command, which jobs have an entry.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import NamedTuple

from pyworkers.protocol.effects import DeleteField
from pyworkers.protocol.outcome import Fate, Outcome

MARK = b"\t"
SUSPECT_FROM = 2
"""The number of dead servers from which on a job is a suspect. Most servers die for other reasons."""
MAX_DEATHS = 3
"""The number of servers that died while this job was the one suspect that they ran: then it is dead."""
_HASH = "suspects"
_ENTRY = re.compile(rb"([0-9]{1,9}) ([0-9]{1,9})")


class SuspectEntry(NamedTuple):
    """How many dead servers had the job, and to how many of these deaths it is held responsible."""

    servers: int = 0
    deaths: int = 0

    @classmethod
    def parse(cls, stored: bytes | None) -> SuspectEntry:
        """An entry as recover.lua writes it; one that is missing or invalid counts as empty."""
        found = _ENTRY.fullmatch(stored or b"")
        return cls(int(found[1]), int(found[2])) if found else cls()


def field_of(raw: bytes) -> str:
    """The field of a job's entry, as in recover.lua."""
    return hashlib.sha1(raw.rstrip(MARK), usedforsecurity=False).hexdigest()


def deleting_entry(raw: bytes, outcome: Outcome) -> Outcome:
    """The outcome of a marked job, which also deletes its entry; unchanged for a job that is given back.

    The new payload of a retry has no mark, because ``envelope.splice`` drops trailing blanks.
    """
    if outcome.fate is Fate.REQUEUE:
        return outcome
    # Not ``with_effects``: the job's own effects may have reached the limit.
    return replace(outcome, effects=(*outcome.effects, DeleteField(_HASH, field_of(raw))))
