"""An ordered queue on three servers, killed, frozen and stopped: exact order, and one job at a time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.helpers.ordered import Servers, active, fence, push, started
from tests.helpers.server_process import ServerProcess
from tests.helpers.support import PATIENCE_S, wait_for

# A lease that outlasts a stall of the machine.
LEASE_S = 6
LONG_S = 2 * PATIENCE_S


@pytest.fixture
def servers(tmp_path: Path, redis_url: str, namespace: str) -> Iterator[Servers]:
    some = Servers(tmp_path, redis_url, namespace)
    yield some
    some.kill()


def check(server: ServerProcess, *names: str) -> None:
    """The jobs ran in this order, one at a time; a token never went back.

    Only a job that has not ended may start again, and no other may start before it has ended.
    """
    runs = [name for place, name in enumerate(started(server)) if name != (["", *started(server)])[place]]
    assert runs == list(names)
    running, fences = None, [note[3] for note in server.ledger()]
    for pid, word, name, *_ in server.ledger():
        if word == "start":
            assert running is None or running[1] == name, f"{name} started while {running} ran"
            running = pid, name
        else:
            assert running == (pid, name)
            running = None
    assert fences == sorted(fences)
    wait_for(lambda: server.settled("ledger"), LONG_S)


def signal_all(server: ServerProcess, number: int) -> None:
    for pid in [server.pid, *server.tree()]:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@pytest.mark.fault("O1")
def test_o1_the_active_server_is_killed_in_the_middle_of_a_job(servers: Servers) -> None:
    first = servers.start(lease=LEASE_S)
    push(first, "a", "meet", *"bcd")
    first.wait_for_notes(1, "start", "meet")
    second, third = servers.start(lease=LEASE_S), servers.start(lease=LEASE_S)
    before = fence(first, "meet")
    os.kill(first.pid, signal.SIGKILL)
    second.wait_for_notes(2, "start", "meet", timeout=LONG_S)
    assert fence(second, "meet") > before
    assert len(second.events("queue.active") + third.events("queue.active")) == 1
    servers.let_go()
    second.wait_for_notes(1, "end", "d")
    check(second, "a", "meet", *"bcd")


@pytest.mark.fault("O2")
def test_o2_the_active_server_is_frozen_for_longer_than_its_lease(servers: Servers) -> None:
    first = servers.start(lease=LEASE_S)
    push(first, "a", "meet", *"bcd")
    [[frozen, *_]] = first.wait_for_notes(1, "start", "meet")
    second, _ = servers.start(lease=LEASE_S), servers.start(lease=LEASE_S)
    identity = active(second)
    signal_all(first, signal.SIGSTOP)
    second.wait_for_notes(2, "start", "meet", timeout=LONG_S)
    assert active(second) != identity
    signal_all(first, signal.SIGCONT)
    # It kills the worker before it does anything else.
    first.wait_for_event("lease.lost")
    wait_for(lambda: frozen not in first.tree())
    servers.let_go()
    second.wait_for_notes(1, "end", "d")
    push(second, *"ef")
    second.wait_for_notes(1, "end", "f")
    check(second, "a", "meet", *"bcdef")
    assert len(first.events("queue.active")) == 1


@pytest.mark.fault("O3")
@pytest.mark.parametrize("point", ["after_fetch", "before_dispatch", "before_settle", "after_settle"])
def test_o3_the_active_server_dies_between_two_steps(servers: Servers, point: str) -> None:
    first = servers.start(lease=LEASE_S, PYWORKERS_FAILPOINTS=f"{point}=kill@3")
    push(first, "a")
    first.wait_for_notes(1, "end", "a")
    second = servers.start(lease=LEASE_S)
    push(second, *"bcdefgh")
    first.wait(LONG_S)
    second.wait_for_notes(1, "end", "h", timeout=LONG_S)
    check(second, *"abcdefgh")
    assert second.events("queue.active") and fence(second, "h") > fence(second, "a")


@pytest.mark.fault("O3")
def test_o3_the_active_server_dies_while_it_gives_its_job_back(servers: Servers) -> None:
    first = servers.start(
        lease=LEASE_S, PYWORKERS_FAILPOINTS="mid_give_back=kill@1", PYWORKERS_SERVER__SHUTDOWN_TIMEOUT="1"
    )
    push(first, "meet", "a")
    first.wait_for_notes(1, "start", "meet")
    second = servers.start(lease=LEASE_S)
    first.signal(signal.SIGTERM)
    first.wait(LONG_S)
    servers.let_go()
    second.wait_for_notes(1, "end", "a", timeout=LONG_S)
    check(second, "meet", "a")


@pytest.mark.fault("O4")
def test_o4_the_connections_of_the_active_server_are_cut(servers: Servers) -> None:
    server = servers.start()
    expected = []
    for number in range(20):
        push(server, f"job{number}")
        expected.append(f"job{number}")
        for client in server.redis.client_list():
            if int(client["id"]) != server.redis.client_id():
                with suppress(Exception):
                    server.redis.client_kill_filter(_id=client["id"])
    server.wait_for_notes(1, "end", "job19", timeout=LONG_S)
    check(server, *expected)
