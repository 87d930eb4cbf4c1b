"""Editing: changes the arguments or the time of a job where it waits, in one script.

Used by ``api``; never by the server. A job that has started or moved meanwhile is left alone.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from pyworkers.errors import BadArgumentError, DuplicateJobError, StoreError
from pyworkers.protocol.conditions import SCORE_SUFFIX
from pyworkers.protocol.editing import Edited, Spot, Stored, home_of
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps, decoded, script
from pyworkers.store.flow.removal import written
from pyworkers.store.transport.replies import blob, integer


class Editing(StrEnum):
    """What became of an edit, in the words of edit.lua."""

    EDITED = "edited"
    GONE = "gone"
    ORDERED = "ordered"
    DUPLICATE = "duplicate"
    WRONG = "wrong"


class Written(NamedTuple):
    """The job as it is stored now, and if it has left its place."""

    raw: bytes
    moved: bool


def edit(keys: Keys, job: Stored, new: Edited, place: int = 0) -> Steps[Written | None]:
    """Write an edited job in the place of the stored one; None if that is no longer there.

    ``place``: its index in a queue when it was read. Raises DuplicateJobError, BadArgumentError for a
    time in an ordered queue, and StoreError for a key of another type.
    """
    home = home_of(keys, job.spot, job.queue)
    moves = new.score is not None and job.spot in (Spot.QUEUE, Spot.DEAD)
    locks = new.locks
    names = [home, keys.schedule, keys.ordered(job.queue if job.spot is Spot.QUEUE else "")]
    if locks.life_ms:
        names += map(keys.own, (locks.old, locks.new, locks.old + SCORE_SUFFIX, locks.new + SCORE_SUFFIX))
    more_names, more_args = written(keys, ((1, effect) for effect in new.effects))
    args: list[Any] = [
        "list" if job.spot is Spot.QUEUE else "zset",
        place,
        job.raw,
        new.raw,
        "" if new.score is None else repr(new.score),
        2 if moves else 1,
        new.jid,
        locks.life_ms,
        int(locks.needed),
        *more_args,
    ]
    word, *rest = yield from script("removal/edit", [*names, *more_names], args, tuple, keys.namespace)
    outcome = Editing(decoded(blob(word)))
    if outcome is Editing.EDITED:
        return Written(new.raw.ljust(integer(rest[0])), moves)
    if outcome is Editing.DUPLICATE:
        raise DuplicateJobError(decoded(blob(rest[0])))
    if outcome is Editing.ORDERED:
        message = f"{job.queue} is an ordered queue: its jobs run in turn, and have no time"
        raise BadArgumentError(message, field="at")
    if outcome is Editing.WRONG:
        raise StoreError(f"{decoded(blob(rest[0]))} is a key of another type; the job stays as it is")
    return None
