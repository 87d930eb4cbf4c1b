"""Faults of clocks and schedulers. Row T4 is proved in tests/unit/test_cron.py."""

from __future__ import annotations

import json
import time

import pytest

from tests.faults.fleet import Fleet
from tests.faults.ledger import clock
from tests.helpers.processes import anonymous_kb
from tests.helpers.support import stretched, wait_for


@pytest.mark.fault("T1")
def test_t1_a_scheduler_killed_in_the_middle_of_its_move_has_moved_nothing_or_all(fleet: Fleet) -> None:
    dying = fleet.server(failpoints="mid_promote=kill@2")
    now = time.time()
    for number in range(500):
        fleet.enqueue("work", at=now + 2 + number / 1000)
    dying.wait_for_failpoint("mid_promote")
    dying.vanish()
    fleet.server()
    fleet.wait_for_notes(500, "end")
    fleet.rest()
    fleet.stop()
    runs = fleet.ledger.runs()
    again = [jid for jid in runs if len(runs[jid]) > 1]
    assert len(again) <= 3  # those that ran in the moment of the kill
    fleet.check(extra_runs=dict.fromkeys(again, 1))


@pytest.mark.lengthy
@pytest.mark.fault("T1")
def test_t1_a_slot_of_cron_is_fired_once_though_the_one_that_fired_it_dies(fleet: Fleet) -> None:
    config = '[[cron]]\nname = "tick"\nschedule = "* * * * * *"\nqueue = "other"\nclass = "elsewhere"\n'
    dying = fleet.server(config=config, failpoints="cron_after_slot=kill@2")
    peer = fleet.server(config=config)
    dying.wait_for_failpoint("cron_after_slot")
    dying.vanish()
    fleet.wait_for_notes(5, "end")
    peer.stop()
    fleet.server()
    fleet.rest()
    fleet.stop()
    slots = sorted(event["slot"] for event in fleet.events("cron.fired"))
    assert len(slots) == len(set(slots))
    # The one that died could not say any more what it had fired.
    fired = set(range(slots[0], slots[-1] + 1))
    assert len(fired - set(slots)) <= 1
    starts = fleet.ledger.notes("start")
    assert len(slots) <= len({note.jid for note in starts}) <= len(slots) + 1


@pytest.mark.fault("T2")
@pytest.mark.lengthy
@pytest.mark.timeout(400)
def test_t2_a_hundred_thousand_due_jobs_move_once_and_starve_no_other(fleet: Fleet) -> None:
    total = 100_000
    members = {
        b'{"class":"Gone","queue":"far","args":[],"jid":"%d"}' % number: 1.0 for number in range(total)
    }
    names = list(members)
    for first in range(0, total, 10_000):
        fleet.redis.zadd(fleet.keys.schedule, dict.fromkeys(names[first : first + 10000], 1.0))
    servers = [fleet.server(start=False) for _ in range(3)]
    for server in servers:
        server.start(app="tests.faults.app:worker")
    worst = 0.0
    while fleet.redis.zcard(fleet.keys.schedule):
        began = clock()
        fleet.wait_for_notes(1, "end", fleet.enqueue())
        worst = max(worst, clock() - began)
    moved = fleet.redis.lrange(fleet.keys.queue("far"), 0, -1)
    assert len(moved) == total
    assert len({json.loads(raw)["jid"] for raw in moved}) == total
    assert worst < stretched(5)
    assert max(anonymous_kb(server.pid) for server in servers) < 100_000
    fleet.redis.delete(fleet.keys.queue("far"))
    fleet.stop()
    fleet.check()


JUMPED_LEASE_S = 4
# Found by Python at the start of every process of the server: its clock is ahead by what a file says.
LYING_CLOCK = """
import time
from pathlib import Path
true_time, offset = time.time, Path(__file__).with_name("offset")
time.time = lambda: true_time() + float(offset.read_text() or 0)
"""


@pytest.mark.fault("T3")
@pytest.mark.parametrize("jump_s", [-10_000, pytest.param(10_000, marks=pytest.mark.lengthy)])
def test_t3_a_clock_that_jumps_moves_no_lease_and_no_deadline(fleet: Fleet, jump_s: float) -> None:
    folder = fleet.folder / "clock"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(LYING_CLOCK)
    (folder / "offset").write_text("0")
    # A lease that outlasts a stall of the machine.
    server = fleet.server(lease=JUMPED_LEASE_S, PYTHONPATH=str(folder))
    held = [fleet.enqueue("meet", "go") for _ in range(2)]
    enqueued = clock()
    limited = fleet.enqueue("meet", "never", timeout=3)
    fleet.wait_for_notes(3, "start")
    began = clock()
    (folder / "offset").write_text(str(jump_s))
    peer = fleet.server(lease=JUMPED_LEASE_S)
    # The time limit: three seconds, and two more until the worker would be killed.
    wait_for(lambda: fleet.events("job.timeout", jid=limited), message="the limit holds")
    assert clock() - enqueued >= 3
    assert clock() - began < stretched(5)
    time.sleep(1.5 * JUMPED_LEASE_S)
    peer.stop()
    told = fleet.enqueue("tell_time")
    fleet.wait_for_notes(1, "end", told)
    [seen] = fleet.ledger.notes("end", told)
    assert abs(seen.about[0] - time.time() - jump_s) < 1000
    fleet.go()
    for jid in [*held, *(fleet.enqueue(delay=0.2 if jump_s > 0 else None) for _ in range(10))]:
        fleet.wait_for_notes(1, "end", jid)
    (folder / "offset").write_text("0")
    assert (
        fleet.events("process.recovered") + fleet.events("lease.lost") + fleet.events("server.failed") == []
    )
    server.stop()
    assert {len(runs) for jid, runs in fleet.ledger.runs().items() if jid != limited} == {1}


@pytest.mark.fault("T3")
def test_t3_limits_hold_between_servers_whose_clocks_differ(fleet: Fleet) -> None:
    for offset in ("-10000", "10000"):
        folder = fleet.folder / f"clock{offset}"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(LYING_CLOCK)
        (folder / "offset").write_text(offset)
        fleet.server(PYTHONPATH=str(folder))
    for _ in range(30):
        fleet.enqueue("hold", 0.05)
    fleet.wait_for_notes(30, "end")
    fleet.rest()
    assert fleet.ledger.notes("over") == []
    # Two of them started at once, and the others when they were called, not an hour later.
    assert len(fleet.events("job.limited")) >= 1
    fleet.stop()
