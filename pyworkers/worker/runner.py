"""SerialRunner: runs the jobs of a worker process one at a time, in its main thread (mode ``process``).

What a job changes in the process is undone after it.
"""

from __future__ import annotations

import time

from pyworkers import logs
from pyworkers.failpoints import hit
from pyworkers.ipc.jobsocket import WORKER_TASKS, Packet, PacketKind
from pyworkers.protocol.outcome import Report
from pyworkers.worker.chains import Chains, ProcessParts, report_of
from pyworkers.worker.execution import Execution
from pyworkers.worker.hygiene import Snapshot, exit_now
from pyworkers.worker.programs import end_programs
from pyworkers.worker.signals import listen
from pyworkers.worker.stacks import JobPlace
from pyworkers.worker.steps.timelimit import Alarm

# A module constant, because reading an attribute of an enum takes three times as long.
_JOB = PacketKind.JOB
_SPOILED = (
    "a job closed stdout, left a POSIX timer, lowered a hard limit, or changed the user, the priority or the "
    "CPUs of its process; or its directory is gone"
)

log = logs.get_logger()


class SerialRunner:
    """Runs jobs one after the other."""

    def __init__(self, chains: Chains) -> None:
        """The jobs of these ``chains`` have an ``Alarm`` as their time limit."""
        self._chains = chains
        self._execution: Execution | None = None
        self._early: tuple[int, BaseException] | None = None

    def run(self, packet: Packet) -> Report:
        """Run the job of a packet, or a worker task."""
        if packet.kind == _JOB:
            found = self._chains.prepare(packet)
        elif packet.kind in WORKER_TASKS:
            return self._chains.run_worker_task(packet)
        else:
            found = self._chains.prepare_granted(packet)
        if found is None:
            return self._chains.refuse(packet)
        chain, execution = found
        self._execution = execution
        if self._early is not None and self._early[0] == packet.number:
            execution.ask(self._early[1])
        chain.run(execution)
        self._execution = None
        return report_of(chain, execution)

    @property
    def current(self) -> int:
        """The delivery that runs in the main thread at this moment; 0 if none."""
        return self._execution.delivery if self._execution is not None else 0

    def place_of(self, number: int) -> JobPlace:
        """Where the job of this delivery is."""
        return JobPlace(self._execution if self.current == number else None, here=True)

    def ask_to_end(self, number: int, request: BaseException) -> None:
        """Raise the request in the job of this delivery: now, or at its start; not once it has ended."""
        if self._execution is None:
            # The job may have arrived and be about to start: ``run`` then raises the request in it.
            self._early = number, request
        elif self._execution.delivery == number:
            self._execution.ask(request)


class SerialProcess:
    """A worker process of mode ``process``."""

    def __init__(self, parts: ProcessParts) -> None:
        self._connection = parts.connection
        self._recycler = parts.recycler()
        self._runner = SerialRunner(parts.chains(Alarm, self._end_programs))
        listen(self._look)
        self._state = Snapshot(parts.connection.stacks)

    def serve(self) -> None:
        """Run jobs until the master asks this process to leave, or until it must be replaced."""
        connection, take, run = self._connection, self._connection.take, self._runner.run
        connection.ready()
        while not connection.leaving and (packet := take(0)) is not None:
            report = run(packet)
            hit("job_end")
            if self._state.is_copy:
                # A job has forked, and both processes returned from it: only the original is the worker.
                exit_now(0)
            retiring = self._recycler.due() or not self._restored()
            if retiring:
                report = report._replace(retiring=True)
            connection.report(packet.number, report)
            if retiring:
                return

    def _look(self) -> None:
        """Do what the master has written into the page: leave, or end a job; say which job runs."""
        self._connection.answer(self._runner.current)
        if self._connection.leaving:
            self._connection.stop_taking()
        for number, request in self._connection.requests():
            self._runner.ask_to_end(number, request)
        self._connection.describe(self._runner.place_of)

    def _restored(self) -> bool:
        restored = self._state.restore()
        if not restored:
            log.warning("worker.spoiled", hint=_SPOILED)
        return restored

    def _end_programs(self, execution: Execution) -> None:
        """Kill the programs of a job that was asked to end; if there were any, have this worker replaced.

        A killed program may have belonged to the worker instead of the job: a thread or a program of an
        ``on_startup`` hook may have started it while the job ran.
        """
        if self._state.is_copy:
            return
        if end_programs(time.monotonic() - execution.started_s):
            self._recycler.retire()
