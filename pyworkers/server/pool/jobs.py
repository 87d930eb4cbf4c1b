"""JobTable: the table of the jobs of one group that have no end yet, by their states (delivery.py).

Runs in the master's event loop. It hands jobs out, and decides what becomes of one that has ended, is
cancelled, or is lost with its worker. It never decodes a job that ended normally.

    deliver ──► HELD: until it may start
       │          │
       ▼          ▼
    OFFERED: job socket ──► a worker takes it and claims it in its page ──► outcome
                  │ not taken after 50 ms, and all workers are busy
                  ▼
              back to the head of the queue
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from pyworkers.ipc.jobsocket import JobSocket
from pyworkers.protocol.effects import Effect, StoreIteration
from pyworkers.protocol.limits import Ask
from pyworkers.protocol.outcome import Report
from pyworkers.protocol.retry import Failure
from pyworkers.server.pool.delivery import Delivery, GroupEvent, SlotsTask, WorkerTask
from pyworkers.server.pool.gates import ALONE, START, CrashedJobs, Decision, Gate, Gates, Hold, Settle, Start
from pyworkers.server.pool.handout import HandOut, LookAhead, Missing
from pyworkers.server.pool.outbox import Outbox
from pyworkers.server.pool.settling import (
    Bystander,
    CancelRequested,
    Cause,
    Left,
    Lost,
    Settling,
    died,
)
from pyworkers.server.pool.worker import KILL_GRACE_S, WorkerProcess, Workers

# A job whose worker died before it began the job is handed out again. The tries are limited, because the job
# itself (its size) may be the cause.
_MAX_TRIES = 3
# A worker that reports a start wakes the master, and so may lose its processor before the job's first line.
# With this time and that until the note, the window of a rate does not begin before that line.
_STARTED_S = 0.008
# Until the next look for the worker of a job that is to end. One that has taken a job says so within
# microseconds; but it may be suspended.
_CLAIMED_S, _LATEST_S = 0.01, 0.5
# Until a look for a job that is not taken: one ahead of the workers, and one for which a worker is idle.
_AHEAD_S, _IDLE_S = 0.05, 1.0


class Seen(NamedTuple):
    """What a look has found: the jobs that were in the socket, and what workers have claimed since.

    ``surplus``: there were more jobs than workers; those handed out before ``limit`` have waited too long.
    """

    drained: list[Delivery]
    claimed: Set[int]
    surplus: bool
    limit: float


@dataclass(frozen=True, slots=True)
class LookDue(GroupEvent):
    """It is time to look for jobs that no worker takes."""


class JobTable:
    """Every job and task of a group that has no end: those HELD, and those OFFERED to the ``workers``."""

    def __init__(self, workers: Workers, settling: Settling, gates: Gates, outbox: Outbox) -> None:
        """It sets ``changed`` of the outbox if there is room for another job.

        Raises OSError.
        """
        self.workers = workers
        self._settling = settling
        self._cancelled = gates.cancelled
        self._crashed = CrashedJobs()
        self.gates: tuple[Gate, ...] = (*gates, self._crashed)
        """The gates that a job passes before it is handed out, in their order."""
        self._outbox = outbox
        self._freed = outbox.changed.set
        self._closing = False
        self._numbers = itertools.count(1)
        self._held: dict[int, Delivery] = {}
        self._offered: dict[int, Delivery] = {}
        self._hand_out = HandOut()
        self._serving: set[WorkerProcess] = set()
        self._room = 0
        self._alone = 0
        """The number of jobs that have their own worker."""
        self._leaving: set[int] = set()
        """The jobs of workers that take no others: they use none of the room."""
        self._ahead = LookAhead()
        self._missing = Missing(workers.limits)
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._unclaimed_seen = False
        """True if the last look has found jobs that no worker had claimed."""

    # For the fetcher

    @property
    def free(self) -> int:
        """The number of jobs to fetch; negative if jobs wait for a worker."""
        free = self._ahead.jobs(self._room) - self._surplus
        if self._held:
            held = self._held.values()
            # Suspects use no room, but a queue full of them is not to be fetched as a whole.
            if sum(job.alone for job in held) > self._room:
                free = min(0, free)
            free -= sum(job.keeps_room for job in held)
        return free

    @property
    def busy(self) -> int:
        """The number of jobs and worker tasks that run or wait for a worker."""
        return len(self._offered) + len(self._held)

    def known(self, queue: str) -> Counter[bytes]:
        """The raw bytes of every job of a queue, with their counts."""
        return Counter(self.raws(queue))

    def raws(self, queue: str) -> list[bytes]:
        """The raw bytes of every job of a queue."""
        return [job.raw for job in self.jobs() if job.queue == queue]

    def deliver(self, queue: str, raw: bytes, start: Effect | None = None) -> None:
        """Start a job, if the gates let it; ``start`` notes its start, for the rate of its queue."""
        job = Delivery(next(self._numbers), queue, raw)
        if start is not None:
            job.rate(start)
        self._admit(job, self.gates)

    def deliver_all(self, queue: str, raws: Iterable[bytes]) -> None:
        """Start the jobs of one fetch, if the gates let them."""
        # Usually one gate is left.
        gates = [gate for gate in self.gates if not gate.is_open]
        for raw in raws:
            self._admit(Delivery(next(self._numbers), queue, raw), gates)

    def _admit(self, job: Delivery, gates: Iterable[Gate]) -> None:
        """Hand out a job, or do what the first of the gates decides that does not let it start."""
        for gate in gates:
            decision = gate.admit(job)
            if decision is not START:
                self._stop_at(gate, job, decision)
                return
        self._offer(job)

    def _stop_at(self, gate: Gate, job: Delivery, decision: Decision) -> None:
        match decision:
            case Settle(cause):
                self._settle(job, cause)
            case Hold():
                self._hold(job, decision, gate)

    def set_fence(self, queue: str, fence: int) -> None:
        """Send this fencing token with the jobs of an ordered queue."""
        self._hand_out.set_fence(queue, fence)

    def give_back_held(self, queues: Container[str]) -> None:
        """Give back the jobs of these queues that may not start yet: no job is fetched from them."""
        self._settling.give_back(self._drop_held(lambda job: job.queue in queues and not job.alone))

    # HELD

    def _hold(self, job: Delivery, hold: Hold, gate: Gate) -> None:
        """Keep a job until the gate decides on it."""
        job.keep(room=hold.room, alone=hold.alone)
        if self._closing:
            # It would only be given back, or be killed again.
            self._settle(job, Left())
            return
        self._held[job.number] = job
        gate.keep(job, self.workers.events)
        if not hold.room:
            self._freed()

    def decide(self, job: Delivery, decision: Decision) -> None:
        """Do what the gate that holds a job has decided, unless the job was taken back meanwhile."""
        if self._held.get(job.number) is not job:
            return
        match decision:
            case Start():
                del self._held[job.number]
                self._admit(job, self.gates)
            case Hold():
                job.make_room()
                self._freed()
            case Settle(cause):
                del self._held[job.number]
                self._settle(job, cause)
                self._freed()

    def _drop_held(self, wanted: Callable[[Delivery], bool]) -> list[Delivery]:
        held = [job for job in self._held.values() if wanted(job)]
        for job in held:
            del self._held[job.number]
            for gate in self.gates:
                gate.drop(job)
        return held

    # HELD until it has its own worker

    def set_apart(self, job: Delivery) -> None:
        """Keep a job for its own worker, which asks for it by ``next_suspect``."""
        self._drop(job)
        self._hold(job, ALONE, self._crashed)

    def next_suspect(self) -> Delivery | None:
        """Remove the job that has waited longest for its own worker; None if there is none."""
        job = next((job for job in self._held.values() if job.alone), None)
        if job is not None:
            del self._held[job.number]
            self._freed()
        return job

    def send_alone(self, job: Delivery, socket: JobSocket) -> None:
        """Send a job to its own worker. Raises OSError."""
        self._hand_out.send(job, socket)
        job.offer(time.monotonic(), alone=True)
        self._offered[job.number] = job
        self._alone += 1

    # OFFERED

    @property
    def offered(self) -> Mapping[int, Delivery]:
        """The jobs and worker tasks that are in the socket, or were taken from it, by number."""
        return self._offered

    @property
    def idle(self) -> bool:
        """True if a worker can take another job at once."""
        return self._surplus < 0

    @property
    def rest_s(self) -> float:
        """Seconds for which outcomes may wait, because every worker has a next job."""
        return self._ahead.rest_s(self._room, self._surplus)

    @property
    def _surplus(self) -> int:
        """How many more jobs there are than workers can run at once; negative if some are idle."""
        return len(self._offered) - len(self._leaving) - self._alone - self._room

    def _offer(self, job: Delivery) -> None:
        job.offer(time.monotonic())
        self._offered[job.number] = job
        self._hand_out.offer(job)
        if self._timer is None or not self._soon:
            self._look_later()

    def _drop(self, job: Delivery) -> None:
        """Remove an offered job."""
        if self._offered.pop(job.number, None) is not None:
            self._uncount(job)

    def _uncount(self, job: Delivery) -> None:
        if job.alone:
            self._alone -= 1
        if self._leaving:
            self._leaving.discard(job.number)

    def make_slots(self, queue: str, request: bytes) -> asyncio.Future[bytes]:
        """Have a worker make the jobs of cron slots: an idle one, or else a worker for them alone.

        Returns the payload of its report, later.
        """
        task = SlotsTask(next(self._numbers), queue, request)
        if self.idle:
            self._offer(task)
        else:
            self.set_apart(task)
        return task.answer

    # For the pool

    def share(self, shared: bool) -> None:
        """Note whether a worker runs several jobs at once."""
        self._crashed.share(shared)

    @property
    def workers_end(self) -> int:
        """The descriptor of the job socket that workers inherit."""
        return self._hand_out.workers_end

    def jobs(self) -> list[Delivery]:
        """The jobs, without the worker tasks, the offered ones first, each oldest first."""
        offered = [job for job in self._offered.values() if not job.is_task]
        return [*offered, *(job for job in self._held.values() if not job.is_task)] if self._held else offered

    def unfinished(self, numbers: Collection[int]) -> list[Delivery]:
        """Those with these numbers that are offered and have no end."""
        return [self._offered[number] for number in numbers if number in self._offered]

    def ended(self, number: int, report: Report) -> None:
        """Settle a job that ran to its end."""
        job = self._offered.pop(number, None)
        if job is None:
            return
        self._ahead.ended(report.elapsed_ms)
        if self._leaving or job.alone:
            self._uncount(job)
        if isinstance(job, WorkerTask):
            job.ended(report.outcome.payload)
            # Nothing is settled for it, so no exchange comes by itself.
            self._freed()
        else:
            self._settling.ended(job, report)

    def noted(self, number: int, effects: Sequence[Effect]) -> None:
        """Have effects applied while their job runs; one that has ended has none any more."""
        job = self._offered.get(number)
        if job is not None and not job.is_task:
            for effect in effects:
                if isinstance(effect, StoreIteration):
                    job.saved(effect.key)
            self._outbox.note(job, effects)

    def started(self, number: int) -> None:
        """Note the start of a job that a rate has granted, with its end or soon."""
        job = self._offered.get(number)
        if job is not None and job.starts:
            job.begin()
            asyncio.get_running_loop().call_later(_STARTED_S, self._note_start, job)

    def _note_start(self, job: Delivery) -> None:
        if self._offered.get(job.number) is job:
            self._outbox.note(job, job.noted())

    def asked(self, number: int, ask: Ask) -> None:
        """Have Redis decide whether a job may start."""
        job = self._offered.get(number)
        if job is not None:
            self._drop(job)
            job.ask_for(ask)
            job.renumber(next(self._numbers))
            self._admit(job, self.gates)

    def lost(self, jobs: list[Delivery], failure: Failure, *, unrelated: bool = False) -> None:
        """Settle the jobs of a dead process. If it was killed because of one, the others are given back.

        If it was killed for a reason that is none of them (``unrelated``), all are given back.
        """
        at_fault = [job for job in jobs if job.at_fault]
        for job in jobs:
            self._drop(job)
            if job.at_fault or (len(jobs) == 1 and not unrelated):
                self._settle(job, Lost(failure))
            elif job.is_task:
                self._begin_again(job, self._offer, failure.error_message)
            elif at_fault or unrelated:
                self._settling.settle(job, Bystander())
            else:
                self._settling.suspected(job)
                self.set_apart(job)

    def begin_again(self, job: Delivery, reason: str) -> None:
        """Have a suspect run whose own worker ended before it began the job."""
        self._drop(job)
        self._begin_again(job, self.set_apart, reason)

    def _begin_again(self, job: Delivery, start: Callable[[Delivery], None], reason: str) -> None:
        """Start again a job that its worker did not begin; ``reason`` is why the worker ended."""
        if not job.at_fault and job.tries < _MAX_TRIES:
            start(job)
        else:
            self._settle(job, Lost(died(reason or "did not begin the job", 0)))

    def _settle(self, job: Delivery, cause: Cause) -> None:
        """Settle a job that its worker does not report; a worker task is dropped."""
        if isinstance(job, WorkerTask):
            job.dropped()
        elif self._settling.settle(job, cause) is not None and job.loss is not None:
            # The hooks run in a worker, because the master has no user code.
            self._offer(WorkerTask(next(self._numbers), job.queue, job.loss.pack()))

    def give_back(self) -> None:
        """From now on, leave jobs that are given back to the end of the stop; jobs that wait do not begin."""
        self._settling.leave()
        self._closing = True
        for job in self.take_back(lambda job: not job.is_task):
            self._settling.settle(job, Left())

    def abandon(self) -> None:
        """Drop the jobs whose workers were killed because the server stops, or has lost its lease."""
        for job in list(self._offered.values()):
            self._drop(job)
            self._settle(job, Left(killed=True))

    def leave_untaken(self) -> None:
        """Drop the jobs that no worker has taken: they stay in the in-progress list."""
        for job in self.take_back(lambda _: True):
            job.settled()

    def take_back(self, wanted: Callable[[Delivery], bool]) -> list[Delivery]:
        """Remove the wanted ones of those that no worker has taken, oldest first."""
        untaken = [*self._drain(), *self._hand_out.take_unsent()]
        found = [job for job in untaken if wanted(job)]
        for job in found:
            self._drop(job)
        self._offer_again([job for job in untaken if job.number in self._offered])
        return sorted(found + self._drop_held(wanted), key=lambda job: job.number)

    # Requests to end: a job that no worker has taken ends at once, a running one is asked

    def cancel_noted(self) -> None:
        """End the jobs that are cancelled. A running one gets a request, and is killed a little later."""
        jobs = [job for job in self.jobs() if not job.cancelled]
        if jobs := [job for job in jobs if self._cancelled.admit(job) is not START]:
            self._cancel(jobs)

    def _cancel(self, jobs: list[Delivery]) -> None:
        # Once is enough: what a worker has taken is never in the socket again if it is cancelled.
        for job in self.take_back(jobs.__contains__):
            self._settling.settle(job, CancelRequested())
        self._ask_to_end(jobs, interrupt=False)

    def interrupt(self) -> None:
        """Ask all jobs to end, because they are given back soon; those that wait do not begin."""
        self.give_back()
        self._ask_to_end([job for job in self.jobs() if not job.cancelled], interrupt=True)

    def _ask_to_end(self, jobs: list[Delivery], interrupt: bool, again_s: float = _CLAIMED_S) -> None:
        """Ask the workers of these jobs; later again for those that none has claimed yet."""
        if unclaimed := self._request(jobs, interrupt):
            later_s = min(2 * again_s, _LATEST_S)
            loop = asyncio.get_running_loop()
            loop.call_later(again_s, self._ask_to_end, unclaimed, interrupt, later_s)

    def _request(self, jobs: list[Delivery], interrupt: bool) -> list[Delivery]:
        """Ask the workers of these jobs; returns the jobs that none has claimed yet."""
        loop, claims = asyncio.get_running_loop(), self.workers.claims()
        unclaimed = []
        for job in self.unfinished([job.number for job in jobs]):
            worker = claims.get(job.number)
            if worker is None:
                unclaimed.append(job)
                continue
            worker.request(job.number, interrupt)
            if not interrupt:
                loop.call_later(KILL_GRACE_S, worker.end_job, job, "was killed: its job was cancelled")
        return unclaimed

    # The workers

    def admit(self, worker: WorkerProcess) -> None:
        """Count the room of a worker that takes jobs from now on."""
        self._serving.add(worker)
        self._room += worker.slots
        # It may have taken a job before the master had its READY frame.
        self._leaving.difference_update(worker.claims())
        self._freed()

    def withdraw(self, worker: WorkerProcess) -> None:
        """Count on this worker no more."""
        if worker in self._serving:
            self._serving.remove(worker)
            self._room -= worker.slots
            # It may take one more job before it knows: then the look notes it.
            self._note_leaving(self.workers.claims())
            self._look_later(soon=True)

    def _note_leaving(self, claims: Mapping[int, WorkerProcess]) -> None:
        before = len(self._leaving)
        self._leaving = {
            number
            for number, job in self._offered.items()
            if not job.alone and number in claims and claims[number] not in self._serving
        }
        if len(self._leaving) > before:
            self._freed()

    def died(self, reason: str) -> None:
        """Note that a worker has ended: it may have taken a job without a claim."""
        self._missing.died(reason)
        if self._offered:
            self._look_later(soon=True)

    def close(self) -> None:
        """Close the socket; a second call does nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._hand_out.close()

    # The look for jobs that no worker takes

    def _look_later(self, soon: bool = False) -> None:
        """Look in a moment for jobs that no worker takes."""
        if self._hand_out.closed:
            return
        soon = soon or self._surplus > 0
        if self._timer is not None:
            if self._soon or not soon:
                return
            self._timer.cancel()
        self._soon = soon
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_AHEAD_S if soon else _IDLE_S, self._look_due)

    def _look_due(self) -> None:
        self._timer = None
        self.workers.events.put_nowait(LookDue())

    def look(self) -> Seen | None:
        """Look for jobs that no worker has claimed: if one waits for too long, all are taken from the socket.

        The pool reads the outcomes then, and returns the jobs by ``looked``.
        """
        claims = self.workers.claims()
        self._note_leaving(claims)
        waiting = self._unclaimed(claims)
        self._unclaimed_seen = bool(waiting)
        if not waiting:
            self._missing.forget()
            return None
        surplus = self._surplus > 0
        limit = time.monotonic() - (_AHEAD_S if surplus else _IDLE_S)
        oldest = min(job.handed_at for job in waiting)
        if oldest > max(limit, self._missing.died_at):
            return None
        drained = self._drain()
        # Only now, because workers may have taken some meanwhile.
        return Seen(drained, self.workers.claims().keys(), surplus, limit)

    def looked(self, found: Seen) -> None:
        """Give back the jobs in the socket if all workers are busy, and find those that are not in it.

        Call this when the outcomes are read, because a worker writes the outcome of a job before it claims
        the next one. A job that is missing after this is taken and not claimed.
        """
        untaken = [*found.drained, *self._hand_out.take_unsent()]
        missing = self._unclaimed(found.claimed | {job.number for job in untaken})
        for job in self._missing.overdue(missing):
            self._drop(job)
            self._begin_again(job, self._offer, self._missing.reason)
        if missing:
            self._missing.end_stalled(self._serving, ask=True)
        # A marked job waits for its worker here: given back, it would only be held once more.
        late = [job for job in untaken if not (job.is_task or job.marked)] if found.surplus else []
        if not any(job.handed_at <= found.limit for job in late):
            late = []
        # All of them, because those given back later would come before these.
        for job in late:
            self._drop(job)
        self._offer_again([job for job in untaken if job.number in self._offered])
        if late:
            self._ahead.reset()
            self._settling.give_back(late)
        elif found.drained and not found.surplus:
            self._missing.end_stalled(self._serving)

    def look_again(self, many: bool) -> None:
        """Look again later, if jobs may wait, or if many end."""
        if many or (self._unclaimed_seen and self._offered):
            self._look_later(soon=self._missing.any)

    @property
    def short(self) -> bool:
        """True if the jobs take less than a millisecond."""
        return self._ahead.short

    def _unclaimed(self, claimed: Container[int]) -> list[Delivery]:
        """The offered jobs that no worker has claimed, except jobs that have their own worker."""
        return [job for number, job in self._offered.items() if number not in claimed and not job.alone]

    def _drain(self) -> list[Delivery]:
        """Take every job that no worker has taken out of the socket, oldest first."""
        return [self._offered[number] for number in self._hand_out.drain() if number in self._offered]

    def _offer_again(self, jobs: list[Delivery]) -> None:
        self._hand_out.offer_first(jobs)
        if jobs:
            self._look_later()
