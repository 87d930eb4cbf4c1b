"""Connection: a worker process's ends of the job socket, the outcome pipe and the page.

Runs in the worker process. A runner takes jobs from it and gives it reports; nothing here runs a job.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyworkers import logs
from pyworkers.failpoints import hit
from pyworkers.ipc import jobsocket
from pyworkers.ipc.frames import MAX_PAYLOAD, SECONDS, Kind, pack_note
from pyworkers.ipc.jobsocket import FileLostError, Packet, Unread
from pyworkers.ipc.page import Page
from pyworkers.protocol import effects
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.limits import Ask
from pyworkers.protocol.outcome import BURIED, REQUEUE, Fate, Report
from pyworkers.worker.ends.framewriter import FrameWriter
from pyworkers.worker.ends.intake import Intake
from pyworkers.worker.interrupts import cancelled, interrupted

# Reading a member of an enum takes three times as long.
_OUTCOME = Kind.OUTCOME
_ASK = Fate.ASK

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Ends:
    """The descriptors of one worker, its number in its group, and how it runs jobs."""

    jobs: int
    outcomes: int
    lifeline: int
    presence: int
    """The write end of a pipe that is only held open: its end shows that this process has ended."""
    page: int
    member: int
    slots: int
    mode: str = "process"


class Connection:
    """The way between one worker process and the master. ``numbers`` are those of the handlers, by name."""

    def __init__(self, ends: Ends, numbers: Mapping[str, int]) -> None:
        self.slots = ends.slots
        """The number of jobs that the process runs at once; each has a slot, from 0."""
        self._numbers = numbers
        self._jobs = Intake(ends.jobs, ranked=ends.mode == "process")
        self._page = Page(ends.page, ends.slots)
        os.close(ends.page)
        self._frames = FrameWriter(ends.outcomes, ends.member)

    def fileno(self) -> int:
        """The descriptor of the job socket."""
        return self._jobs.fileno()

    def ready(self) -> None:
        """Tell the master that this process has started."""
        self._frames.write(Kind.READY, os.getpid())

    @property
    def leaving(self) -> bool:
        """True if the process is to take no more jobs."""
        return self._page.leaving

    def returns(self) -> bool:
        """True if jobs with a checkpoint are to go back: the process is to leave, or the server stops."""
        return self._page.leaving or self._page.stopping

    def take(self, slot: int, wait: bool = True) -> Packet | None:
        """Take the next job for a free slot, for which it waits; None once the process is to leave.

        If it is not to ``wait``, it raises BlockingIOError if no job is there.
        """
        try:
            packet = self._jobs.take(in_turn=self._page.busy) if wait else self._jobs.take_now()
        except FileLostError as lost:
            self._give_back(lost)
            return None
        if packet is None:
            return None
        hit("before_claim")
        self._page.claim(slot, packet.number)
        hit("job_start")
        return packet.read() if isinstance(packet, Unread) else packet

    def redis_clock(self) -> float:
        """Redis' clock, in epoch seconds."""
        return time.time() + self._page.clock_offset_s

    def stop_taking(self) -> None:
        """Have ``take`` return None from now on; safe in a signal handler."""
        self._jobs.detach()

    def answer(self, running: int) -> None:
        """Answer a signal with the delivery that runs, or hangs, in the main thread; 0 if none."""
        self._page.answer(running)

    def requests(self) -> Iterator[tuple[int, BaseException]]:
        """The deliveries that are to end, with the exception for each; also some that have ended."""
        for number, interrupt in self._page.requests():
            yield number, interrupted() if interrupt else cancelled()

    def announce_limit(self, number: int, seconds: float) -> None:
        """Send a time limit to the master, which enforces it, before the job can hang."""
        self._frames.write(Kind.LIMIT, number, SECONDS.pack(seconds))

    def announce_start(self, number: int) -> None:
        """Send the start of a job that a rate has granted to the master."""
        self._frames.write(Kind.STARTED, number)

    def note(self, number: int, noted: Sequence[Effect]) -> None:
        """Send effects that are applied while the job of this delivery runs; from any thread of it."""
        self._frames.write_note(number, pack_note(effects.pack(noted)))

    def report(self, number: int, report: Report) -> None:
        """Send a report, or the ask of a job that has not started. Its slot is free."""
        if report.outcome.fate is _ASK:
            self._ask(number, report)
            return
        self._frames.write(_OUTCOME, number, self._packed(report))

    def report_all(self, reports: Iterable[tuple[int, Report]]) -> None:
        """Send the reports of several deliveries, in as few writes as possible. Their slots are free."""
        packed = self._packed
        self._frames.write_outcomes([(number, packed(report)) for number, report in reports])

    def ask_all(self, reports: Iterable[tuple[int, Report]]) -> None:
        """Send the asks among these reports. Their slots are free."""
        for number, report in reports:
            if report.asks:
                self._ask(number, report)

    def close(self) -> None:
        """Close the job socket and unmap the page."""
        self._jobs.close()
        self._page.close()

    def _packed(self, report: Report) -> bytes:
        """The payload of a frame; that of a dead job, as it is stored, for an outcome that fits in none."""
        handler = self._numbers.get(report.job_class, 0)
        try:
            packed = report.pack(handler)
            if len(packed) <= MAX_PAYLOAD:
                return packed
            reason = f"an outcome of {len(packed)} bytes"
        except (ValueError, struct.error, LookupError) as error:
            reason = f"{type(error).__name__}: {error}"[:500]
        log.error("job.unsettled", fate=report.outcome.fate.name.lower(), error=reason)
        return report._replace(outcome=BURIED).pack(handler)

    def _ask(self, number: int, report: Report) -> None:
        ask = report.outcome.payload
        if report.retiring:
            ask = replace(Ask.unpack(ask), retiring=True).pack()
        self._frames.write(Kind.ASK, number, ask)

    def _give_back(self, lost: FileLostError) -> None:
        """Give back a job whose file this process cannot open, and have the process replaced.

        Raises it for an errand, which no queue has.
        """
        if lost.kind in jobsocket.ERRANDS:
            raise lost
        log.warning("worker.spoiled", hint="a job is too large for the file descriptors that are left")
        self.report(lost.number, Report(REQUEUE, retiring=True))
