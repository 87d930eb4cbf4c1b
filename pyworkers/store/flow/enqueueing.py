"""Enqueueing for people and programs: one script pushes the jobs of a request, also as members of batches.

Used by ``api``. A request with a receipt can be sent again: the receipt is written in the step that pushes
its jobs, and answers the second request. Any other is never repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from pyworkers.errors import BatchError, DuplicateJobError, PyworkersError, QueueFullError
from pyworkers.failpoints import hit
from pyworkers.protocol.conditions import Conditions
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.plans import members
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps, one, script
from pyworkers.store.flow import conditions
from pyworkers.store.transport.replies import blob, integer

PORTION = 1000
"""Jobs that one script pushes, all or none."""


class Receipt(NamedTuple):
    """What is kept of a request, so that it can be sent again."""

    key: str
    digest: str
    """Of the request: another one with the same receipt is refused."""
    life_s: int
    part: int = 0
    """The number of the thousand: one receipt has all thousands of a request."""


class Enqueued(NamedTuple):
    """What became of a job of a request."""

    jid: str
    """Its id; of a duplicate, which was not enqueued, the id of the other job."""
    is_new: bool


class PushRefusal(NamedTuple):
    """Why nothing of a request was pushed: the place of a job in it, and its error."""

    place: int
    error: PyworkersError
    room: conditions.Room | None = None
    """What it may wait for."""


class Answered(NamedTuple):
    """The answer to a request."""

    jobs: Sequence[Enqueued] = ()
    replayed: bool = False
    """True if it was answered from its receipt: nothing was done now."""
    is_taken: bool = False
    """True if the receipt belongs to another request: nothing was done."""
    refusal: PushRefusal | None = None
    """Set if nothing was pushed."""


class BatchedJob(NamedTuple):
    """A job, and the batch of which it becomes a member; empty for none."""

    job: PushedJob
    batch: str = ""


def enqueue(
    keys: Keys,
    jobs: Sequence[BatchedJob],
    receipt: Receipt | None = None,
    after: PushRefusal | None = None,
) -> Steps[Answered]:
    """Push jobs, up to ``PORTION``: all but the duplicates, or none, with a refusal.

    ``after``: the refusal of an earlier try, which is the answer while its queue has no room yet.
    A refusal is a QueueFullError, a DuplicateJobError, or a BatchError for a batch that is unknown or has
    ended. Raises StoreError, after which none was pushed, and RedisUnavailableError, after which they may
    have been pushed.
    """
    if after and after.room:
        length = yield from one("LLEN", keys.queue(after.room.queue), read=integer)
        if length > after.room.most:
            return Answered(refusal=after)
    pushed = [_of_batch(member) for member in jobs]
    names, args = conditions.call_of(keys, pushed)
    kept = receipt or Receipt(keys.queues, "", 0)
    answered = yield from script(
        "enqueue",
        [kept.key, *names],
        [kept.digest, kept.life_s, kept.part, *args],
        partial(_read, pushed),
        keys.namespace,
    )
    hit("request_pushed")
    return answered


def _of_batch(member: BatchedJob) -> PushedJob:
    """The job with the field and the condition of a member of its batch."""
    if not member.batch:
        return member.job
    [job] = members([member.job], member.batch)
    return job._replace(conditions=(job.conditions or Conditions())._replace(batch=member.batch))


def _read(jobs: Sequence[PushedJob], reply: Any) -> Answered:
    if blob(reply[0]) == b"taken":
        return Answered(is_taken=True)
    if blob(reply[0]) == b"kept":
        facts = list(map(_text, reply[1:]))
        pairs = zip(facts[::2], facts[1::2], strict=True)
        return Answered([Enqueued(other or jid, not other) for jid, other in pairs], replayed=True)
    try:
        others = conditions.read(reply, jobs)
    except (QueueFullError, DuplicateJobError, BatchError) as error:
        room = conditions.room_of(reply, jobs) if isinstance(error, QueueFullError) else None
        return Answered(refusal=PushRefusal(integer(reply[1]) - 1, error, room))
    return Answered([Enqueued(others.get(job.jid, job.jid), job.jid not in others) for job in jobs])


def _text(value: Any) -> str:
    return blob(value).decode(errors="replace")
