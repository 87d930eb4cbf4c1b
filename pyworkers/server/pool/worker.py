"""Worker: one forked process, with its state, its timers, its three pipes and the job that it runs.

Runs in the master's event loop. It sends jobs, reads reports, and kills a process that hangs; it never
settles a job.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from pyworkers import logs
from pyworkers.failpoints import hit
from pyworkers.ipc.frames import SECONDS, Frame, Kind, header
from pyworkers.protocol.outcome import Report
from pyworkers.server import proc
from pyworkers.server.generations.lifeline import Lifeline
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.pool import losses
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.endings import KILL_GRACE_S
from pyworkers.server.pool.limits import Limits
from pyworkers.server.pool.pipes import JobPipe, OutcomePipe, open_pipes
from pyworkers.server.pool.state import State

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class End:
    """How a worker ended, and its unfinished job."""

    reason: str
    rss_kb: int
    delivery: Delivery | None
    """The unfinished job; None if it had none."""
    untouched: bool
    """True if the worker cannot have begun the job: a part of the job is still in the pipe."""
    failed_start: bool
    """True if the worker ended before its first job, without a request to leave."""


class Owner(Protocol):
    """The methods of the pool to which a worker reports."""

    def ready(self, worker: Worker, booted: bool) -> None:
        """The start-up hooks have run; ``booted`` is True if the worker is now IDLE, False if LEAVING."""

    def finished(self, worker: Worker, delivery: Delivery, report: Report) -> None:
        """The job has run to its end; ``report`` has its outcome."""

    def ended(self, worker: Worker) -> None:
        """The outcome pipe has ended: the worker can take no more jobs."""

    def gone(self, worker: Worker, end: End) -> None:
        """The process has ended."""


class Worker:
    """One forked process of one generation. Only this class sets its public attributes."""

    def __init__(self, queue: str, spawner: Spawner, owner: Owner, limits: Limits) -> None:
        """Request the process from the fork server. Raises OSError if no pipe can be opened."""
        self.spawner = spawner
        self.state = State.BOOTING
        self.pid = 0
        self.delivery: Delivery | None = None
        self.ended = False
        """True if it takes no more jobs: it has exited, is about to exit, or has closed its outcome pipe."""
        self.abandoned = False
        """True if it was killed together with its job."""
        self._queue = queue
        self._owner = owner
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._limit: asyncio.TimerHandle | None = None
        """The kill of a job that exceeds its time limit."""
        self._timeout: asyncio.TimerHandle | None = None
        """The timer for a missing report; one at a time."""
        self._jobs_done = 0
        self._fault = ""
        """The reason for its end, if the exit status does not show it."""
        (jobs, job_pipe), (outcome_pipe, outcomes), (lifeline, lifeline_end) = open_pipes(3)
        self._jobs = JobPipe(job_pipe, self._loop)
        self._outcomes = OutcomePipe(outcome_pipe, self._loop, self._receive, self._pipe_ended)
        self._lifeline = Lifeline(lifeline_end)
        self._number = spawner.spawn(self, queue, (jobs, outcomes, lifeline))
        self._expect(self._overdue, self._limits.overdue_s)

    # For the pool

    def hand(self, delivery: Delivery) -> None:
        """Send a job; the worker is busy from now on."""
        hit("before_dispatch")
        if self.state is not State.IDLE:
            raise self.state.forbidden(State.BUSY)
        self.state = State.BUSY
        self.delivery = delivery
        delivery.start(self)
        kind = Kind.EXHAUSTED if delivery.errand else Kind.JOB
        self._jobs.write(header(kind, delivery.number, delivery.raw), delivery.raw)

    def leave(self) -> None:
        """Take no more jobs: exit at once if idle, else after the job."""
        if self.state in (State.BOOTING, State.IDLE) or self.delivery is None:
            self._jobs.close()
        self.state = self.state.to(State.LEAVING)
        if self.delivery is None and not self.ended:
            self._expect(self._overdue, self._limits.overdue_s)

    def abandon(self) -> Delivery | None:
        """Kill the process and return its job, unless the outcome is in the pipe already."""
        self._outcomes.drain()
        delivery, self.delivery = self.delivery, None
        if delivery is not None:
            self._kill(delivery)
            self.state = self.state.to(State.LEAVING)
            self.abandoned = True
        return delivery

    def end_job(self, delivery: Delivery, fault: str) -> None:
        """Kill the process if it still runs this job; ``fault`` is the reason."""
        if self.delivery is delivery:
            self._fault = fault
            self.kill()

    def end_if_stalled(self) -> None:
        """Kill the process if it does not read its job. To be called every few seconds."""
        if self.delivery is not None and self._jobs.stalled_s(self.delivery.number) > self._limits.stalled_s:
            self._fault = "did not take its job"
            self.kill()

    def kill(self) -> None:
        """End the process, its descendants and the programs that its job has started, now."""
        self._kill(self.delivery)

    def _kill(self, job: Delivery | None) -> None:
        if self.pid:
            proc.kill_tree(self.pid, time.time() - job.started_at if job else None)
        self._lifeline.close()

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    # Reports of the fork server and of the reaper

    def forked(self, pid: int) -> None:
        """The process runs. Its fork server reports it, and so does its READY frame."""
        if self.pid == 0:
            self.pid = pid
            self.spawner.expect(pid, self)

    def refused(self, error: str) -> None:
        """The system refused the fork."""
        self._fault = f"could not be forked: {error}"
        self.exited(None)

    def exited(self, status: int | None, rss_kb: int = 0) -> None:
        """The process has ended; ``status`` as from waitpid, if known. Outcomes in its pipe count."""
        # Mark it ended first: a late OUTCOME frame must not give it another job.
        self.ended = True
        self._outcomes.drain()
        delivery, leaving = self.delivery, self.state is State.LEAVING
        unexpected = delivery is not None or not leaving
        reason = losses.describe(status, self._fault, proc.oom_may_have_killed) if unexpected else ""
        if unexpected:
            log.warning("worker.lost", queue=self._queue, pid=self.pid, reason=reason, rss_kb=rss_kb)
        failed_start = delivery is None and not leaving and self._jobs_done == 0
        untouched = delivery is not None and self._jobs.unread() > 0
        self.state = self.state.to(State.GONE)
        self.delivery = None
        self._release()
        self._owner.gone(self, End(reason, rss_kb, delivery, untouched, failed_start))

    # Reports of the process

    def _receive(self, frame: Frame) -> None:
        kind, number, payload = frame
        if kind is Kind.READY:
            # Its fork server may have died before it could report the pid.
            self.forked(number)
            self._ready()
        elif (delivery := self.delivery) is None or delivery.number != number:
            return
        elif kind is Kind.LIMIT:
            self._set_limit(delivery, *SECONDS.unpack(payload))
        else:
            report = Report.unpack(payload, self.spawner.handlers)
            if self._limit is not None:
                self._limit.cancel()
                self._limit = None
            self.delivery = None
            self._jobs_done += 1
            if self.state is State.BUSY:
                self.state = State.IDLE
            self._owner.finished(self, delivery, report)

    def _ready(self) -> None:
        booted = self.state is State.BOOTING
        if booted:
            self._expect(None, 0)
            self.state = self.state.to(State.IDLE)
        self._owner.ready(self, booted)

    def _set_limit(self, delivery: Delivery, seconds: float) -> None:
        self._limit = self._loop.call_later(seconds + KILL_GRACE_S, self._overrun, delivery, seconds)

    def _overrun(self, delivery: Delivery, seconds: float) -> None:
        delivery.overrun(seconds)
        self._fault = f"was killed: its job ran longer than {seconds:g} s"
        self.kill()

    def _pipe_ended(self, invalid: bool) -> None:
        if invalid:
            self._fault = "wrote an invalid frame into its outcome pipe"
        if not self.ended:
            self.ended = True
            self._owner.ended(self)
            self._expect_exit()
        if invalid:
            self.kill()

    # Missing reports

    def _expect(self, otherwise: Callable[[], None] | None, seconds: float) -> None:
        """Call ``otherwise`` after ``seconds``; replaces the previous timer."""
        if self._timeout is not None:
            self._timeout.cancel()
        self._timeout = self._loop.call_later(seconds, otherwise) if otherwise else None

    def _overdue(self) -> None:
        """React to a hook that hangs. A booting worker may still become ready; a leaving worker is killed.

        If the worker is not even forked, its fork server is suspended or hangs: a new one replaces it.
        """
        if self.state is State.BOOTING and not self.pid:
            log.error("forkserver.silent", queue=self._queue, after_s=self._limits.overdue_s)
            self.spawner.give_up()
            return
        hook = "on_startup" if self.state is State.BOOTING else "on_shutdown"
        log.warning(
            "worker.overdue", queue=self._queue, pid=self.pid, hook=hook, after_s=self._limits.overdue_s
        )
        if self.state is State.LEAVING:
            self.kill()

    def _expect_exit(self) -> None:
        if self.pid == 0 and not self.spawner.alive:
            # Its fork server never forked it, or its pid is unknown: no report will come.
            self._loop.call_soon(self._unreported)
        else:
            self._expect(self._closed_its_pipe, self._limits.unreported_s)

    def _closed_its_pipe(self) -> None:
        self._fault = self._fault or "closed its pipe"
        self.kill()
        self._expect(self._unreported, self._limits.unreported_s)

    def _unreported(self) -> None:
        if self.state is not State.GONE:
            self.kill()
            self.exited(None)

    def _release(self) -> None:
        """Close every descriptor, cancel all timers, and ignore later messages about this worker."""
        self.spawner.forget(self._number, self.pid)
        self._outcomes.close()
        self._jobs.close()
        self._lifeline.close()
        for timer in (self._limit, self._timeout):
            if timer is not None:
                timer.cancel()
