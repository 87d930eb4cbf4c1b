"""Output: stdout and stderr of user code, which write whole lines, each by one write.

Set up in the fork server, before the application is imported; workers inherit it. All processes of a server
share these files, and Python writes the parts of one ``print`` apart, or ends a full buffer inside a line.
A pipe that is full, because no program reads it, delays a job only by more than a buffer.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from contextlib import suppress
from typing import Any

# An open line that is longer is written in parts: a program may print no newline at all. Its memory is used
# while it is open.
_LONGEST_LINE = 256 * 1024
# As many bytes wait for a full pipe, as in the buffer of Python.
_LATE = 8192


class _Thread(threading.local):
    """The thread that reads it; a later thread may have the same number."""

    def __init__(self) -> None:
        self.token = object()


class Lines(io.BufferedIOBase):
    """The bytes of a text stream. Each thread has its own open line, which is written with its newline."""

    def __init__(self, fd: int, name: str) -> None:
        super().__init__()
        self.raw = io.FileIO(fd, "w", closefd=False)
        self.name = name
        self._fd = fd
        # By the number of the thread.
        self._open: dict[int, tuple[object, bytearray]] = {}
        self._thread = _Thread()
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        self._late = b""
        self._lock = threading.Lock()
        # True: also a flush leaves an open line for its newline, which another process would write into.
        self._holds = False
        os.register_at_fork(after_in_child=self._forked)

    def hold(self) -> None:
        """Have ``flush`` write no open line from now on, except to a terminal; ``finish`` does."""
        self._holds = not self.raw.isatty()

    def _forked(self) -> None:
        # The other threads are not in this process; a fork of a job ends without ``finish``.
        mine = self._open.get(threading.get_ident())
        self._open = {} if mine is None else {threading.get_ident(): mine}
        self._holds = False
        # Another thread may have had the lock; what waits is written by the process that printed it.
        self._late, self._lock = b"", threading.Lock()

    def write(self, data: Any, /) -> int:
        """Write the lines that end in ``data``, and keep its rest. Raises OSError; they are lost then."""
        if self.closed:
            raise ValueError("write to closed file")
        text, thread = bytes(data), threading.get_ident()
        end = text.rfind(b"\n") + 1
        token = self._thread.token
        owner, begun = self._open.pop(thread, (token, bytearray()))
        if owner is not token:
            # The thread that began it has ended.
            self._send(begun + b"\n")
            begun = bytearray()
        # Added in place: a line may come in many small parts.
        begun += text[:end] if end else text
        whole, rest = (begun, bytearray(text[end:])) if end else (bytearray(), begun)
        if len(rest) > _LONGEST_LINE:
            whole, rest = whole + rest, bytearray()
        if rest:
            self._open[thread] = token, rest
        if whole:
            self._send(whole)
        return len(text)

    def flush(self) -> None:
        """Write the open line of this thread, unless it is held."""
        if self.closed:
            raise ValueError("flush of closed file")
        if self._late or (self._open and not self._holds):
            none = (None, b"")
            _, line = none if self._holds else self._open.pop(threading.get_ident(), none)
            self._send(line)

    def finish(self, *, of_all: bool = False) -> None:
        """End the open lines of this thread and of threads that have ended, or the lines of all threads.

        Raises OSError; the lines are lost then.
        """
        mine = threading.get_ident()
        # Usually there is no other line.
        running = set() if of_all or self._open.keys() <= {mine} else sys._current_frames().keys() - {mine}
        ending = [self._open.pop(thread, (None, b""))[1] for thread in [*self._open] if thread not in running]
        if whole := b"".join(line + b"\n" if self._holds else line for line in ending if line):
            self._send(whole)

    @property
    def waits(self) -> bool:
        """True if some text is not written."""
        return bool(self._open or self._late)

    @property
    def is_open(self) -> bool:
        """True if a thread has begun a line."""
        return bool(self._open)

    def _send(self, line: bytes | bytearray) -> None:
        with self._lock:
            data = self._late + line
            waits = len(data) <= _LATE and not self._room.poll(0)
            self._late = data if waits else b""
        if not waits:
            self._write(data)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                # Another program has set O_NONBLOCK for all that share the file.
                select.select([], [self._fd], [])

    def writable(self) -> bool:
        """True."""
        return True

    def isatty(self) -> bool:
        """True for a terminal."""
        return self.raw.isatty()

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd


_lines: list[Lines] = []


def set_up() -> None:
    """Have ``sys.stdout`` and ``sys.stderr`` write whole lines."""
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        try:
            lines = Lines(stream.fileno(), stream.name)
        except (AttributeError, OSError, ValueError):  # none, or one of the program's own
            continue
        stream.flush()
        text = io.TextIOWrapper(lines, stream.encoding, stream.errors, newline="\n", write_through=True)
        text.mode = "w"  # type: ignore[misc]
        setattr(sys, name, text)
        _lines.append(lines)


def are_lines(*streams: object) -> bool:
    """True if these are the streams that ``set_up`` has made."""
    try:
        return all(isinstance(getattr(stream, "buffer", None), Lines) for stream in streams)
    except ValueError:  # detached
        return False


def is_written() -> bool:
    """True if stdout and stderr, which ``are_lines``, are open and have no text that is not written."""
    stdout: Any = sys.stdout
    stderr: Any = sys.stderr
    try:
        return (
            not (stdout.closed or stdout.buffer.waits or stderr.closed or stderr.buffer.waits)
            and stdout.write_through
            and stderr.write_through
        )
    except ValueError:  # detached
        return False


def hold() -> None:
    """Keep open lines until their newline, or until ``finish``: for a worker, which finishes each job's."""
    for lines in _lines:
        lines.hold()


def finish(*, of_all: bool = False) -> None:
    """End the lines of this thread and of threads that have ended, or the lines of all threads.

    Text for which the disk has no room is dropped.
    """
    for lines in _lines:
        if lines.is_open:
            with suppress(OSError):
                lines.finish(of_all=of_all)
