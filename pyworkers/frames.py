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


def pack(kind: Kind, delivery: int, payload: bytes = b"") -> bytes:
    """One frame as bytes. Raises ValueError for a payload over ``MAX_PAYLOAD``."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a frame holds at most {MAX_PAYLOAD} bytes, not {len(payload)}")
    return _HEADER.pack(len(payload), kind, delivery) + payload


class Reader:
    """Cuts a byte stream into frames; keeps what is incomplete until the rest comes."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with ``data``. Raises ValueError for what cannot be one."""
        self._buffer += data
        frames: list[Frame] = []
        start = 0
        while len(self._buffer) - start >= HEADER_SIZE:
            length, number, delivery = _HEADER.unpack_from(self._buffer, start)
            kind = Kind(number)
            if length > MAX_PAYLOAD:
                raise ValueError(f"a frame holds at most {MAX_PAYLOAD} bytes, not {length}")
            end = start + HEADER_SIZE + length
            if end > len(self._buffer):
                break
            frames.append((kind, delivery, bytes(self._buffer[start + HEADER_SIZE : end])))
            start = end
        del self._buffer[:start]
        return frames

    @property
    def incomplete(self) -> bool:
        """True when the stream stopped in the middle of a frame."""
        return bool(self._buffer)
