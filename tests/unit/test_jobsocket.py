"""The job socket: whole packets, each to one reader, of any size."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers.ipc.jobsocket import DONT_WAIT, LARGE, JobSocket, Packet, PacketKind, Unread, pair
from tests.helpers.processes import leaving_no_descriptor

Pair = tuple[JobSocket, JobSocket]


@pytest.fixture
def ends() -> Iterator[Pair]:
    both = pair()
    yield both
    for end in both:
        end.close()


def receive(workers: JobSocket, flags: int = 0) -> Packet | None:
    """The next packet, with its payload."""
    taken = workers.receive(flags)
    return taken.read() if isinstance(taken, Unread) else taken


def packet(number: int, payload: bytes = b"{}") -> Packet:
    return Packet(number, PacketKind.JOB, b"q", payload)


@pytest.mark.parametrize("size", [0, 1, LARGE, LARGE + 1, 5_000_000])
def test_a_packet_arrives_whole_and_leaves_no_descriptor(ends: Pair, size: int) -> None:
    masters, workers = ends
    with leaving_no_descriptor():
        sent = Packet(2**63, PacketKind.LOST, "Wörter".encode(), os.urandom(size))
        masters.send(*sent)
        assert receive(workers) == sent


def test_a_reader_waits_although_another_one_never_does(ends: Pair) -> None:
    masters, workers = ends
    # As uvloop does it in a process that shares the socket.
    os.set_blocking(workers.fileno(), False)
    sender = threading.Timer(0.05, masters.send, packet(1))
    sender.start()
    assert receive(workers) == packet(1)
    sender.join()


def test_packets_keep_their_order_and_the_socket_has_an_end(ends: Pair) -> None:
    masters, workers = ends
    sent = 0
    with pytest.raises(BlockingIOError):
        while True:
            masters.send(*packet(sent, b"x" * (LARGE if sent % 2 else 10)))
            sent += 1
    assert sent > 4
    for number in range(sent):
        received = receive(workers, DONT_WAIT)
        assert received is not None
        assert received.number == number
    with pytest.raises(BlockingIOError):
        receive(workers, DONT_WAIT)
    masters.send(*packet(1))
    masters.close()
    assert receive(workers) == packet(1)


def test_each_packet_has_one_reader(ends: Pair, tmp_path: Path) -> None:
    masters, workers = ends
    children = []
    for reader in range(3):
        if (pid := os.fork()) == 0:
            taken = []
            while (got := receive(workers)) is not None and got.number:
                taken.append(got.number)
            (tmp_path / str(reader)).write_text(" ".join(map(str, taken)))
            os._exit(0)
        children.append(pid)
    for number in range(1, 301):
        send(masters, packet(number))
    for _ in children:
        send(masters, packet(0))
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
    found = [int(word) for path in tmp_path.iterdir() for word in path.read_text().split()]
    assert sorted(found) == list(range(1, 301))


def send(masters: JobSocket, sent: Packet) -> None:
    while True:
        try:
            return masters.send(*sent)
        except BlockingIOError:
            os.sched_yield()


def test_a_large_job_whose_file_the_reader_cannot_open_is_an_error_and_no_empty_job(ends: Pair) -> None:
    masters, workers = ends
    masters.send(*packet(1, b"x" * (LARGE + 1)))
    masters.send(*packet(2, b""))
    with _no_more_descriptors(), pytest.raises(OSError, match="Too many open files") as caught:
        receive(workers)
    assert caught.value.errno == errno.EMFILE
    assert receive(workers) == packet(2, b"")


def test_a_large_job_is_withdrawn_by_its_number_also_without_descriptors(ends: Pair) -> None:
    masters, workers = ends
    with leaving_no_descriptor():
        for number in (1, 2):
            masters.send(*packet(number, b"x" * (LARGE + 1)))
        masters.send(*packet(3))
        assert workers.withdraw() == 1
        with _no_more_descriptors():
            assert workers.withdraw() == 2
        assert [workers.withdraw(), workers.withdraw()] == [3, None]


@contextlib.contextmanager
def _no_more_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
