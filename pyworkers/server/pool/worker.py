"""Worker: the master's handle on one forked process, its three pipes and the job that it runs.

Runs in the master's event loop. It moves frames; what they mean is the pool's business.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import struct
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto

from pyworkers.failpoints import hit
from pyworkers.ipc.frames import Frame, Kind, Reader, header
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.proc import kill_family


class State(Enum):
    """Where a worker is in its life."""

    BOOTING = auto()
    IDLE = auto()
    BUSY = auto()
    LEAVING = auto()
    """Takes no more jobs; its job pipe is closed as soon as it is idle."""


@dataclass(slots=True)
class Delivery:
    """A job in the hands of a worker. ``raw`` is what LREM will remove."""

    number: int
    raw: bytes
    timed_out_s: float = 0.0
    errand: bool = False
    """Hooks to run for a job that is settled already, rather than a job."""
    tries: int = 0
    """How many workers it was handed to."""
    cancelled: str = ""
    """The job's id, once it is to be cancelled."""
    started_at: float = 0.0
    """When it was handed to the last of them, in epoch seconds."""


class Worker:
    """One forked process of one generation."""

    def __init__(
        self,
        number: int,
        queue: str,
        spawner: Spawner,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[Worker, Frame], None],
        on_end: Callable[[Worker], None],
    ) -> None:
        self.number = number
        self.spawner = spawner
        self.state = State.BOOTING
        self.pid = 0
        self.delivery: Delivery | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self.patience: asyncio.TimerHandle | None = None
        self.jobs_done = 0
        self.ended = False
        """Nothing comes from it any more: it has exited, is about to, or closed its pipe."""
        self.fault = ""
        """Why it was killed, where the signal does not say it."""
        self._loop = loop
        self._on_frame = on_frame
        self._on_end = on_end
        self._reader = Reader()
        self._nonsense = False
        self._unsent: list[memoryview] = []
        self._waiting: tuple[Delivery | None, int] = (None, 0)
        self._waiting_since = 0.0
        (jobs, self._jobs), (self._outcomes, outcomes), (lifeline, self._lifeline) = _pipes(3)
        os.set_blocking(self._jobs, False)
        os.set_blocking(self._outcomes, False)
        loop.add_reader(self._outcomes, self._readable)
        spawner.spawn(number, queue, (jobs, outcomes, lifeline))

    def hand(self, kind: Kind, delivery: Delivery) -> None:
        """Send a job; the worker is busy from now on."""
        hit("before_dispatch")
        self.delivery = delivery
        self.state = State.BUSY
        delivery.tries += 1
        delivery.started_at = time.time()
        self._write(header(kind, delivery.number, delivery.raw), delivery.raw)

    @property
    def untouched(self) -> bool:
        """True if the worker cannot have begun its job, because a part of it never left the pipe."""
        return self._untaken() > 0

    def _untaken(self) -> int:
        """How many bytes of its job it has not read."""
        if self._jobs < 0:
            return 0
        [in_pipe] = struct.unpack("i", fcntl.ioctl(self._jobs, termios.FIONREAD, bytes(4)))
        return int(in_pipe) + sum(map(len, self._unsent))

    def deaf_for_s(self) -> float:
        """For how long it has read nothing while a part of its job was waiting; from the first look on."""
        now = self._loop.time()
        waiting = (self.delivery, self._untaken())
        if not waiting[1] or waiting != self._waiting:
            self._waiting, self._waiting_since = waiting, now
        return now - self._waiting_since

    def drain(self) -> None:
        """Take all that the worker has written so far, but nothing that follows nonsense."""
        while not self._nonsense and self._read():
            pass

    def _readable(self) -> None:
        # One piece at a time: a worker with a large outcome writes as fast as this can read.
        self._read()

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
                self._on_frame(self, frame)
        except (ValueError, struct.error):
            self._nonsense = True
            self.fault = "wrote into its pipe what is no frame"
            self._end()
            self.kill()
        return True

    def _end(self) -> None:
        self._loop.remove_reader(self._outcomes)
        if not self.ended:
            self.ended = True
            self._on_end(self)

    def leave(self) -> None:
        """Take no more jobs: exit at once if idle, else after the job."""
        if self.state in (State.BOOTING, State.IDLE) or self.delivery is None:
            self._close_jobs()
        self.state = State.LEAVING

    def kill(self) -> None:
        """End the process, everything below it and what its job has started, now."""
        if self.pid:
            job = self.delivery
            kill_family(self.pid, time.time() - job.started_at if job else None)
        self._close_lifeline()

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if self.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)

    def release(self) -> None:
        """Close every descriptor: the process is gone."""
        self._loop.remove_reader(self._outcomes)
        self._close_jobs()
        self._close_lifeline()
        os.close(self._outcomes)
        for timer in (self.deadline, self.patience):
            if timer is not None:
                timer.cancel()

    def _write(self, *parts: bytes) -> None:
        """Send now what the pipe takes, and the rest when it has room again."""
        if self._unsent:
            self._unsent += map(memoryview, parts)
            return
        sent = self._send(parts)
        if sent < sum(map(len, parts)):
            self._loop.add_writer(self._jobs, self._send_rest)
            self._unsent = _after(sent, parts)

    def _send(self, parts: Sequence[bytes | memoryview]) -> int:
        """Write what the pipe takes without waiting; how many bytes that was."""
        try:
            return os.writev(self._jobs, parts)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            # The worker died. What is unsent shows later that the job was not begun.
            self._loop.remove_writer(self._jobs)
            return 0

    def _send_rest(self) -> None:
        self._unsent = _after(self._send(self._unsent), self._unsent)
        if not self._unsent:
            self._loop.remove_writer(self._jobs)

    def _close_jobs(self) -> None:
        if self._jobs >= 0:
            self._loop.remove_writer(self._jobs)
            os.close(self._jobs)
            self._jobs = -1

    def _close_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _after(sent: int, parts: Sequence[bytes | memoryview]) -> list[memoryview]:
    """What is left of parts whose first bytes were sent."""
    left = []
    for part in parts:
        if sent < len(part):
            left.append(memoryview(part)[sent:])
        sent = max(0, sent - len(part))
    return left


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
