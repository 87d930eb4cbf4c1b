"""Frames: a stream of bytes, cut anywhere, gives the frames that were written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.ipc import frames
from pyworkers.ipc.frames import HEADER_SIZE, Frame, Kind, Reader

frame_lists = st.lists(
    st.tuples(st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=6
)


@given(frame_lists, st.lists(st.integers(1, 30)))
def test_any_chunking_gives_the_same_frames(written: list[Frame], sizes: list[int]) -> None:
    stream = b"".join(frames.pack(*frame) for frame in written)
    reader, read = Reader(), []
    for size in [*sizes, len(stream)]:
        chunk, stream = stream[:size], stream[size:]
        read += reader.feed(chunk)
    read += reader.feed(stream)
    assert read == written
    assert not reader.incomplete


def test_a_frame_that_stops_in_the_middle_is_kept() -> None:
    reader = Reader()
    whole = frames.pack(Kind.JOB, 7, b"abc")
    assert reader.feed(whole[:-1]) == []
    assert reader.incomplete
    assert reader.feed(whole[-1:]) == [(Kind.JOB, 7, b"abc")]


def test_the_header_is_13_bytes_and_big_endian() -> None:
    assert HEADER_SIZE == 13
    assert frames.pack(Kind.READY, 258, b"x") == b"\0\0\0\1\x10\0\0\0\0\0\0\1\2x"


def test_a_payload_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_PAYLOAD", 3)
    assert frames.pack(Kind.JOB, 0, b"abc").endswith(b"abc")
    with pytest.raises(ValueError, match="at most 3 bytes, not 4"):
        frames.pack(Kind.JOB, 0, b"abcd")


def test_a_stream_that_went_wrong_stays_wrong() -> None:
    reader = Reader()
    for data in (b"text that is no frame", frames.pack(Kind.OUTCOME, 1, b"payload")):
        with pytest.raises(ValueError, match="not a frame"):
            reader.feed(data)


def test_a_reader_asks_for_little_until_it_knows_what_is_to_come() -> None:
    reader, read, asked = Reader(), list[Frame](), list[int]()
    stream = frames.pack(Kind.JOB, 7, b"x" * 200_000)
    while stream:
        asked.append(reader.wanted)
        read += reader.feed(stream[: asked[-1]])
        stream = stream[asked[-1] :]
    assert read == [(Kind.JOB, 7, b"x" * 200_000)]
    assert asked == [479, 65_536, 65_536, 65_536, 2_926]
    assert reader.wanted == 479
