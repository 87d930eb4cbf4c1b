"""The rule of batches: a member is counted at each end of its run.

Pure. The field ``batch`` of the envelope is the id of the batch; ``batch_index``, if its result is kept, the
place of the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyworkers.protocol.effects import CountMember, Effect
from pyworkers.protocol.flow.ending import Ended, Ending

# An ending that is missing changes nothing: the job runs again by itself.
_STATES = {
    Ending.DONE: "done",
    Ending.RETRY: "failed",
    Ending.DEAD: "dead",
    Ending.DISCARDED: "out",
    Ending.CANCELLED: "out",
    Ending.EXPIRED: "out",
    Ending.DELETED: "out",
}


def effects(ended: Ended) -> Iterator[Effect]:
    """Count the member; none for a field of another type, or for a job without an id."""
    batch, state = ended.data.get("batch"), _STATES.get(ended.ending)
    if state is None or not ended.jid or not isinstance(batch, str):
        return
    place = result_place(ended.data)
    result = (ended.result or b"null") if place >= 0 and state == "done" else b""
    yield CountMember(batch, ended.jid, state, place, result)


def result_place(data: Any) -> int:
    """The place of a member's result in its batch; -1 if none is kept."""
    place = data.get("batch_index")
    return place if place.__class__ is int and place >= 0 else -1
