"""JobPipe: the master's end of the pipe by which one worker gets its jobs.

Runs in the master's event loop. It never waits: what the pipe does not take now is sent when it has room.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Sequence


class JobPipe:
    """Owns ``fd``, a write end."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        self._unsent: list[memoryview] = []
        os.set_blocking(fd, False)

    def write(self, *parts: bytes) -> None:
        """Send now what the pipe takes, and the rest when it has room again."""
        if self._unsent:
            self._unsent += map(memoryview, parts)
            return
        sent = self._send(parts)
        if sent < sum(map(len, parts)):
            self._loop.add_writer(self._fd, self._send_rest)
            self._unsent = _after(sent, parts)

    def untaken(self) -> int:
        """How many bytes the worker has not read."""
        if self._fd < 0:
            return 0
        [in_pipe] = struct.unpack("i", fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)))
        return int(in_pipe) + sum(map(len, self._unsent))

    def close(self) -> None:
        """The worker gets no more jobs: it reads the end of the pipe."""
        if self._fd >= 0:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _send(self, parts: Sequence[bytes | memoryview]) -> int:
        """Write what the pipe takes without waiting; how many bytes that was."""
        try:
            return os.writev(self._fd, parts)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            # The worker died. What is unsent shows later that the job was not begun.
            self._loop.remove_writer(self._fd)
            return 0

    def _send_rest(self) -> None:
        self._unsent = _after(self._send(self._unsent), self._unsent)
        if not self._unsent:
            self._loop.remove_writer(self._fd)


def _after(sent: int, parts: Sequence[bytes | memoryview]) -> list[memoryview]:
    """What is left of parts whose first bytes were sent."""
    left = []
    for part in parts:
        if sent < len(part):
            left.append(memoryview(part)[sent:])
        sent = max(0, sent - len(part))
    return left
