"""Faults of workers and fork servers; the other rows are proved in tests/system/test_workers.py."""

from __future__ import annotations

import os

import pytest

from tests.faults.fleet import Fleet
from tests.helpers.processes import anonymous_kb, children, descriptors, process_alive
from tests.helpers.support import wait_for


@pytest.mark.fault("W3")
def test_w3_a_worker_killed_between_its_work_and_its_outcome_costs_one_counted_run(fleet: Fleet) -> None:
    server = fleet.server(failpoints="job_end=kill*1")
    jids = [fleet.enqueue() for _ in range(10)]
    server.wait_for_failpoint("job_end")
    fleet.wait_for_notes(11, "end")
    fleet.rest()
    [lost] = server.events("worker.lost")
    assert "SIGKILL" in lost["reason"]
    [failed] = server.events("job.failed")
    assert (failed["outcome"], failed["error_class"]) == ("retry", "WorkerLost")
    fleet.stop()
    fleet.check(extra_runs={failed["jid"]: 1})
    assert set(jids) == {note.jid for note in fleet.ledger.notes("end")}


@pytest.mark.fault("W3")
@pytest.mark.parametrize("action", ["kill", "sleep:1"])
def test_w3_an_outcome_that_is_torn_in_the_middle_is_none(fleet: Fleet, action: str) -> None:
    # READY is the first frame of each worker, the outcome the second one.
    server = fleet.server(failpoints=f"mid_frame={action}@2*1", concurrency=1)
    for _ in range(3):
        fleet.enqueue()
    server.wait_for_failpoint("mid_frame")
    torn = int(action == "kill")
    fleet.wait_for_notes(3 + torn, "end")
    fleet.rest()
    assert len(server.events("worker.lost")) == torn
    fleet.stop()
    fleet.check(extra_runs=torn)


@pytest.mark.fault("W3")
def test_w3_a_job_that_kills_its_worker_each_time_is_dead_at_the_third(fleet: Fleet) -> None:
    server = fleet.server(failpoints="job_end=kill")
    jid = fleet.enqueue()
    wait_for(lambda: fleet.redis.zcard(fleet.keys.dead), message="the job is dead")
    assert len(fleet.ledger.notes("start", jid)) == 3
    assert server.fired_at("job_end")
    fleet.stop()
    fleet.check(extra_runs=2)


@pytest.mark.fault("W10")
@pytest.mark.lengthy
@pytest.mark.timeout(600)
def test_w10_thousands_of_workers_leave_nothing_behind(fleet: Fleet) -> None:
    """Two thousand by default, as ten take two minutes; ``FAULTS_RECYCLES`` says how many."""
    server = fleet.server(config="max_jobs_per_worker = 1\n", concurrency=4)
    fleet.wait_for_notes(0, "start")
    total, burst = int(os.environ.get("FAULTS_RECYCLES", "2000")), 200
    args: list[list[object]] = [[] for _ in range(burst)]
    samples = []
    for done in range(0, total, burst):
        for jid in fleet.client.enqueue_bulk("q", "work", args, extra={"unknown": {"kept": [1]}}):
            fleet.ledger.note("enqueued", jid)
        wait_for(lambda most=done + burst: _ends(fleet) >= most, timeout=120, message="a burst")  # type: ignore[misc]
        wait_for(lambda: len(server.tree()) == 1 + 4 + 1, message="as many processes as at first")
        samples.append(
            (descriptors(server.pid), descriptors(_fork_server(server.pid)), anonymous_kb(server.pid))
        )
        zombies = [pid for pid in _below(server.pid) if not process_alive(pid)]
        assert len(zombies) <= 4, "zombies pile up"
    fleet.rest()
    masters, forkers, memory = zip(*samples, strict=True)
    # Of connections to Redis there are as many as were needed at once.
    assert max(masters) - min(masters) <= 3
    assert max(forkers) == min(forkers)
    # 4 KiB of growth per 100 workers would show: 400 KiB.
    assert memory[-1] - memory[len(memory) // 4] < 3000
    assert len({note.pid for note in fleet.ledger.notes("start")}) > total / 2
    fleet.stop()
    assert server.events("worker.lost") == []
    fleet.check()


def _ends(fleet: Fleet) -> int:
    text = fleet.ledger.path.read_text()
    return text.count('["end", ')


def _below(pid: int) -> list[int]:
    return [grandchild for child in children(pid) for grandchild in [child, *children(child)]]


def _fork_server(pid: int) -> int:
    [found] = [child for child in children(pid) if process_alive(child)]
    return found
