"""Faults of the job socket, from which all workers of a group take, with whole servers.

Each step between the processes is tested with the pool alone in tests/server/test_handout.py.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Literal

import pytest

from tests.faults.fleet import Fleet, Server
from tests.helpers.processes import state
from tests.helpers.proxy import Trap, proxied
from tests.helpers.replies import as_list
from tests.helpers.support import PATIENCE_S, stretched, wait_for

# An outcome "requeue" (4) of the first queue (20) of a group, before a job of 200 to 299 bytes.
GIVEN_BACK = b"\r\n24\r\n$2"


def jids(raws: list[bytes]) -> list[str]:
    """The ids of stored jobs."""
    return [json.loads(raw)["jid"] for raw in raws]


def held(fleet: Fleet) -> list[str]:
    """The jobs in all in-progress lists of the queue ``q``, the oldest first."""
    found: list[bytes] = []
    for key in set(fleet.redis.scan_iter(f"{fleet.namespace}queue:q:*:inprogress")):
        found += reversed(as_list(fleet.redis.lrange(key, 0, -1)))
    return jids(found)


def waiting(fleet: Fleet) -> list[str]:
    """The jobs in the queue ``q``, the one that is popped next first."""
    return jids(as_list(fleet.redis.lrange(fleet.keys.queue("q"), 0, -1))[::-1])


@pytest.mark.fault("H1", "H2")
@pytest.mark.parametrize("action", ["kill", "stop"])
def test_h1_a_worker_that_dies_before_it_claims_its_job_costs_nothing(fleet: Fleet, action: str) -> None:
    server = fleet.server(failpoints=f"before_claim={action}*1")
    names = [fleet.enqueue() for _ in range(20)]
    server.wait_for_failpoint("before_claim")
    if action == "stop":
        pid = int(server.fired.read_text().split()[2])
        wait_for(lambda: state(pid) == "T", message="it is stopped")
        os.kill(pid, signal.SIGKILL)
    fleet.wait_for_notes(20, "end")
    fleet.rest()
    assert len(server.events("worker.lost")) == 1
    assert server.events("job.failed") == []
    fleet.stop()
    fleet.check(extra_runs=0)
    assert {note.jid for note in fleet.ledger.notes("end")} == set(names)
    assert {tuple(note.about) for note in fleet.ledger.notes("start")} == {(0, 0)}


@pytest.mark.fault("H2")
def test_h2_a_worker_that_is_stopped_before_it_claims_its_job_runs_it_when_it_goes_on(fleet: Fleet) -> None:
    server = fleet.server(failpoints="before_claim=stop*1")
    for _ in range(20):
        fleet.enqueue()
    server.wait_for_failpoint("before_claim")
    pid = int(server.fired.read_text().split()[2])
    fleet.wait_for_notes(19, "end")
    # A job notes its end before its outcome is settled.
    wait_for(lambda: len(held(fleet)) == 1, message="the others are settled")
    os.kill(pid, signal.SIGCONT)
    fleet.wait_for_notes(20, "end")
    fleet.rest()
    fleet.stop()
    # It is killed if this machine stood still for fifteen seconds; then the job runs elsewhere.
    fleet.check(extra_runs=0)


@pytest.mark.fault("H3")
def test_h3_jobs_that_stand_in_the_socket_when_the_master_is_killed_run_once_and_in_order(
    fleet: Fleet,
) -> None:
    dying = fleet.server(concurrency=1)
    names = [fleet.enqueue("strike", "server0") for _ in range(1000)]
    fleet.wait_for_notes(1, "strike")
    dying.vanish(timeout=stretched(5))
    begun = {note.jid for note in fleet.ledger.notes("start")}
    left = held(fleet)
    stood = [jid for jid in left if jid not in begun]
    assert stood, "no job stood in the socket"
    assert left == [jid for jid in names if jid in left]
    fleet.server(concurrency=1)
    fleet.wait_for_notes(1000, "end")
    fleet.rest()
    fleet.stop()
    starts = [note.jid for note in fleet.ledger.notes("start") if note.server == "server1"]
    assert [jid for jid in starts if jid in left] == left
    # The one that ran, and those whose outcomes were not settled.
    fleet.check(extra_runs={jid: 1 for jid in left if jid in begun})


@pytest.mark.fault("H5")
@pytest.mark.parametrize("action", ["reset", "swallow", "away"])
def test_h5_a_job_that_is_given_back_is_in_one_place_if_the_exchange_fails_or_not(
    fleet: Fleet, action: Literal["reset", "swallow", "away"]
) -> None:
    with proxied(fleet.url) as proxy:
        fleet.server(concurrency=1, url=proxy.url)
        trap = Trap(GIVEN_BACK, action="reset" if action == "away" else action)
        names = []
        for round_ in range(20):
            names += fleet_bulk(fleet, "work", 150)
            fleet.wait_for_notes(len(names), "end")
            if not round_:
                proxy.trap(trap)
            # Long ones after these short ones: some are fetched ahead, and given back.
            names += fleet_bulk(fleet, "meet", 5, f"go{round_}")
            deadline = time.monotonic() + 2
            while not trap.sprung and time.monotonic() < deadline:
                time.sleep(0.005)
            if action == "away" and trap.sprung:
                with proxy.refused():
                    wait_for(lambda: fleet.events("redis.down"), message="the server has noticed")
            fleet.go(f"go{round_}")
            fleet.wait_for_notes(len(names), "end")
            if trap.sprung:
                break
        assert trap.sprung, "no exchange that gives a job back was lost"
        fleet.rest()
        fleet.stop()
        fleet.check(extra_runs=0)


def fleet_bulk(fleet: Fleet, job_class: str, count: int, *args: str) -> list[str]:
    """Enqueue in one call; each job has 200 to 299 bytes."""
    extra = {"unknown": {"kept": [1]}, "padding": "x" * 70}
    names = fleet.client.enqueue_bulk("q", job_class, [list(args)] * count, extra=extra)
    assert {len(raw) // 100 for raw in _raws(fleet)} <= {2}
    for jid in names:
        fleet.ledger.note("enqueued", jid)
    return names


def _with_jobs_in_the_socket(fleet: Fleet) -> list[str]:
    """Long jobs, of which one runs and others have been fetched ahead, which must be seen."""
    ended = 0
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert time.monotonic() < deadline, "no job is fetched ahead"
        ended += len(fleet_bulk(fleet, "work", 150))
        fleet.wait_for_notes(ended, "end")
        place = f"round{ended}"
        names = fleet_bulk(fleet, "meet", 6, place)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            if len(held(fleet)) > 1:
                return names
        fleet.go(place)
        ended += 6
        fleet.wait_for_notes(ended, "end")


@pytest.mark.fault("H7")
@pytest.mark.parametrize("event", ["pause", "quiet", "reload", "shrink", "stop"])
def test_h7_jobs_that_stand_in_the_socket_are_given_back_within_a_second_and_in_order(
    fleet: Fleet, event: str
) -> None:
    config = "[queues.q]\nconcurrency = 2\n" if event == "shrink" else ""
    server = fleet.server(concurrency=1, config=config)
    names = _with_jobs_in_the_socket(fleet)
    began = time.monotonic()
    _do(event, server, fleet)
    if event == "reload":
        # The new worker takes the next one.
        wait_for(lambda: held(fleet) == names[:2], message="the next one runs")
        assert waiting(fleet) == names[2:]
    else:
        running = 2 if event == "shrink" else 1
        wait_for(lambda: waiting(fleet) == names[running:], message=f"they are given back: {names}")
        assert time.monotonic() - began < stretched(1)
        assert held(fleet) == names[:running]
    if event in ("quiet", "stop"):
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert waiting(fleet) == names
    fleet.redis.delete(fleet.keys.paused)
    for path in {json.loads(raw)["args"][0] for raw in _raws(fleet)}:
        fleet.go(path)
    if event in ("quiet", "stop"):
        fleet.server(concurrency=1)
    fleet.rest()
    fleet.stop()
    fleet.check(extra_runs={names[0]: 1})


def _do(event: str, server: Server, fleet: Fleet) -> None:
    if event == "pause":
        fleet.redis.sadd(fleet.keys.paused, "q")
    elif event == "shrink":
        path = server.folder / "workers.toml"
        path.write_text(path.read_text().replace("concurrency = 2", "concurrency = 1"))
        server.signal(signal.SIGHUP)
    else:
        server.signal({"quiet": signal.SIGTSTP, "reload": signal.SIGHUP, "stop": signal.SIGTERM}[event])


def _raws(fleet: Fleet) -> list[bytes]:
    found = as_list(fleet.redis.lrange(fleet.keys.queue("q"), 0, -1))
    for key in set(fleet.redis.scan_iter(f"{fleet.namespace}queue:q:*:inprogress")):
        found += as_list(fleet.redis.lrange(key, 0, -1))
    return found
