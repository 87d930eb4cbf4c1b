"""Connection: how a worker process gets its jobs from the master, and sends what becomes of them.

Runs in the worker process. A runner takes jobs from a ``Connection`` and gives it reports. ``Intake`` is the
job socket, ``FrameWriter`` the outcome pipe; the page is in ``ipc``. Nothing here runs a job.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pyworkers import logs
from pyworkers.errors import Interrupted, text_with_class
from pyworkers.failpoints import hit
from pyworkers.ipc import jobsocket
from pyworkers.ipc.frames import MAX_FRAME, MAX_PAYLOAD, SECONDS, FrameKind, fits, pack, pack_note, pack_short
from pyworkers.ipc.jobsocket import DONT_WAIT, FileLostError, JobSocket, Packet, Unread, pair
from pyworkers.ipc.page import Page
from pyworkers.protocol import effects
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.limits import Ask
from pyworkers.protocol.outcome import BURIED, DONE, REQUEUE, Fate, Report
from pyworkers.worker.fence import LATE, Fence
from pyworkers.worker.signals import cancelled, interrupted
from pyworkers.worker.stacks import JobPlace, described

# Reading a member of an enum takes three times as long.
_OUTCOME = FrameKind.OUTCOME
_ASK = Fate.ASK

log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerSetup:
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
    """The way between one worker process and the master. ``numbers``: of the handlers, by name."""

    def __init__(self, setup: WorkerSetup, numbers: Mapping[str, int]) -> None:
        self.slots = setup.slots
        """The number of jobs that the process runs at once; each has a slot, from 0."""
        self._numbers = numbers
        self._jobs = Intake(setup.jobs, ranked=setup.mode == "process")
        self._page = Page(setup.page, setup.slots)
        self.stacks = setup.page
        """The file of the page, behind whose words the stacks are written."""
        self._frames = FrameWriter(setup.outcomes, setup.member)
        self.fence = Fence(self._page, shared=setup.mode != "process")

    def fileno(self) -> int:
        """The descriptor of the job socket."""
        return self._jobs.fileno()

    def ready(self) -> None:
        """Tell the master that this process has started."""
        self._frames.write(FrameKind.READY, os.getpid())

    @property
    def leaving(self) -> bool:
        """True if the process is to take no more jobs."""
        return self._page.leaving

    def returns(self) -> bool:
        """True if jobs with a checkpoint are to be given back: the process leaves, or the server stops."""
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

    def describe(self, place_of: Callable[[int], JobPlace]) -> None:
        """Write where a job is, if the master asks about one."""
        if number := self._page.to_describe:
            with suppress(OSError):
                os.write(self.stacks, described(place_of(number)))
            self._page.described()

    def requests(self) -> Iterator[tuple[int, BaseException]]:
        """The deliveries that are to end, with the exception for each; also some that have ended."""
        for number, interrupt in self._page.requests():
            yield number, interrupted() if interrupt else cancelled()
        for number in self.fence.asked:
            yield number, Interrupted(LATE)

    def announce_limit(self, number: int, seconds: float) -> None:
        """Send a time limit to the master, which enforces it, before the job can hang."""
        self._frames.write(FrameKind.LIMIT, number, SECONDS.pack(seconds))

    def announce_start(self, number: int) -> None:
        """Send the start of a job that a rate has granted to the master."""
        self._frames.write(FrameKind.STARTED, number)

    def note(self, number: int, noted: Sequence[Effect]) -> None:
        """Send effects that are applied while the job of this delivery runs; from any thread of it."""
        self._frames.write_note(number, pack_note(effects.pack(noted)))

    def report(self, number: int, report: Report) -> None:
        """Send a report, or the ask of a job that has not started. Its slot is free."""
        if report.outcome is DONE:
            # Most jobs: a frame that always fits.
            self._frames.write_short(_OUTCOME, number, report.pack(self._numbers.get(report.job_class, 0)))
        elif report.outcome.fate is _ASK:
            self._ask(number, report)
        else:
            self._frames.write(_OUTCOME, number, self._packed(report))

    def report_all(self, reports: Iterable[tuple[int, Report]]) -> None:
        """Send several reports and asks, in as few writes as possible. Their slots are free."""
        outcomes = []
        for number, report in reports:
            if report.outcome.fate is _ASK:
                self._ask(number, report)
            else:
                outcomes.append((number, self._packed(report)))
        self._frames.write_outcomes(outcomes)

    def close(self) -> None:
        """Close the job socket and unmap the page."""
        self._jobs.close()
        self._page.close()
        os.close(self.stacks)

    def _packed(self, report: Report) -> bytes:
        """The payload of a frame. If an outcome fits in none, the job is dead, as it is stored."""
        handler = self._numbers.get(report.job_class, 0)
        try:
            packed = report.pack(handler)
            if len(packed) <= MAX_PAYLOAD:
                return packed
            reason = f"an outcome of {len(packed)} bytes"
        except (ValueError, struct.error, LookupError) as error:
            reason = text_with_class(error)[:500]
        log.error("job.unsettled", fate=report.outcome.fate.name.lower(), error=reason)
        return report._replace(outcome=BURIED).pack(handler)

    def _ask(self, number: int, report: Report) -> None:
        ask = report.outcome.payload
        if report.retiring:
            ask = replace(Ask.unpack(ask), retiring=True).pack()
        self._frames.write(FrameKind.ASK, number, ask)

    def _give_back(self, lost: FileLostError) -> None:
        """Give back a job whose file this process cannot open, and have the process replaced.

        Raises it for a worker task, which no queue has.
        """
        if lost.kind in jobsocket.WORKER_TASKS:
            raise lost
        log.warning("worker.spoiled", hint="a job is too large for the file descriptors that are left")
        self.report(lost.number, Report(REQUEUE, retiring=True))


class Intake:
    """The workers' end ``fd`` of the job socket, in one process; ``ranked`` if it is to have a rank.

    In a busy group, workers wait in turn: the kernel wakes the one that has waited longest. In a group that
    has little to do, they wait in rank: it wakes the first in rank of those that wait, so that one process
    runs most jobs, with warm caches. To wait in rank costs one system call more, and each packet costs some
    time for each process that has a rank and runs a job. Processes of the other modes have no rank: the first
    would have all jobs, and one core.
    """

    def __init__(self, fd: int, ranked: bool) -> None:
        """Raises OSError."""
        end = socket.socket(fileno=fd)
        self._jobs = JobSocket(end)
        # Opened now, so that ``detach`` works also when no descriptor is left.
        masters, self._nothing = pair()
        masters.close()
        self._rank = Rank(end) if ranked and Rank.available else None
        self._in_turn = True

    def fileno(self) -> int:
        """The descriptor of the job socket."""
        return self._jobs.fileno()

    def take(self, in_turn: bool) -> Packet | Unread | None:
        """Take the next packet, for which it waits; None at the end, or once detached.

        Without a rank, it waits in turn. Raises FileLostError and OSError, as ``JobSocket.receive`` does.
        """
        if in_turn is not self._in_turn:
            self._change(in_turn)
        if in_turn or (rank := self._rank) is None:
            return self._jobs.receive()
        return rank.take()

    def take_now(self) -> Packet | Unread | None:
        """Take the next packet, as ``take`` does. Raises BlockingIOError if there is none."""
        return self._jobs.receive(DONT_WAIT)

    def _change(self, in_turn: bool) -> None:
        self._in_turn = in_turn
        if (rank := self._rank) is not None:
            try:
                rank.leave() if in_turn else rank.enter()
            except OSError:  # a limit (epoll(7)), or a sandbox
                # A signal handler must not find it closed.
                self._rank = None
                rank.close()

    def detach(self) -> None:
        """Replace this process' end of the socket by one without packets: it takes none from now on.

        Safe in a signal handler: a packet that was received before is not lost, and the other processes that
        share the socket notice nothing. A wait in rank may still end with a packet.
        """
        with suppress(OSError):
            os.dup2(self._nothing.fileno(), self._jobs.fileno(), inheritable=False)
        if self._rank is not None:
            self._rank.end(self._nothing)

    def close(self) -> None:
        """Close the descriptors."""
        self._jobs.close()
        self._nothing.close()
        if self._rank is not None:
            self._rank.close()


class Rank:
    """A place among the processes that wait for the socket ``end``, kept from one wait to the next.

    Of those that wait, the kernel wakes the one that has had its place for longest: EPOLLEXCLUSIVE in
    epoll_ctl(2), seen with Linux 6.
    """

    available = hasattr(select, "EPOLLEXCLUSIVE")

    def __init__(self, end: socket.socket) -> None:
        """Raises OSError."""
        self._jobs = JobSocket(end.dup())
        self._epoll = select.epoll()
        self._ended = False

    def enter(self) -> None:
        """Take the last place. Raises OSError."""
        self._epoll.register(self._jobs, select.EPOLLIN | select.EPOLLEXCLUSIVE)

    def leave(self) -> None:
        """Give up the place. Raises OSError."""
        self._epoll.unregister(self._jobs)

    def take(self) -> Packet | Unread | None:
        """Take the next packet, for which it waits; None at the end. Raises FileLostError and OSError."""
        while not self._ended:
            self._epoll.poll()
            # Also if it has ended meanwhile: the kernel may have woken this process alone for a packet.
            with suppress(BlockingIOError):
                return self._jobs.receive(DONT_WAIT)
        return None

    def end(self, closed: JobSocket) -> None:
        """End the wait under way, by an end without another one. Safe in a signal handler."""
        self._ended = True
        with suppress(OSError):
            self._epoll.register(closed, select.EPOLLIN)

    def close(self) -> None:
        """Close the descriptors."""
        self._epoll.close()
        self._jobs.close()


class FrameWriter:
    """Writes into ``fd``, the outcome pipe of a group, for the worker with this number in it.

    Its frames never mix with frames of other workers: each write is atomic.
    """

    def __init__(self, fd: int, member: int) -> None:
        self._fd = fd
        self._member = member
        self._divided = threading.Lock()
        """Held while a note is written in parts, because several threads may have a note about one job."""

    def write(self, kind: FrameKind, number: int, payload: bytes = b"") -> None:
        """Send a message; waits while the pipe is full. Raises OSError, and ValueError for too much."""
        if fits(payload):
            self.write_short(kind, number, payload)
            return
        for data in pack(kind, self._member, number, payload):
            os.write(self._fd, data)
            hit("mid_frame")

    def write_short(self, kind: FrameKind, number: int, payload: bytes) -> None:
        """``write`` for a payload that fits into one frame."""
        hit("mid_frame")
        os.write(self._fd, pack_short(kind, self._member, number, payload))

    def write_note(self, number: int, payload: bytes) -> None:
        """``write`` for a NOTE. A request to end may be raised in the middle of it."""
        if fits(payload):
            self.write(FrameKind.NOTE, number, payload)
            return
        with self._divided:
            self.write(FrameKind.NOTE, number, payload)

    def write_outcomes(self, outcomes: Iterable[tuple[int, bytes]]) -> None:
        """Send several OUTCOME messages, of which a write holds as many as fit; as ``write``."""
        frames: list[bytes] = []
        size = 0
        for number, payload in outcomes:
            if not fits(payload):
                self.write(_OUTCOME, number, payload)
                continue
            frame = pack_short(_OUTCOME, self._member, number, payload)
            size += len(frame)
            if size > MAX_FRAME:
                self._write_together(frames)
                frames, size = [], len(frame)
            frames.append(frame)
        self._write_together(frames)

    def _write_together(self, frames: list[bytes]) -> None:
        if frames:
            hit("mid_frame")
            os.write(self._fd, b"".join(frames))
