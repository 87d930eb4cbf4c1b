"""Pool: keeps the wanted workers of one group, all of the current generation (*reconcile*).

Runs in the master's event loop. It reads what its workers say, and passes it on.
"""

from __future__ import annotations

import itertools
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pyworkers import logs
from pyworkers.ipc import jobsocket
from pyworkers.ipc.frames import SECONDS, Frame, FrameKind, unpack_note
from pyworkers.protocol import effects
from pyworkers.protocol.limits import Ask
from pyworkers.server.generations.reaper import Died, ForkRefused, WorkerForked, WorkerSpec
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.pool.cpus import Scheduling
from pyworkers.server.pool.delivery import Delivery, Event
from pyworkers.server.pool.gates import Decided, Waiting
from pyworkers.server.pool.handout import OutcomePipe
from pyworkers.server.pool.jobs import JobTable, LookDue
from pyworkers.server.pool.scale import Respawn, Scale, StartDue
from pyworkers.server.pool.settling import died
from pyworkers.server.pool.worker import Closed, State, WorkerFacts, WorkerProcess
from pyworkers.server.running import Running, names

log = logs.get_logger()


class Pool:
    """The workers of one group, for ``jobs``; ``resize`` and ``use`` set their sizes and generation.

    A size is the number of jobs that one worker runs at once, in the way of the ``mode`` (worker/process.py).
    ``log_failing`` is called when starts begin to fail, and when they succeed again.
    """

    def __init__(
        self,
        group: str,
        spawner: Spawner,
        jobs: JobTable,
        scheduling: Scheduling,
        log_failing: Callable[[bool], None],
        idle_s: float = 60.0,
    ) -> None:
        """``idle_s``: for this time, a surplus worker stays without a job. Raises OSError."""
        self._group = group
        self._spawner = spawner
        self._workers = jobs.workers
        self._jobs = jobs
        self._scheduling = scheduling
        self._outcomes = OutcomePipe(group, self._receive, lambda: jobs.rest_s)
        self._respawn = Respawn(self._workers.events)
        self._log_failing = log_failing
        self._numbers = itertools.count(1)
        self._scale = Scale(idle_s, self._needed, self._reconcile)
        self._done_before = 0
        self._mode = "process"
        self._clock_offset_s = 0.0
        self._deadlines = 0.0, 0.0
        self._alone: dict[WorkerProcess, int] = {}
        """The workers that were started for one suspect each, with its number."""
        self._why = ""
        """Why the last start failed."""
        self.restarts = 0
        """The number of workers that ended unexpectedly, and were replaced."""

    # The events of the group

    async def run(self) -> None:
        """Apply the events of the group, one at a time, until cancelled."""
        while True:
            self._apply(await self._workers.events.get())

    def _apply(self, event: Event) -> None:
        match event:
            case LookDue():
                self.look()
            case Waiting():
                self._run_suspects()
            case StartDue() if self._respawn.pending:
                self._end_delay()
                self._reconcile()
            case Decided(job, decision):
                self._jobs.decide(job, decision)
            case WorkerForked(member, pid) if worker := self._workers.get(member):
                worker.forked(pid)
            case ForkRefused(member, error) if worker := self._workers.get(member):
                worker.refused(error)
                self._died(worker, None, 0)
            case Closed(member) if worker := self._workers.get(member):
                self._closed(worker)
            case Died(member, status, rss_kb) if worker := self._workers.get(member):
                self._died(worker, status, rss_kb)

    def look(self) -> None:
        """Deal with jobs that no worker takes, and choose how the workers wait."""
        many = self._scheduling.look(self._jobs.short, time.monotonic())
        if (untaken := self._jobs.look()) is not None:
            self._outcomes.drain()
            self._jobs.looked(untaken)
        self._jobs.look_again(many)
        if self._jobs.busy and not self._scale.sizes:
            # It came when the last worker was about to end.
            self.grow(False)

    # For the manager

    def resize(self, sizes: Sequence[int], mode: str = "process", least: int | None = None) -> None:
        """Set the sizes of the workers, and their mode; ``least``: their number follows the jobs."""
        self._set(sizes, mode, least)
        self._reconcile()

    def _set(self, sizes: Sequence[int], mode: str, least: int | None) -> None:
        self._mode = mode
        self._scale.set(sizes, least)
        self._jobs.share(any(size > 1 for size in sizes))

    def end_idle_after(self, seconds: float) -> None:
        """Have a surplus worker stay without a job for this time."""
        self._scale.end_idle_after(seconds)

    def grow(self, fully: bool) -> None:
        """Start another worker, because a job waits for one, unless one is on its way.

        ``fully``: have all workers from now on.
        """
        booting = any(worker.state is State.BOOTING for worker in self._workers)
        if self._scale.fill() if fully else not booting and self._scale.grow():
            self._reconcile()

    def may_grow(self) -> bool:
        """True if the group may have more workers than now."""
        return len(self._scale.sizes) < self._scale.most

    def _needed(self) -> int:
        """How many workers have a job; one at least if there was a job since the last call."""
        done = sum(worker.jobs_done for worker in self._workers)
        before, self._done_before = self._done_before, done
        busy = sum(bool(worker.unfinished()) for worker in self._workers)
        return busy or int(self._jobs.busy > 0 or done != before)

    def use(
        self, spawner: Spawner, sizes: Sequence[int], mode: str = "process", least: int | None = None
    ) -> None:
        """Replace all workers by these of a generation, one by one, as the new ones become ready."""
        self._spawner = spawner
        self._set(sizes, mode, least)
        self._end_delay()
        for worker in self._workers:
            if worker.state is State.BOOTING and worker.spawner is not spawner:
                self._dismiss(worker)
        self._reconcile()

    def set_clock(self, offset_s: float) -> None:
        """Note for the workers how far Redis' clock is ahead of the clock of this machine."""
        self._clock_offset_s = offset_s
        for worker in self._workers:
            worker.page.set_clock(offset_s)

    def set_lease(self, deadlines: tuple[float, float]) -> None:
        """Note for the workers when jobs that must not overlap are asked to end, and when their process ends.

        In monotonic seconds.
        """
        self._deadlines = deadlines
        for worker in self._workers:
            worker.page.set_lease(*deadlines)

    def dumps(self) -> Iterator[Callable[[], None]]:
        """For each worker, a function that names it in the log and has it write its stacks to stderr."""
        return (partial(self._dump, worker) for worker in list(self._workers))

    def _dump(self, worker: WorkerProcess) -> None:
        if worker.pid and worker.state is not State.GONE:
            # By the master: the worker cannot while it hangs in a call.
            jobs = [names(job.raw, job.queue) for job in worker.unfinished() if not job.is_task]
            log.warning("worker.stacks", queue=self._group, pid=worker.pid, jobs=jobs)
            worker.signal(signal.SIGTTIN)

    def stop(self) -> None:
        """Have all jobs with a checkpoint end at their next one, to continue elsewhere."""
        for worker in self._workers:
            worker.page.stop()

    def abandon(self) -> None:
        """Kill every busy worker and forget its jobs, but those whose outcome is in the pipe by then."""
        self._outcomes.drain()
        self._jobs.leave_untaken()
        claimed = {job.number for worker in self._workers for job in worker.abandon()}
        if self._jobs.offered.keys() - claimed:
            # A worker has taken the rest and not said so yet; nothing shows which. It may be one that leaves,
            # or one whose READY frame is not read yet.
            for worker in self._workers:
                worker.abandon_idle()
        # The kills take milliseconds each, in which other jobs have ended, or have asked for their limits.
        self._outcomes.drain()
        self._jobs.leave_untaken()
        self._jobs.abandon()

    def replace_idle(self) -> None:
        """Replace the workers that run no job, because they log the identity with which they were forked.

        Without a fork server they stay: nothing could replace them.
        """
        if not self._spawner.alive:
            return
        for worker in self._workers:
            if worker.state in (State.BOOTING, State.SERVING) and not worker.unfinished():
                self._dismiss(worker)
        self._reconcile()

    @property
    def abandoned(self) -> int:
        """The number of processes killed by ``abandon`` that may still run."""
        return sum(worker.abandoned for worker in self._workers)

    def close(self) -> None:
        """Have every worker leave after its jobs."""
        self._scale.close()
        self._end_delay()
        for worker in self._workers:
            self._dismiss(worker)

    def kill(self, after_s: float) -> None:
        """Kill every process that is left: it has not ended in this time."""
        for worker in self._workers:
            worker.end_overdue(after_s)

    def end(self) -> None:
        """Close the descriptors, once no worker is left."""
        self._jobs.close()
        self._scheduling.close()
        self._outcomes.close()

    @property
    def all_started(self) -> bool:
        """True when as many workers as wanted have started."""
        return sum(worker.state is State.SERVING for worker in self._workers) >= len(self._scale.sizes)

    @property
    def is_failing(self) -> bool:
        """True while no worker starts."""
        return self._respawn.is_failing

    @property
    def why_failing(self) -> str:
        """Why no job can run: no worker has started, and none can; empty if one has, or may."""
        if not self._scale.most or any(worker.state is State.SERVING for worker in self._workers):
            return ""
        if not self._spawner.alive:
            return "the fork server has ended, and no other one has started: see reload.failed in the log"
        return f"workers end at their start: {self._why}" if self.is_failing else ""

    @property
    def empty(self) -> bool:
        """True when no process is left."""
        return not len(self._workers)

    def pids(self) -> dict[int, str]:
        """The state of each process, by pid, for the log."""
        return {worker.pid: _state(worker) for worker in self._workers if worker.pid}

    def workers(self) -> Iterator[WorkerFacts]:
        """Each process, for people."""
        for worker in self._workers:
            if worker.pid:
                yield WorkerFacts(
                    self._group, worker.pid, _state(worker), worker.started_at, worker.jobs_done
                )

    def running(self) -> Iterator[Running]:
        """The jobs that workers have taken."""
        offset = time.time() - time.monotonic()
        for worker in self._workers:
            for slot, number in enumerate(worker.claims(), 1):
                limit_at = worker.limit_at(number)
                if limit_at is not None:
                    limit_at += offset
                for job in self._jobs.unfinished([number]):
                    if not job.is_task:
                        started_at = job.handed_at + offset
                        yield Running(job.queue, worker.pid, number, job.raw, started_at, slot, limit_at)

    def running_as(self, jid: str) -> tuple[WorkerProcess, int] | None:
        """The worker that runs the job with this id, and the number of the delivery; None if none runs it."""
        for worker in self._workers:
            for job in worker.unfinished():
                if not job.is_task and names(job.raw, job.queue).get("jid") == jid:
                    return worker, job.number
        return None

    # Reports of its workers

    def _receive(self, frame: Frame) -> None:
        kind, member, number, payload = frame
        worker = self._workers.get(member)
        if worker is None:
            return
        if kind is FrameKind.OUTCOME:
            try:
                report = worker.read_report(payload)
            except (ValueError, struct.error, LookupError, OverflowError):
                worker.fail("wrote an invalid outcome")
                return
            self._jobs.ended(number, report)
            worker.finished(number)
            if report.retiring or worker in self._alone:
                self._replace(worker)
        elif kind is FrameKind.READY:
            self._ready(worker, worker.ready(number))
        elif kind is FrameKind.NOTE:
            self._note(worker, number, payload)
        elif kind is FrameKind.STARTED:
            self._jobs.started(number)
        elif kind is FrameKind.ASK:
            self._ask(worker, number, payload)
        else:
            self._limit(worker, number, payload)

    def _replace(self, worker: WorkerProcess) -> None:
        self._dismiss(worker)
        self._reconcile()

    def _note(self, worker: WorkerProcess, number: int, payload: bytes) -> None:
        try:
            noted = effects.unpack(unpack_note(payload))
        except (ValueError, struct.error):
            worker.fail("wrote an invalid note")
            return
        self._jobs.noted(number, noted)

    def _ask(self, worker: WorkerProcess, number: int, payload: bytes) -> None:
        try:
            ask = Ask.unpack(payload)
        except ValueError:
            worker.fail("wrote an invalid ask")
            return
        self._jobs.asked(number, ask)
        worker.finished(number)
        if ask.retiring or worker in self._alone:
            self._replace(worker)

    def _limit(self, worker: WorkerProcess, number: int, payload: bytes) -> None:
        try:
            [seconds] = SECONDS.unpack(payload)
        except struct.error:
            worker.fail("wrote an invalid time limit")
            return
        for delivery in self._jobs.unfinished([number]):
            worker.limited(delivery, seconds)

    def _ready(self, worker: WorkerProcess, booted: bool) -> None:
        """Note a successful start; a worker that has booted takes jobs."""
        if self._respawn.is_failing:
            self._log_failing(False)
        self._respawn.succeeded()
        self._end_delay()
        if booted and not worker.ended and worker not in self._alone:
            self._jobs.admit(worker)
        self._reconcile()

    def _closed(self, worker: WorkerProcess) -> None:
        """Count no more on a worker whose presence pipe is closed."""
        self._outcomes.drain()
        self._jobs.withdraw(worker)
        worker.expect_report()

    def _died(self, worker: WorkerProcess, status: int | None, rss_kb: int) -> None:
        """Replace a worker that has ended, and settle its jobs. Outcomes in its pipe count."""
        worker.exited()
        self._outcomes.drain()
        self._workers.remove(worker)
        end = worker.end(status, rss_kb)
        self._jobs.withdraw(worker)
        self._outcomes.forget(worker.member)
        if end.failed_start:
            self._start_failed(end.reason)
        if end.reason:
            self.restarts += 1
        suspect = self._alone.pop(worker, None)
        if end.unfinished:
            self._jobs.lost(end.unfinished, died(end.reason, end.rss_kb), unrelated=end.unrelated)
        elif suspect is not None:
            for job in self._jobs.unfinished([suspect]):
                self._jobs.begin_again(job, end.reason)
        self._jobs.died(end.reason)
        self._reconcile()

    # The number of workers

    def _reconcile(self) -> None:
        """Start missing workers and dismiss surplus workers, first the ones with old code."""
        if self._respawn.pending:
            return
        self._run_suspects()
        staying = [w for w in self._workers if w.state is not State.LEAVING and w not in self._alone]
        current = Counter(worker.slots for worker in staying if self._is_current(worker))
        if self._spawner.alive:
            missing = [*(Counter(self._scale.sizes) - current).elements()]
            if len(self._scale.sizes) < self._scale.most:
                # Of a group that has shrunk, a busy worker may stay that has another size.
                del missing[max(0, len(self._scale.sizes) - current.total()) :]
            for slots in missing:
                self._spawn(slots)
        serving = [worker for worker in staying if worker.state is State.SERVING]
        # Workers with old code first; with the same code, idle workers first.
        serving.sort(key=lambda worker: (self._is_current(worker), bool(worker.unfinished())))
        for worker in serving[: max(0, len(serving) - len(self._scale.sizes))]:
            self._dismiss(worker)

    def _is_current(self, worker: WorkerProcess) -> bool:
        return worker.spawner is self._spawner and worker.mode == self._mode

    def _spawn(self, slots: int) -> None:
        try:
            self._start(slots, self._jobs.workers_end)
        except OSError as error:
            self._not_started(error)

    def _start(self, slots: int, jobs: int) -> WorkerProcess:
        number, put = next(self._numbers), self._workers.events.put_nowait
        spec = WorkerSpec(self._group, number, slots, self._mode, jobs, self._outcomes.write_end, put)
        worker = WorkerProcess(spec, self._spawner, self._workers, self._jobs.offered)
        worker.page.set_clock(self._clock_offset_s)
        worker.page.set_lease(*self._deadlines)
        self._workers.add(worker)
        return worker

    def _not_started(self, error: OSError) -> None:
        log.error("worker.lost", queue=self._group, reason=f"no descriptor for it: {error}")
        self._start_failed(f"no descriptor for a worker: {error}")

    def _start_failed(self, why: str) -> None:
        self._why, failing = why, self._respawn.is_failing
        self._respawn.failed()
        if self._respawn.is_failing and not failing:
            self._log_failing(True)

    def _end_delay(self) -> None:
        """End the delay after failed starts, and log how many there were."""
        if count := self._respawn.end_delay():
            log.warning(
                "worker.starts_failed",
                queue=self._group,
                count=count,
                hint="the first one logs the reason, unless forkserver.lost has it",
            )

    def _run_suspects(self) -> None:
        """Start a worker for each suspect, alongside the others, and at most as many as there are others."""
        if self._respawn.pending or not self._spawner.alive:
            return
        while len(self._alone) < self._scale.most and (suspect := self._jobs.next_suspect()):
            try:
                self._alone[self._start_alone(suspect)] = suspect.number
            except OSError as error:
                self._jobs.set_apart(suspect)
                self._not_started(error)
                return

    def _start_alone(self, suspect: Delivery) -> WorkerProcess:
        """Start a worker with its own job socket, which holds one job and then its end."""
        ours, theirs = jobsocket.pair()
        try:
            self._jobs.send_alone(suspect, ours)
            return self._start(1, theirs.fileno())
        finally:
            ours.close()
            theirs.close()

    def _dismiss(self, worker: WorkerProcess) -> None:
        """Have a worker leave: at once if it is idle, else after its jobs."""
        self._jobs.withdraw(worker)
        worker.leave()


def _state(worker: WorkerProcess) -> str:
    if worker.state is State.SERVING:
        return "busy" if worker.unfinished() else "idle"
    return worker.state.name.lower()
