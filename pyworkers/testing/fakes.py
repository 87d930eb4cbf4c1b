"""Fakes: the transports that take the pushes of a test: one collects the jobs, one runs them at once.

Used in the test's process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack

from pyworkers.app import Job, Worker
from pyworkers.errors import DuplicateJobError, QueueFullError, Snooze
from pyworkers.protocol import timestamps
from pyworkers.protocol.conditions import Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.admission import Admitted
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.flow.plans import BatchPlan, CancelledBatch
from pyworkers.protocol.flow.rules import effects_of_stored
from pyworkers.protocol.limits import Want, period_of
from pyworkers.protocol.status import UNKNOWN, Cancelled, JobState, JobStatus
from pyworkers.testing.asserting import find, missing, name_of, summary
from pyworkers.testing.jobs import EnqueuedJob, run, runner_of, running, wants
from pyworkers.testing.kept import Kept


class Duration(TypedDict, total=False):
    """The parts of a duration, as ``timedelta`` takes them."""

    weeks: float
    days: float
    hours: float
    minutes: float
    seconds: float


class Fake(Kept):
    """The jobs that were enqueued under ``fake``.

    ``worker`` runs the jobs that a Client enqueues, or another Worker without a handler for them.
    """

    def __init__(self, worker: Worker | None = None) -> None:
        self._worker = worker
        self.jobs: list[EnqueuedJob] = []
        """The waiting jobs, the oldest first."""
        self.ran: list[EnqueuedJob] = []
        """The jobs that ``drain`` has run, failed ones included, with their outcomes."""
        self._rates = RateWindows()
        self._ahead_s = 0.0
        super().__init__()

    def push(self, jobs: list[PushedJob], owner: object) -> Others:
        """Take pushed jobs; called by clients. A full queue is an error at once: nothing drains it."""
        return self._take(jobs, owner).others

    def _take(self, jobs: list[PushedJob], owner: object) -> Admitted:
        self._arrive()
        admitted = self._decide(jobs, self.now(), self._size, self._is_scheduled)
        replaced = [job for job in self.jobs if job.jid in admitted.replaced]
        self.jobs[:] = [job for job in self.jobs if job.jid not in admitted.replaced]
        self.jobs += [EnqueuedJob.of(job, owner) for job in admitted.jobs]
        for job in replaced:
            self._end(job, Ending.REPLACED)
        return admitted

    def now(self) -> float:
        """The time by which jobs are enqueued, are due and expire, limits let jobs start, and locks, batches,
        statuses and results end.

        In epoch seconds: the system's, as far ahead as ``travel`` has moved it.
        """
        return time.time() + self._ahead_s

    def cancel(self, jid: str, owner: object) -> Cancelled:
        """Cancel a job, as ``Client.cancel``: a waiting one leaves ``jobs``, a running one goes on."""
        if self._remove([job for job in self.jobs if job.jid == jid]):
            return Cancelled.REMOVED
        return Cancelled.UNKNOWN if running(self.ran, jid) is UNKNOWN else Cancelled.RUNNING

    def find(self, jid: str) -> JobStatus:
        """Where a job is, as ``Client.find``."""
        for job in self.jobs:
            if job.jid == jid:
                return JobStatus(JobState.WAITING if job.at is None else JobState.SCHEDULED, job.queue)
        return running(self.ran, jid)

    def travel(self, to: datetime | float | None = None, **duration: Unpack[Duration]) -> None:
        """Move the clock forward: ``travel(hours=2)``, ``travel(to=datetime(2030, 1, 1, tzinfo=UTC))``.

        The scheduled jobs that are due then are enqueued, in the order of their times: ``at`` is None,
        and ``drain(scheduled=False)`` runs them. This is the clock of pyworkers; ``time.time()`` in the
        application stays the same. Raises ValueError if the time is in the past.
        """
        now = self.now()
        self._ahead_s += _destination(to, duration, now) - now
        self._arrive()

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        """Take a batch and its jobs; called by clients."""
        jobs = self._batches.enlist(plan)
        try:
            admitted = self._take(jobs, owner)
        except (DuplicateJobError, QueueFullError):
            self._batches.withdraw(plan)
            raise
        self.push(self._batches.leave(plan, {*admitted.others, *admitted.replaced}), owner)

    def cancel_batch(self, batch: str, owner: object) -> CancelledBatch | None:
        """Cancel a batch, as ``Batch.cancel``: its waiting jobs are no longer in ``jobs``."""
        if self.batch_status(batch) is None:
            return None
        following = self._batches.cancel(batch)
        if following is None:
            return CancelledBatch(ended=True)
        self.push(following, owner)
        removed = self._remove_cancelled()
        # The batches inside it that were skipped are complete now.
        self.push(self._batches.cancel(batch) or [], owner)
        return CancelledBatch(removed=removed, left=self._batches.left(batch))

    def _remove_cancelled(self) -> int:
        """Remove the members of cancelled batches; returns their number."""
        if not self._batches.any_cancelled:
            return 0
        return self._remove([job for job in self.jobs if self._batches.cancels(job.data.get("batch"))])

    def _remove(self, found: list[EnqueuedJob]) -> int:
        """Remove cancelled jobs; returns their number."""
        self.jobs[:] = [job for job in self.jobs if not any(job is other for other in found)]
        for job in found:
            self._end(job, Ending.CANCELLED)
        return len(found)

    def _end(self, job: EnqueuedJob, ending: Ending) -> None:
        """Apply the effects of the end of a job that has been removed."""
        ended = effects_of_stored(job.raw, ending, self.now(), job.queue)
        self._apply(ended)
        self.push(self._batches.apply(ended), job.worker)

    def clear(self) -> None:
        """Forget all jobs, locks, statuses, results and batches, and the starts that limits count."""
        self.jobs.clear()
        self.ran.clear()
        self._forget()
        self._rates = RateWindows()

    def drain(self, worker: Worker | None = None, *, scheduled: bool = True) -> int:
        """Run the waiting jobs and those that they enqueue, until none is left; returns their number.

        ``worker`` is needed for jobs that a Client enqueued. ``scheduled=False`` leaves jobs that are not due
        where they are. A snoozed job waits again and is not run twice by one call. A job that a rate does not
        let start yet waits, too, until ``travel`` has moved the clock to its turn. An exception of a job
        ends the drain and is raised; the job is then the last one of ``ran``.
        """
        self._arrive()
        count = 0
        snoozed: list[EnqueuedJob] = []
        try:
            while job := self._next(scheduled):
                runner = worker or runner_of(job, self._worker)
                if (turn := self._rates.start(wants(job, runner), self.now())) is not None:
                    job.put_off(turn)
                    snoozed.append(job)
                    continue
                count += 1
                self.ran.append(job)
                try:
                    run(job, runner, self._apply, self.now)
                except Snooze:
                    self.ran.pop()
                    snoozed.append(job)
                finally:
                    self.push(self._batches.apply(job.effects), job.worker)
                    # The next step of a chain that was cancelled while this one ran.
                    self._remove_cancelled()
        finally:
            self.jobs += snoozed
        return count

    def assert_enqueued(self, job: Job[..., Any] | str, *args: Any, **kwargs: Any) -> EnqueuedJob:
        """The first waiting job of this class, and with these arguments if any are given.

        Raises AssertionError, with the differences to the most similar waiting jobs.
        """
        __tracebackhide__ = True
        found = find(self.jobs, job, args, kwargs)
        if found is None:
            raise AssertionError(missing(self.jobs, self.ran, job, args, kwargs))
        return found

    def assert_none(self, job: Job[..., Any] | str | None = None) -> None:
        """Raise AssertionError if a job, or a job of this class, waits."""
        __tracebackhide__ = True
        found = [other for other in self.jobs if job is None or other.job_class == name_of(job)]
        if found:
            raise AssertionError(f"{len(found)} too many; {summary(self.jobs)}")

    def _arrive(self) -> None:
        """Have the scheduled jobs that are due wait behind the others, as a server does."""
        now = self.now()
        # One at a time: another thread may enqueue.
        for job in sorted((job for job in self.jobs if job.at is not None and job.at <= now), key=_time_of):
            self.jobs.remove(job)
            job.arrive()
            self.jobs.append(job)

    def _size(self, queue: str) -> int:
        return sum(job.queue == queue and job.at is None for job in self.jobs)

    def _is_scheduled(self, jid: str) -> bool:
        return any(job.jid == jid and job.at is not None for job in self.jobs)

    def _next(self, scheduled: bool) -> EnqueuedJob | None:
        for index, job in enumerate(self.jobs):
            if scheduled or job.at is None:
                return self.jobs.pop(index)
        return None


def _destination(to: datetime | float | None, duration: Duration, now: float) -> float:
    """The new time of the clock, in epoch seconds: ``to``, or this long after ``now``.

    Raises ValueError for the past, TypeError without exactly one of both, and BadArgumentError for a datetime
    without a time zone.
    """
    if (to is None) == (not duration):
        raise TypeError("travel takes either a duration or a time: travel(hours=2), travel(to=deadline)")
    there = now + timedelta(**duration).total_seconds() if to is None else timestamps.due(to)
    if there < now:
        raise ValueError(f"the clock cannot be moved back by {now - there:g} s")
    return there


def _time_of(job: EnqueuedJob) -> float:
    return job.at or 0.0


class Inline(Kept):
    """Runs each job when it is pushed. ``worker``: as in ``Fake``."""

    def __init__(self, worker: Worker | None) -> None:
        super().__init__()
        self.ran: list[EnqueuedJob] = []
        """The jobs that have run, failed ones included, with their outcomes."""
        self._worker = worker

    def now(self) -> float:
        """The system's time."""
        return time.time()

    def cancel(self, jid: str, owner: object) -> Cancelled:
        """Cancel a job, as ``Client.cancel``; no job waits here, and one that runs goes on."""
        return Cancelled.UNKNOWN if running(self.ran, jid) is UNKNOWN else Cancelled.RUNNING

    def find(self, jid: str) -> JobStatus:
        """Where a job is, as ``Client.find``."""
        return running(self.ran, jid)

    def push(self, jobs: list[PushedJob], owner: object) -> Others:
        """Run pushed jobs; called by clients."""
        admitted = self._admit(jobs)
        self._run(admitted.jobs, owner)
        return admitted.others

    def _admit(self, jobs: list[PushedJob]) -> Admitted:
        # No job waits here, so no queue is full; and none is scheduled.
        return self._decide(jobs, self.now(), lambda _: -math.inf, lambda _: False)

    def _run(self, jobs: list[PushedJob], owner: object) -> None:
        for pushed in jobs:
            job = EnqueuedJob.of(pushed, owner)
            if self._batches.cancels(job.data.get("batch")):
                ended = effects_of_stored(job.raw, Ending.CANCELLED, self.now(), job.queue)
                self._apply(ended)
                self.push(self._batches.apply(ended), owner)
                continue
            self.ran.append(job)
            try:
                run(job, runner_of(job, self._worker), self._apply)
            finally:
                self.push(self._batches.apply(job.effects), owner)

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        """Run a batch and its jobs; called by clients."""
        jobs = self._batches.enlist(plan)
        try:
            admitted = self._admit(jobs)
        except DuplicateJobError:
            self._batches.withdraw(plan)
            raise
        left = self._batches.leave(plan, {*admitted.others, *admitted.replaced})
        self._run(admitted.jobs, owner)
        self.push(left, owner)

    def cancel_batch(self, batch: str, owner: object) -> CancelledBatch | None:
        """Cancel a batch, as ``Batch.cancel``; no job of it waits here."""
        if self.batch_status(batch) is None:
            return None
        following = self._batches.cancel(batch)
        if following is None:
            return CancelledBatch(ended=True)
        self.push(following, owner)
        return CancelledBatch(left=self._batches.left(batch))


class RateWindows:
    """The starts of the last window of each limit, by the rules of limits/ask.lua.

    Jobs run one at a time here, so there is always a slot.
    """

    def __init__(self) -> None:
        self._starts: dict[str, list[float]] = {}

    def start(self, wants: Iterable[Want], now: float) -> float | None:
        """Note a start and return None if all limits of a job allow it now; else the time at which they do.

        ``now`` is in epoch seconds.
        """
        rates = [want for want in wants if want.window_s]
        turns = [turn for want in rates if (turn := self._turn(want, now)) is not None]
        if turns:
            return max(turns)
        for want in rates:
            self._starts.setdefault(want.key, []).append(now)
        return None

    def _turn(self, want: Want, now: float) -> float | None:
        # A job starts at once here: the margin of the window is for those that start a little later.
        period_s = period_of(want.window_s)
        starts = [at for at in self._starts.get(want.key, ()) if at > now - period_s]
        self._starts[want.key] = starts
        return None if len(starts) < want.most else starts[-want.most] + period_s
