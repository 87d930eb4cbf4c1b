"""Jobs that take their whole server with them, and the jobs that ran alongside them."""

from __future__ import annotations

import itertools
import json
import os
import signal

import pytest

from pyworkers.protocol.suspects import SuspectEntry
from tests.faults.fleet import Fleet, Server
from tests.helpers.replies import as_list
from tests.helpers.support import wait_for


def entries(fleet: Fleet) -> list[SuspectEntry]:
    """The entries of all jobs, without the fields that name the suspect of a server."""
    jobs = [name for name in as_list(fleet.redis.hkeys(fleet.keys.suspects)) if b":" not in name]
    stored = as_list(fleet.redis.hmget(fleet.keys.suspects, jobs)) if jobs else []
    return sorted(map(SuspectEntry.parse, stored))


@pytest.mark.fault("S1")
@pytest.mark.lengthy
@pytest.mark.timeout(240)
def test_s1_a_job_that_kills_its_server_each_time_is_dead_after_five_servers(fleet: Fleet) -> None:
    poison = fleet.enqueue("fell", "fall")
    fleet.server()
    fleet.wait_for_notes(1, "start", poison)
    bystanders = [fleet.enqueue("meet", "go", 600) for _ in range(2)]
    for jid in bystanders:
        fleet.wait_for_notes(1, "start", jid)
    # From now on it kills the server as soon as it starts.
    fleet.go("fall")
    for number in range(1, 6):
        fleet.servers[-1].vanish(timeout=60)
        assert len(fleet.ledger.notes("start", poison)) == number
        heir = fleet.server()
    heir.wait_for_event("job.failed", timeout=60, outcome="dead", jid=poison)
    fleet.wait_for_notes(1, "exhausted", poison)
    # Both ran on the first server when it died. The entry of the dead job goes with its settlement.
    wait_for(lambda: [entry.deaths for entry in entries(fleet)] == [0, 0])
    fleet.go()
    fleet.rest()
    assert entries(fleet) == []
    fleet.stop()
    [dead] = as_list(fleet.redis.zrange(fleet.keys.dead, 0, -1))
    facts = json.loads(dead)
    assert facts["jid"] == poison
    assert facts["error_class"] == "WorkerLost"
    assert facts["error_message"] == "its server died while it ran; dead after 3 such servers"
    assert not {"retry_count", "crash_count"} & facts.keys()
    assert len(fleet.ledger.notes("start", poison)) == 5
    assert len(fleet.ledger.notes("exhausted")) == 1
    fleet.check(extra_runs={poison: 4} | dict.fromkeys(bystanders, 5))
    assert not fleet.redis.exists(fleet.keys.suspects)


@pytest.mark.fault("S2")
@pytest.mark.lengthy
@pytest.mark.timeout(240)
def test_s2_everything_dies_three_times_while_the_same_jobs_run_and_none_is_dead(fleet: Fleet) -> None:
    jids = [fleet.enqueue("meet", "go", 600) for _ in range(6)]
    # The third time they are suspects: each server starts one.
    for started in (6, 12, 13):
        crew = [fleet.server() for _ in range(2)]
        if started > 6:
            wait_for_recovery(crew, 6)
        fleet.wait_for_notes(started, "start", timeout=60)
        for server in crew:
            os.kill(server.pid, signal.SIGKILL)
        for server in crew:
            server.vanish()
    heir = fleet.server()
    wait_for_recovery([heir], 6)
    assert [entry.servers for entry in entries(fleet)] == [3] * 6
    # One of each server that had begun with one.
    deaths = sorted(entry.deaths for entry in entries(fleet))
    assert deaths in ([0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1])
    # One at a time, alongside ordinary work.
    ordinary = fleet.enqueue("work")
    fleet.wait_for_notes(1, "end", ordinary)
    wait_for(lambda: run_alone(fleet), message="a suspect runs")
    fleet.go()
    fleet.wait_for_notes(7, "end", timeout=60)
    fleet.rest()
    last = [run for runs in fleet.ledger.runs().values() for run in runs if run.start.server == heir.name]
    suspects = sorted((run for run in last if run.start.jid in jids), key=lambda run: run.start.time)
    for before, after in itertools.pairwise(suspects):
        assert before.end is not None
        assert before.end.time <= after.start.time
    fleet.stop()
    assert fleet.redis.zcard(fleet.keys.dead) == 0
    assert not fleet.redis.exists(fleet.keys.suspects)
    fleet.check(extra_runs=dict.fromkeys(jids, 3))


def wait_for_recovery(servers: list[Server], jobs: int) -> None:
    """Wait until these servers have recovered this many jobs."""

    def recovered() -> int:
        return sum(event["jobs"] for server in servers for event in server.events("process.recovered"))

    wait_for(lambda: recovered() == jobs, 60, f"{jobs} jobs are recovered")


def run_alone(fleet: Fleet) -> list[bytes]:
    """The servers that run a suspect."""
    return [name for name in as_list(fleet.redis.hkeys(fleet.keys.suspects)) if b":" in name]
