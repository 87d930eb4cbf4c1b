"""The sweep of a server: it warns of older servers, and releases what was held for jobs that are gone."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from pyworkers import Worker
from pyworkers.protocol import flow
from pyworkers.store.flow.sweep import LIFE_S
from tests.helpers.records import register
from tests.helpers.replies import as_bytes, as_texts
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import wait_for

# A sweep follows the one before after twice the lease.
SETTINGS = {"PYWORKERS_SERVER__LEASE": "1"}


MIXED = """
worker.process("q", ordered=True)(print)

@worker.job(queue="mail", track=60, unique_for=60, limits=[worker.limit("one", concurrency=1)])
def send():
    pass

@worker.job(queue="plain")
def plain():
    pass
"""


def test_a_server_warns_of_those_that_leave_out_effects(serve_either: Serve) -> None:
    """Of an older one once, of another program's with the queues and what it breaks."""
    with serve_either(MIXED, **SETTINGS) as server:
        [own] = wait_for(lambda: server.redis.smembers(server.keys.processes), message="it is listed")
        fields = as_texts(server.redis.hgetall(server.keys.process(as_bytes(own).decode())))
        assert json.loads(fields["info"])["flow"] == flow.VERSION
        for identity in ("old:1:a", "old:2:b"):
            about = {"version": "0.1.0", "queues": ["q"]}
            register(server.redis, server.keys, identity, about, look=0, beat=time.time())
            server.wait_for_event("flow.old_server", owner=identity)
        [first] = server.events("flow.old_server", owner="old:1:a")
        assert (first["level"], first["version"]) == ("warning", "0.1.0")
        about = {"version": "8.0.4", "queues": ["plain", "mail", "q"]}
        register(server.redis, server.keys, "ruby:1:a", about, beat=time.time())
        found = server.wait_for_event("flow.foreign_server", owner="ruby:1:a")
        assert (found["level"], found["program"]) == ("warning", "Sidekiq 8.0.4")
        assert found["queues"] == ["mail", "q"]
        assert found["features"] == ["limited", "ordered", "tracked", "unique"]
        server.wait_for_event("flow.old_server", owner="old:2:b")
        assert len(server.events("flow.foreign_server")) == 1


AFTER = """
@worker.job(queue="q")
def done(batch_id):
    note("done", batch_id)
"""


def hold(server: ServerProcess) -> str:
    """Enqueue jobs that no server takes: a locked one, and the members of a batch; returns its id."""
    worker = Worker(server.url, namespace=server.keys.namespace)

    @worker.job(queue="idle", unique_for=3600)
    def unique() -> None: ...

    @worker.job(queue="idle")
    def member(number: int) -> None: ...

    @worker.job(queue="q")
    def done(batch_id: str = "") -> None: ...

    unique.enqueue()
    with worker.batch(on_complete=done.call()) as batch:
        member.enqueue_bulk([(1,), (2,)])
        member.enqueue_in(3600, 3)
    return batch.id


def is_locked(server: ServerProcess) -> bool:
    return bool(list(server.redis.scan_iter(server.keys.unique("*"))))


@pytest.mark.fault("D1")
def test_what_another_program_deletes_is_released(serve_either: Serve) -> None:
    with serve_either(AFTER, **SETTINGS) as server:
        batch = hold(server)
        server.redis.delete(server.keys.queue("idle"), server.keys.schedule)
        server.wait_for_notes(1, "done", batch)
        wait_for(lambda: not is_locked(server))
        found = wait_for(lambda: sum(event["members"] for event in server.events("flow.swept")))
        assert found == 3
        assert server.redis.ttl(server.keys.batch(batch)) > 0


@pytest.mark.fault("D2")
@pytest.mark.parametrize("call", [1, 7, 14])
def test_a_server_that_dies_in_a_sweep_leaves_it_to_the_next(
    serve: Serve, tmp_path: Path, one_redis_url: str, namespace: str, call: int
) -> None:
    points = {"PYWORKERS_FAILPOINTS": f"mid_sweep=kill@{call}"}
    with serve(AFTER, **SETTINGS, **points) as first:
        batch = hold(first)
        first.redis.delete(first.keys.queue("idle"), first.keys.schedule)
        wait_for(lambda: first.exited)
        # Redis ends the turn of a sweep without calls; the test does not wait for that.
        turn = first.keys.sweep("turn")
        assert 0 < first.redis.pttl(turn) <= LIFE_S * 1000
        first.redis.delete(turn)
        (tmp_path / "next").mkdir()
        with serving(tmp_path / "next", one_redis_url, namespace, AFTER, **SETTINGS) as second:
            second.wait_for_notes(1, "done", batch)
            wait_for(lambda: not is_locked(second))
            assert len(second.ledger()) == 1
