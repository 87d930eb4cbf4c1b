"""Servers that leave out effects: found by their heartbeats, and named by ``pyworkers check``."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from pyworkers.api.problems import read_unsafe
from pyworkers.protocol import flow
from pyworkers.protocol.keys import Keys
from pyworkers.store.flow.servers import uninformed
from tests.helpers.records import raw_job, register
from tests.store.conftest import Cli, Run

OURS = {"look": 0}


def beat(db: redis.Redis, keys: Keys, identity: str, *queues: str, **fields: Any) -> None:
    info = {"hostname": "web", "pid": 1, "version": fields.pop("version", ""), "queues": list(queues)}
    if "flow" in fields:
        info["flow"] = fields.pop("flow")
    register(db, keys, identity, info, **{"beat": time.time(), **fields})


@pytest.mark.parametrize("known", [None, 0, flow.VERSION - 1, "x", [1]])
def test_a_server_of_an_earlier_version_is_found(
    run_work: Run, keys: Keys, db: redis.Redis, known: object
) -> None:
    more = {} if known is None else {"flow": known}
    beat(db, keys, "web:1:a", "q", version="0.1.0", **OURS, **more)
    beat(db, keys, "web:2:b", "q", version="0.2.0", flow=flow.VERSION, **OURS)
    beat(db, keys, "web:3:c", "q", version="0.3.0", flow=flow.VERSION + 1, **OURS)
    beat(db, keys, "web:4:d", "q", version="0.1.0", **{**OURS, "beat": time.time() - 3600})
    found = run_work(uninformed(keys))
    assert [view.identity for view in found.older] == ["web:1:a"]
    assert found.foreign == []


def test_another_programs_server_matters_where_jobs_have_effects(
    run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    beat(db, keys, "ruby:1:a", "q", "low")
    beat(db, keys, "ruby:2:b", "rails")
    beat(db, keys, "web:1:a", "q", flow=flow.VERSION, **OURS)
    assert run_work(uninformed(keys)).foreign == []
    # A batch alone does not say in which queues its members are.
    db.zadd(keys.batches, {"b": time.time() + 60})
    assert run_work(uninformed(keys)).foreign == []
    db.lpush(keys.queue("q"), raw_job("a", batch="b"))
    assert foreign(run_work, keys) == {"ruby:1:a": {"q": ["batches"]}}
    db.sadd(keys.locks, "unique:Add|rails|12", "unique:odd", b"unique:\xff|\xfe|1")
    assert foreign(run_work, keys) == {"ruby:1:a": {"q": ["batches"]}, "ruby:2:b": {"rails": ["unique"]}}


def foreign(run_work: Run, keys: Keys) -> dict[str, Any]:
    return {one.view.identity: one.uses for one in run_work(uninformed(keys)).foreign}


@pytest.mark.parametrize(
    ("declared", "waiting", "uses"),
    [
        ('{"q": ["ordered", "limited", "of 0.9", 5], "low": []}', [], {"q": ["limited", "ordered"]}),
        ('{"other": ["tracked"], "low": 5}', [], {}),
        ("no json", ["no json", '{"track":null}'], {}),
        ("", [raw_job("a", track=5), raw_job("b", batch="x")], {"q": ["batches", "tracked"]}),
        ("", [*[raw_job(str(n)) for n in range(20)], raw_job("a", batch="x")], {"q": ["batches"]}),
        ("", [*[raw_job(str(n)) for n in range(20)], raw_job("a", track=5)], {"q": ["tracked"]}),
        ("", [raw_job("a", unique_key="k"), *[raw_job(str(n)) for n in range(9)]], {"q": ["unique"]}),
    ],
)
def test_declarations_and_waiting_jobs_show_what_another_program_breaks(
    run_work: Run, keys: Keys, db: redis.Redis, declared: str, waiting: list[Any], uses: dict[str, Any]
) -> None:
    beat(db, keys, "web:1:a", "q", "low", "other", flow=flow.VERSION, **OURS, features=declared)
    beat(db, keys, "ruby:1:a", "q", "low")
    for raw in waiting:
        db.lpush(keys.queue("q"), raw)
    assert foreign(run_work, keys) == ({"ruby:1:a": uses} if uses else {})


def test_check_names_both_with_the_fix(cli: Cli, run_work: Run, keys: Keys, db: redis.Redis) -> None:
    beat(db, keys, "web:1:a", "q", version="0.1.0", **OURS)
    beat(db, keys, "ruby:2:b", "q")
    db.lpush(keys.queue("q"), raw_job("a", batch="b"))
    lines = cli("check").stdout.splitlines()
    older = lines.index(
        "old_server: web:1:a runs pyworkers 0.1.0, which releases no locks and counts no batches"
    )
    assert "restart it with this version" in lines[older + 1]
    foreign = next(place for place, line in enumerate(lines) if line.startswith("foreign_server: ruby:2:b "))
    assert lines[foreign].endswith("serves q with batches: members are not counted (batches)")
    assert "separate queues" in lines[foreign + 1]
    [problem] = [found for found in run_work(read_unsafe(keys)) if found.code == "foreign_server"]
    assert problem.message in lines[foreign]


def test_a_listing_says_older(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    beat(db, keys, "web:1:a", "q", version="0.1.0", **OURS)
    assert " older " in cli("processes").stdout.splitlines()[1]
    assert '"flow": 0' in cli("processes", "--json").stdout


def test_check_names_fields_that_need_their_own_program(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    beat(db, keys, "web:1:a", "q", "low", flow=flow.VERSION, **OURS)
    jobs: list[dict[str, Any]] = [
        {"bid": "b"}, {"encrypt": True}, {"lock_digest": "d"}, {"unique_token": "t"}, {"encrypt": False}
    ]  # fmt: skip
    db.lpush(keys.queue("q"), "no json", *(raw_job(str(number), **job) for number, job in enumerate(jobs)))
    db.lpush(keys.queue("low"), raw_job("a", lock_digest="d", lock_ttl=60))
    db.lpush(keys.queue("other"), raw_job("b", bid="b"))
    lines = [line for line in cli("check").stdout.splitlines() if line.startswith("foreign_field: ")]
    assert len(lines) == 4 and all(line.endswith(" wait in q") for line in lines)
