"""Frames: what travels through the pipes between master and worker.

Pure; used by both sides. A frame is a header and a payload. The header holds the payload's length, the kind,
and the *delivery id*, by which several jobs of one worker can be told apart. Bytes only: nothing here decodes
a job.
"""

from __future__ import annotations

import struct
from enum import IntEnum

_HEADER = struct.Struct("!IBQ")
HEADER_SIZE = _HEADER.size
SECONDS = struct.Struct("!d")
"""The payload of a LIMIT frame."""
# Redis holds 512 MiB in a value; a report has a few bytes around one. Any text that a job writes into its
# worker's pipe begins, read as a length, above 0x2020_2020, and is thereby known for what it is.
MAX_PAYLOAD = 0x2000_0000 + 4096


class Kind(IntEnum):
    """What a frame says. The first group goes to a worker, the second comes from it."""

    JOB = 1
    """Run this job; the payload is its bytes."""
    EXHAUSTED = 2
    """Run the exhaustion hooks for a job that was lost with its worker."""

    READY = 16
    """The worker has started; the delivery id is its pid."""
    LIMIT = 17
    """The job has a time limit, which starts now."""
    OUTCOME = 18
    """The job is over; the payload is a Report."""


Frame = tuple[Kind, int, bytes]
# Python makes an object of the size that is to be read, and then a smaller one of what was there. One of 512
# bytes at most, 33 of them overhead, comes from its own allocator, which is many times faster.
_SMALL_READ = 479
# What a pipe holds.
_LARGE_READ = 65_536
# Kind(number) takes twenty times as long.
_KINDS = {kind.value: kind for kind in Kind}


def header(kind: Kind, delivery: int, payload: bytes) -> bytes:
    """What goes before a payload. Raises ValueError for one over ``MAX_PAYLOAD``."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a frame holds at most {MAX_PAYLOAD} bytes, not {len(payload)}")
    return _HEADER.pack(len(payload), kind, delivery)


def pack(kind: Kind, delivery: int, payload: bytes = b"") -> bytes:
    """One frame as bytes. Raises ValueError for a payload over ``MAX_PAYLOAD``."""
    return header(kind, delivery, payload) + payload


class Reader:
    """Cuts a byte stream into frames; keeps what is incomplete until the rest comes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with ``data``. Raises ValueError for what is none, and ever after."""
        if not self._buffer:
            # Nearly always whole frames: nothing to keep.
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
        """How many bytes to read next: few, unless more is known to come."""
        if len(self._buffer) < HEADER_SIZE:
            return _SMALL_READ
        length: int = _HEADER.unpack_from(self._buffer)[0]
        return min(max(_SMALL_READ, HEADER_SIZE + length - len(self._buffer)), _LARGE_READ)

    @property
    def incomplete(self) -> bool:
        """True when the stream stopped in the middle of a frame."""
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
