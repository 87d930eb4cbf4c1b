"""Worker: one forked process, its state, its timers, its three pipes and the job that it runs.

Runs in the master's event loop. It moves frames, and kills a process that hangs; it settles no job.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from pyworkers import logs
from pyworkers.failpoints import hit
from pyworkers.ipc.frames import SECONDS, Frame, Kind, Reader, header
from pyworkers.protocol.outcome import Report
from pyworkers.server import proc
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.pool import losses
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.endings import KILL_GRACE_S
from pyworkers.server.pool.jobpipe import JobPipe
from pyworkers.server.proc import kill_family

# What hooks at the start and at the end of a worker may take before the log says so.
_PATIENCE_S = 30.0
# From the end of a worker's pipe until it is known how it ended: a fork server says it within milliseconds,
# and the master looks for orphans every half second. After that its end is counted without a status.
_UNREPORTED_S = 1.0
# A worker that does not read the job that it was handed: stopped, or stuck in what comes after a job.
_DEAF_S = 15.0

log = logs.get_logger()


class State(Enum):
    """Where a worker is in its life; ``_NEXT`` has the transitions."""

    BOOTING = auto()
    IDLE = auto()
    BUSY = auto()
    LEAVING = auto()
    """Takes no more jobs; its job pipe is closed as soon as it is idle."""
    GONE = auto()
    """The process has ended; every descriptor is closed."""


_NEXT = {
    State.BOOTING: {State.IDLE, State.LEAVING, State.GONE},
    State.IDLE: {State.BUSY, State.LEAVING, State.GONE},
    State.BUSY: {State.IDLE, State.LEAVING, State.GONE},
    State.LEAVING: {State.LEAVING, State.GONE},
    State.GONE: set(),
}


@dataclass(frozen=True, slots=True)
class End:
    """How a worker ended, and what it left behind."""

    reason: str
    rss_kb: int
    delivery: Delivery | None
    """The job that it had."""
    untouched: bool
    """It cannot have begun that job, because a part of it never left the pipe."""
    failed_start: bool
    """It ended before its first job, though it was not told to."""


class Owner(Protocol):
    """What a worker reports, and to whom: its pool."""

    def ready(self, worker: Worker, booted: bool) -> None:
        """Its start-up hooks have run; ``booted``: it is IDLE now, rather than LEAVING."""

    def finished(self, worker: Worker, delivery: Delivery, report: Report) -> None:
        """Its job ran to its end."""

    def ended(self, worker: Worker) -> None:
        """Its outcome pipe has ended: it can take no more jobs."""

    def gone(self, worker: Worker, end: End) -> None:
        """Its process is gone."""


class Worker:
    """One forked process of one generation. Its public attributes are set here alone."""

    def __init__(self, queue: str, spawner: Spawner, owner: Owner) -> None:
        """Ask for the process. Raises OSError if there is no pipe for it."""
        self.spawner = spawner
        self.state = State.BOOTING
        self.pid = 0
        self.delivery: Delivery | None = None
        self.ended = False
        """Nothing comes from it any more: it has exited, is about to, or closed its pipe."""
        self.abandoned = False
        """It was killed with its job."""
        self._queue = queue
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._jobs_done = 0
        self._fault = ""
        """Why it was killed, where the signal does not say it."""
        self._reader = Reader()
        self._nonsense = False
        self._waiting: tuple[Delivery | None, int] = (None, 0)
        self._waiting_since = 0.0
        (jobs, job_pipe), (self._outcomes, outcomes), (lifeline, self._lifeline) = _pipes(3)
        self._jobs = JobPipe(job_pipe, self._loop)
        os.set_blocking(self._outcomes, False)
        # One piece at a time: a worker with a large outcome writes as fast as this can read.
        self._loop.add_reader(self._outcomes, self._read)
        self._number = spawner.spawn(self, queue, (jobs, outcomes, lifeline))
        self._be_patient(self._overdue, _PATIENCE_S)

    # What the pool wants

    def hand(self, delivery: Delivery) -> None:
        """Send a job; the worker is busy from now on."""
        hit("before_dispatch")
        if self.state is not State.IDLE:
            raise _forbidden(self.state, State.BUSY)
        self.state = State.BUSY
        self.delivery = delivery
        delivery.start(self)
        kind = Kind.EXHAUSTED if delivery.errand else Kind.JOB
        self._jobs.write(header(kind, delivery.number, delivery.raw), delivery.raw)

    def leave(self) -> None:
        """Take no more jobs: exit at once if idle, else after the job."""
        if self.state in (State.BOOTING, State.IDLE) or self.delivery is None:
            self._jobs.close()
        self._enter(State.LEAVING)
        if self.delivery is None and not self.ended:
            self._be_patient(self._overdue, _PATIENCE_S)

    def abandon(self) -> Delivery | None:
        """Kill the process and give up its job, unless the outcome is in the pipe already."""
        self.drain()
        delivery, self.delivery = self.delivery, None
        if delivery is not None:
            self._kill(delivery)
            self._enter(State.LEAVING)
            self.abandoned = True
        return delivery

    def end_job(self, delivery: Delivery, fault: str) -> None:
        """Kill the process if it still runs this job; ``fault`` is the reason."""
        if self.delivery is delivery:
            self._fault = fault
            self.kill()

    def end_if_deaf(self) -> None:
        """Kill the process if it does not take its job. To be called every few seconds."""
        if self.delivery is not None and self._deaf_for_s() > _DEAF_S:
            self._fault = "did not take its job"
            self.kill()

    def kill(self) -> None:
        """End the process, everything below it and what its job has started, now."""
        self._kill(self.delivery)

    def _kill(self, job: Delivery | None) -> None:
        if self.pid:
            kill_family(self.pid, time.time() - job.started_at if job else None)
        self._close_lifeline()

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    # What the fork server and the reaper say

    def forked(self, pid: int) -> None:
        """The process runs. Both its fork server and the process itself say so."""
        if self.pid == 0:
            self.pid = pid
            self.spawner.expect(pid, self)

    def refused(self, error: str) -> None:
        """The system refused the fork."""
        self._fault = f"could not be forked: {error}"
        self.exited(None)

    def exited(self, status: int | None, rss_kb: int = 0) -> None:
        """The process has ended; ``status`` as from waitpid, if known. What it has reported counts."""
        # Mark it ended first: a late OUTCOME frame must not earn it another job.
        self.ended = True
        self.drain()
        delivery, leaving = self.delivery, self.state is State.LEAVING
        unexpected = delivery is not None or not leaving
        reason = losses.describe(status, self._fault, proc.oom_may_have_killed) if unexpected else ""
        if unexpected:
            log.warning("worker.lost", queue=self._queue, pid=self.pid, reason=reason, rss_kb=rss_kb)
        failed_start = delivery is None and not leaving and self._jobs_done == 0
        untouched = delivery is not None and self._jobs.untaken() > 0
        self._enter(State.GONE)
        self.delivery = None
        self._release()
        self._owner.gone(self, End(reason, rss_kb, delivery, untouched, failed_start))

    # What the process says

    def _hear(self, frame: Frame) -> None:
        kind, number, payload = frame
        if kind is Kind.READY:
            # Its fork server may have died before it could tell the pid.
            self.forked(number)
            self._ready()
        elif (delivery := self.delivery) is None or delivery.number != number:
            return
        elif kind is Kind.LIMIT:
            self._limit(delivery, *SECONDS.unpack(payload))
        else:
            report = Report.unpack(payload, self.spawner.handlers)
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None
            self.delivery = None
            self._jobs_done += 1
            if self.state is State.BUSY:
                self.state = State.IDLE
            self._owner.finished(self, delivery, report)

    def _ready(self) -> None:
        booted = self.state is State.BOOTING
        if booted:
            self._be_patient(None, 0)
            self._enter(State.IDLE)
        self._owner.ready(self, booted)

    def _limit(self, delivery: Delivery, seconds: float) -> None:
        self._deadline = self._loop.call_later(seconds + KILL_GRACE_S, self._overrun, delivery, seconds)

    def _overrun(self, delivery: Delivery, seconds: float) -> None:
        delivery.overrun(seconds)
        self._fault = f"was killed: its job ran longer than {seconds:g} s"
        self.kill()

    # What it does not say

    def _be_patient(self, then: Callable[[], None] | None, seconds: float) -> None:
        """What to do if nothing is heard for so long; it replaces what was to be done before."""
        if self._patience is not None:
            self._patience.cancel()
        self._patience = self._loop.call_later(seconds, then) if then else None

    def _overdue(self) -> None:
        """A hook hangs. A worker that shall take jobs may still come round; one that shall go is killed.

        A fork server that has not even forked it is stopped, or hangs: another one is started.
        """
        if self.state is State.BOOTING and not self.pid:
            log.error("forkserver.silent", queue=self._queue, after_s=_PATIENCE_S)
            self.spawner.give_up()
            return
        hook = "on_startup" if self.state is State.BOOTING else "on_shutdown"
        log.warning("worker.overdue", queue=self._queue, pid=self.pid, hook=hook, after_s=_PATIENCE_S)
        if self.state is State.LEAVING:
            self.kill()

    def _closed_its_pipe(self) -> None:
        self._fault = self._fault or "closed its pipe"
        self.kill()
        self._be_patient(self._unreported, _UNREPORTED_S)

    def _unreported(self) -> None:
        if self.state is not State.GONE:
            self.kill()
            self.exited(None)

    # State

    def _enter(self, state: State) -> None:
        if state not in _NEXT[self.state]:
            raise _forbidden(self.state, state)
        self.state = state

    # Pipes

    def _deaf_for_s(self) -> float:
        """For how long it has read nothing while a part of its job was waiting; from the first look on."""
        now = self._loop.time()
        waiting = (self.delivery, self._jobs.untaken())
        if not waiting[1] or waiting != self._waiting:
            self._waiting, self._waiting_since = waiting, now
        return now - self._waiting_since

    def drain(self) -> None:
        """Take all that the worker has written so far, but nothing that follows nonsense."""
        while not self._nonsense and self._read():
            pass

    def _read(self) -> bool:
        """Take a piece; False if there was none."""
        try:
            data = os.read(self._outcomes, self._reader.wanted)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        try:
            for frame in self._reader.feed(data):
                self._hear(frame)
        except (ValueError, struct.error):
            self._nonsense = True
            self._fault = "wrote an invalid frame into its outcome pipe"
            self._end()
            self.kill()
        return True

    def _end(self) -> None:
        self._loop.remove_reader(self._outcomes)
        if self.ended:
            return
        self.ended = True
        self._owner.ended(self)
        if self.pid == 0 and not self.spawner.alive:
            # Its fork server has never got as far as forking it, or nobody knows its pid: no news will come.
            self._loop.call_soon(self._unreported)
        else:
            self._be_patient(self._closed_its_pipe, _UNREPORTED_S)

    def _release(self) -> None:
        """Close every descriptor, and let no message or timer come any more."""
        self.spawner.forget(self._number, self.pid)
        self._loop.remove_reader(self._outcomes)
        self._jobs.close()
        self._close_lifeline()
        os.close(self._outcomes)
        for timer in (self._deadline, self._patience):
            if timer is not None:
                timer.cancel()

    def _close_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _forbidden(state: State, wanted: State) -> RuntimeError:
    return RuntimeError(f"a worker that is {state.name} cannot become {wanted.name}")


def _pipes(count: int) -> list[tuple[int, int]]:
    """So many pipes, or none at all. Raises OSError."""
    pipes: list[tuple[int, int]] = []
    try:
        while len(pipes) < count:
            pipes.append(os.pipe())
    except OSError:
        for fd in itertools.chain(*pipes):
            os.close(fd)
        raise
    return pipes
