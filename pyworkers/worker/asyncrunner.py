"""AsyncProcess: runs many jobs at once as tasks of one event loop (mode ``async``).

Runs in the worker process, in its main thread; ``def`` code of the jobs runs on other threads (bridge.py). A
request to end cancels a task. If the task does not end then, the master kills the process. What a job changes
in the process stays, because other jobs may use it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

from pyworkers.failpoints import hit
from pyworkers.ipc.jobsocket import WORKER_TASKS, Packet, PacketKind
from pyworkers.ipc.page import NO_JOB, UNSURE
from pyworkers.protocol.outcome import Report
from pyworkers.worker.chain import StepChain
from pyworkers.worker.chains import ProcessParts, report_of
from pyworkers.worker.execution import Execution, current_execution
from pyworkers.worker.hygiene import Original, exit_now, flush_output
from pyworkers.worker.programs import end_programs
from pyworkers.worker.signals import listen
from pyworkers.worker.stacks import JobPlace
from pyworkers.worker.steps.timelimit import overdue

# Jobs that are taken in one turn of the loop: they start in the next, so the first waits until the last is
# taken; and other processes get a share. More would save the CPU time of turns: 4 to 7% of a no-op at 32.
_AT_ONCE = 8
# For how long one job keeps the loop from turning until the answer names it; a little less than the time
# between the two signals of the master (_APART_S in server/pool/worker.py), which may come late.
_HANGS_S = 0.4

# The garbage collector starts at this number of new objects for each job at once. At Python's 700 for all
# jobs (from 3.13 on 2,000), it looks through the objects of hundreds of running jobs again and again: a tenth
# of the CPU time.
_YOUNG = 100

# A module constant, because reading an attribute of an enum takes three times as long.
_JOB = PacketKind.JOB


class AsyncProcess:
    """A worker process of mode ``async``."""

    def __init__(self, parts: ProcessParts) -> None:
        self._connection = parts.connection
        self._bridge = parts.bridge
        self._recycler = parts.recycler()
        self._chains = parts.chains(LoopTimer, self._end_programs)
        self._loop = parts.bridge.loop()
        self._left = self._loop.create_future()
        """Done once the process is to leave, and its jobs have ended."""
        self._free = list(range(parts.connection.slots))
        self._running: dict[int, tuple[Execution | None, asyncio.Task[None]]] = {}
        """Execution and task of each delivery; no execution for a worker task."""
        self._ended: list[tuple[int, int, Report]] = []
        """Slot, delivery and report of the jobs that have ended in this turn of the loop."""
        self._context = copy_context()
        self._watching = False
        self._leaving = False
        self._held = False
        self._together_s = 0.0
        """The last moment when more than one job ran."""
        self._found: int | None = None
        """The delivery that signals have interrupted since the loop has turned; 0 if it was no job's code."""
        self._found_s = 0.0
        """The time of the first of these signals."""
        self._original = Original()

    def serve(self) -> None:
        """Run jobs until the master asks this process to leave, or until it must be replaced."""
        self._bridge.run(self._serve)

    async def _serve(self) -> None:
        # Not the loop's add_signal_handler: a job that blocks the loop must be found, too.
        listen(self._answer)
        _collect_less_often(self._connection.slots)
        self._connection.ready()
        self._take_or_not()
        try:
            await self._left
        finally:
            self._write_reports()

    # --- jobs -----------------------------------------------------------------------------------------------

    def _take(self) -> None:
        """Take jobs from the socket, which has some unless another process was faster."""
        try:
            if self._wants:
                self._take_some()
            else:
                self._loop.remove_reader(self._connection.fileno())
                self._watching = False
        except BaseException as error:
            # The loop would log it and go on, and the job would be in no process.
            self._fail(error)

    def _take_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._free))):
            if self._connection.leaving:
                self._leave()
                return
            try:
                packet = self._connection.take(self._free[-1], wait=False)
            except BlockingIOError:
                break
            if packet is None:
                self._leave()
                return
            self._start(self._free.pop(), packet)
        self._take_or_not()

    def _start(self, slot: int, packet: Packet) -> None:
        if self._running:
            self._together_s = time.monotonic()
        if packet.kind == _JOB:
            found = self._chains.prepare(packet)
        elif packet.kind in WORKER_TASKS:
            self._keep(slot, packet.number, None, self._run_worker_task(slot, packet))
            return
        else:
            found = self._chains.prepare_granted(packet)
        if found is None:
            self._end(slot, packet.number, self._chains.refuse(packet))
            return
        chain, execution = found
        self._keep(slot, packet.number, execution, self._run(slot, chain, execution))

    def _keep(
        self, slot: int, number: int, execution: Execution | None, work: Coroutine[Any, Any, None]
    ) -> None:
        # Not by the loop's task factory, which belongs to the application: it may start the job at once
        # (asyncio.eager_task_factory), before it is noted here, or know no ``context``.
        task = asyncio.Task(work, loop=self._loop, context=self._context.copy())
        if execution is not None:
            execution.deliver_by(task.cancel)
        self._running[number] = execution, task

    async def _run(self, slot: int, chain: StepChain, execution: Execution) -> None:
        try:
            await chain.run_async(execution)
            # The task has a context that has the execution: a cycle that would keep both in memory.
            execution.deliver_by(None)
            self._end(slot, execution.delivery, report_of(chain, execution))
        except BaseException as error:
            self._fail(error)

    async def _run_worker_task(self, slot: int, packet: Packet) -> None:
        try:
            report = await self._bridge.finish(self._chains.run_worker_task, packet)
            self._end(slot, packet.number, report)
        except BaseException as error:
            self._fail(error)

    def _end(self, slot: int, number: int, report: Report) -> None:
        """Note the report of a job; it is written at the end of this turn of the loop.

        Until then, the page shows the job as running: it is lost with its process, like any other.
        """
        hit("job_end")
        if self._original.is_copy:
            # A job has forked, and both processes returned from it: only the original is the worker.
            exit_now(0)
        if len(self._running) > 1:
            self._together_s = time.monotonic()
        self._running.pop(number, None)
        if self._recycler.due():
            self._leaving = True
            report = report._replace(retiring=True)
        if not self._ended:
            # In the context of no job, which would be kept.
            self._loop.call_soon(self._send, context=self._context)
        self._ended.append((slot, number, report))

    def _send(self) -> None:
        """Write the reports of the jobs that have ended, and take others instead."""
        try:
            self._write_reports()
            if self._wants:
                self._take_some()
            else:
                self._take_or_not()
        except BaseException as error:
            self._fail(error)

    def _write_reports(self) -> None:
        ended, self._ended = self._ended, []
        if not ended or self._original.is_copy:
            return
        if not flush_output():
            self._leaving = True
            slot, number, report = ended[-1]
            ended[-1] = slot, number, report._replace(retiring=True)
        self._connection.report_all([(number, report) for _, number, report in ended])
        # Only now, because the next job of a slot hides this one in the page.
        self._free += [slot for slot, _, _ in ended]

    def _fail(self, error: BaseException) -> None:
        """End this process: the master counts on a report for each job."""
        if not self._left.done():
            self._left.set_exception(error)

    # --- the end --------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        """Answer a signal, at any point of the code of a job or of the loop: say which job hangs here.

        A job that a single signal interrupts proves nothing: every job is interrupted at times.
        """
        current, now_s = self._current(), time.monotonic()
        hanging = 0
        if current != self._found:
            self._found, self._found_s = current, now_s
        else:
            hanging = (current or NO_JOB) if now_s - self._found_s >= _HANGS_S else UNSURE
        self._connection.answer(hanging)
        self._loop.call_soon_threadsafe(self._look)

    def _current(self) -> int:
        """The delivery whose code a signal has interrupted; 0 if it is the code of no job that runs."""
        try:
            # By the context, which tasks and callbacks of a job share with it, also those that outlive it.
            number = current_execution().delivery
        except LookupError:
            return 0
        return number if number in self._running else 0

    def _look(self) -> None:
        """Do what the master has written into the page: leave, or end jobs. The loop has turned."""
        self._found = None
        for number, request in self._connection.requests():
            execution, _ = self._running.get(number, (None, None))
            if execution is not None:
                execution.ask(request)
        self._connection.describe(lambda number: JobPlace(*self._running.get(number, (None,))))
        if self._connection.leaving:
            self._leave()

    def _leave(self) -> None:
        self._leaving = True
        self._take_or_not()

    def _take_or_not(self) -> None:
        """Watch the socket while jobs are wanted; end when the last job has ended and none may be taken.

        A socket that is watched without need is watched until it has a job: often the room comes first.
        """
        if self._wants and not self._watching:
            # In the context of no job, which would be kept; in a copy, because it may be the present one.
            self._context.copy().run(self._loop.add_reader, self._connection.fileno(), self._take)
            self._watching = True
        if self._leaving and not (self._running or self._ended or self._left.done()):
            self._left.set_result(None)

    @property
    def _wants(self) -> bool:
        """True while jobs are to be taken."""
        return bool(self._free) and not self._leaving and not self._held

    def _end_programs(self, execution: Execution) -> None:
        """Kill the programs of a job that was asked to end, if no other job ran meanwhile; on a thread.

        Otherwise nothing shows to which job a program belongs. No job is taken meanwhile.
        """
        if self._original.is_copy or not self._on_loop(lambda: self._hold(execution)):
            return
        try:
            if end_programs(time.monotonic() - execution.started_s):
                self._recycler.retire()
        finally:
            self._on_loop(self._release)

    def _hold(self, execution: Execution) -> bool:
        """Take no job for now, if this one has had the process for itself."""
        if len(self._running) > 1 or execution.started_s <= self._together_s:
            return False
        self._held = True
        self._take_or_not()
        return True

    def _release(self) -> bool:
        self._held = False
        self._take_or_not()
        return True

    def _on_loop(self, function: Callable[[], bool]) -> bool:
        """Call a function on the loop, from a thread; returns its result."""

        async def call() -> bool:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()


def _collect_less_often(slots: int) -> None:
    """Have the garbage collector start at a number of new objects that grows with the jobs at once.

    An application's own higher threshold is kept, and so is a collector that it has turned off.
    """
    young, *older = gc.get_threshold()
    if young:
        gc.set_threshold(max(young, _YOUNG * slots), *older)


class LoopTimer:
    """A time limit, by a timer of the running loop."""

    def __init__(self, seconds: float, ask: Callable[[BaseException], None]) -> None:
        self._seconds = seconds
        self._ask = ask
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to count."""
        loop = asyncio.get_running_loop()
        # Not in the context of the job, which a stopped timer would keep until its time.
        self._handle = loop.call_later(self._seconds, self._ring, context=Context())

    def stop(self) -> None:
        """Forget the limit."""
        if self._handle is not None:
            self._handle.cancel()

    def _ring(self) -> None:
        self._ask(overdue(self._seconds))
