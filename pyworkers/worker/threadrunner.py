"""ThreadProcess: runs several jobs at once, each on a thread of a fixed number of threads (mode ``thread``).

Runs in the worker process, whose main thread takes the jobs and gets the signals. Code on a thread cannot be
interrupted: a request to end is noted, and shown by ``current_message().stopping``; async code is cancelled.
What a job changes in the process stays, because other jobs may use it.
"""

from __future__ import annotations

import heapq
import itertools
import signal
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from pyworkers import logs
from pyworkers.failpoints import hit
from pyworkers.ipc.jobsocket import WORKER_TASKS, Packet, PacketKind
from pyworkers.ipc.page import ATTENTION
from pyworkers.protocol.outcome import Report
from pyworkers.worker.chains import ProcessParts, report_of
from pyworkers.worker.execution import Execution
from pyworkers.worker.hygiene import Original, exit_now, flush_output
from pyworkers.worker.programs import end_programs
from pyworkers.worker.signals import listen
from pyworkers.worker.stacks import JobPlace
from pyworkers.worker.steps.timelimit import overdue

log = logs.get_logger()


class ThreadProcess:
    """A worker process of mode ``thread``."""

    def __init__(self, parts: ProcessParts) -> None:
        self._connection = parts.connection
        self._recycler = parts.recycler()
        self._deadlines = Deadlines()
        self._chains = parts.chains(self._deadlines.timer, self._end_programs)
        self._free: SimpleQueue[int] = SimpleQueue()
        self._taken: SimpleQueue[tuple[int, Packet] | None] = SimpleQueue()
        self._running: dict[int, Execution] = {}
        self._early: dict[int, BaseException] = {}
        """The requests of the last look, of which one may be for a job that was about to start."""
        self._lock = threading.Lock()
        self._retiring = False
        self._threads = [
            threading.Thread(target=self._work, name=f"job {slot}", daemon=True)
            for slot in range(parts.connection.slots)
        ]
        self._main = threading.get_ident()
        listen(self._look)
        self._original = Original()

    def serve(self) -> None:
        """Run jobs until the master asks this process to leave, or until it must be replaced."""
        for slot, thread in enumerate(self._threads):
            self._free.put(slot)
            thread.start()
        self._connection.ready()
        while not self._is_leaving():
            slot = self._free.get()
            # Again: it may have waited for long.
            if self._is_leaving() or (packet := self._connection.take(slot)) is None:
                break
            self._taken.put((slot, packet))
        for _ in self._threads:
            self._taken.put(None)
        for thread in self._threads:
            thread.join()

    def _is_leaving(self) -> bool:
        return self._retiring or self._connection.leaving

    # --- on the threads -------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (taken := self._taken.get()) is not None:
                slot, packet = taken
                report = self._run(packet)
                hit("job_end")
                if self._original.is_copy:
                    # A job has forked, and both processes returned from it: only the original is the worker.
                    exit_now(0)
                self._send(packet.number, report)
                self._free.put(slot)
        except BaseException:
            # The master counts on a report for each job, so this process must end.
            log.exception("worker.failed")
            exit_now(1)

    def _run(self, packet: Packet) -> Report:
        if packet.kind == PacketKind.JOB:
            found = self._chains.prepare(packet)
        elif packet.kind in WORKER_TASKS:
            return self._chains.run_worker_task(packet)
        else:
            found = self._chains.prepare_granted(packet)
        if found is None:
            return self._chains.refuse(packet)
        chain, execution = found
        # Nothing can be raised here from the main thread.
        execution.deliver_by(None)
        self._running[packet.number] = execution
        if early := self._early.get(packet.number):
            execution.ask(early)
        chain.run(execution)
        del self._running[packet.number]
        return report_of(chain, execution)

    def _send(self, number: int, report: Report) -> None:
        with self._lock:
            retiring = self._recycler.due() or not flush_output()
        if retiring:
            report = report._replace(retiring=True)
            self._retiring = True
        self._connection.report(number, report)
        if retiring:
            # The main thread may wait for a job.
            signal.pthread_kill(self._main, ATTENTION)

    def _end_programs(self, execution: Execution) -> None:
        """Kill the programs that this thread has started for a job that was asked to end."""
        if not self._original.is_copy:
            end_programs(time.monotonic() - execution.started_s, threading.get_native_id())

    # --- in the main thread ---------------------------------------------------------------------------------

    def _look(self) -> None:
        """Do what the master has written into the page: leave, or end jobs."""
        # No job runs in this thread.
        self._connection.answer(0)
        if self._is_leaving():
            self._connection.stop_taking()
        self._early = dict(self._connection.requests())
        for number, request in self._early.items():
            if execution := self._running.get(number):
                execution.ask(request)
        self._connection.describe(lambda number: JobPlace(self._running.get(number)))


class Deadlines:
    """The time limits of jobs on threads, by one thread that is started with the first limit."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, ThreadTimer]] = []
        self._started = False

    def timer(self, seconds: float, ask: Callable[[BaseException], None]) -> ThreadTimer:
        """A timer that asks a job to end."""
        return ThreadTimer(self, seconds, ask)

    def add(self, timer: ThreadTimer, seconds: float) -> None:
        """Have the timer ring after ``seconds``."""
        with self._changed:
            heapq.heappush(self._heap, (time.monotonic() + seconds, next(self._numbers), timer))
            if not self._started:
                self._started = True
                threading.Thread(target=self._watch, name="deadlines", daemon=True).start()
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                while not self._heap or self._heap[0][0] > time.monotonic():
                    self._changed.wait(self._heap[0][0] - time.monotonic() if self._heap else None)
                _, _, timer = heapq.heappop(self._heap)
            timer.ring()


class ThreadTimer:
    """A time limit of one job."""

    def __init__(self, deadlines: Deadlines, seconds: float, ask: Callable[[BaseException], None]) -> None:
        self._deadlines = deadlines
        self._seconds = seconds
        self._ask: Callable[[BaseException], None] | None = ask

    def start(self) -> None:
        """Begin to count."""
        self._deadlines.add(self, self._seconds)

    def stop(self) -> None:
        """Forget the limit, and the job with it: the timer stays in the heap until its time."""
        self._ask = None

    def ring(self) -> None:
        """Ask the job to end, unless it has ended."""
        if ask := self._ask:
            ask(overdue(self._seconds))
