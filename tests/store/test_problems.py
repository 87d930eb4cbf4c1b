"""What delays or endangers jobs now: found in the counts, and in the settings of Redis."""

from __future__ import annotations

import time

import redis

from pyworkers.api import Problem
from pyworkers.api.problems import problems_in, read_unsafe
from pyworkers.api.stats import read_stats
from pyworkers.protocol.keys import Keys
from tests.helpers.records import raw_job, register
from tests.store.conftest import Run


def test_the_problems_of_queues_and_servers(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "mail", "idle", b"\xff")
    db.lpush(keys.queue("mail"), raw_job("a"))
    db.sadd(keys.paused, b"\xff")
    db.hset(keys.owners, mapping={"gone:1:a": "[]", "lives:2:b": "[]"})
    db.set(keys.lease("lives:2:b"), "x")
    register(db, keys, "still:3:c", {}, beat=time.time() - 600)
    register(db, keys, "web:4:d", {}, beat=time.time(), quiet="true")
    register(db, keys, "web:5:e", {}, beat=time.time(), quiet="true", stops_at=int(time.time()) + 9, look=0)
    found = [(one.severity.value, one.code, one.queue or one.server) for one in all_problems(run_work, keys)]
    assert found == [
        ("error", "lease", "gone:1:a"),
        ("error", "unserved", "mail"),
        ("error", "silent", "still:3:c"),
        ("warning", "paused", "\udcff"),
        ("warning", "quiet", "web:4:d"),
    ]


def all_problems(run_work: Run, keys: Keys) -> list[Problem]:
    return problems_in(run_work(read_stats(keys)))


def test_a_thousand_paused_queues_are_one_more_line(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.paused, *(f"q{number}" for number in range(1000)))
    found = all_problems(run_work, keys)
    assert len(found) == 21
    assert found[-1].message == "980 more of this kind"


def test_an_unsafe_redis(run_work: Run, keys: Keys, redis_url: str, namespace: str) -> None:
    # The tests' server writes no append-only file.
    found = {one.code: one for one in run_work(read_unsafe(keys))}
    assert "append-only" in found["persistence"].message
    assert "redis-cli" not in found["persistence"].fix
    assert found["persistence"].as_dict()["severity"] == "error"
    assert {one.code for one in Problem.find(redis_url, namespace=namespace)} >= {"persistence"}
