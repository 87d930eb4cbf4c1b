"""Features: what a queue's jobs ask for that only servers of pyworkers do, by name.

Pure. A server has the features of its queues in its heartbeat; others show in the envelopes of waiting jobs.
Another program that takes jobs of such a queue breaks them silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyworkers.protocol.flow import batch, track, unique

BATCHES, LIMITED, ORDERED, TRACKED, UNIQUE = "batches", "limited", "ordered", "tracked", "unique"
BROKEN: Mapping[str, str] = {
    BATCHES: "members are not counted",
    LIMITED: "limits are exceeded",
    ORDERED: "jobs run at once and in any order",
    TRACKED: "no status and no result is written",
    UNIQUE: "locks are not released",
}
"""What another program does to the jobs, by feature."""
_FIELDS = {batch.FIELD: BATCHES, track.FIELD: TRACKED, unique.FIELD: UNIQUE, "unique_for": UNIQUE}


def of_envelope(data: Mapping[str, Any]) -> set[str]:
    """The features for which the fields of an envelope ask, or the options of a declaration."""
    return {feature for field, feature in _FIELDS.items() if data.get(field)}
