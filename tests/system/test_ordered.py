"""Ordered queues, through real servers: one job at a time over all of them, in the order of the queue."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers.api import Queue
from pyworkers.api.browse import Jobs
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.status import JobState
from tests.helpers.ordered import Servers, active, fence, push, started
from tests.helpers.server_process import serving
from tests.helpers.support import PATIENCE_S, wait_for

# A lease that outlasts a stall of the machine.
LEASE_S = 6


@pytest.fixture
def servers(tmp_path: Path, redis_url: str, namespace: str) -> Iterator[Servers]:
    some = Servers(tmp_path, redis_url, namespace)
    yield some
    some.kill()


def test_a_failing_job_is_retried_in_its_place_and_the_queue_waits(servers: Servers) -> None:
    server = servers.start()
    push(server, "a", "flaky", "b", "fail", "c", "crash", "d")
    server.wait_for_notes(1, "end", "d")
    assert started(server) == [
        *("a", "flaky", "flaky", "b"),
        *("fail", "fail", "fail", "c"),
        *("crash", "crash", "crash", "d"),
    ]
    wait_for(lambda: server.settled("ledger"))
    assert (len(server.zset("dead")), len(server.zset("retry")), len(server.zset("schedule"))) == (2, 0, 0)
    fences = {note[3] for note in server.ledger()}
    assert len(fences) == 1 and isinstance(fences.pop(), int)
    assert active(server)
    assert server.stop() == 0
    assert active(server) == ""


def test_the_others_stand_by_and_one_takes_over_when_the_active_server_stops(
    servers: Servers,
) -> None:
    first = servers.start()
    push(first, "a")
    first.wait_for_notes(1, "end", "a")
    second, third = servers.start(), servers.start()
    push(first, *"bcde")
    first.wait_for_notes(1, "end", "e")
    assert {first.events("queue.active")[0]["identity"]} == {active(first)}
    assert second.events("queue.active") + third.events("queue.active") == []
    push(first, "meet", "f", "g")
    first.wait_for_notes(1, "start", "meet")
    began = time.monotonic()
    first.signal(signal.SIGTERM)
    servers.let_go()
    first.wait()
    first.wait_for_notes(1, "end", "g")
    # The lease of the first server would last half a minute.
    assert time.monotonic() - began < 20
    assert started(first) == [*"abcde", "meet", *"fg"]
    assert fence(first, "g") > fence(first, "meet") == fence(first, "a")
    assert active(first) in {
        server.events("queue.active")[0]["identity"]
        for server in (second, third)
        if server.events("queue.active")
    }


def test_a_queue_whose_only_server_has_died_names_it_until_its_job_is_recovered(
    servers: Servers, tmp_path: Path, redis_url: str, namespace: str
) -> None:
    first = servers.start(lease=LEASE_S)
    push(first, "meet", "b")
    first.wait_for_notes(1, "start", "meet")
    identity = active(first)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert active(first) == identity != ""
    folder = tmp_path / "other"
    folder.mkdir()
    with serving(
        folder, redis_url, namespace, '@worker.process("mail")\ndef handle(message): pass\n'
    ) as other:
        wait_for(lambda: active(first) == "", 2 * PATIENCE_S)
        # The next active server reads the identity of the one before.
        assert other.redis.hget(other.keys.ordered("ledger"), "identity") == identity.encode()
        found = Jobs(RedisConfig(redis_url, namespace)).find("meet-0")
        assert (found.state, found.order) == (JobState.WAITING, ("", False, None))


def test_the_head_is_retried_when_a_person_resumes_the_queue(servers: Servers) -> None:
    server = servers.start()
    push(server, "later", "b")
    server.wait_for_event("job.failed", outcome="retry")
    wait_for(lambda: server.waiting("ledger") == 2 and not server.inprogress("ledger"))
    Queue("ledger", server.url, namespace=server.keys.namespace).resume()
    server.wait_for_notes(1, "end", "b")
    assert started(server) == ["later", "later", "b"]


def test_a_quiet_server_gives_the_queue_up(servers: Servers) -> None:
    first = servers.start()
    push(first, "a")
    first.wait_for_notes(1, "end", "a")
    second = servers.start()
    first.signal(signal.SIGTSTP)
    # Before that, the first one may still take the job.
    second.wait_for_event("queue.active")
    push(first, "b")
    first.wait_for_notes(1, "end", "b")
    assert fence(first, "b") > fence(first, "a")


def test_skip_dead_false_pauses_the_queue_until_a_person_resumes_it(servers: Servers) -> None:
    server = servers.start(", skip_dead=False")
    push(server, "a", "fail", "b")
    server.wait_for_event("queue.stopped", queue="ledger")
    queue = Queue("ledger", server.url, namespace=server.keys.namespace)
    wait_for(lambda: queue.paused and len(server.zset("dead")) == 1)
    assert started(server) == ["a", "fail", "fail", "fail"]
    server.wait_for_event("queue.standby")
    assert server.waiting("ledger") == 1
    queue.resume()
    server.wait_for_notes(1, "end", "b")


def test_a_failed_job_at_the_head_can_be_deleted(servers: Servers) -> None:
    server = servers.start(", retry_for=3600")
    push(server, "fail", "b")
    server.wait_for_event("job.failed", outcome="retry")
    queue = Queue("ledger", server.url, namespace=server.keys.namespace)

    def delete() -> bool:
        return any(found.delete() for found in queue if found.args[0] == "fail")

    wait_for(delete)
    server.wait_for_notes(1, "end", "b")
