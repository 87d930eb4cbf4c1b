"""Moving: moves the jobs of a queue to another Redis in portions, each of which arrives once.

Used by ``api``; never by the server. A portion is parked in a list of the source, pushed with a receipt to
the target, and then removed from the list. Each of these is one script, which may be sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pyworkers.protocol.envelope import jid_of
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.moving import MoveState, ParkedJob
from pyworkers.store.calls import Mode, Request, Steps, command, decoded, every, one, script
from pyworkers.store.heartbeat import clock
from pyworkers.store.transport.replies import blobs, integer, integers, maybe_blob

RECEIPT_LIFE_S = 86_400
"""How long a receipt outlives its move: a process that was stopped in the middle may send a portion again."""
CLOSED = b"closed "
_LATELY_S = 60.0
"""A program that waits for a result notes it every half minute."""


class JobRecordHash(NamedTuple):
    """What a Redis knows of a job: a hash under the key of the status, or of the checkpoint."""

    kind: str
    jid: str
    life_ms: int
    fields: Sequence[bytes]

    def key(self, keys: Keys) -> str:
        """Its key in a Redis."""
        return keys.job(self.jid) if self.kind == "job" else keys.iteration(self.jid)


class ReadJobs(NamedTuple):
    """The jobs that may move among a ``number`` that were read in a place.

    ``skipped``: how many stay between these and the end of the queue that is popped next.
    """

    place: str
    jobs: Sequence[bytes] = ()
    number: int = 0
    skipped: int = 0


class Portion(NamedTuple):
    """The parked jobs. ``mine`` is false if they were parked before: the jobs of this call were not."""

    number: int
    mine: bool
    jobs: Sequence[ParkedJob]


def unfinished(keys: Keys) -> Steps[dict[str, tuple[MoveState, int]]]:
    """The moves that have not ended, by queue, with the number of their parked jobs."""
    [found] = yield from every([command("HGETALL", keys.moves)], Mode.LENIENT)
    states = {
        decoded(queue): MoveState.parse(decoded(queue), decoded(stored))
        for queue, stored in (found or {}).items()
    }
    sizes = yield from every([command("LLEN", keys.moving(queue)) for queue in states], Mode.LENIENT)
    pairs = zip(states.items(), sizes, strict=True)
    return {queue: (state, size or 0) for (queue, state), size in pairs if state is not None}


def is_ordered(keys: Keys, queue: str) -> Request[bool]:
    """True if the queue is, or was, an ordered one."""
    return one("EXISTS", keys.ordered(queue), read=bool)


def state(keys: Keys, queue: str) -> Steps[MoveState | None]:
    """The move of a queue that has not ended; None without one."""
    stored = yield from one("HGET", keys.moves, queue, read=maybe_blob)
    return None if stored is None else MoveState.parse(queue, decoded(stored))


def begin(keys: Keys, new: MoveState) -> Steps[MoveState]:
    """The move of a queue that has not ended, or the new one."""
    yield from one("HSETNX", keys.moves, new.queue, str(new), read=integer)
    return (yield from state(keys, new.queue)) or new


def parked(keys: Keys, queue: str) -> Request[Sequence[ParkedJob]]:
    """The parked jobs of a queue."""
    return one("LRANGE", keys.moving(queue), 0, -1, read=_parked)


def receipt(keys: Keys, move: MoveState) -> Request[bytes | None]:
    """The number of the last portion that has arrived in the target, after ``CLOSED`` if no other may arrive.

    None without a receipt.
    """
    return one("GET", keys.moved(move.id), read=maybe_blob)


def close(keys: Keys, move: MoveState) -> Request[int]:
    """Let no portion arrive in the target any more.

    Returns the number of the last one that has arrived; -1 without a receipt. Safe to send again.
    """
    return script("moves/close", [keys.moved(move.id)], [], integer)


def give_back(keys: Keys, move: MoveState) -> Request[int]:
    """Give the parked jobs back to their places in the source, and end the move; the result of back.lua."""
    names = [
        keys.moving(move.queue),
        keys.moves,
        keys.queues,
        keys.queue(move.queue),
        keys.schedule,
        keys.retry,
    ]
    return script("moves/back", names, [move.queue, move.id, move.portion], integer, keys.namespace)


def expect(keys: Keys, move: MoveState) -> Request[Any]:
    """Write a receipt into the target, unless it has one: from now on, portions may arrive.

    Without an end: jobs may stay parked for as long as the target is away.
    """
    return one("SET", keys.moved(move.id), move.portion, "NX", read=lambda done: done)


def place_of(keys: Keys, queue: str, place: str) -> str:
    """The key of a place of ``PLACES``."""
    return {"queue": keys.queue(queue), "schedule": keys.schedule, "retry": keys.retry}[place]


def last_jobs(keys: Keys, queue: str, skip: int, number: int) -> Request[list[bytes]]:
    """The next jobs at the end of a queue that is popped next, behind ``skip`` others; the oldest first."""
    return one("LRANGE", keys.queue(queue), -skip - number, -skip - 1, read=lambda raws: blobs(raws)[::-1])


def awaited(keys: Keys, jids: Sequence[str]) -> Steps[set[str]]:
    """The jobs, of these, for whose end a program waits."""
    if not jids:
        return set()
    now = yield from clock()
    scores = yield from one("ZMSCORE", keys.awaited, *jids, read=list)
    pairs = zip(jids, scores, strict=True)
    return {jid for jid, score in pairs if score is not None and float(score) > now - _LATELY_S}


def park(keys: Keys, move: MoveState, read: ReadJobs, arrived: int) -> Request[Portion | None]:
    """Park jobs that still are in their place, unless others are parked. None: the move has ended.

    ``arrived``: the number of a portion that has arrived; the number of these jobs is later.
    """
    names = [keys.moving(move.queue), keys.moves, place_of(keys, move.queue, read.place)]
    args = [move.queue, move.id, read.place, read.skipped, read.number, arrived, *read.jobs]
    return script("moves/park", names, args, _portion, keys.namespace)


def records(keys: Keys, jobs: Iterable[ParkedJob]) -> Steps[list[JobRecordHash]]:
    """What this Redis knows of these jobs: the status of tracked ones, the checkpoints of long ones."""
    jids = sorted({jid for job in jobs if (jid := jid_of(job.raw))})
    wanted = [JobRecordHash(kind, jid, 0, ()) for jid in jids for kind in ("job", "iteration")]
    sent = [command("HGETALL", one.key(keys)) for one in wanted]
    found = yield from every(sent, Mode.LENIENT)
    pairs = [(one, fields) for one, fields in zip(wanted, found, strict=True) if fields]
    lives = yield from every([command("PTTL", one.key(keys), read=integer) for one, _ in pairs])
    return [
        one._replace(life_ms=max(0, life), fields=[part for pair in fields.items() for part in pair])
        for (one, fields), life in zip(pairs, lives, strict=True)
    ]


def push(keys: Keys, move: MoveState, portion: Portion, records: Sequence[JobRecordHash]) -> Request[int]:
    """Push a portion into the target, unless it was; returns what push.lua returns."""
    names = [keys.moved(move.id), keys.queues, keys.queue(move.queue), keys.schedule, keys.retry]
    args: list[Any] = [portion.number, move.queue, len(portion.jobs)]
    for job in portion.jobs:
        args += job
    for record in records:
        args += (record.life_ms, len(record.fields), *record.fields)
    names += (record.key(keys) for record in records)
    return script("moves/push", names, args, integer, keys.namespace)


def remove(keys: Keys, move: MoveState, portion: Portion, records: Sequence[JobRecordHash]) -> Request[int]:
    """Remove a portion that has arrived from the source; 0 if another process has."""
    places = [keys.moving(move.queue), keys.moves, keys.queues, keys.queue(move.queue)]
    names = [*places, *(record.key(keys) for record in records)]
    args = [move.queue, move.id, portion.number, *map(bytes, portion.jobs)]
    return script("moves/remove", names, args, integer, keys.namespace)


def expire_receipt(keys: Keys, move: MoveState) -> Request[bool]:
    """Let the receipt in the target expire, at the end of a move."""
    return one("EXPIRE", keys.moved(move.id), RECEIPT_LIFE_S, read=bool)


def finish(keys: Keys, move: MoveState, portion: int) -> Request[int]:
    """End a move in the source; 0 if another process has parked more jobs, or has ended it."""
    names, args = [keys.moving(move.queue), keys.moves], [move.queue, move.id, portion]
    return script("moves/end", names, args, integer, keys.namespace)


def _parked(reply: Any) -> Sequence[ParkedJob]:
    return [ParkedJob.parse(entry) for entry in blobs(reply)]


def _portion(reply: Any) -> Portion | None:
    numbers, jobs = integers(reply[:2]), reply[2:]
    return None if numbers == [-1] else Portion(numbers[0], bool(numbers[1]), _parked(jobs))
