"""The lock of a unique job through the real server: held while the job is there, released however it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pyworkers import Client
from pyworkers.api import DeadSet, LockSet, RetrySet
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

CODE = """
from pyworkers import Client

@worker.job(queue="q", concurrency=3, retry=1, retry_in=lambda count, error, message: 0.3)
def act(what):
    message = current_message()
    note(what, message.jid, message.attempt)
    if what == "kill":
        raise Kill("no")
    if what == "discard":
        raise Discard("no")
    if what == "fail" or (what == "retry" and message.attempt == 0):
        raise ValueError("failed")
    if what == "snooze" and "snoozed" not in message.data:
        raise Snooze(0.3)
    while what == "wait" and not os.path.exists("go"):
        time.sleep(0.01)
"""


class Bench:
    """A producer alongside a server."""

    def __init__(self, server: ServerProcess, url: str, namespace: str) -> None:
        self.server = server
        self.where = {"where": url, "namespace": namespace}
        self.client = Client(url, namespace=namespace)

    def enqueue(self, what: str, queue: str = "q", **options: Any) -> str:
        return self.client.enqueue(queue, "act", [what], unique_for=600, **options)

    def holders(self) -> list[str]:
        return [lock.jid for lock in LockSet(**self.where)]

    def wait_for_release(self, jid: str, message: str = "the lock is released") -> None:
        wait_for(lambda: jid not in self.holders(), message=message)


@pytest.fixture
def bench(serve_either: Serve, redis_url: str, namespace: str) -> Iterator[Bench]:
    with serve_either(CODE) as server:
        yield Bench(server, redis_url, namespace)


def test_the_end_of_a_job_releases_its_lock(bench: Bench) -> None:
    runs = {"done": 1, "kill": 1, "discard": 1, "fail": 2, "retry": 2}
    jids = {what: bench.enqueue(what) for what in runs}
    for what, jid in jids.items():
        bench.wait_for_release(jid, f"the lock of {what} is released")
    found = Counter((what, jid) for _, what, jid, *_ in bench.server.ledger())
    assert found == {(what, jids[what]): count for what, count in runs.items()}


def test_a_running_job_holds_its_lock_and_releases_it_with_its_cancellation(bench: Bench) -> None:
    jid = bench.enqueue("wait")
    bench.server.wait_for_notes(1, "wait", jid)
    assert (bench.enqueue("wait"), bench.holders()) == (jid, [jid])
    bench.client.cancel(jid)
    bench.wait_for_release(jid)


def test_a_job_retried_from_dead_takes_no_lock_and_leaves_that_of_another(bench: Bench) -> None:
    jid = bench.enqueue("kill")
    bench.wait_for_release(jid)
    other = bench.enqueue("kill", delay=600)
    (dead,) = DeadSet(**bench.where)
    assert dead.retry()
    bench.server.wait_for_notes(2, "kill", jid)
    wait_for(lambda: DeadSet(**bench.where).size == 1, message="dead again")
    assert bench.holders() == [other]
    assert RetrySet(**bench.where).size == 0


def test_until_start_the_lock_ends_when_the_job_starts(bench: Bench) -> None:
    jid = bench.enqueue("wait", unique_until="start")
    bench.server.wait_for_notes(1, "wait", jid)
    bench.wait_for_release(jid)
    other = bench.enqueue("wait", unique_until="start", delay=600)
    assert other != jid
    (bench.server.folder / "go").touch()
    wait_for(lambda: bench.server.settled("q"))
    assert bench.holders() == [other]
