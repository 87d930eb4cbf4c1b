"""OutcomePipe: the pipe into which all workers of a group write.

Runs in the master's event loop. Reading never blocks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from pyworkers import logs
from pyworkers.ipc.frames import Frame, Reader

# The capacity of a pipe.
_READ = 65_536

log = logs.get_logger()


class OutcomePipe:
    """Calls ``on_frame`` for each message. Workers inherit ``write_end``, which stays open here."""

    def __init__(self, group: str, on_frame: Callable[[Frame], None]) -> None:
        """Raises OSError."""
        self._group = group
        self._on_frame = on_frame
        self._loop = asyncio.get_running_loop()
        self._reader = Reader()
        self._skipped = 0
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)
        # One piece for each call: workers with large outcomes write as fast as this reads, and reading until
        # the pipe is empty would block the loop.
        self._loop.add_reader(self._fd, self._read)

    def drain(self) -> None:
        """Read everything that the workers have written so far."""
        # One piece is all that a pipe holds. A job that writes garbage may fill it as fast as this reads.
        if self._fd >= 0:
            self._read()

    def forget(self, worker: int) -> None:
        """Drop the beginning of an outcome that a dead worker has not finished."""
        self._reader.forget(worker)

    def close(self) -> None:
        """Close both ends; a second call does nothing."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            os.close(self.write_end)
            self._fd = -1

    def _read(self) -> None:
        """Read one piece, if there is any."""
        try:
            data = os.read(self._fd, _READ)
        except BlockingIOError:
            return
        for frame in self._reader.feed(data):
            self._on_frame(frame)
        if self._reader.skipped != self._skipped:
            skipped, self._skipped = self._reader.skipped - self._skipped, self._reader.skipped
            log.error("outcomes.invalid", queue=self._group, bytes=skipped, hint="a job wrote into the pipe")
