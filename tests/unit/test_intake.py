"""How workers wait for jobs: in turn or in rank, until they are detached; no packet is lost or left."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NoReturn

import pytest

from pyworkers.ipc.jobsocket import LARGE, Packet, PacketKind, Unread, pair
from pyworkers.worker.connection import Intake, Rank
from tests.helpers.processes import leaving_no_descriptor, state
from tests.helpers.support import wait_for

ranks = pytest.mark.skipif(not Rank.available, reason="ranks are Linux's")
either_way = pytest.mark.parametrize("in_turn", [True, False])


class Ends:
    """The master's end, and any number of workers' ends."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._masters, self._workers = pair()
        for end in (self._masters, self._workers):
            self._stack.callback(end.close)

    def send(self, number: int, payload: bytes = b"{}") -> None:
        self._masters.send(*packet(number, payload))

    def workers_end(self) -> int:
        return os.dup(self._workers.fileno())

    def intake(self, ranked: bool = True) -> Intake:
        found = Intake(self.workers_end(), ranked)
        self._stack.callback(found.close)
        return found

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    with closing(Ends()) as found:
        yield found


def packet(number: int, payload: bytes = b"{}") -> Packet:
    return Packet(number, PacketKind.JOB, b"q", payload)


def take(intake: Intake, in_turn: bool) -> Packet | None:
    """The next packet, with its payload."""
    taken = intake.take(in_turn)
    return taken.read() if isinstance(taken, Unread) else taken


@pytest.mark.parametrize("ranked", [True, False])
@either_way
def test_it_waits_for_a_packet_and_takes_one_that_is_there(ends: Ends, in_turn: bool, ranked: bool) -> None:
    intake = ends.intake(ranked)
    sender = threading.Timer(0.05, ends.send, (1,))
    sender.start()
    assert take(intake, in_turn) == packet(1)
    sender.join()
    ends.send(2, b"x" * (LARGE + 1))
    assert take(intake, in_turn) == packet(2, b"x" * (LARGE + 1))
    with pytest.raises(BlockingIOError):
        intake.take_now()


def test_it_changes_between_turns_and_ranks_and_leaves_no_packet(ends: Ends) -> None:
    intake = ends.intake()
    for number in range(1, 9):
        ends.send(number)
        assert take(intake, in_turn=number % 3 == 0) == packet(number)


@either_way
def test_a_signal_ends_a_wait_by_detaching_it_and_the_others_read_on(ends: Ends, in_turn: bool) -> None:
    intake, other = ends.intake(), ends.intake()
    before = signal.signal(signal.SIGURG, lambda *_: intake.detach())
    main = threading.main_thread().ident or 0
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGURG))
    timer.start()
    try:
        assert intake.take(in_turn) is None
    finally:
        timer.join()
        signal.signal(signal.SIGURG, before)
    ends.send(5)
    assert intake.take(in_turn) is None
    assert take(other, in_turn) == packet(5)


@either_way
def test_a_detached_one_takes_none_and_leaves_the_next_to_the_others(ends: Ends, in_turn: bool) -> None:
    intake, other = ends.intake(), ends.intake()
    ends.send(1)
    ends.send(2)
    assert take(intake, in_turn) == packet(1)
    intake.detach()
    assert intake.take(in_turn) is None
    assert intake.take(not in_turn) is None
    assert take(other, in_turn) == packet(2)


class Readers:
    """Processes that wait in rank, the first one first; after a packet "busy", one waits for ``go_on``."""

    def __init__(self, ends: Ends, count: int) -> None:
        self._notes, self._note = os.pipe()
        os.set_blocking(self._notes, False)
        self._gates: list[int] = []
        self._pids: list[int] = []
        for reader in range(count):
            gate, opens = os.pipe()
            self._gates += (gate, opens)
            if (pid := os.fork()) == 0:
                self._read(ends, reader, gate)
            self._pids.append(pid)
            # A process may sleep for other reasons while it starts.
            wait_for(self._next_note)
            self._wait_until(reader, "S")

    def _read(self, ends: Ends, reader: int, gate: int) -> NoReturn:
        try:
            intake = ends.intake()
            signal.signal(signal.SIGURG, lambda *_: intake.detach())
            os.write(self._note, bytes([reader, 0]))
            while (got := take(intake, in_turn=False)) is not None:
                os.write(self._note, bytes([reader, got.number]))
                if got.payload == b"busy":
                    os.read(gate, 1)
        finally:
            os._exit(0)

    def took(self) -> tuple[int, int]:
        """Who took a packet, and its number; once that reader waits again, or is busy, or has left."""
        reader, number = wait_for(self._next_note)
        self._wait_until(reader, "SZ")
        return reader, number

    def _next_note(self) -> bytes | None:
        try:
            return os.read(self._notes, 2)
        except BlockingIOError:
            return None

    def suspend(self, reader: int) -> None:
        os.kill(self._pids[reader], signal.SIGSTOP)
        self._wait_until(reader, "T")

    def signal(self, reader: int, number: int) -> None:
        os.kill(self._pids[reader], number)

    def go_on(self, reader: int) -> None:
        os.write(self._gates[2 * reader + 1], b"1")
        self._wait_until(reader, "S")

    def _wait_until(self, reader: int, states: str) -> None:
        # It sleeps while it waits for a packet or is busy, and at no other time.
        wait_for(lambda: state(self._pids[reader]) in states or None)

    def close(self) -> None:
        for pid in self._pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for fd in (self._notes, self._note, *self._gates):
            os.close(fd)


@ranks
def test_it_takes_a_packet_that_comes_while_it_is_detached(ends: Ends) -> None:
    with closing(Readers(ends, 1)) as readers:
        readers.suspend(0)
        readers.signal(0, signal.SIGURG)
        # The kernel may have woken this reader alone for it: if it left, no other one would know.
        ends.send(1)
        readers.signal(0, signal.SIGCONT)
        assert readers.took() == (0, 1)


@ranks
def test_the_first_in_rank_is_woken_and_one_that_is_busy_is_passed_over(ends: Ends) -> None:
    with closing(Readers(ends, 3)) as readers:
        for number in range(1, 21):
            ends.send(number)
            assert readers.took() == (0, number)
        ends.send(21, b"busy")
        assert readers.took() == (0, 21)
        for number in range(22, 31):
            ends.send(number)
            assert readers.took() == (1, number)
        readers.go_on(0)
        ends.send(31)
        assert readers.took() == (0, 31)


@ranks
def test_each_packet_wakes_another_reader(ends: Ends) -> None:
    with closing(Readers(ends, 3)) as readers:
        for number in range(1, 4):
            ends.send(number, b"busy")
        found = [readers.took() for _ in range(3)]
        assert {reader for reader, _ in found} == {0, 1, 2}
        assert {number for _, number in found} == {1, 2, 3}


@ranks
def test_it_waits_in_turn_if_it_may_not_have_a_rank(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_rank: Rank) -> None:
        raise OSError(errno.ENOSPC, "")

    monkeypatch.setattr(Rank, "enter", refuse)
    intake = ends.intake()
    sender = threading.Timer(0.05, ends.send, (1,))
    sender.start()
    assert take(intake, in_turn=False) == packet(1)
    sender.join()
    ends.send(2)
    assert take(intake, in_turn=True) == packet(2)


@ranks
def test_it_leaves_no_descriptor(ends: Ends) -> None:
    with leaving_no_descriptor():
        intake = Intake(ends.workers_end(), ranked=True)
        ends.send(1)
        assert take(intake, in_turn=False) == packet(1)
        intake.close()
