"""FrameWriter: the messages of a worker to the master, in the outcome pipe of its group.

Runs in the worker process. It never mixes with the frames of other workers: each write is atomic.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from pyworkers.failpoints import hit
from pyworkers.ipc.frames import MAX_FRAME, Kind, fits, pack, pack_short

# Reading a member of an enum takes longer than comparing it.
_OUTCOME = Kind.OUTCOME


class FrameWriter:
    """Writes into ``fd`` for the worker with this number in its group."""

    def __init__(self, fd: int, member: int) -> None:
        self._fd = fd
        self._member = member
        self._divided = threading.Lock()
        """Held while a note is written in parts, because several threads may have a note about one job."""

    def write(self, kind: Kind, number: int, payload: bytes = b"") -> None:
        """Send a message; waits while the pipe is full. Raises OSError, and ValueError for too much."""
        if fits(payload):
            hit("mid_frame")
            os.write(self._fd, pack_short(kind, self._member, number, payload))
            return
        for data in pack(kind, self._member, number, payload):
            os.write(self._fd, data)
            hit("mid_frame")

    def write_note(self, number: int, payload: bytes) -> None:
        """``write`` for a NOTE. A request to end may be raised in the middle of it."""
        if fits(payload):
            self.write(Kind.NOTE, number, payload)
            return
        with self._divided:
            self.write(Kind.NOTE, number, payload)

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
