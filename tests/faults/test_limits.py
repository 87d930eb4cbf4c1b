"""Limits over all servers while workers and servers die: no slot leaks, and no limit is exceeded."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from pyworkers.store.calls import run
from pyworkers.store.flow import limituses
from tests.faults.fleet import Fleet
from tests.helpers.proxy import Trap, proxied, script
from tests.helpers.support import wait_for


def at_rest(fleet: Fleet, jobs: int) -> None:
    """All have ended, never more than two at once, and the limit is free again."""
    fleet.wait_for_notes(jobs, "end")
    fleet.rest()
    assert fleet.ledger.notes("over") == []
    wait_for(lambda: used(fleet) == (0, 0), message="the slots are free")


def used(fleet: Fleet) -> tuple[int, int]:
    """The jobs that hold a slot, and those that wait for one."""
    [slots] = [use for use in run(fleet.redis, limituses.uses(fleet.keys)) if use.key == "slots"]
    return slots.used, slots.waiting


@pytest.mark.fault("L1")
def test_the_slots_of_a_killed_server_are_free_when_its_jobs_are_recovered(fleet: Fleet) -> None:
    first = fleet.server()
    jobs = [fleet.enqueue("hold", 60) for _ in range(2)]
    fleet.wait_for_notes(2, "start")
    fleet.server()
    others = [fleet.enqueue("hold", 0.05) for _ in range(10)]
    wait_for(lambda: used(fleet) == (2, 10))
    # The killed jobs run again, and would hold their slots.
    for jid in jobs:
        fleet.client.cancel(jid)
    first.kill()
    at_rest(fleet, len(others))
    fleet.stop()


@pytest.mark.fault("L2")
def test_the_slot_of_a_killed_worker_is_free_at_once(fleet: Fleet) -> None:
    fleet.server()
    fleet.server()
    for number in range(20):
        fleet.enqueue("hold", 0.02, number % 4 == 0)
    at_rest(fleet, 20)
    fleet.stop()


@pytest.mark.fault("L3")
@pytest.mark.parametrize("place", ["before_ask", "after_ask", "before_settle", "after_settle"])
def test_a_server_dies_before_or_after_it_has_asked(fleet: Fleet, place: str) -> None:
    first = fleet.server(failpoints=f"{place}=kill@3")
    fleet.server()
    for _ in range(30):
        fleet.enqueue("hold", 0.05)
    first.wait_for_failpoint(place)
    at_rest(fleet, 30)
    fleet.stop()


@pytest.mark.fault("L4")
@pytest.mark.parametrize("action", ["reset", pytest.param("swallow", marks=pytest.mark.lengthy)])
def test_a_lost_reply_to_an_ask_costs_no_slot(fleet: Fleet, action: str) -> None:
    with proxied(fleet.url) as proxy:
        fleet.server(url=proxy.url)
        # Redis knows the script then: the reply that is lost is not that of an unknown script.
        fleet.enqueue("hold", 0)
        at_rest(fleet, 1)
        traps = [proxy.trap(Trap(script("limits/ask"), action=action)) for _ in range(2)]  # type: ignore[arg-type]
        for _ in range(10):
            fleet.enqueue("hold", 0.05)
        wait_for(lambda: all(trap.sprung for trap in traps), message="two replies are lost")
        at_rest(fleet, 11)
        assert set(Counter(note.jid for note in fleet.ledger.notes("start")).values()) == {1}
        fleet.stop()


@pytest.mark.fault("L5")
def test_a_reload_leaves_running_and_waiting_jobs_their_slots(fleet: Fleet) -> None:
    server = fleet.server()
    first = [fleet.enqueue("hold", 0, False, "go") for _ in range(2)]
    fleet.wait_for_notes(2, "start")
    others = [fleet.enqueue("hold", 0.05) for _ in range(12)]
    wait_for(lambda: used(fleet) == (2, len(others)))
    for count in range(1, 4):
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done", count)
    fleet.go()
    at_rest(fleet, len(first) + len(others))
    fleet.check()
    fleet.stop()


@pytest.mark.fault("L6")
def test_a_server_dies_with_a_job_that_may_start_and_has_not(fleet: Fleet) -> None:
    # A worker takes the job once to ask, and once to run: then it is suspended.
    first = fleet.server(failpoints="before_claim=stop@2", concurrency=1)
    fleet.enqueue("hold", 0.05)
    first.wait_for_failpoint("before_claim")
    wait_for(lambda: used(fleet) == (1, 0))
    first.kill()
    fleet.server()
    at_rest(fleet, 1)
    fleet.check()
    fleet.stop()
