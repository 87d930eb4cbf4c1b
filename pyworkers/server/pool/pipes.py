"""Pipes: the master's ends of the job pipe and the outcome pipe of one worker.

Runs in the master's event loop. They never block: the rest of a job is sent when its pipe has room again.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import struct
import termios
from collections.abc import Callable, Sequence

from pyworkers.ipc.frames import Frame, Reader


def open_pipes(count: int) -> list[tuple[int, int]]:
    """Open this many pipes, or none at all. Raises OSError."""
    pipes: list[tuple[int, int]] = []
    try:
        while len(pipes) < count:
            pipes.append(os.pipe())
    except OSError:
        for fd in itertools.chain(*pipes):
            os.close(fd)
        raise
    return pipes


class JobPipe:
    """Sends jobs to the worker; owns ``fd``, a write end."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._unsent: list[memoryview] = []
        self._stalled = (0, 0)
        self._stalled_since = 0.0
        os.set_blocking(fd, False)

    def write(self, *parts: bytes) -> None:
        """Send as much as the pipe takes now, and the rest when it has room again."""
        if self._unsent:
            self._unsent += map(memoryview, parts)
            return
        sent = self._send(parts)
        if sent < sum(map(len, parts)):
            self._loop.add_writer(self._fd, self._send_rest)
            self._unsent = _after(sent, parts)

    def unread(self) -> int:
        """The number of bytes that the worker has not read."""
        if self._fd < 0:
            return 0
        [in_pipe] = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))
        return int(in_pipe) + sum(map(len, self._unsent))

    def stalled_s(self, job: int) -> float:
        """Seconds for which part of this job is unread and the worker reads nothing; 0 at the first call."""
        now, stalled = self._loop.time(), (job, self.unread())
        if not stalled[1] or stalled != self._stalled:
            self._stalled, self._stalled_since = stalled, now
        return now - self._stalled_since

    def close(self) -> None:
        """Close the pipe: the worker gets no more jobs."""
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _send(self, parts: Sequence[bytes | memoryview]) -> int:
        """Write as much as the pipe takes without blocking; returns the number of bytes."""
        try:
            return os.writev(self._fd, parts)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            # The worker died. The unsent bytes show later that the job was not begun.
            self._loop.remove_writer(self._fd)
            return 0

    def _send_rest(self) -> None:
        self._unsent = _after(self._send(self._unsent), self._unsent)
        if not self._unsent:
            self._loop.remove_writer(self._fd)


class OutcomePipe:
    """Reads frames from the worker; owns ``fd``, a read end.

    ``on_frame`` gets each frame, and raises ValueError or struct.error for an invalid one. ``on_end`` is
    called with True after an invalid frame, and with False at the end of the pipe, perhaps more than once.
    """

    def __init__(
        self,
        fd: int,
        loop: asyncio.AbstractEventLoop,
        on_frame: Callable[[Frame], None],
        on_end: Callable[[bool], None],
    ) -> None:
        self._fd = fd
        self._loop = loop
        self._on_frame = on_frame
        self._on_end = on_end
        self._reader = Reader()
        self._invalid = False
        os.set_blocking(fd, False)
        # One piece for each call: a worker with a large outcome writes as fast as this reads, and reading
        # until the pipe is empty would block the loop.
        loop.add_reader(fd, self._read)

    def drain(self) -> None:
        """Read everything that the worker has written so far, but nothing after an invalid frame."""
        while not self._invalid and self._read():
            pass

    def close(self) -> None:
        """Read nothing more."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> bool:
        """Read one piece; False if there was none."""
        try:
            data = os.read(self._fd, self._reader.wanted)
        except BlockingIOError:
            return False
        if not data:
            self._end()
            return False
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except (ValueError, struct.error):
            self._invalid = True
            self._end()
        return True

    def _end(self) -> None:
        self._loop.remove_reader(self._fd)
        self._on_end(self._invalid)


def _after(sent: int, parts: Sequence[bytes | memoryview]) -> list[memoryview]:
    """The rest of these parts after the first ``sent`` bytes."""
    left = []
    for part in parts:
        if sent < len(part):
            left.append(memoryview(part)[sent:])
        sent = max(0, sent - len(part))
    return left
