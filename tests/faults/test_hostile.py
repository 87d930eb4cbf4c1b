"""Faults that are on no table: containers, processes that stand still, pipes that are full."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from pyworkers.store.jobs import PATIENCE_S
from tests.faults.fleet import APP, LEASE_S, Fleet, stopped
from tests.helpers.processes import children, process_alive
from tests.helpers.redises import blocked
from tests.helpers.support import stretched, wait_for

CONTAINER = ["unshare", "--pid", "--fork", "--mount-proc"]


def _may_make_containers() -> bool:
    try:
        return subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.fault("M1", "M4", "M10", "W9")
@pytest.mark.skipif(not _may_make_containers(), reason="may not make a PID namespace")
def test_as_the_first_process_of_a_container_it_reaps_stops_and_takes_all_with_it(fleet: Fleet) -> None:
    server = fleet.server(concurrency=2, start=False)
    server.wrapper = CONTAINER
    server.start(app=APP)
    [init] = children(server.pid)
    assert Path(f"/proc/{init}/status").read_text().split("NSpid:")[1].split()[1] == "1"
    # The server says that it has started before its workers are forked.
    [forker] = wait_for(lambda: [pid for pid in children(init) if len(children(pid)) > 1])
    victim = children(forker)[0]
    # The second worker becomes an orphan, and with that a child of the master.
    os.kill(forker, signal.SIGKILL)
    os.kill(victim, signal.SIGKILL)
    server.wait_for_event("reload.done")
    fleet.wait_for_notes(1, "end", fleet.enqueue())
    wait_for(lambda: all(map(process_alive, children(init))), message="no zombie is left")
    running = fleet.enqueue("meet", "go")
    fleet.wait_for_notes(1, "start", running)
    os.kill(init, signal.SIGUSR2)
    assert "is PID 1" in server.wait_for_event("upgrade.refused")["reason"]
    os.kill(init, signal.SIGTERM)
    fleet.go()
    assert server.wait() == 0
    fleet.check()

    second = fleet.server(concurrency=2, start=False)
    second.wrapper = CONTAINER
    second.start(app=APP)
    [init] = children(second.pid)
    again = fleet.enqueue("meet", "never")
    fleet.wait_for_notes(1, "start", again)
    tree = second.tree()
    os.kill(init, signal.SIGKILL)
    wait_for(lambda: not any(map(process_alive, tree)), timeout=stretched(2), message="nothing is left")
    fleet.go("never")
    fleet.server()
    fleet.wait_for_notes(1, "end", again)
    fleet.rest()
    fleet.stop()
    fleet.check(extra_runs={again: 1})


@pytest.mark.fault("M7")
def test_a_master_that_stood_still_beyond_its_lease_without_a_peer_goes_on_as_if_nothing_had_been(
    fleet: Fleet,
) -> None:
    server = fleet.server()
    jids = [fleet.enqueue("work", 0.5) for _ in range(3)]
    fleet.wait_for_notes(3, "start")
    with stopped(server.pid):
        leases = f"{fleet.namespace}pyworkers:lease:*"
        wait_for(lambda: not list(fleet.redis.scan_iter(leases)), message="its lease is gone")
        fleet.wait_for_notes(3, "end")
    jids.append(fleet.enqueue())
    fleet.rest()
    assert server.events("lease.lost") == []
    fleet.stop()
    fleet.check()


@pytest.mark.fault("M2")
def test_an_idle_server_that_stood_still_reads_the_replies_that_came_meanwhile(fleet: Fleet) -> None:
    server = fleet.server()
    wait_for(lambda: blocked(fleet.redis) == 2, message="a blocking fetch of each queue")
    with stopped(server.pid):
        wait_for(lambda: blocked(fleet.redis) == 0, message="Redis has answered both")
        time.sleep(PATIENCE_S + 0.5)
    fleet.wait_for_notes(1, "end", fleet.enqueue())
    assert server.events("redis.down") == []
    fleet.stop()
    fleet.check()


@pytest.mark.lengthy
@pytest.mark.fault("M2")
def test_outcomes_that_fill_the_pipes_of_a_master_that_stands_still_are_settled_afterwards(
    fleet: Fleet,
) -> None:
    server = fleet.server(concurrency=2, lease=30)
    for number in range(4):
        payload = {"class": "work", "args": [0.3, 1], "jid": f"large{number}", "padding": "x" * 5_000_000}
        fleet.redis.lpush(fleet.keys.queue("q"), json.dumps(payload))
        fleet.ledger.note("enqueued", f"large{number}")
    fleet.wait_for_notes(2, "start")
    with stopped(server.pid):
        # Both fail, and write 5 MB each into a pipe that holds 64 KB.
        fleet.wait_for_notes(2, "raise")
        time.sleep(LEASE_S / 2)
    fleet.wait_for_notes(4, "end")
    fleet.rest()
    assert server.events("worker.lost") == []
    fleet.stop()
    fleet.check()
