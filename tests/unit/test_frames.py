"""Frames: a stream of bytes, cut anywhere, gives the frames that were written."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.ipc import frames
from pyworkers.ipc.frames import (
    HEADER_SIZE,
    MAX_FRAME,
    Frame,
    FrameKind,
    FrameReader,
    fits,
    pack,
    pack_note,
    pack_short,
    unpack_note,
)
from pyworkers.worker.connection import FrameWriter

KINDS = [kind for kind in FrameKind if kind not in (FrameKind.PART, FrameKind.NOTE_PART)]
LONGEST = MAX_FRAME - HEADER_SIZE
frame_lists = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=40)
    ),
    max_size=6,
)


@given(frame_lists, st.lists(st.integers(1, 30)))
def test_any_chunking_gives_the_same_frames(written: list[Frame], sizes: list[int]) -> None:
    stream = b"".join(data for frame in written for data in pack(*frame))
    reader, read = FrameReader(), []
    for size in [*sizes, len(stream)]:
        chunk, stream = stream[:size], stream[size:]
        read += reader.feed(chunk)
    read += reader.feed(stream)
    assert read == written
    assert not reader.incomplete
    assert reader.skipped == 0


def test_a_frame_that_stops_in_the_middle_is_kept() -> None:
    reader = FrameReader()
    whole = pack_short(FrameKind.OUTCOME, 3, 7, b"abc")
    assert reader.feed(whole[:-1]) == []
    assert reader.incomplete
    assert reader.feed(whole[-1:]) == [(FrameKind.OUTCOME, 3, 7, b"abc")]


def test_the_header_is_20_bytes_and_big_endian() -> None:
    assert HEADER_SIZE == 20
    head = b"\xffpw\xfe\x10\0\0\1\0\0\0\2\0\0\0\0\0\0\1\2"
    assert pack_short(FrameKind.READY, 2, 258, b"x") == head + b"x"


def test_a_payload_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_PAYLOAD", 3)
    assert b"".join(pack(FrameKind.OUTCOME, 0, 0, b"abc")).endswith(b"abc")
    with pytest.raises(ValueError, match="at most 3 bytes, not 4"):
        list(pack(FrameKind.OUTCOME, 0, 0, b"abcd"))


@pytest.mark.parametrize("size", [0, 1, LONGEST, LONGEST + 1, 3 * MAX_FRAME, 100_000])
def test_a_long_payload_is_divided_into_atomic_writes(size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + b"y" * (size % 256)
    writes = list(pack(FrameKind.OUTCOME, 5, 9, payload))
    assert max(map(len, writes)) <= MAX_FRAME
    assert fits(payload) == (len(writes) == 1)
    reader = FrameReader()
    assert [frame for data in writes for frame in reader.feed(data)] == [(FrameKind.OUTCOME, 5, 9, payload)]
    assert not reader.incomplete


def test_divided_payloads_of_several_workers_do_not_mix() -> None:
    first, second = (list(pack(FrameKind.OUTCOME, worker, 1, bytes([worker]) * 10_000)) for worker in (1, 2))
    reader = FrameReader()
    limit = pack_short(FrameKind.LIMIT, 1, 1, b"12345678")
    stream = [*(data for both in zip(first, second, strict=True) for data in both), limit]
    frames_read = [frame for data in stream for frame in reader.feed(data)]
    assert frames_read == [
        (FrameKind.OUTCOME, 1, 1, b"\1" * 10_000),
        (FrameKind.OUTCOME, 2, 1, b"\2" * 10_000),
        (FrameKind.LIMIT, 1, 1, b"12345678"),
    ]


def test_the_parts_of_a_dead_worker_are_forgotten() -> None:
    reader = FrameReader()
    for worker in (1, 2):
        for data in list(pack(FrameKind.OUTCOME, worker, 4, b"x" * 10_000))[:-1]:
            assert reader.feed(data) == []
    reader.forget(1)
    assert reader.incomplete
    reader.forget(2)
    assert not reader.incomplete


@pytest.mark.parametrize("written", [0, 1, 2, 3])
@pytest.mark.parametrize("size", [0, 1, LONGEST - 4, LONGEST, 10_000])
def test_a_note_is_whole_also_after_one_that_was_interrupted(written: int, size: int) -> None:
    reader, note = FrameReader(), b"n" * size
    torn = list(pack(FrameKind.NOTE, 1, 4, pack_note(b"x" * 20_000)))[:written]
    frames_read = [frame for data in torn for frame in reader.feed(data)]
    frames_read += [f for data in pack(FrameKind.NOTE, 1, 4, pack_note(note)) for f in reader.feed(data)]
    [(kind, worker, number, payload)] = frames_read
    assert (kind, worker, number, unpack_note(payload)) == (FrameKind.NOTE, 1, 4, note)
    assert not reader.incomplete


def test_an_interrupted_note_does_not_spoil_the_outcome_of_its_job() -> None:
    reader, outcome = FrameReader(), b"o" * 10_000
    torn = list(pack(FrameKind.NOTE, 1, 4, pack_note(b"x" * 10_000)))[:-1]
    stream = [*torn, *pack(FrameKind.OUTCOME, 1, 4, outcome)]
    assert [f for data in stream for f in reader.feed(data)] == [(FrameKind.OUTCOME, 1, 4, outcome)]
    assert not reader.incomplete


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\0\0\0\1", b"ab\0\0\0\3"])
def test_an_invalid_note_is_an_error(payload: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        unpack_note(payload)


GOOD = pack_short(FrameKind.OUTCOME, 1, 1, b"payload")


@pytest.mark.parametrize(
    "garbage",
    [b"text that is no frame", b"\n", b"\0" * 100, b"\xff\xff\xff", b"\xffpw\xfe" + b"\xee" * 20, GOOD[:3]],
)
def test_garbage_is_skipped_wherever_the_stream_is_cut(garbage: bytes) -> None:
    stream = GOOD + garbage + GOOD + GOOD
    for cut in range(len(stream)):
        reader = FrameReader()
        assert (
            reader.feed(stream[:cut]) + reader.feed(stream[cut:])
            == [(FrameKind.OUTCOME, 1, 1, b"payload")] * 3
        )
        assert reader.skipped == len(garbage)


@pytest.mark.parametrize(
    "sizes", [[16], [16] * 500, [], [16, LONGEST, 16], [16, 3 * LONGEST, 16, 16], [LONGEST] * 3]
)
def test_outcomes_share_atomic_writes(sizes: list[int]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    outcomes = [(number, b"x" * size) for number, size in enumerate(sizes)]
    with ours, theirs:
        FrameWriter(ours.fileno(), 7).write_outcomes(outcomes)
        ours.shutdown(socket.SHUT_WR)
        writes = list(iter(lambda: theirs.recv(1 << 20), b""))
    assert max(map(len, writes), default=0) <= MAX_FRAME
    reader = FrameReader()
    assert sorted(frame for data in writes for frame in reader.feed(data)) == [
        (FrameKind.OUTCOME, 7, number, payload) for number, payload in outcomes
    ]
    if set(sizes) == {16}:
        assert len(writes) == -(-len(sizes) // (MAX_FRAME // (HEADER_SIZE + 16)))
