"""The sorted sets: scheduled jobs, failed jobs that wait for their next attempt, dead jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar
from weakref import WeakSet

from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.editing import EditableJob, Seat
from pyworkers.api.record import JOB, SCORED, JobRecord, finite
from pyworkers.api.schemas import SCORE
from pyworkers.api.target import AtRedis, Countable, Where
from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope, timestamps
from pyworkers.protocol.editing import Spot, Stored, has_times, home_of, one_try_more
from pyworkers.protocol.envelope import is_plain_id
from pyworkers.protocol.keys import check_queue_name
from pyworkers.protocol.portions import portions
from pyworkers.store import sets
from pyworkers.store.editing import Written
from pyworkers.store.flow import removal
from pyworkers.store.flow.removal import Clearing, KeptFor
from pyworkers.store.sets import PAGE, Matches, MembersByScore, Move


class SortedEntry(EditableJob):
    """A job in a sorted set; ``score`` is in epoch seconds: when it is due, or when it died.

    A change returns False if another client moved the job first. Of several concurrent retries one succeeds.
    """

    def __init__(self, raw: bytes, score: float, jobs: JobSet) -> None:
        super().__init__(raw)
        self.score = score
        self._jobs = jobs

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON, with its score."""
        return ENTRY.as_dict(self)

    def _seat(self) -> Seat:
        return self._jobs.seat_of(self)

    def _settle(self, written: Written, at: float | None) -> None:
        self._store(written.raw)
        if not written.moved:
            self._jobs.settle(written.raw)
            self.score = self.score if at is None else at

    def delete(self) -> bool:
        """Remove the job for good."""
        return self._jobs.delete_jobs([self]) == 1

    def retry(self) -> bool:
        """Put the job into its queue now, and do not count its last failure.

        Raises BadMessageError for an invalid job.
        """
        return self._jobs.retry_jobs([self]) == 1

    def add_to_queue(self) -> bool:
        """Put the job into its queue now. Raises BadMessageError for an invalid job."""
        return self._jobs.enqueue_jobs([self]) == 1

    def kill(self) -> bool:
        """Move the job to ``dead``."""
        return self._jobs.kill_jobs([self]) == 1

    def reschedule(self, at: datetime | float) -> bool:
        """Move the job to another time: an aware datetime or epoch seconds.

        Raises BadArgumentError for an invalid time.
        """
        score = timestamps.due(at)
        moved = self._jobs.reschedule_job(self, score)
        if moved:
            self.score = score
        return moved


_BEFORE = ("jid", "class", "queue", "args")
ENTRY: Table[SortedEntry] = Table(
    "Entry",
    *JOB.shown(*_BEFORE),
    Column("score", Kind.PARTS, value=lambda job, _now: finite(job.score), schema=SCORE),
    *(column for name, column in JOB.columns.items() if name not in _BEFORE),
    *SCORED,
)


class JobSet(AtRedis, Countable):
    """Jobs in the order of their scores. Iteration begins with the latest, as Sidekiq's does; ``reversed``
    begins with the earliest. It is one of the jobs that there are at its beginning: a job comes once, also if
    this object gives it another time meanwhile.

    All methods raise RedisUnavailableError and StoreError.
    """

    _spot: ClassVar[Spot]

    def __init__(self, where: Where = None, *, namespace: str | None = None) -> None:
        """``where``: a URL or a configuration; None as in ``Client``. Raises ConfigError."""
        super().__init__(where, namespace=namespace)
        self._key = home_of(self._admin.keys, self._spot)
        self._walks: WeakSet[MembersByScore] = WeakSet()

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    def size(self) -> int:
        """The number of jobs."""
        return self._admin.run(sets.size(self._key))

    def __iter__(self) -> Iterator[SortedEntry]:
        return self._entries(descending=True)

    def __reversed__(self) -> Iterator[SortedEntry]:
        return self._entries(descending=False)

    def _entries(self, *, descending: bool) -> Iterator[SortedEntry]:
        walk = MembersByScore(self._key, descending=descending)
        self._walks.add(walk)
        for raw, score in self._admin.each(walk):
            yield SortedEntry(raw, score, self)

    def scan(self, text: str) -> Iterator[SortedEntry]:
        """The jobs whose stored bytes contain ``text``, in no order; Redis does the search.

        A job that stays in the set is found at least once, perhaps twice.
        """
        for raw, score in self._admin.each(Matches(self._key, text)):
            yield SortedEntry(raw, score, self)

    def find_job(self, jid: str) -> SortedEntry | None:
        """A job with that id; None if there is none. Redis searches all jobs."""
        return next(self.find_jobs(jid), None)

    def find_jobs(self, jid: str) -> Iterator[SortedEntry]:
        """All jobs with that id: a job that was enqueued twice may have died twice."""
        # Another id may be stored with JSON escapes.
        candidates = self.scan(jid) if is_plain_id(jid) else iter(self)
        seen: set[bytes] = set()
        for job in candidates:
            if job.jid == jid and job.raw not in seen:
                seen.add(job.raw)
                yield job

    def fetch(self, score: float, jid: str | None = None) -> list[SortedEntry]:
        """The jobs with exactly that score, and with that id if one is given."""
        found = self._admin.run(sets.with_score(self._key, score))
        entries = (SortedEntry(raw, score, self) for raw in found)
        return [job for job in entries if jid in (None, job.jid)]

    def seat_of(self, job: SortedEntry) -> Seat:
        """Where a job of this set is, for an edit. Raises BadMessageError for one without a valid queue."""
        queue = queue_of(job, self._admin.keys.namespace)
        return Seat(self._admin, Stored(job.raw, self._spot, queue, job.score))

    def settle(self, raw: bytes) -> None:
        """List an edited job no more: a walk under way has had it."""
        for walk in self._walks:
            walk.moved(raw)

    def clear(self, *, deletion: str = "") -> int:
        """Remove all jobs; returns their number. ``deletion`` as in ``delete_jobs``."""
        kept = KeptFor(deletion, self._spot)
        return sum(self._admin.each(Clearing(self._admin.keys, self._key, time.time(), kept=kept)))

    def retry_all(self) -> int:
        """Put all valid jobs into their queues now; returns their number."""
        return self.retry_jobs(self._readable_until_now())

    def kill_all(self) -> int:
        """Move all jobs to ``dead``, which keeps the last 9,999; returns their number."""
        return self.kill_jobs(iter(self))

    def delete_jobs(self, jobs: Iterable[JobRecord], *, deletion: str = "") -> int:
        """Remove these jobs; returns how many were still there.

        ``deletion``: the id of a ``Deletion``, with which they can be put back for ten minutes.
        """
        keys, now, kept = self._admin.keys, time.time(), KeptFor(deletion, self._spot)
        return sum(
            self._admin.run(removal.remove(keys, self._key, portion, now, kept))
            for portion in portions((job.raw for job in jobs), PAGE, len)
        )

    def retry_jobs(self, jobs: Iterable[JobRecord]) -> int:
        """Put these jobs into their queues, and do not count their last failure; returns their number.

        Raises BadMessageError for an invalid job; those before it in the iteration are moved.
        """
        return self._move(jobs, lambda job: self._to_queue(job, uncounted=True))

    def enqueue_jobs(self, jobs: Iterable[JobRecord]) -> int:
        """Put these jobs into their queues; returns how many were still there. Raises BadMessageError."""
        return self._move(jobs, lambda job: self._to_queue(job, uncounted=False))

    def kill_jobs(self, jobs: Iterable[JobRecord]) -> int:
        """Move these jobs to ``dead``; returns how many were still there."""
        return self._move(jobs, lambda job: Move(job.raw))

    def reschedule_jobs(self, jobs: Iterable[JobRecord], at: datetime | float) -> int:
        """Move these jobs to another time: an aware datetime or epoch seconds; returns how many were there.

        Raises BadArgumentError for an invalid time.
        """
        score = timestamps.due(at)
        return sum(self.reschedule_job(job, score) for job in jobs)

    def reschedule_job(self, job: JobRecord, at: float) -> bool:
        """Give a job another score; False if it is no longer in the set."""
        self.settle(job.raw)
        if isinstance(job, SortedEntry) and self._spot is not Spot.DEAD and has_times(job.raw):
            with suppress(BadMessageError):
                return job.edit(at=at)
        return self._admin.run(sets.reschedule(self._admin.keys, self._key, job.raw, at))

    def _move(self, jobs: Iterable[JobRecord], decide: Callable[[JobRecord], Move]) -> int:
        return sum(
            self._admin.run(sets.move(self._admin.keys, self._key, portion, time.time()))
            for portion in portions(
                map(decide, jobs), PAGE, lambda move: len(move.member) + len(move.payload)
            )
        )

    def _to_queue(self, job: JobRecord, *, uncounted: bool) -> Move:
        queue = queue_of(job, self._admin.keys.namespace)
        return Move(job.raw, requeued(job, queue, time.time(), uncounted=uncounted), queue)

    def refusal(self, job: JobRecord) -> str:
        """Why a job cannot be moved to a queue; empty if it can be."""
        try:
            queue_of(job, self._admin.keys.namespace)
        except BadMessageError as error:
            return error.message
        return ""

    def _readable_until_now(self) -> Iterator[SortedEntry]:
        """All valid jobs, except those that fail again during the iteration."""
        began = time.time()
        return (job for job in self if not self.refusal(job) and (job.failed_at or 0.0) <= began)


class ScheduledSet(JobSet):
    """The scheduled jobs (``schedule``)."""

    _spot = Spot.SCHEDULED


class RetrySet(JobSet):
    """The failed jobs that wait for their next attempt (``retry``)."""

    _spot = Spot.RETRIES


class DeadSet(JobSet):
    """The jobs that are not tried again (``dead``)."""

    _spot = Spot.DEAD


def queue_of(job: JobRecord, namespace: str) -> str:
    """The queue of a job that leaves a set. Raises BadMessageError.

    go-workers writes the name with the namespace, and Sidekiq puts jobs without one into ``default``.
    """
    if job.unreadable:
        raise BadMessageError(job.unreadable)
    name = job.data.get("queue")
    if name is None:
        return "default"
    name = name.removeprefix(namespace) if isinstance(name, str) else name
    try:
        check_queue_name(name)
    except ValueError as error:
        raise BadMessageError(str(error)) from error
    return str(name)


def requeued(job: JobRecord, queue: str, now: float, *, uncounted: bool) -> bytes:
    """The bytes of a job for its queue: changed as by Sidekiq's API, and without the counts of crashes and
    misfits."""
    changes = {"queue": queue, "enqueued_at": now} | (one_try_more(job.data) if uncounted else {})
    if job.data.get("queue") == queue:
        del changes["queue"]
    return envelope.splice(job.raw, changes, remove=("at", "crash_count", "misfits", "misfit_at"))
