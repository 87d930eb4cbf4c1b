"""Deliveries: the jobs of one group between their fetch and their outcome.

Runs in the master's event loop. It hands jobs out, and decides what becomes of one that has ended, is
cancelled, or is lost with its worker. It never decodes a job that ended normally.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Container, Sequence

from pyworkers.protocol.effects import Effect, StoreIteration
from pyworkers.protocol.limits import Ask
from pyworkers.protocol.outcome import Report
from pyworkers.protocol.retry import Failure
from pyworkers.protocol.suspects import MARK
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.pool import losses
from pyworkers.server.pool.asks import Asks
from pyworkers.server.pool.cpus.scheduling import Scheduling
from pyworkers.server.pool.crew import Crew
from pyworkers.server.pool.delivery import Delivery, DeliveryState, Errand, SlotErrand
from pyworkers.server.pool.endings import Endings
from pyworkers.server.pool.handout import HandOut
from pyworkers.server.pool.limits import DEFAULTS, Limits
from pyworkers.server.pool.suspects import Suspects

# A job whose worker died before it began the job is handed out again. The tries are limited, because the job
# itself (its size) may be the cause.
_MAX_TRIES = 3
# A worker that reports a start wakes the master, and so may lose its processor before the job's first line.
# With this time and that until the note, the window of a rate does not begin before that line.
_STARTED_S = 0.008


class Deliveries:
    """Every job and errand of a group that has no outcome."""

    def __init__(
        self,
        crew: Crew,
        scheduling: Scheduling,
        endings: Endings,
        cancellations: Cancellations,
        suspects: Suspects,
        asks: Asks,
        freed: Callable[[], None],
        suspected: Callable[[], None],
        drain: Callable[[], None],
        note: Callable[[Delivery, Sequence[Effect]], None],
        limits: Limits = DEFAULTS,
    ) -> None:
        """``freed`` is called when there is room for another job, ``suspected`` when one must run alone,
        ``drain`` to read the outcomes that workers have written, and ``note`` with a job that runs and its
        effects.

        Raises OSError.
        """
        self._suspected = suspected
        self._shared = False
        self._endings = endings
        self._cancellations = cancellations
        self._suspects = suspects
        self._asks = asks
        self._freed = freed
        self._note = note
        self._closing = False
        self._numbers = itertools.count(1)
        self._kept: dict[int, Delivery] = {}
        """The jobs that may not start yet, by number: marked ones, and those that ask for their limits."""
        self.hand_out = HandOut(crew, scheduling, limits, freed, drain, self._untaken, self._vanished)

    # For the fetcher

    @property
    def free(self) -> int:
        """The number of jobs to fetch; negative if jobs wait for a worker."""
        return self.hand_out.free - self._suspects.unread(self) - self._asks.pending(self)

    @property
    def busy(self) -> int:
        """The number of jobs and errands that run or wait for a worker."""
        return len(self.hand_out.open) + len(self._kept)

    def known(self, queue: str) -> Counter[bytes]:
        """The raw bytes of every job of a queue, with their counts."""
        return Counter(self.raws(queue))

    def raws(self, queue: str) -> list[bytes]:
        """The raw bytes of every job of a queue."""
        return [job.raw for job in self.jobs() if job.queue == queue]

    def deliver(self, queue: str, raw: bytes, start: Effect | None = None) -> None:
        """Start a job, unless it is cancelled; ``start`` notes its start, for the rate of its queue."""
        delivery = Delivery(next(self._numbers), queue, raw)
        if start is not None:
            delivery.rate(start)
        if self._cancellations.noted and (jid := self._cancellations.jid_of(raw)):
            delivery.cancel(jid)
            self._endings.cancelled(delivery)
        elif raw.endswith(MARK):
            self._keep(delivery)
            self._suspects.add(delivery, self)
        elif self._shared and _has_crashed(raw):
            self._suspect(delivery)
        else:
            self.hand_out.offer(delivery)

    def set_fence(self, queue: str, fence: int) -> None:
        """Send this fencing token with the jobs of an ordered queue."""
        self.hand_out.set_fence(queue, fence)

    def give_back_kept(self, queues: Container[str]) -> None:
        """Give back the jobs of these queues that may not start yet: no job is fetched from them."""
        self._untaken(self._drop_kept(lambda job: job.queue in queues))

    def _keep(self, job: Delivery) -> None:
        job.state = DeliveryState.HELD
        self._kept[job.number] = job

    # For suspects and asks

    def start(self, job: Delivery) -> None:
        """Hand out a job that was kept."""
        del self._kept[job.number]
        if self._shared and _has_crashed(job.raw):
            self._suspect(job)
        else:
            self.hand_out.offer(job)

    def put_off(self, job: Delivery) -> None:
        """Forget a job that is in ``schedule``: its worker is free for another job."""
        del self._kept[job.number]
        job.state = DeliveryState.SETTLED
        self._freed()

    def make_room(self) -> None:
        """Note that a job needs no worker for now."""
        self._freed()

    def hold(self, job: Delivery) -> None:
        """Note that a suspect waits for its turn: its worker is free for another job."""
        self._endings.held(job)
        self._freed()

    def condemn(self, job: Delivery, failure: Failure) -> None:
        """Settle a job that must not start, as one that was lost."""
        del self._kept[job.number]
        self._lost(job, failure)
        self._freed()

    def holds(self, job: Delivery) -> bool:
        """True while a job has no outcome."""
        return job.number in self.hand_out.open or job.number in self._kept

    # For the pool

    def share(self, shared: bool) -> None:
        """Note whether a worker runs several jobs at once."""
        self._shared = shared

    def jobs(self) -> list[Delivery]:
        """The jobs, without the errands, oldest first but for those that are kept back."""
        jobs = [delivery for delivery in self.hand_out.open.values() if not delivery.errand]
        return [*jobs, *self._kept.values()] if self._kept else jobs

    def take_back(self, wanted: Callable[[Delivery], bool]) -> list[Delivery]:
        """Remove the wanted ones of those that no worker has taken, oldest first."""
        jobs = self.hand_out.take_back(wanted) + self._drop_kept(wanted)
        return sorted(jobs, key=lambda job: job.number)

    def _drop_kept(self, wanted: Callable[[Delivery], bool]) -> list[Delivery]:
        kept = [job for job in self._kept.values() if wanted(job)]
        for job in kept:
            del self._kept[job.number]
            self._suspects.drop(job)
            self._asks.drop(job)
        return kept

    def make_slots(self, queue: str, request: bytes) -> asyncio.Future[bytes]:
        """Have a worker make the jobs of cron slots: an idle one, or else a worker of its own.

        Returns the payload of its report, later.
        """
        errand = SlotErrand(next(self._numbers), queue, request)
        if self.hand_out.idle:
            self.hand_out.offer(errand)
        else:
            self._suspect(errand)
        return errand.answer

    def unfinished(self, numbers: Collection[int]) -> list[Delivery]:
        """Those with these numbers that have no outcome."""
        return [self.hand_out.open[number] for number in numbers if number in self.hand_out.open]

    def ended(self, number: int, report: Report) -> None:
        """Settle a job that ran to its end."""
        delivery = self.hand_out.ended(number, report.elapsed_ms)
        if delivery is None:
            return
        if isinstance(delivery, Errand):
            delivery.ended(report.outcome.payload)
            # Nothing is settled for it, so no exchange comes by itself.
            self._freed()
        else:
            self._endings.ended(delivery, report)

    def noted(self, number: int, effects: Sequence[Effect]) -> None:
        """Have effects applied while their job runs; one that has ended has none any more."""
        delivery = self.hand_out.open.get(number)
        if delivery is not None and not delivery.errand:
            for effect in effects:
                if isinstance(effect, StoreIteration):
                    delivery.saved(effect.key)
            self._note(delivery, effects)

    def started(self, number: int) -> None:
        """Note the start of a job that a rate has granted, with its end or soon."""
        job = self.hand_out.open.get(number)
        if job is not None and job.starts:
            job.begin()
            asyncio.get_running_loop().call_later(_STARTED_S, self._note_start, job)

    def _note_start(self, job: Delivery) -> None:
        if self.hand_out.open.get(job.number) is job:
            self._note(job, job.noted())

    def asked(self, number: int, ask: Ask) -> None:
        """Have Redis decide whether a job may start."""
        job = self.hand_out.open.get(number)
        if job is None:
            return
        self.hand_out.drop(job)
        if job.cancelled:
            self._endings.cancelled(job)
        elif self._closing:
            self._endings.left(job)
        else:
            job.renumber(next(self._numbers))
            self._keep(job)
            self._asks.add(job, ask, self)

    def lost(self, jobs: list[Delivery], failure: Failure, *, beside: bool = False) -> None:
        """Settle the jobs of a dead process. If it was killed because of one, the others are given back; all
        of them, if it was killed for a reason ``beside`` them.
        """
        at_fault = [job for job in jobs if job.at_fault]
        for job in jobs:
            self.hand_out.drop(job)
            if job.at_fault or (len(jobs) == 1 and not beside):
                self._lost(job, failure)
            elif job.errand:
                self._vanished(job, failure.error_message)
            elif at_fault or beside:
                self._endings.bystander(job)
            else:
                self._endings.suspected(job)
                self._suspect(job)

    def cancelled(self, job: Delivery) -> None:
        """Settle a cancelled job that no worker has taken."""
        self._endings.cancelled(job)

    def give_back(self) -> None:
        """From now on, leave jobs that are given back to the end of the stop; jobs that wait do not begin."""
        self._endings.give_back()
        self._closing = True
        for job in self.take_back(lambda delivery: not delivery.errand):
            self._endings.left(job)

    def abandoned(self, job: Delivery) -> None:
        """Drop a job whose worker was killed because the server stops, or has lost its lease."""
        self.hand_out.drop(job)
        if isinstance(job, Errand):
            job.dropped()
        else:
            self._endings.abandoned(job)

    # For the hand-out

    def _untaken(self, jobs: list[Delivery]) -> None:
        """Give jobs back to the heads of their queues."""
        self._endings.untaken(jobs)

    def _vanished(self, delivery: Delivery, reason: str) -> None:
        """Hand out again a delivery that its worker did not begin; ``reason`` is that of the worker's end."""
        if not delivery.at_fault and delivery.tries < _MAX_TRIES:
            self.hand_out.offer(delivery)
        else:
            self._lost(delivery, losses.died(reason or "did not begin the job", 0))

    def begin_again(self, job: Delivery, reason: str) -> None:
        """Have a suspect run whose own worker ended before it began the job."""
        self.hand_out.drop(job)
        if not job.at_fault and job.tries < _MAX_TRIES:
            self._suspect(job)
        else:
            self._lost(job, losses.died(reason or "did not begin the job", 0))

    def _suspect(self, job: Delivery) -> None:
        if self._closing:
            # It would only be killed again.
            self.hand_out.drop(job)
            self._endings.left(job)
            return
        self.hand_out.set_apart(job)
        self._suspected()
        # It gets a worker of its own, so the room for which it was fetched is still free.
        self._freed()

    def _lost(self, delivery: Delivery, failure: Failure) -> None:
        if isinstance(delivery, Errand):
            delivery.dropped()
            return
        loss = self._endings.lost(delivery, failure)
        if loss is not None:
            # The hooks run in a worker, because the master has no user code.
            number = next(self._numbers)
            self.hand_out.offer(Errand(number, delivery.queue, loss.pack()))


def _has_crashed(raw: bytes) -> bool:
    """True if the job was alone in its process when that died: no other is to die with it the next time."""
    return b'"crash_count"' in raw
