"""Slots: the cron slots whose jobs a worker process makes, and its answer, as text between master and worker.

Pure; used by both sides. The master cannot make these jobs: client middleware or keys of the application are
needed. Nothing here pushes a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import simplejson

from pyworkers.protocol.conditions import Conditions, UniqueLock
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.retry import MAX_ERROR_MESSAGE


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """The job that an entry enqueues at each of these slots, and their number."""

    queue: str
    job_class: str
    args: Sequence[Any]
    retry: bool | int | None
    options: Mapping[str, Any]
    slots: int
    declared: bool
    """True: the options that the job declares are used, too."""

    def pack(self) -> bytes:
        """The request as the payload of a packet."""
        return encode(asdict(self)).encode()

    @classmethod
    def unpack(cls, data: bytes) -> SlotRequest:
        """The inverse of ``pack``."""
        return cls(**simplejson.loads(data))


class Made(NamedTuple):
    """The jobs of one slot, none if client middleware did not enqueue it; or the error, as text."""

    jobs: Sequence[PushedJob] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class SlotAnswer:
    """What a worker has made of the slots, in their order."""

    made: Sequence[Made] = field(default_factory=list)

    def pack(self) -> bytes:
        """The answer as the payload of a report."""
        rows = [[one.error[:MAX_ERROR_MESSAGE], [_row(job) for job in one.jobs]] for one in self.made]
        # The text of an error may have lone surrogates.
        return encode(rows).encode(errors="replace")

    @classmethod
    def unpack(cls, data: bytes) -> SlotAnswer:
        """The inverse of ``pack``. Raises ValueError for other bytes."""
        try:
            rows = simplejson.loads(data)
            return cls([Made([_job(*job) for job in jobs], error) for error, jobs in rows])
        except (TypeError, LookupError, AttributeError) as error:
            raise ValueError(f"not an answer: {error}") from error


def _row(job: PushedJob) -> list[Any]:
    conditions = job.conditions
    about = conditions and [conditions.lock, conditions.max_waiting, conditions.status_s, conditions.history]
    return [job.queue, job.payload.decode(), job.jid, job.at, about]


def _job(queue: str, payload: str, jid: str, at: float | None, about: list[Any] | None) -> PushedJob:
    conditions = None
    if about is not None:
        lock, max_waiting, status_s, history = about
        conditions = Conditions(lock and UniqueLock(*lock), max_waiting, 0.0, status_s, history)
    return PushedJob(queue, payload.encode(), jid, at, conditions)
