"""Frames: the units of the byte streams in the pipes between master and worker.

Pure; used by both sides. A frame is a header and a payload. The header holds the payload's length, the kind,
and the number of the delivery, which tells several jobs of one worker apart. Nothing here decodes a job.
"""

from __future__ import annotations

import struct
from enum import IntEnum

_HEADER = struct.Struct("!IBQ")
HEADER_SIZE = _HEADER.size
SECONDS = struct.Struct("!d")
"""The payload of a LIMIT frame."""
# Redis holds 512 MiB in a value, and a report adds a few bytes. It adds no effects: a job above 128 MiB is
# refused without a run (envelope.MAX_BYTES). Text that a job writes into its worker's pipe is refused:
# four printable characters, read as a length, are at least 0x2020_2020.
MAX_PAYLOAD = 0x2000_0000 + 4096


class Kind(IntEnum):
    """The kind of a frame. The first group goes to a worker, the second comes from it."""

    JOB = 1
    """Run this job; the payload is its bytes."""
    EXHAUSTED = 2
    """Run the exhaustion hooks for a job that was lost with its worker."""

    READY = 16
    """The worker has started; the delivery id is its pid."""
    LIMIT = 17
    """The job has a time limit, which starts now."""
    OUTCOME = 18
    """The job has ended; the payload is a Report."""


Frame = tuple[Kind, int, bytes]
# os.read allocates an object of the size asked for, and then a smaller one. Objects of up to 512 bytes, 33 of
# them overhead, come from Python's own allocator, which is many times faster.
_SMALL_READ = 479
# The capacity of a pipe.
_LARGE_READ = 65_536
# For look-ups, because Kind(number) takes twenty times as long.
_KINDS = {kind.value: kind for kind in Kind}


def header(kind: Kind, delivery: int, payload: bytes) -> bytes:
    """The header of a payload. Raises ValueError for a payload over ``MAX_PAYLOAD``."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a frame holds at most {MAX_PAYLOAD} bytes, not {len(payload)}")
    return _HEADER.pack(len(payload), kind, delivery)


def pack(kind: Kind, delivery: int, payload: bytes = b"") -> bytes:
    """One frame as bytes. Raises ValueError for a payload over ``MAX_PAYLOAD``."""
    return header(kind, delivery, payload) + payload


class Reader:
    """Cuts a byte stream into frames; keeps an incomplete frame until the rest arrives."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with ``data``.

        Raises ValueError for malformed input; the reader is then unusable.
        """
        if not self._buffer:
            # Nearly always, the data is whole frames, and nothing is left to keep.
            try:
                frames, end = _cut(data)
            except ValueError:
                self._buffer += data
                raise
            if end < len(data):
                self._buffer += memoryview(data)[end:]
        else:
            self._buffer += data
            frames, end = _cut(self._buffer)
            del self._buffer[:end]
        return frames

    @property
    def wanted(self) -> int:
        """How many bytes to read next: few, unless the rest of a frame is outstanding."""
        if len(self._buffer) < HEADER_SIZE:
            return _SMALL_READ
        length: int = _HEADER.unpack_from(self._buffer)[0]
        return min(max(_SMALL_READ, HEADER_SIZE + length - len(self._buffer)), _LARGE_READ)

    @property
    def incomplete(self) -> bool:
        """True if the stream has stopped inside a frame."""
        return bool(self._buffer)


def _cut(data: bytes | bytearray) -> tuple[list[Frame], int]:
    """The complete frames at the beginning, and where they end."""
    frames: list[Frame] = []
    start, size = 0, len(data)
    while size - start >= HEADER_SIZE:
        length, number, delivery = _HEADER.unpack_from(data, start)
        kind = _KINDS.get(number)
        if kind is None or length > MAX_PAYLOAD:
            raise ValueError(f"not a frame: kind {number}, {length} bytes (at most {MAX_PAYLOAD})")
        end = start + HEADER_SIZE + length
        if end > size:
            break
        frames.append((kind, delivery, bytes(data[start + HEADER_SIZE : end])))
        start = end
    return frames, start
