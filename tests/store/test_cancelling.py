"""Cancelling a job that a server of another kind runs: it is said where, and done as that server knows it."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
import redis
from redis.typing import EncodableT, FieldT

from pyworkers import AsyncClient, Cancelled, Client
from pyworkers.protocol.keys import Keys
from tests.helpers.replies import as_texts
from tests.helpers.support import wait_for
from tests.store.conftest import Cli

SIDEKIQ = "web:7:abcdef"


def sidekiq_runs(db: redis.Redis, keys: Keys, *jids: str, version: str | None = "8.1.7") -> None:
    """What a Sidekiq of that version writes with its beat."""
    info = {"hostname": "web", "started_at": 1.5, "pid": 7, "queues": ["q"], "identity": SIDEKIQ}
    if version is not None:
        info["version"] = version
    db.sadd(keys.processes, SIDEKIQ)
    db.hset(keys.process(SIDEKIQ), mapping={"info": json.dumps(info), "busy": len(jids), "beat": time.time()})
    for number, jid in enumerate(jids):
        payload = json.dumps({"class": "Any", "args": [{"jid": "other"}], "jid": jid})
        work = {"queue": "q", "payload": payload, "run_at": int(time.time())}
        db.hset(keys.work(SIDEKIQ), f"tid{number}", json.dumps(work))


def test_an_iterable_job_ends_as_by_sidekiqs_own_cancel(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    sidekiq_runs(db, keys, "a", "b")
    result = cli("cancel", "b")
    assert result.exit_code == 1
    sentence = "Sidekiq ends it if it is iterable; otherwise it continues"
    assert result.stdout == f"b: running in {SIDEKIQ}, thread tid1: {sentence}\n"
    assert time.time() - 60 < int(db.hget(keys.iteration("b"), "cancelled") or 0) <= time.time()
    assert 29 * 86_400 < db.ttl(keys.iteration("b")) <= 30 * 86_400
    assert not db.exists(keys.iteration("a"), keys.iteration("other"))
    assert json.loads(cli("cancel", "b", "other", "--json").stdout) == {
        "action": "cancel",
        "done": 0,
        "results": {"b": "elsewhere", "other": "unknown"},
    }


def test_the_first_cancellation_counts_and_the_cursor_stays(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    sidekiq_runs(db, keys, "a")
    state: dict[FieldT, EncodableT] = {"ex": "1", "c": "[7]", "rt": "1.5", "cancelled": "1795225197"}
    db.hset(keys.iteration("a"), mapping=state)
    assert Client(redis_url, namespace=namespace).cancel("a") is Cancelled.ELSEWHERE
    assert as_texts(db.hgetall(keys.iteration("a"))) == state


@pytest.mark.parametrize(
    ("version", "iterates"),
    [("7.3.0", True), ("10.0", True), ("7.2.4", False), ("x", False), ("9" * 5_000, False), (None, False)],
)
def test_no_key_is_left_that_no_program_would_delete(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis, version: str | None, iterates: bool
) -> None:
    sidekiq_runs(db, keys, "a", version=version)
    assert Client(redis_url, namespace=namespace).cancel("a") is Cancelled.ELSEWHERE
    assert db.exists(keys.iteration("a")) == iterates
    # A state shows that the job is iterable; its process need not.
    db.hset(keys.iteration("a"), "ex", 1)
    Client(redis_url, namespace=namespace).cancel("a")
    assert db.hexists(keys.iteration("a"), "cancelled")


def test_what_a_server_of_ours_said_a_moment_ago_is_no_other_server(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    sidekiq_runs(db, keys, "a")
    db.hset(keys.owners, SIDEKIQ, '["q"]')
    assert Client(redis_url, namespace=namespace).cancel("a") is Cancelled.UNKNOWN
    assert not db.exists(keys.iteration("a"))


async def test_an_asyncio_client_cancels_over_a_connection_of_its_own_and_closes_it(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    db.sadd(keys.queues, "q")
    db.lpush(keys.queue("q"), *(json.dumps({"class": "Any", "args": [], "jid": jid}) for jid in "abc"))
    name = namespace.strip(":")

    def connections() -> int:
        return sum(client["name"] == name for client in db.client_list())

    async with AsyncClient(f"{redis_url}?client_name={name}", namespace=namespace) as client:
        assert [await client.cancel(jid) for jid in "abc"] == [Cancelled.REMOVED] * 3
        wait_for(lambda: connections() == 0, message="each call closes its connection")
    assert db.llen(keys.queue("q")) == 0


async def test_any_text_is_an_id_that_can_be_cancelled(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    jids = ["two\nlines", "\u202eabc"]
    for jid in jids:
        db.lpush(keys.queue("q"), json.dumps({"class": "Any", "args": [], "jid": jid}))
    db.sadd(keys.queues, "q")
    blocking = Client(redis_url, namespace=namespace)
    assert await asyncio.to_thread(blocking.cancel, jids[0]) is Cancelled.REMOVED
    async with AsyncClient(redis_url, namespace=namespace) as client:
        assert await client.cancel(jids[1]) is Cancelled.REMOVED
    assert not db.exists(keys.queue("q"))
