"""OutcomePipe: the pipe into which all workers of a group write.

Runs in the master's event loop. Reading never blocks. While all workers have jobs to go on with, it reads at
intervals: each read interrupts the master, or a job that has the CPU, for a single outcome.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from pyworkers import logs
from pyworkers.ipc.frames import Frame, FrameReader

# The capacity of a pipe.
_READ = 65_536

log = logs.get_logger()


class OutcomePipe:
    """Calls ``on_frame`` for each message. Workers inherit ``write_end``, which stays open here.

    After each read, ``rest_s`` returns for how many seconds the next messages may wait.
    """

    def __init__(
        self, group: str, on_frame: Callable[[Frame], None], rest_s: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Raises OSError."""
        self._group = group
        self._on_frame = on_frame
        self._rest_s = rest_s
        self._resting: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader()
        self._skipped = 0
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)
        self._listen()

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
            if self._resting is not None:
                self._resting.cancel()
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            os.close(self.write_end)
            self._fd = -1

    def _listen(self) -> None:
        # One piece for each call: workers with large outcomes write as fast as this reads, and reading until
        # the pipe is empty would block the loop.
        self._loop.add_reader(self._fd, self._read_and_rest)

    def _read_and_rest(self) -> None:
        self._read()
        if self._fd >= 0 and (rest_s := self._rest_s()) > 0:
            self._loop.remove_reader(self._fd)
            self._resting = self._loop.call_later(rest_s, self._listen)

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
