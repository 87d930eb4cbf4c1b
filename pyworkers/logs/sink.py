"""Sink: writes the lines of the log to a stream, and drops those for which it has no room.

Used by ``logs``. It never blocks for longer than its patience, and raises nothing.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from typing import TextIO


class Sink:
    """The destination of lines: each is one write, or is dropped.

    It has its own descriptor, so that a job which puts another file in the place of stderr does not
    silence it. The master must not block, so pipes and terminals are opened again, non-blocking: O_NONBLOCK
    on the stderr that the process was given would be set for every process that shares it.
    """

    def __init__(
        self, stream: TextIO | None, patience_ms: int, report_dropped: Callable[[int], None]
    ) -> None:
        self._stream = stream
        self._patience_ms = patience_ms
        self._report_dropped = report_dropped
        self._stream_fd = _fileno(stream)
        self._own_fd, self._is_non_blocking = _open_again(self._stream_fd)
        self._is_file = _is_file(self._stream_fd)
        self._dropped = 0
        self._torn = False
        self.is_terminal = self._stream_fd is not None and os.isatty(self._stream_fd)

    def write(self, line: str) -> None:
        """Write ``line`` and a newline, or count it as dropped; the next success reports the number."""
        try:
            complete = self._send(f"{line}\n")
        except (OSError, ValueError):  # closed, reset, full; a closed Python stream raises ValueError
            complete = False
        if not complete:
            self._dropped += 1
        elif self._dropped:
            count, self._dropped = self._dropped, 0
            self._report_dropped(count)

    debug = info = warning = error = critical = write

    def close(self) -> None:
        """Close the descriptor opened here; a logger that is still bound to this sink uses the stream."""
        own, self._own_fd, self._is_non_blocking = self._own_fd, None, False
        if own is not None and _is_same_file(own, self._stream_fd):
            os.close(own)

    def _send(self, line: str) -> bool:
        fd = self._stream_fd if self._own_fd is None else self._own_fd
        if fd is None:
            return self._send_without_fd(line)
        # If only a part of the last line was written, end that line first.
        data = ("\n" * self._torn + line).encode(errors="backslashreplace")
        written = 0
        try:
            while written < len(data) and (sent := self._write(fd, data[written:])):
                written += sent
        finally:
            self._torn = written < len(data) if written else self._torn
        return written == len(data)

    def _write(self, fd: int, data: bytes) -> int:
        """The number of bytes written; 0 if a write would block, now and for the patience that is left."""
        if self._is_file or self._is_non_blocking:
            # Nearly always there is room, and a look before each line would take a tenth of its time.
            try:
                return os.write(fd, data)
            except BlockingIOError:
                pass
        return os.write(fd, data) if _is_writable(fd, 0 if self._dropped else self._patience_ms) else 0

    def _send_without_fd(self, line: str) -> bool:
        if self._stream is not None:  # None is Python's stderr in a process that was started without one
            self._stream.write(line)
            self._stream.flush()
        return True


def _fileno(stream: TextIO | None) -> int | None:
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):  # held in memory, or closed
        return None


def _open_again(fd: int | None) -> tuple[int | None, bool]:
    """The file once more, and True for a pipe or terminal, non-blocking; None if that is impossible."""
    try:
        if fd is None:
            return None, False
        mode = os.fstat(fd).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            return os.dup(fd), False
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY), True
    except OSError:  # no /proc, or opened by another user: only `_is_writable` keeps a write from blocking
        return None, False


def _is_file(fd: int | None) -> bool:
    """True for a regular file: a write to it never waits for a reader."""
    try:
        return fd is not None and stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return False


def _is_writable(fd: int, patience_ms: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(patience_ms))


def _is_same_file(fd: int, other: int | None) -> bool:
    """True if both are one open file. A child may have closed unknown descriptors and reused the number."""
    try:
        return other is not None and os.path.sameopenfile(fd, other)
    except OSError:
        return False
