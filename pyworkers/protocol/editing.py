"""Editing: what a stored job becomes when a person gives it other arguments or another time.

Pure; used by ``api``. The arguments are checked as an enqueue checks them. A sealed job is sealed anew, and a
unique one gets the key of its new arguments. ``copied`` makes another job of a stored one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pyworkers.errors import BadArgumentError, BadMessageError, EncryptionKeyError
from pyworkers.protocol import envelope, sealing, timestamps
from pyworkers.protocol.conditions import Conditions, UniqueLock
from pyworkers.protocol.draft import PushedJob, unlisted
from pyworkers.protocol.effects import DeleteIteration, DeleteKey, Effect, StoreFields
from pyworkers.protocol.flow import history, track, unique
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.message import ACTIVE_JOB_WRAPPERS
from pyworkers.protocol.options import RESERVED, is_number
from pyworkers.protocol.sealing import Keyring
from pyworkers.protocol.status import JobState
from pyworkers.text import is_unicode

_JID_BYTES = 12
# What a copy keeps of the fields that no producer sets.
_COPIED = ("args", "class", "queue", "created_at", "expiry", "unique_key", "encrypted")
# A batch of Sidekiq Pro counts by its own field.
_DROPPED = (*RESERVED.difference(_COPIED), "bid")
_LONGEST_LIFE_S = 1e9
# What else depends on the time at which a job is due: its lock, its status, its expiry.
_TIMED = tuple(f'"{name}"'.encode() for name in (unique.FIELD, track.FIELD, "expiry", "at"))


class Spot(StrEnum):
    """Where a job is that is edited."""

    QUEUE = "queue"
    SCHEDULED = "scheduled"
    RETRIES = "retries"
    DEAD = "dead"


_STATES = {
    Spot.QUEUE: JobState.WAITING,
    Spot.SCHEDULED: JobState.SCHEDULED,
    Spot.RETRIES: JobState.RETRYING,
    Spot.DEAD: JobState.DEAD,
}


def home_of(keys: Keys, spot: Spot, queue: str = "") -> str:
    """The key of a set, or of a queue."""
    sets = {Spot.SCHEDULED: keys.schedule, Spot.RETRIES: keys.retry, Spot.DEAD: keys.dead}
    return sets.get(spot) or keys.queue(queue)


@dataclass(frozen=True, slots=True)
class Edit:
    """What is asked for: other arguments, another time (epoch seconds), or both."""

    args: Sequence[Any] | None = None
    at: float | None = None
    unique_by: Any = None
    """As the option: for a job whose lock was made with it, because the function is not stored."""
    encryption: Keyring | None = None
    """Opens and seals the arguments of an encrypted job."""


@dataclass(frozen=True, slots=True)
class LockChange:
    """What becomes of the lock of a unique job; names as effects have them, empty for a job without a lock.

    ``needed``: the job stays as it is if another one holds ``new``.
    """

    old: str = ""
    new: str = ""
    life_ms: int = 0
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """A job as an edit makes it. ``score``: its new place in time; None if that stays."""

    raw: bytes
    jid: str
    score: float | None
    locks: LockChange = field(default_factory=LockChange)
    effects: tuple[Effect, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """A job where it waits. ``due``: its score in a set, in epoch seconds; None in a queue."""

    raw: bytes
    spot: Spot
    queue: str
    due: float | None = None


def restored(job: Stored, now: float) -> Edited:
    """What a deleted job needs where it was: its lock, and its status. Invalid bytes need nothing."""
    try:
        data = envelope.decode(job.raw)
        jid = _jid_of(data)
    except BadMessageError:
        return Edited(job.raw, "", None)
    locks = LockChange()
    key = data.get(unique.FIELD)
    released = job.spot is Spot.RETRIES and data.get("unique_until") == "start"
    if unique.is_key(key) and job.spot is not Spot.DEAD and not released:
        life_ms = max(1, int(_life_s(data, job.due, now) * 1000))
        locks = LockChange("", unique.lock_of(key), life_ms, True)
    return Edited(job.raw, jid, None, locks, tuple(_effects_of_return(job, data, jid, now)))


def _effects_of_return(job: Stored, data: Mapping[str, Any], jid: str, now: float) -> Iterator[Effect]:
    if not track.is_tracked(data, jid):
        return
    if job.spot is Spot.DEAD:
        names = ("class", "error_class", "error_message")
        found = [text if isinstance(text := data.get(name), str) else "" for name in names]
        job_class, error_class, message = found
        yield from track.effects(
            Ended(Ending.DEAD, data, jid, job.queue, job_class, now, error_class, message)
        )
        return
    fields = {"state": _STATES[job.spot].value, "queue": job.queue, "finished_at": "", "error": ""}
    yield StoreFields.of(track.status_key(jid), fields, track.entered_s(jid, now, job.due))
    yield DeleteKey(track.result_key(jid))


def has_times(raw: bytes) -> bool:
    """True if a job perhaps needs more than another score to be due at another time."""
    return any(name in raw for name in _TIMED)


def edited(job: Stored, edit: Edit, now: float) -> Edited:
    """The job after an edit. Raises BadMessageError, BadArgumentError and EncryptionKeyError."""
    if edit.args is None and edit.at is None:
        raise BadArgumentError("an edit needs args, at, or both", field="args")
    members = envelope.Members(job.raw)
    data = envelope.decode(job.raw)
    jid = _jid_of(data)
    changes = _new_args(data, jid, edit) if edit.args is not None else {}
    locks = _locks(job, data, edit, changes, now)
    if locks.new and locks.new != locks.old:
        changes[unique.FIELD] = locks.new.removeprefix(unique.PREFIX)
    remove: tuple[str, ...] = ()
    if edit.at is not None:
        changes |= _new_times(job, data, edit.at)
        if job.spot is Spot.DEAD:
            changes |= one_try_more(data)
            remove = ("crash_count", "misfits", "misfit_at")
    raw = members.splice(changes, remove)
    if len(raw) > envelope.MAX_BYTES:
        raise BadArgumentError(
            f"args: a job of {len(raw)} bytes; the limit is {envelope.MAX_BYTES}", field="args"
        )
    return Edited(raw, jid, edit.at, locks, tuple(_effects(job, data, edit, raw, jid, now)))


def copied(raw: bytes, queue: str, edit: Edit, now: float) -> PushedJob:
    """A new job of a stored one: its class, queue and options, with other arguments if the edit has them.

    It has its own id, has not failed, and belongs to no batch. Raises as ``edited``.
    """
    data = envelope.decode(raw)
    jid = os.urandom(_JID_BYTES).hex()
    changes: dict[str, Any] = {"queue": queue, "jid": jid, "created_at": now}
    if edit.args is not None:
        changes |= _new_args(data, jid, edit)
    elif data.get(sealing.FIELD) is True:
        # Sealed arguments open in one job alone.
        changes |= _new_args(data, jid, replace(edit, args=_args_of(data, _jid_of(data), edit)))
    at = edit.at if edit.at is not None and edit.at > now else None
    if at is None:
        changes["enqueued_at"] = now
    created_at, expiry = timestamps.read(data.get("created_at")), timestamps.read(data.get("expiry"))
    if created_at is not None and expiry is not None:
        changes["expiry"] = (now if at is None else at) + max(0.0, expiry - created_at)
    key = data.get(unique.FIELD)
    if isinstance(key, str) and edit.args is not None:
        key = changes[unique.FIELD] = _rekeyed(key, data, edit)
    dropped = [name for name in _DROPPED if name not in changes]
    payload = envelope.splice(raw, changes, dropped)
    return PushedJob(queue, payload, jid, at, _conditions(data, jid, key, at, now))


def _conditions(
    data: Mapping[str, Any], jid: str, key: Any, at: float | None, now: float
) -> Conditions | None:
    """The lock and the status of a copy."""
    lock = None
    if unique.is_key(key):
        lock = UniqueLock(unique.lock_of(key), _life_s(data, at, now), "raise")
    status_s = track.entered_s(jid, now, at) if track.is_tracked(data, jid) else 0
    if lock is None and not status_s:
        return None
    return Conditions(lock, status_s=status_s, history=bool(status_s) and history.is_asked(data))


def _jid_of(data: Mapping[str, Any]) -> str:
    jid = data.get("jid")
    if not isinstance(jid, str) or not jid:
        raise BadMessageError("the job has no id")
    if not is_unicode(jid):
        raise BadMessageError("the id of the job has a lone surrogate")
    return jid


def _is_wrapped(data: Mapping[str, Any]) -> bool:
    args = data.get("args")
    return data.get("class") in ACTIVE_JOB_WRAPPERS and isinstance(args, list) and bool(args)


def _args_of(data: Mapping[str, Any], jid: str, edit: Edit) -> list[Any]:
    """The arguments of a stored job, opened if it is sealed."""
    args = data.get("args")
    args = args if isinstance(args, list) else []
    if data.get(sealing.FIELD) is True:
        return _keys(edit).open(args, jid, str(data.get("class")))
    if _is_wrapped(data) and isinstance(args[0], dict) and isinstance(args[0].get("arguments"), list):
        return list(args[0]["arguments"])
    return args


def _new_args(data: Mapping[str, Any], jid: str, edit: Edit) -> dict[str, Any]:
    """The field of the new arguments, as it is stored."""
    args = edit.args
    if not isinstance(args, list | tuple):
        raise unlisted(args, "args")
    envelope.check_value(list(args), "args")
    if data.get("encrypt") is True:
        raise BadArgumentError(
            "the arguments are encrypted by Sidekiq Enterprise, which alone can write them", field="args"
        )
    if data.get(sealing.FIELD) is True:
        text = envelope.encode_args(args, "args")
        return {"args": [_keys(edit).seal(text, jid, str(data.get("class")))]}
    if _is_wrapped(data):
        first, *rest = data["args"]
        if isinstance(first, dict) and "arguments" in first:
            return {"args": [{**first, "arguments": list(args)}, *rest]}
    return {"args": list(args)}


def _keys(edit: Edit) -> Keyring:
    if edit.encryption is None:
        raise EncryptionKeyError("the arguments are encrypted, but there are no keys")
    return edit.encryption


def _new_times(job: Stored, data: Mapping[str, Any], at: float) -> dict[str, Any]:
    """The fields that depend on the time at which a job is due."""
    changes: dict[str, Any] = {}
    if "at" in data:
        changes["at"] = at
    expiry = timestamps.read(data.get("expiry"))
    if expiry is not None and job.spot is Spot.SCHEDULED and job.due is not None:
        # Its distance from the time at which the job is due stays.
        changes["expiry"] = expiry + (at - job.due)
    return changes


def one_try_more(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that give a job, which has failed, one try more: it is retried by hand, or was dead."""
    count = data.get("retry_count")
    return {"retry_count": count - 1} if isinstance(count, int) and not isinstance(count, bool) else {}


def _locks(
    job: Stored, data: Mapping[str, Any], edit: Edit, changes: Mapping[str, Any], now: float
) -> LockChange:
    """The lock of a unique job. One that is dead and stays dead has none: it is not going to run."""
    key = data.get(unique.FIELD)
    if not unique.is_key(key):
        return LockChange()
    new = _rekeyed(key, data, edit) if changes else key
    runs_again = job.spot is Spot.DEAD and edit.at is not None
    if job.spot is Spot.DEAD and not runs_again:
        return LockChange(new=unique.lock_of(new))
    if job.spot is Spot.RETRIES and data.get("unique_until") == "start":
        # It was released at the first start.
        return LockChange(new=unique.lock_of(new))
    due = job.due if edit.at is None else edit.at
    life_ms = max(1, int(_life_s(data, due, now) * 1000))
    return LockChange(unique.lock_of(key), unique.lock_of(new), life_ms, new != key or runs_again)


def _rekeyed(key: str, data: Mapping[str, Any], edit: Edit) -> str:
    """The key for the new arguments. Raises BadArgumentError if that cannot be made."""
    sealed = data.get(sealing.FIELD) is True
    digest = _keys(edit).digest if sealed else unique.digest
    old = _args_of(data, _jid_of(data), edit) if edit.unique_by is None else []
    return unique.rekeyed(key, old, edit.args or (), edit.unique_by, digest)


def _life_s(data: Mapping[str, Any], due: float | None, now: float) -> float:
    """How long the lock is kept: as asked for, and until the job is due."""
    asked = data.get("unique_for")
    # First the smaller one: an integer may have hundreds of digits.
    life_s = float(min(asked, _LONGEST_LIFE_S)) if is_number(asked) and asked > 0 else 0.0
    return life_s + (0.0 if due is None else min(max(0.0, due - now), _LONGEST_LIFE_S))


def _effects(
    job: Stored, data: Mapping[str, Any], edit: Edit, raw: bytes, jid: str, now: float
) -> Iterator[Effect]:
    """What changes with the job: its status, its history, and what its earlier arguments have left."""
    if edit.args is not None and track.fits(jid):
        # The saved value of a long job is about the earlier arguments.
        yield DeleteIteration(jid)
    if not track.is_tracked(data, jid):
        return
    moves = edit.at is not None and job.spot in (Spot.QUEUE, Spot.DEAD)
    state = JobState.SCHEDULED if moves else _STATES[job.spot]
    fields = {"state": state.value, "queue": job.queue}
    if edit.args is not None and history.is_asked(data):
        fields["job"] = raw.decode(errors="replace")
    due = job.due if edit.at is None else edit.at
    dead = state is JobState.DEAD
    life_s = track.kept_after_s(data) if dead else track.entered_s(jid, now, due)
    yield StoreFields.of(track.status_key(jid), fields, life_s)
    if moves and job.spot is Spot.DEAD:
        yield DeleteKey(track.result_key(jid))
