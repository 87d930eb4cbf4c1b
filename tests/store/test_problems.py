"""What delays or endangers jobs now: found in the counts, and in the settings of Redis."""

from __future__ import annotations

import json
import time
from hashlib import sha1
from typing import Any

import pytest
import redis

from pyworkers.api import Problem, Severity
from pyworkers.api.causes import causes_in
from pyworkers.api.problems import problems_in, read_unsafe, span
from pyworkers.api.stats import read_stats
from pyworkers.protocol.keys import Keys
from tests.helpers.records import hold_order, raw_job, register
from tests.store.conftest import Cli, Run


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


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (119.9, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (7500, "2 h 5 min"),
        (172_799, "47 h 59 min"),
        (5e7, "578 d 16 h"),
    ],
)
def test_a_length_of_time_in_a_message(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("fields", "left_s", "message", "fix"),
    [
        ({"misfit_at": 30}, 600, "does not fit the active server", "start a server"),
        ({"failed_at": 30, "error_class": "KeyError"}, 600, "fails (KeyError)", "pyworkers cancel 1"),
        (
            {"failed_at": 90, "error_class": "KeyError"},
            5,
            "has waited for 90 s for the job 1 (Add)",
            "resume q;",
        ),
        ({"failed_at": 30}, 5, "", ""),
        ({}, 600, "waits for the job 1 (Add) at its head, which runs again in 9 min", "resume q;"),
        ({}, 5, "", ""),
        ({"jid": "\ud800" * 300}, 600, "\\ud800", "pyworkers jobs q shows it"),
        ({"large": "x" * 70_000}, 600, "waits for the job at its head", "pyworkers jobs q shows it"),
    ],
)
def test_an_ordered_queue_that_its_head_holds(
    run_work: Run, keys: Keys, db: redis.Redis, cli: Cli, fields: Any, left_s: int, message: str, fix: str
) -> None:
    now = time.time()
    ages = {name: now - age for name, age in fields.items() if name.endswith("_at")}
    raw = raw_job(**{"jid": "1", **fields, **ages})
    until = str(int((now + left_s) * 1000))
    hold_order(db, keys, "q", "a:1:x", until=until, head=sha1(raw).hexdigest())
    db.hset(keys.owners, "a:1:x", '["q"]')
    db.sadd(keys.queues, "q")
    db.rpush(keys.queue("q"), raw_job("2"), raw)
    found = all_problems(run_work, keys)
    assert [one.code for one in found] == (["held"] if message else [])
    for one in found:
        assert one.queue == "q" and message in one.message and fix in one.fix
        json.dumps(one.as_dict(), ensure_ascii=False).encode()
    assert ("held: the queue 'q'" in cli("check").stdout) == bool(message)
    db.rpop(keys.queue("q"))
    assert all_problems(run_work, keys) == []


def test_three_silent_servers_are_one_cause(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    now = time.time()
    for number in range(3):
        queues = [f"q{place}" for place in range(number, 9, 3)]
        register(db, keys, f"web:{number}:a", {"queues": queues}, beat=now - 130 - number)
        db.hset(keys.owners, f"web:{number}:a", "[]")
    for place in range(9):
        db.sadd(keys.queues, f"q{place}")
        db.lpush(keys.queue(f"q{place}"), *[raw_job("a")] * (place + 1))
    db.sadd(keys.queues, "lonely")
    db.lpush(keys.queue("lonely"), raw_job("a"))
    db.sadd(keys.paused, "q0")
    unsafe = Problem(Severity.ERROR, "eviction", "Redis may evict jobs", "set noeviction")
    found = causes_in(run_work(read_stats(keys)), [unsafe])
    assert [(cause.code, len(cause.problems), len(cause.unserved)) for cause in found] == [
        ("silent", 3, 9),
        ("unserved", 1, 0),
        ("eviction", 1, 0),
        ("paused", 1, 0),
    ]
    assert found[0].title == "3 servers are silent since 2 min"
    assert [queue.name for queue in found[0].unserved[:2]] == ["q8", "q7"]
    assert [cause.title for cause in found[1:]] == ["", "", ""]


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
