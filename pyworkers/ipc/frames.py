"""Frames: the messages of a group's workers, in the pipe that they share.

Pure; used by both sides. A frame is a header and a payload. Each is one write of at most PIPE_BUF bytes,
which the kernel never mixes with others (pipe(7)); a longer payload is divided among several. The header
names the worker and the delivery. Nothing here decodes a job.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Iterator
from enum import IntEnum

# No text contains these bytes: 0xFF and 0xFE are never part of UTF-8.
_MAGIC = b"\xffpw\xfe"
_HEADER = struct.Struct("!4sBxHIQ")
HEADER_SIZE = _HEADER.size
# A frame with a report without its own payload.
_BRIEF_PAYLOAD = 16
_BRIEF = struct.Struct(f"{_HEADER.format}{_BRIEF_PAYLOAD}s")
SECONDS = struct.Struct("!d")
"""The payload of a LIMIT frame."""
MAX_FRAME = select.PIPE_BUF
_MAX_PART = MAX_FRAME - HEADER_SIZE
# Redis holds 512 MiB in a value, and a report adds a few bytes. It adds no effects: a job above 128 MiB is
# refused without a run (envelope.MAX_BYTES).
MAX_PAYLOAD = 0x2000_0000 + 4096


class FrameKind(IntEnum):
    """The kind of a frame."""

    READY = 16
    """The worker has started; the number is its pid."""
    LIMIT = 17
    """The job has a time limit, which starts now."""
    OUTCOME = 18
    """The job has ended; the payload is a Report."""
    PART = 19
    """The next bytes of an OUTCOME, whose last ones are in another frame of the same worker and number."""
    NOTE = 20
    """What a running job writes to Redis: packed effects (protocol/effects), and their length before them."""
    NOTE_PART = 21
    """As PART, for a NOTE: a job that is interrupted may leave one unfinished, before its OUTCOME."""
    ASK = 22
    """The job starts only if its limits allow it; the payload is its Ask, which is never divided."""
    STARTED = 23
    """The job, which a rate has granted, starts now."""


Frame = tuple[FrameKind, int, int, bytes]
"""One message: kind, worker, number, payload."""
_OUTCOME = int(FrameKind.OUTCOME)
# The kind of the last frame of a divided payload, by the kind of its other frames; and the reverse.
_WHOLE = {FrameKind.PART: FrameKind.OUTCOME, FrameKind.NOTE_PART: FrameKind.NOTE}
_PARTS = {whole: part for part, whole in _WHOLE.items()}
_LENGTH = struct.Struct("!I")
# For look-ups, because FrameKind(number) takes twenty times as long.
_KINDS = {kind.value: kind for kind in FrameKind}


def pack(kind: FrameKind, worker: int, number: int, payload: bytes = b"") -> Iterator[bytes]:
    """The writes for one message. Raises ValueError for a payload over ``MAX_PAYLOAD``."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a frame holds at most {MAX_PAYLOAD} bytes, not {len(payload)}")
    last = max(0, len(payload) - 1) // _MAX_PART * _MAX_PART
    part_kind = _PARTS.get(kind, FrameKind.PART)
    for start in range(0, last, _MAX_PART):
        part = payload[start : start + _MAX_PART]
        yield _HEADER.pack(_MAGIC, part_kind, len(part), worker, number) + part
    yield pack_short(kind, worker, number, payload[last:])


def pack_short(kind: int, worker: int, number: int, payload: bytes) -> bytes:
    """One write for a message whose payload is short enough, as nearly all are: see ``fits``."""
    return _HEADER.pack(_MAGIC, kind, len(payload), worker, number) + payload


def pack_note(effects: bytes) -> bytes:
    """The payload of a NOTE frame."""
    return effects + _LENGTH.pack(len(effects))


def unpack_note(payload: bytes) -> bytes:
    """The inverse of ``pack_note``. What an unfinished note has left in front is dropped.

    Raises ValueError or struct.error for invalid bytes.
    """
    end = len(payload) - _LENGTH.size
    [length] = _LENGTH.unpack(payload[max(0, end) :])
    if length > end:
        raise ValueError("a note is cut off")
    return payload[end - length : end]


def fits(payload: bytes) -> bool:
    """True if a payload needs one frame."""
    return len(payload) <= _MAX_PART


def _brief_outcomes(data: bytes) -> list[Frame] | None:
    """The frames, if all are outcomes of jobs that succeeded, as nearly always; else None."""
    outcome = FrameKind.OUTCOME
    frames: list[Frame] = []
    for magic, kind, length, worker, number, payload in _BRIEF.iter_unpack(data):
        if magic != _MAGIC or kind != _OUTCOME or length != _BRIEF_PAYLOAD:
            return None
        frames.append((outcome, worker, number, payload))
    return frames


class FrameReader:
    """Cuts the bytes of the pipe into frames and puts divided payloads together.

    Other bytes are skipped, because a job may have written into the pipe; ``skipped`` counts them.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._parts: dict[tuple[int, int, FrameKind], bytearray] = {}
        self.skipped = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete with ``data``."""
        if self._rest:
            data = self._rest + data
        elif not (self._parts or len(data) % _BRIEF.size) and (brief := _brief_outcomes(data)):
            return brief
        frames: list[Frame] = []
        start, size = 0, len(data)
        while size - start >= HEADER_SIZE:
            magic, number, length, worker, delivery = _HEADER.unpack_from(data, start)
            kind = _KINDS.get(number)
            if magic != _MAGIC or kind is None or length > _MAX_PART:
                start = self._skip(data, start)
                continue
            end = start + HEADER_SIZE + length
            if end > size:
                break
            frame = (kind, worker, delivery, data[start + HEADER_SIZE : end])
            start = end
            if not self._parts and kind not in _WHOLE:
                frames.append(frame)
            elif whole := self._join(frame):
                frames.append(whole)
        self._rest = data[start:]
        return frames

    def forget(self, worker: int) -> None:
        """Drop the parts of a worker that has ended."""
        for key in [key for key in self._parts if key[0] == worker]:
            del self._parts[key]

    @property
    def incomplete(self) -> bool:
        """True if the bytes end inside a frame or a divided payload."""
        return bool(self._rest or self._parts)

    def _join(self, frame: Frame) -> Frame | None:
        """The frame with the parts before it; None if more are to come."""
        kind, worker, number, payload = frame
        if whole := _WHOLE.get(kind):
            parts = self._parts.setdefault((worker, number, whole), bytearray())
            if len(parts) <= MAX_PAYLOAD:
                parts += payload
            return None
        before = self._parts.pop((worker, number, kind), b"")
        if kind is FrameKind.OUTCOME:
            # The job has ended: the rest of its note never comes.
            self._parts.pop((worker, number, FrameKind.NOTE), None)
        return (kind, worker, number, bytes(before) + payload) if before else frame

    def _skip(self, data: bytes, start: int) -> int:
        """The place of the next bytes that may begin a frame."""
        found = data.find(_MAGIC, start + 1)
        # The last bytes may be the beginning of one.
        end = max(start + 1, len(data) - len(_MAGIC) + 1) if found < 0 else found
        self.skipped += end - start
        return end
