"""Faults of masters. Rows M3, M4, M5 and M7 are proved in tests/system."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from pyworkers.server.recovery import PORTION
from tests.faults.fleet import APP, Fleet
from tests.faults.ledger import clock
from tests.helpers.processes import process_alive
from tests.helpers.replies import as_list
from tests.helpers.support import PATIENCE_S, stretched, wait_for


@pytest.mark.fault("M1")
@pytest.mark.lengthy
@pytest.mark.timeout(200)
def test_m1_with_the_default_lease_jobs_run_again_within_sixty_seconds(fleet: Fleet) -> None:
    dying, peer = fleet.server(lease=30), fleet.server(lease=30, start=False)
    jids = [fleet.enqueue("meet", "go") for _ in range(3)]
    fleet.wait_for_notes(3, "start")
    peer.start(app=APP)
    killed = clock()
    os.kill(dying.pid, signal.SIGKILL)
    dying.vanish(timeout=stretched(2))
    fleet.wait_for_notes(6, "start", timeout=2 * PATIENCE_S)
    assert max(note.time for note in fleet.ledger.notes("start")) - killed < stretched(60)
    fleet.go()
    fleet.rest()
    fleet.stop()
    fleet.check(extra_runs=dict.fromkeys(jids, 1))


@pytest.mark.fault("M2")
@pytest.mark.parametrize("place", ["after_fetch", "before_dispatch"])
def test_m2_killed_between_fetch_and_dispatch_the_jobs_run_on_a_peer_for_the_first_time(
    fleet: Fleet, place: str
) -> None:
    fleet.server(failpoints=f"{place}=kill@3")
    _die_and_be_replaced(fleet, place)
    # At most those that ran when the master died, which had three workers.
    runs = fleet.ledger.runs()
    again = [jid for jid in runs if len(runs[jid]) > 1]
    assert len(again) <= 3
    fleet.check(extra_runs=dict.fromkeys(again, 1))


@pytest.mark.fault("M2")
def test_m2_killed_before_settling_the_jobs_run_twice_and_that_is_logged(fleet: Fleet) -> None:
    fleet.server(failpoints="before_settle=kill@3", concurrency=1)
    _die_and_be_replaced(fleet, "before_settle")
    runs = fleet.ledger.runs()
    [twice] = [jid for jid in runs if len(runs[jid]) > 1]
    assert all(run.end is not None for run in runs[twice])
    fleet.check(extra_runs={twice: 1})
    assert sum(event["jobs"] for event in fleet.events("process.recovered")) == 1


@pytest.mark.fault("M2")
def test_m2_killed_after_settling_nothing_runs_twice(fleet: Fleet) -> None:
    fleet.server(failpoints="after_settle=kill@3", concurrency=1)
    _die_and_be_replaced(fleet, "after_settle")
    # What was fetched in the same call had not begun.
    fleet.check(extra_runs=0)


def _die_and_be_replaced(fleet: Fleet, place: str) -> None:
    [dying] = fleet.servers
    for _ in range(30):
        fleet.enqueue("work", 0.01)
    dying.wait_for_failpoint(place)
    dying.vanish(timeout=stretched(5))
    fleet.server()
    fleet.rest()
    fleet.stop()


@pytest.mark.lengthy
@pytest.mark.fault("M2")
@pytest.mark.parametrize("place", ["mid_recover", "mid_give_back"])
def test_m2_killed_while_jobs_are_given_back_each_is_given_back_once(fleet: Fleet, place: str) -> None:
    victim = fleet.server(failpoints=f"{place}=kill" if place == "mid_give_back" else "")
    jids = [fleet.enqueue("meet", "go") for _ in range(3)]
    fleet.wait_for_notes(3, "start")
    if place == "mid_give_back":
        victim.signal(signal.SIGTERM)
    else:
        os.kill(victim.pid, signal.SIGKILL)
    victim.vanish()
    if place == "mid_recover":
        victim = fleet.server(failpoints="mid_recover=kill")
        victim.vanish()
    assert victim.fired_at(place)
    fleet.go()
    fleet.server()
    fleet.rest()
    fleet.stop()
    # The one that dies while it recovers may have begun what it gave back, before the step was over.
    fleet.check(extra_runs=dict.fromkeys(jids, 2 if place == "mid_recover" else 1))


@pytest.mark.fault("M6")
def test_m6_after_an_outage_of_all_servers_everything_is_recovered_and_no_job_blamed(fleet: Fleet) -> None:
    dead = [fleet.server() for _ in range(2)]
    jids = [fleet.enqueue("meet", "go") for _ in range(6)]
    fleet.wait_for_notes(6, "start")
    for server in dead:
        os.kill(server.pid, signal.SIGKILL)
    for server in dead:
        server.vanish()
    # A larger crew than ours leaves more behind than is moved in one step.
    [identity, *_] = as_list(fleet.redis.hkeys(fleet.keys.owners))
    names = fleet.client.enqueue_bulk("q", "work", [[] for _ in range(3 * PORTION)])
    for jid in names:
        fleet.ledger.note("enqueued", jid)
    held = fleet.keys.inprogress("q", identity.decode())
    while fleet.redis.lmove(fleet.keys.queue("q"), held, "RIGHT", "LEFT"):
        pass
    # An hour later: every lease has run out.
    wait_for(
        lambda: not list(fleet.redis.scan_iter(f"{fleet.namespace}pyworkers:lease:*")), message="no lease"
    )
    fleet.go()
    heir = fleet.server()
    fleet.wait_for_notes(len(names) + len(jids), "end")
    fleet.rest()
    fleet.stop()
    assert sum(event["jobs"] for event in heir.events("process.recovered")) == len(names) + len(jids)
    assert {tuple(note.about) for note in fleet.ledger.notes("start")} == {(0, 0)}
    fleet.check(extra_runs=dict.fromkeys(jids, 1))


@pytest.mark.fault("M8")
@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_m8_a_log_without_a_reader_delays_nothing(fleet: Fleet, kind: str) -> None:
    server = fleet.server(start=False)
    reading, writing = os.pipe() if kind == "pipe" else os.openpty()
    full = _fill(writing) if kind == "pipe" else 0
    server.start_with_log(writing, app=APP)
    os.close(writing)
    try:
        began = time.monotonic()
        for number in range(300):
            # One in ten prints a little, which fits into the stream's buffer but no longer into the pipe.
            # To a terminal every line goes at once, and the job itself waits.
            fleet.enqueue("chat" if kind == "pipe" and number % 10 == 0 else "work")
        fleet.wait_for_notes(300, "end")
        fleet.rest()
        # 300 jobs write two lines of 300 bytes each; there was room for little or nothing of it.
        assert full <= _unread(reading) < full + 300 * 300
        assert time.monotonic() - began < stretched(40)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        fleet.check()
    finally:
        os.close(reading)


def _fill(pipe: int) -> int:
    """Leave no room for a single byte; how many are in there."""
    os.set_blocking(pipe, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(pipe, b"x")
    os.set_blocking(pipe, True)
    return filled


def _unread(reading: int) -> int:
    os.set_blocking(reading, False)
    return len(os.read(reading, 1 << 20))


@pytest.mark.fault("M13")
@pytest.mark.parametrize("failpoint", ["", "mid_give_back=kill"])
def test_m13_a_second_ctrl_c_leaves_every_job_for_a_peer(fleet: Fleet, failpoint: str) -> None:
    server, peer = fleet.server(failpoints=failpoint), fleet.server(start=False)
    jids = [fleet.enqueue("meet", "go") for _ in range(5)]
    fleet.wait_for_notes(3, "start")
    tree = server.tree()
    # As a terminal does it: to the whole process group.
    os.killpg(server.pid, signal.SIGINT)
    server.wait_for_event("server.stopping")
    os.killpg(server.pid, signal.SIGINT)
    assert server.wait() == (-signal.SIGKILL if failpoint else 0)
    wait_for(lambda: not any(map(process_alive, tree)), message="its tree is gone")
    if not failpoint:
        assert fleet.redis.llen(fleet.keys.queue("q")) == 5
    fleet.go()
    peer.start(app=APP)
    fleet.wait_for_notes(5, "end")
    fleet.rest()
    fleet.stop()
    # Neither an attempt nor a crash: the first run of each was interrupted.
    assert {tuple(note.about) for note in fleet.ledger.notes("start")} == {(0, 0)}
    fleet.check(extra_runs=dict.fromkeys(jids[:3], 1))
