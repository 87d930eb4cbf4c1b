"""Deliveries: the jobs of one group that run or wait for a worker, by number.

Runs in the master's event loop. This is the only table of their raw bytes. It holds a job until the job has
ended, is cancelled, or is lost with its worker. It never decodes a job that ended normally.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator

from pyworkers.ipc.control import CANCEL_REQUEST, INTERRUPT_REQUEST
from pyworkers.protocol.outcome import Report
from pyworkers.protocol.retry import Failure
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.endings import KILL_GRACE_S, Endings
from pyworkers.server.pool.handout import HandOut
from pyworkers.server.pool.running import Running

# A job whose worker died before the job began is handed out again. The tries are limited, because the job
# itself (its size) may be the cause.
_MAX_TRIES = 3


class Deliveries:
    """The table from number to delivery, for every job and errand without an outcome."""

    def __init__(self, hand_out: HandOut, endings: Endings, cancellations: Cancellations) -> None:
        self._hand_out = hand_out
        self._endings = endings
        self._cancellations = cancellations
        self._open: dict[int, Delivery] = {}
        self._numbers = itertools.count(1)

    # For the fetcher

    @property
    def free(self) -> int:
        """The number of jobs that can start at once; negative if jobs wait for a worker."""
        return self._hand_out.free

    @property
    def busy(self) -> int:
        """The number of jobs and errands that run or wait for a worker."""
        return len(self._open)

    def known(self, queue: str) -> Counter[bytes]:
        """The raw bytes of every job of a queue in the table, with their counts."""
        return Counter(job.raw for job in self._jobs() if job.queue == queue)

    def deliver(self, queue: str, raw: bytes) -> None:
        """Start a job, unless it is cancelled."""
        delivery = Delivery(next(self._numbers), queue, raw)
        if self._cancellations.noted and (jid := self._cancellations.jid_of(raw)):
            delivery.cancel(jid)
            self._endings.cancelled(delivery)
        else:
            self._open[delivery.number] = delivery
            self._hand_out.offer(delivery)

    # For the API and the Web UI

    def running(self) -> Iterator[Running]:
        """The jobs that workers have."""
        for job in self._jobs():
            if (worker := job.worker) is not None:
                yield Running(job.queue, worker.pid, job.number, job.raw, job.started_at)

    def cancel_noted(self) -> None:
        """End the jobs that are cancelled. A running one gets a request, and is killed a little later."""
        loop = asyncio.get_running_loop()
        for job in self._jobs():
            if job.cancelled or not (jid := self._cancellations.jid_of(job.raw)):
                continue
            job.cancel(jid)
            if self._take_back(job):
                self._endings.cancelled(job)
            elif (worker := job.worker) is not None:
                worker.signal(CANCEL_REQUEST)
                fault = "was killed: its job was cancelled"
                loop.call_later(KILL_GRACE_S, worker.end_job, job, fault)

    # For a stop

    def interrupt(self) -> None:
        """Request all jobs to end, because they are given back soon; waiting jobs do not begin."""
        self._endings.give_back()
        for job in self._jobs():
            if self._take_back(job):
                self._endings.interrupted(job)
            elif not job.cancelled and (worker := job.worker) is not None:
                worker.signal(INTERRUPT_REQUEST)

    def forget_waiting(self) -> None:
        """Drop every job and errand that no worker has."""
        for delivery in list(self._open.values()):
            self._take_back(delivery)

    def abandoned(self, delivery: Delivery) -> None:
        """Drop a job whose worker was killed because the server stops, or has lost its lease."""
        del self._open[delivery.number]
        self._endings.abandoned(delivery)

    # For the pool

    def ended(self, delivery: Delivery, report: Report) -> None:
        """Settle a job that ran to its end."""
        del self._open[delivery.number]
        if not delivery.errand:
            self._endings.ended(delivery, report)

    def lost(self, delivery: Delivery, failure: Failure, untouched: bool) -> None:
        """Settle a job whose worker died; hand it out again if it is ``untouched``: it did not begin."""
        blameless = untouched and not delivery.timed_out_s and not delivery.cancelled
        if blameless and delivery.tries < _MAX_TRIES:
            delivery.wait_again()
            self._hand_out.offer(delivery)
            return
        del self._open[delivery.number]
        loss = None if delivery.errand else self._endings.lost(delivery, failure)
        if loss is not None:
            # The exhaustion hooks run in a worker, because the master has no user code.
            errand = Delivery(next(self._numbers), delivery.queue, loss.pack(), errand=True)
            self._open[errand.number] = errand
            self._hand_out.offer(errand)

    def _jobs(self) -> list[Delivery]:
        return [delivery for delivery in self._open.values() if not delivery.errand]

    def _take_back(self, delivery: Delivery) -> bool:
        """Drop a delivery that no worker has; False if a worker has it."""
        if taken := self._hand_out.take_back(delivery):
            del self._open[delivery.number]
        return taken
