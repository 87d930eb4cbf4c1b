"""Pool: the workers of one queue.

Runs in the master's event loop. It keeps as many workers as wanted (*reconcile*), hands each idle one a job,
and turns what happens to a worker into the outcome of its job. It never decodes a job that ended normally.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyworkers import logs
from pyworkers.ipc.control import CANCEL_REQUEST, INTERRUPT_REQUEST, AboutWorker, Exited, Spawned
from pyworkers.ipc.frames import SECONDS, Frame, Kind
from pyworkers.protocol.outcome import Report
from pyworkers.protocol.retry import Failure
from pyworkers.server import proc
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.pool import losses
from pyworkers.server.pool.endings import KILL_GRACE_S, Endings
from pyworkers.server.pool.losses import Losses
from pyworkers.server.pool.respawn import Respawn
from pyworkers.server.pool.running import Running
from pyworkers.server.pool.worker import Delivery, State, Worker

# What hooks at the start and at the end of a worker may take before somebody should look.
_PATIENCE_S = 30.0
# From the end of a worker's pipe until it is known how it ended: a fork server says it within milliseconds,
# and the master looks for orphans every half second. After that it lives on without its pipe.
_UNREPORTED_S = 1.0
# A worker that does not read the job that it was handed: stopped, or stuck in what comes after a job.
_DEAF_S = 15.0
# A job that died with its worker before it began did nothing wrong; but it may be what kills them.
_MAX_TRIES = 3

log = logs.get_logger()
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Whom the pool tells: an outcome to settle, and that a worker is free."""

    settle: Callable[[bytes, Report], None]
    freed: Callable[[], None]
    failing: Callable[[bool], None]


class Pool:
    """Workers of one queue; ``resize`` and ``use`` say how many, of which generation."""

    def __init__(self, queue: str, callbacks: Callbacks) -> None:
        self._queue = queue
        self._tell = callbacks
        self._loop = asyncio.get_running_loop()
        self._workers: dict[int, Worker] = {}
        self._idle: list[Worker] = []
        self._backlog: deque[Delivery] = deque()
        self._deliveries = itertools.count(1)
        self._concurrency = 0
        self._spawner: Spawner | None = None
        self._endings = Endings(queue, callbacks.settle)
        self._abandoned: set[int] = set()
        self._respawn = Respawn(self._reconcile, callbacks.failing)
        self.cancellations = Cancellations()

    # What the fetcher asks

    @property
    def free(self) -> int:
        """How many jobs could start right now."""
        return len(self._idle) - len(self._backlog)

    @property
    def busy(self) -> int:
        """How many jobs and errands are with a worker, or wait for the next one."""
        return sum(1 for _ in self._open())

    def known(self) -> Counter[bytes]:
        """The bytes of every job that this pool answers for, and how often."""
        return Counter(delivery.raw for delivery in self._open() if not delivery.errand)

    def _open(self) -> Iterator[Delivery]:
        for worker in self._workers.values():
            if worker.delivery is not None:
                yield worker.delivery
        yield from self._backlog

    def running(self) -> Iterator[Running]:
        """The jobs that are with a worker, for people."""
        for worker, job in self._begun():
            yield Running(self._queue, worker.pid, job.number, job.raw, job.started_at)

    def _begun(self) -> Iterator[tuple[Worker, Delivery]]:
        for worker in self._workers.values():
            if (job := worker.delivery) is not None and not job.errand:
                yield worker, job

    def deliver(self, raw: bytes) -> None:
        """Start a job; if its idle worker has just died, the next one gets it."""
        delivery = Delivery(next(self._deliveries), raw)
        if self.cancellations.noted and (jid := self.cancellations.jid_of(raw)):
            delivery.cancelled = jid
            self._endings.cancelled(delivery)
        else:
            self._hand_out(delivery)

    # What the manager asks

    def resize(self, concurrency: int) -> None:
        """Have this many workers."""
        self._concurrency = concurrency
        self._reconcile()

    def use(self, spawner: Spawner, decider: Losses, concurrency: int) -> None:
        """Replace all workers by so many of this generation, one by one, each when its successor is ready."""
        self._spawner, self._endings.losses, self._concurrency = spawner, decider, concurrency
        self._respawn.cancel()
        for worker in self._workers.values():
            if worker.state is State.BOOTING and worker.spawner is not spawner:
                self._dismiss(worker)
        self._reconcile()

    def signal(self, number: int, apart_s: float) -> None:
        """Send a signal to every worker, one after the other: what they write must not mix."""
        for place, worker in enumerate(self._workers.values()):
            self._loop.call_later(place * apart_s, worker.signal, number)

    def cancel_noted(self) -> None:
        """Have the jobs end that shall not run. Those in a worker are asked, and killed a little later."""
        for delivery in [d for d in self._backlog if not d.errand]:
            if jid := self.cancellations.jid_of(delivery.raw):
                delivery.cancelled = jid
                self._backlog.remove(delivery)
                self._endings.cancelled(delivery)
        for worker, job in self._begun():
            if not job.cancelled and (jid := self.cancellations.jid_of(job.raw)):
                job.cancelled = jid
                worker.signal(CANCEL_REQUEST)
                self._loop.call_later(KILL_GRACE_S, self._insist, worker, job)

    def _insist(self, worker: Worker, job: Delivery) -> None:
        if worker.delivery is job:
            worker.fault = "was killed: its job was cancelled"
            worker.kill()

    def interrupt(self) -> None:
        """Ask all jobs to end, because they are given back soon; those that have not begun do not begin."""
        self._endings.give_back()
        for delivery in [d for d in self._backlog if not d.errand]:
            self._backlog.remove(delivery)
            self._endings.interrupted(delivery)
        for worker, job in self._begun():
            if not job.cancelled:
                worker.signal(INTERRUPT_REQUEST)

    def abandon(self) -> None:
        """Kill every busy worker and forget its job, unless its outcome is in the pipe already."""
        self._backlog.clear()
        for worker in list(self._workers.values()):
            worker.drain()
            if (job := worker.delivery) is not None:
                worker.kill()
                worker.delivery = None
                worker.state = State.LEAVING
                self._abandoned.add(worker.number)
                self._endings.abandoned(job)

    @property
    def abandoned(self) -> int:
        """How many processes were killed by ``abandon`` and may still run."""
        return len(self._abandoned)

    def close(self) -> None:
        """Let every worker go after the job that it runs."""
        self._concurrency = 0
        self._respawn.cancel()
        for worker in self._workers.values():
            self._dismiss(worker)

    def kill(self) -> None:
        """End every process now."""
        for worker in self._workers.values():
            worker.kill()

    @property
    def empty(self) -> bool:
        """True when no process is left."""
        return not self._workers

    def uses(self, spawner: Spawner) -> bool:
        """True while a worker of that generation lives."""
        return any(worker.spawner is spawner for worker in self._workers.values())

    def pids(self) -> dict[int, str]:
        """The processes, each with its state, for people."""
        return {w.pid: w.state.name.lower() for w in self._workers.values() if w.pid}

    # What happens to workers

    def hear(self, word: AboutWorker) -> bool:
        """Take note of what a fork server says, if it is about one of ours."""
        worker = self._workers.get(word.worker)
        if worker is None:
            return False
        if isinstance(word, Spawned):
            worker.pid = word.pid
        elif isinstance(word, Exited):
            self._gone(worker, word.status, word.rss_kb)
        else:
            worker.fault = f"could not be forked: {word.error}"
            self._gone(worker, None)
        return True

    def lost_track(self, pid: int, status: int | None, rss_kb: int = 0) -> bool:
        """A worker whose fork server is gone has ended; ``status`` as from waitpid, if known."""
        for worker in self._workers.values():
            if worker.pid == pid:
                self._gone(worker, status, rss_kb)
                return True
        return False

    def _hear_frame(self, worker: Worker, frame: Frame) -> None:
        kind, number, payload = frame
        if kind is Kind.READY:
            # Its fork server may have died before it could tell the pid.
            worker.pid = number
            self._ready(worker)
        elif worker.delivery is None or worker.delivery.number != number:
            return
        elif kind is Kind.LIMIT:
            self._limit(worker, worker.delivery, *SECONDS.unpack(payload))
        else:
            self._finish(worker, worker.delivery, Report.unpack(payload, worker.spawner.handlers))

    def _ready(self, worker: Worker) -> None:
        self._respawn.succeeded()
        if worker.state is State.BOOTING:
            self._be_patient(worker, None, 0)
            self._release(worker)
        self._reconcile()

    def _finish(self, worker: Worker, delivery: Delivery, report: Report) -> None:
        if worker.deadline is not None:
            worker.deadline.cancel()
            worker.deadline = None
        worker.delivery = None
        worker.jobs_done += 1
        if not delivery.errand:
            self._endings.ended(delivery, report)
        if report.retiring or worker.state is State.LEAVING:
            self._dismiss(worker)
            self._reconcile()
        else:
            self._release(worker)

    def _release(self, worker: Worker) -> None:
        """The worker is free: for a job that waits for one, or for the fetcher."""
        worker.state = State.IDLE
        if worker.ended:
            return
        self._idle.append(worker)
        if self._backlog:
            self._hand_out(self._backlog.popleft())
        if self._idle:
            self._tell.freed()

    def _hand_out(self, delivery: Delivery) -> None:
        if not self._idle:
            self._backlog.append(delivery)
            return
        # The one that was busy last: its memory is warm, and those at the bottom stay small.
        self._idle.pop().hand(Kind.EXHAUSTED if delivery.errand else Kind.JOB, delivery)

    def _limit(self, worker: Worker, delivery: Delivery, seconds: float) -> None:
        delay_s = seconds + KILL_GRACE_S
        worker.deadline = self._loop.call_later(delay_s, self._overrun, worker, delivery, seconds)

    def _overrun(self, worker: Worker, delivery: Delivery, seconds: float) -> None:
        delivery.timed_out_s = seconds
        worker.fault = f"was killed: its job ran longer than {seconds:g} s"
        worker.kill()

    def _ended(self, worker: Worker) -> None:
        """The worker's pipe has ended: no more jobs for it, and soon somebody tells how it ended."""
        if worker in self._idle:
            self._idle.remove(worker)
        if worker.pid == 0 and not worker.spawner.alive:
            # Its fork server has never got as far as forking it, or nobody knows its pid: no news will come.
            self._loop.call_soon(self._unreported, worker)
        else:
            self._be_patient(worker, self._closed_its_pipe, _UNREPORTED_S)

    def _closed_its_pipe(self, worker: Worker) -> None:
        worker.fault = worker.fault or "closed its pipe"
        worker.kill()
        self._be_patient(worker, self._unreported, _UNREPORTED_S)

    def _unreported(self, worker: Worker) -> None:
        if worker.number in self._workers:
            worker.kill()
            self._gone(worker, None)

    def _gone(self, worker: Worker, status: int | None, rss_kb: int = 0) -> None:
        """Account for a worker that has ended. What it still managed to report counts."""
        # First of all, so that it is not handed another job for what it reports from the grave.
        worker.ended = True
        worker.drain()
        del self._workers[worker.number]
        self._abandoned.discard(worker.number)
        if worker in self._idle:
            self._idle.remove(worker)
        delivery = worker.delivery
        if delivery is not None or worker.state is not State.LEAVING:
            reason = losses.describe(status, worker.fault, proc.oom_may_have_killed)
            log.warning("worker.lost", queue=self._queue, pid=worker.pid, reason=reason, rss_kb=rss_kb)
            if delivery is None and worker.jobs_done == 0:
                self._respawn.failed()
        if delivery is not None:
            untouched = worker.untouched and not delivery.timed_out_s and not delivery.cancelled
            if untouched and delivery.tries < _MAX_TRIES:
                self._hand_out(delivery)
            else:
                self._lose(delivery, losses.died(reason, rss_kb))
        worker.release()
        self._reconcile()

    def _lose(self, delivery: Delivery, failure: Failure) -> None:
        loss = None if delivery.errand else self._endings.lost(delivery, failure)
        if loss is not None:
            # The hooks for a job that is not tried again run in a worker.
            self._hand_out(Delivery(next(self._deliveries), loss.pack(), errand=True))

    # How many workers there are

    def _reconcile(self) -> None:
        """Start what is missing, and let go what is too much: first what runs old code."""
        if self._spawner is None or self._respawn.pending:
            return
        staying = [w for w in self._workers.values() if w.state is not State.LEAVING]
        current = [w for w in staying if w.spawner is self._spawner]
        if self._spawner.alive:
            for _ in range(self._concurrency - len(current)):
                self._spawn()
        serving = [w for w in staying if w.state is not State.BOOTING]
        # Old code first, and of that the idle.
        serving.sort(key=lambda w: (w.spawner is self._spawner, w.state is State.BUSY))
        for worker in serving[: max(0, len(serving) - self._concurrency)]:
            self._dismiss(worker)

    def _spawn(self) -> None:
        assert self._spawner is not None
        number = next(_numbers)
        try:
            worker = Worker(number, self._queue, self._spawner, self._loop, self._hear_frame, self._ended)
        except OSError as error:
            log.error("worker.lost", queue=self._queue, reason=f"no pipe for it: {error}")
            self._respawn.failed()
            return
        self._workers[number] = worker
        self._be_patient(worker, self._overdue, _PATIENCE_S)

    def _dismiss(self, worker: Worker) -> None:
        """Let a worker go: at once if it is idle, else after its job."""
        if worker in self._idle:
            self._idle.remove(worker)
        worker.leave()
        if worker.delivery is None and not worker.ended:
            self._be_patient(worker, self._overdue, _PATIENCE_S)

    def _be_patient(self, worker: Worker, then: Callable[[Worker], None] | None, seconds: float) -> None:
        """What to do if nothing is heard of a worker for so long; it replaces what was to be done before."""
        if worker.patience is not None:
            worker.patience.cancel()
        worker.patience = self._loop.call_later(seconds, then, worker) if then else None

    def _overdue(self, worker: Worker) -> None:
        """A hook hangs. A worker that shall take jobs may still come round; one that shall go is killed.

        A fork server that has not even forked it is stopped, or hangs: another one is started.
        """
        if worker.state is State.BOOTING and not worker.pid:
            log.error("forkserver.silent", queue=self._queue, after_s=_PATIENCE_S)
            worker.spawner.hang_up()
            return
        hook = "on_startup" if worker.state is State.BOOTING else "on_shutdown"
        log.warning("worker.overdue", queue=self._queue, pid=worker.pid, hook=hook, after_s=_PATIENCE_S)
        if worker.state is State.LEAVING:
            worker.kill()

    def replace_deaf(self) -> None:
        """Kill workers that do not take their job; another one gets it. To be called every few seconds."""
        for worker in list(self._workers.values()):
            if worker.delivery is not None and worker.deaf_for_s() > _DEAF_S:
                worker.fault = "did not take its job"
                worker.kill()
