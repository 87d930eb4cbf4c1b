"""What user code prints: whole lines, one write each, and no error for the text of another job."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers.worker.output import Lines


class Written(Lines):
    """Notes its writes instead."""

    def __init__(self) -> None:
        super().__init__(os.dup(2), "<test>")
        self.writes: list[bytes] = []

    def _send(self, line: bytes | bytearray) -> None:
        self.writes.append(bytes(line))


@pytest.fixture
def lines() -> Iterator[Written]:
    found = Written()
    yield found
    os.close(found.fileno())


def test_the_parts_of_a_line_are_one_write(lines: Written) -> None:
    for part in (b"a", b" ", b"b", b"\n", b"c\nd", b"\ne"):
        lines.write(part)
    assert lines.writes == [b"a b\n", b"c\n", b"d\n"]
    lines.flush()
    assert lines.writes[3:] == [b"e"]


def test_an_open_line_is_held_until_its_end(lines: Written) -> None:
    lines.hold()
    lines.write(b"50%")
    lines.flush()
    assert lines.writes == []
    lines.finish()
    lines.finish()
    assert lines.writes == [b"50%\n"]


def test_each_thread_has_its_own_line(lines: Written) -> None:
    lines.write(b"mine ")
    other = threading.Thread(target=lambda: lines.write(b"other\n"))
    other.start()
    other.join()
    lines.write(b"too\n")
    assert lines.writes == [b"other\n", b"mine too\n"]


def printed_by_a_thread(lines: Lines, *parts: bytes) -> None:
    other = threading.Thread(target=lambda: [lines.write(part) for part in parts])
    other.start()
    other.join()


def test_a_line_of_a_thread_that_has_ended_is_ended(lines: Written) -> None:
    lines.hold()
    printed_by_a_thread(lines, b"half")
    # It has the number of the one before, as a rule.
    printed_by_a_thread(lines, b"whole\n", b"second half")
    lines.finish()
    assert b"".join(lines.writes) in (b"half\nwhole\nsecond half\n", b"whole\nhalf\nsecond half\n")


@pytest.mark.parametrize("of_all", [False, True])
def test_a_line_of_a_thread_that_runs_is_ended_with_the_only_job(lines: Written, *, of_all: bool) -> None:
    lines.hold()
    begun, go_on = threading.Event(), threading.Event()

    def run() -> None:
        lines.write(b"one ")
        begun.set()
        go_on.wait(10)
        lines.write(b"two\n")

    other = threading.Thread(target=run)
    other.start()
    assert begun.wait(10)
    lines.finish(of_all=of_all)
    go_on.set()
    other.join()
    assert lines.writes == ([b"one \n", b"two\n"] if of_all else [b"one two\n"])


def test_a_long_line_is_one_write_up_to_a_bound(lines: Written) -> None:
    for part in (b"LINE ", b"y" * 200_000, b" END", b"\n"):
        lines.write(part)
    assert lines.writes == [b"LINE " + b"y" * 200_000 + b" END\n"]


def test_a_line_without_an_end_is_not_kept_for_ever(lines: Written) -> None:
    for _ in range(270):
        lines.write(b"x" * 1000)
    assert lines.writes == [b"x" * 263_000]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk is Linux's /dev/full")
def test_on_a_full_disk_only_the_line_of_its_writer_fails() -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    lines = Lines(fd, "<test>")
    lines.hold()
    with pytest.raises(OSError, match="No space left"):
        lines.write(b"an earlier job\n")
    lines.flush()
    lines.finish()
    os.close(fd)
