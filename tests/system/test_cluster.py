"""A node of a Redis Cluster: a namespace with a hash tag puts all keys into one slot, for every script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers import Client, Worker
from pyworkers.api import BatchSet, LimitSet, LockSet
from tests.helpers.redises import OwnRedis
from tests.helpers.server_process import ServerProcess, serving
from tests.helpers.support import PATIENCE_S, free_port, wait_for

NAMESPACE = "{app}:"
CODE = """
limits = [worker.limit("slots", concurrency=1), worker.limit("turns", rate=20)]

@worker.job(queue="q", concurrency=3, limits=limits)
def limited(number):
    note("limited", number)

@worker.job(queue="q", retry_in=lambda *_: 0.1)
def member(number):
    note("member", number)
    if number == 0 and current_message().attempt == 0:
        raise ValueError("once")
    return number

@worker.job(queue="q")
def after(batch_id):
    note("after", batch_id)

@worker.job(queue="q")
def export():
    at = checkpoint(0)
    at.save(7)
    current_message().progress(1, 2)
    return at.value

@worker.process("ledger", ordered=True)
def book(message):
    note("book", *message.args, message.fence)

@worker.job(queue="pay")
def pay(number):
    note("pay", number)
"""
CONFIG = '[server]\nlease = 2\n[queues.pay]\nrate = "50/s"\nmax_running = 2\n'


@pytest.fixture
def url(tmp_path: Path, one_binary: str) -> Iterator[str]:
    """The URL of the only node of a cluster."""
    options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()), "--save", "")
    with OwnRedis(one_binary, tmp_path / "redis", *options) as node:
        client = node.start().client()
        client.execute_command("CLUSTER", "ADDSLOTS", *range(16384))
        wait_for(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
        yield node.url


@pytest.fixture
def server(tmp_path: Path, url: str) -> Iterator[ServerProcess]:
    (tmp_path / "workers.toml").write_text(CONFIG)
    with serving(tmp_path, url, NAMESPACE, CODE, "--config", str(tmp_path / "workers.toml")) as running:
        yield running


def test_all_that_a_job_may_ask_for_works_in_one_slot(server: ServerProcess, url: str) -> None:
    worker = Worker(url, namespace=NAMESPACE)

    @worker.job(queue="q")
    def member(number: int) -> None: ...

    @worker.job(queue="q")
    def after(batch_id: str = "") -> None: ...

    with Client(url, namespace=NAMESPACE) as client:
        with worker.batch("members", on_success=after.call()) as batch:
            for number in range(5):
                member.enqueue(number)
        jid = client.enqueue("q", "later", unique_for=60, delay=3600)
        assert client.enqueue("q", "later", unique_for=60, delay=3600) == jid
        for number in range(4):
            client.enqueue("q", "limited", [number])
            client.enqueue("ledger", "book", [number])
            client.enqueue("pay", "pay", [number])
        assert client.result(client.enqueue("q", "export", track=60), PATIENCE_S) == 7
        assert [note[2] for note in server.wait_for_notes(1, "after")] == [batch.id]
        assert (batch.status().done, batch.status().pending) == (5, 0)
        for word in ("limited", "book", "pay"):
            assert sorted(note[2] for note in server.wait_for_notes(4, word)) == [0, 1, 2, 3]
        wait_for(lambda: server.settled("q", "ledger", "pay"))
        assert [lock.jid for lock in LockSet(url, namespace=NAMESPACE)] == [jid]
    assert [one.id for one in BatchSet(url, namespace=NAMESPACE)] == [batch.id]
    assert {limit.key for limit in LimitSet(url, namespace=NAMESPACE)} == {
        "slots", "turns", "queue/pay", "running/pay",
    }  # fmt: skip
    assert server.zset("dead") == []
    assert [event["event"] for event in server.events() if event["level"] == "error"] == []


def test_a_killed_server_is_recovered_in_one_slot(server: ServerProcess, url: str, tmp_path: Path) -> None:
    server.push("q", *({"class": "limited", "args": [n], "jid": f"j{n}"} for n in range(40)))
    server.wait_for_notes(1, "limited")
    server.kill()
    server.start()
    server.wait_for_notes(40, "limited")
    wait_for(lambda: server.settled("q", sets=["schedule"]))
    # The sweep frees what the killed server held.
    wait_for(lambda: {limit.used for limit in LimitSet(url, namespace=NAMESPACE) if not limit.per_s} == {0})
