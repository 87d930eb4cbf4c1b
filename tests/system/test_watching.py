"""A viewer gets the servers' numbers of now, and servers without a viewer write seldom."""

from __future__ import annotations

import json
import time

import redis
from click.testing import CliRunner
from redis.typing import EncodableT, FieldT

from pyworkers.api import ProcessSet, Stats, WorkSet
from pyworkers.cli import main
from pyworkers.store.acl import Role
from tests.helpers.acl import url_of
from tests.helpers.server_process import Serve
from tests.helpers.support import PATIENCE_S, by_load, stretched, wait_for

CODE = """
@worker.process("q", concurrency=2)
def handle(message):
    note("start", message.jid)
    if message.args:
        wait_for_file(message.args[0])
    note("end", message.jid)
"""


def run(url: str, namespace: str, *words: str) -> str:
    result = CliRunner().invoke(main, [*words, "--url", url, "--namespace", namespace])
    assert result.exit_code == 0, result.output
    return result.stdout


def refresh(url: str, namespace: str) -> None:
    """Have all servers write their numbers, with more patience than the commands have."""
    began = time.monotonic()
    ProcessSet(url, namespace=namespace).refresh(timeout=2 * PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S, "it has waited in vain"


def test_the_first_job_is_counted_as_soon_as_a_viewer_asks(
    serve_either: Serve, redis_url: str, namespace: str
) -> None:
    with serve_either(CODE) as server:
        server.wait_until_listed()
        for number in range(1, 4):
            server.push("q", {"class": "A", "args": [], "jid": str(number)})
            server.wait_for_notes(1, "end", str(number))
            # Its outcome is with the master within milliseconds.
            wait_for(lambda: server.inprogress("q") == [])
            refresh(redis_url, namespace)
            assert Stats.fetch(redis_url, namespace=namespace).processed == number
        server.redis.delete(server.keys.watched)
        assert json.loads(run(redis_url, namespace, "stats", "--json"))["processed"] == 3
        assert server.redis.exists(server.keys.watched), "the command has asked, too"


def test_a_running_job_is_shown_from_its_begin_to_its_end(
    serve_either: Serve, redis_url: str, namespace: str
) -> None:
    with serve_either(CODE) as server:
        server.wait_until_listed()
        for number in range(3):
            server.push("q", {"class": "A", "args": [f"go{number}"], "jid": str(number)})
            server.wait_for_notes(1, "start", str(number))
            refresh(redis_url, namespace)
            (job,) = json.loads(run(redis_url, namespace, "workers", "--json"))
            assert job["jid"] == str(number)
            (process,) = json.loads(run(redis_url, namespace, "processes", "--json"))
            assert process["busy"] == 1
            server.let_go(f"go{number}")
            server.wait_for_notes(1, "end", str(number))
            wait_for(lambda: server.inprogress("q") == [])
            refresh(redis_url, namespace)
            assert json.loads(run(redis_url, namespace, "workers", "--json")) == []


def test_servers_continue_to_write_while_a_viewer_runs(
    serve_either: Serve, redis_url: str, namespace: str
) -> None:
    with serve_either(CODE) as server:
        server.wait_until_listed()
        refresh(redis_url, namespace)
        assert 0 < server.redis.ttl(server.keys.watched) <= 10
        took = []
        for number in range(1, 4):
            server.push("q", {"class": "A", "args": [], "jid": str(number)})
            began = time.monotonic()
            wait_for(lambda n=number: Stats.fetch(redis_url, namespace=namespace).processed == n)  # type: ignore[misc]
            took.append(time.monotonic() - began)
        # Nobody asks again: a beat, every 5 s, would be too late for the second and the third. A stall delays
        # one of the three.
        assert sorted(took)[1] < by_load(2.5)


def test_without_servers_a_viewer_does_not_wait(redis_url: str, namespace: str) -> None:
    refresh(redis_url, namespace)
    assert list(WorkSet(redis_url, namespace=namespace)) == []


def describe(db: redis.Redis, namespace: str, identity: str, **fields: EncodableT) -> None:
    """What a server that is not there has written."""
    db.sadd(f"{namespace}processes", identity)
    info = json.dumps({"identity": identity, "queues": ["q"]})
    described: dict[FieldT, EncodableT] = {"info": info, "beat": time.time(), "busy": 0}
    described.update(fields.items())
    db.hset(f"{namespace}{identity}", mapping=described)


def test_servers_of_others_are_not_waited_for(redis_url: str, namespace: str, db: redis.Redis) -> None:
    describe(db, namespace, "ruby:1:abcdef")
    refresh(redis_url, namespace)


def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_asked(
    redis_url: str, namespace: str, db: redis.Redis
) -> None:
    describe(db, namespace, "gone:1:abcdef", look=0)
    began = time.monotonic()
    ProcessSet(redis_url, namespace=namespace).refresh(timeout=0.3)
    assert 0.3 <= time.monotonic() - began < stretched(1)


def test_who_may_not_write_sees_the_last_beat_and_no_error(
    serve_either: Serve, redis_url: str, namespace: str
) -> None:
    url = url_of(redis_url, Role.READ_ONLY, namespace)
    with serve_either(CODE) as server:
        server.wait_until_listed()
        (process,) = json.loads(run(url, namespace, "processes", "--json"))
        assert process["queues"] == ["q"]
        assert not server.redis.exists(server.keys.watched)
