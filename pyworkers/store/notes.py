"""Notes: the ids of cancelled jobs, which every server reads, and Sidekiq's way to cancel a job.

Run by the master.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyworkers.protocol.draft import batches
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Call, Steps, one, script
from pyworkers.store.transport.replies import integer

NOTE_TTL_S = 86_400
"""How long servers refuse a cancelled job that was not found."""
# Each takes Redis about a microsecond.
_PER_SCRIPT = 500


def notes(keys: Keys) -> Call[frozenset[str]]:
    """The ids of the cancelled jobs."""
    return one("ZRANGE", keys.cancelled, 0, -1, read=texts)


def heed(keys: Keys, jids: Sequence[str]) -> Steps[int]:
    """Note the jobs that were cancelled in Sidekiq's way. How many there were."""
    total = 0
    for batch in batches(jids, _PER_SCRIPT):
        names = [keys.cancelled, *map(keys.iteration, batch)]
        total += yield from script("heed", names, [NOTE_TTL_S, *batch], integer)
    return total


def forget(keys: Keys, jids: Sequence[str]) -> Call[int]:
    """Remove the notes of jobs, at least one, that have ended."""
    return one("ZREM", keys.cancelled, *jids, read=integer)


def texts(stored: Any) -> frozenset[str]:
    """Names as Redis holds them, also those that are not UTF-8."""
    return frozenset(name.decode(errors="surrogateescape") for name in stored)
