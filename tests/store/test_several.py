"""The command line of a program with two real Redis servers: what is shown, asked and changed where."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from pyworkers import Client
from pyworkers.cli import main
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.keys import Keys
from tests.helpers.records import raw_job, register
from tests.helpers.replies import as_list

Run = Callable[..., Result]
pytestmark = pytest.mark.usefixtures("two_redis")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, [*words])


@pytest.fixture
def filled(db: redis.Redis, there: redis.Redis, keys: Keys, two_redis: None) -> None:
    """Each Redis has one of everything; the names end with that of the Redis."""
    for number, (name, connection) in enumerate((("default", db), ("archive", there))):
        jobs = {
            kind: raw_job(f"{kind}-{name}", queue=f"q-{name}")
            for kind in ("waiting", "later", "again", "dead")
        }
        connection.sadd(keys.queues, f"q-{name}")
        connection.lpush(keys.queue(f"q-{name}"), jobs["waiting"])
        for key, kind in ((keys.schedule, "later"), (keys.retry, "again"), (keys.dead, "dead")):
            connection.zadd(key, {jobs[kind]: time.time() + 3600 * (kind != "dead")})
        register(
            connection, keys, f"web-{name}:1:abcdef", {"queues": [f"q-{name}"]}, beat=str(int(time.time()))
        )
        connection.hset(keys.limits, f"limit-{name}", "10 0")
        connection.set(keys.unique(f"C|q|{number}"), f"lock-{name}", px=60_000)
        connection.sadd(keys.locks, f"unique:C|q|{number}")
    for name, url in (("default", db), ("archive", there)):
        port = url.connection_pool.connection_kwargs["port"]
        config = RedisConfig(f"redis://127.0.0.1:{port}/0", keys.namespace)
        with Client.from_config(config) as client:
            client.enlist(BatchPlan(f"b-{name}", "hold", members=["m"]))
        words = ["cron", "add", f"cron-{name}", "@daily", "C", "-q", f"q-{name}", "--redis", name]
        assert run(*words).exit_code == 0


LISTS = [
    ["queues"],
    ["jobs", "q-archive"],
    ["scheduled"],
    ["retries", "list", "--class", "*"],
    ["dead"],
    ["processes"],
    ["locks"],
    ["limits"],
    ["batches"],
    ["cron"],
    ["audit"],
]


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("words", LISTS, ids=lambda words: words[0])
def test_a_list_has_what_each_redis_has_with_its_name(words: list[str]) -> None:
    ofs = ["archive"] if words[0] == "jobs" else ["default", "archive"]
    if words[0] == "jobs":
        words = [words[0], words[1], "list", "--redis", "archive"]
    lines = run(*words).stdout.splitlines()
    assert (lines[0].split()[0], sorted(line.split()[0] for line in lines[1:])) == ("redis", sorted(ofs))
    rows = json.loads(run(*words, "--json").stdout)
    assert sorted(row["redis"] for row in rows) == sorted(ofs)
    assert all(row["redis"] in json.dumps({**row, "redis": ""}) for row in rows)
    alone = json.loads(run(*words, "--json", *(() if "--redis" in words else ("--redis", "default"))).stdout)
    assert len(alone) == 1


@pytest.mark.usefixtures("filled")
def test_counts_have_a_column_for_each_redis() -> None:
    head, *lines = run("stats").stdout.splitlines()
    assert head.split() == ["default", "archive"]
    assert ["enqueued", "1", "1"] in [line.split() for line in lines]
    found = json.loads(run("stats", "--json").stdout)
    assert [(one["redis"], one["enqueued"]) for one in found] == [("default", 1), ("archive", 1)]
    assert json.loads(run("stats", "--json", "--redis", "archive").stdout)[0]["redis"] == "archive"
    top = run("top", "--once").stdout
    assert "q-archive" in top and "q-default" in top
    top = run("top", "--once", "--redis", "archive").stdout
    assert "q-archive" in top and "q-default" not in top
    assert [one["redis"] for one in json.loads(run("top", "--json").stdout)] == ["default", "archive"]


@pytest.mark.usefixtures("filled")
def test_an_action_goes_to_the_redis_of_its_subject(
    db: redis.Redis, there: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYWORKERS_QUEUES__Q-ARCHIVE__REDIS", "archive")
    for words in (
        ["pause", "q-archive"],
        ["jobs", "q-archive", "delete", "waiting-archive"],
        ["scheduled", "retry", "later-archive"],
        ["retries", "kill", "again-archive"],
        ["locks", "release", "lock-archive"],
        ["limits", "reset", "limit-archive"],
        ["batches", "delete", "b-archive"],
        ["cron", "pause", "cron-archive"],
        ["cron", "trigger", "cron-archive"],
        ["quiet", "web-archive"],
    ):
        found = run(*words)
        assert found.exit_code == 0, (words, found.output)
    assert (there.smembers(keys.paused), db.exists(keys.paused)) == ({b"q-archive"}, 0)
    assert (there.zcard(keys.schedule), there.zcard(keys.retry), there.zcard(keys.dead)) == (0, 0, 2)
    assert (db.zcard(keys.schedule), db.zcard(keys.retry), db.zcard(keys.dead)) == (1, 1, 1)
    assert (there.hlen(keys.limits), there.zcard(keys.batches), db.zcard(keys.batches)) == (0, 0, 1)
    assert there.smembers(keys.cron_paused) == {b"cron-archive"}
    assert as_list(there.lrange(keys.signals("web-archive:1:abcdef"), 0, -1)) == [b"TSTP"]
    # Its line in the audit is there as well.
    assert b"queue.pause" in b" ".join(as_list(there.lrange(keys.audit, 0, -1)))
    assert b"queue.pause" not in b" ".join(as_list(db.lrange(keys.audit, 0, -1)))
    cleared = run("dead", "clear", "--yes", "--json")
    assert json.loads(cleared.stdout)["done"] == 3


@pytest.mark.usefixtures("filled")
def test_a_job_is_looked_for_in_all(there: redis.Redis, keys: Keys) -> None:
    there.hset(keys.job("tracked"), mapping={"state": "running", "queue": "q-archive"})
    for jid, state in (("tracked", "running"), ("later-archive", "scheduled"), ("again-default", "retrying")):
        found = run("status", jid, "--json")
        assert (found.exit_code, json.loads(found.stdout)["state"]) == (0, state), found.output
    assert json.loads(run("scheduled", "show", "later-archive", "--json").stdout)["redis"] == "archive"
    assert (run("status", "nowhere").exit_code, run("batches", "show", "b-archive").exit_code) == (1, 0)
    assert "has not ended" in run("result", "tracked", "--timeout", "10ms").stderr
    cancelled = json.loads(run("cancel", "later-archive", "again-default", "--json").stdout)
    assert cancelled["results"] == {"later-archive": "removed", "again-default": "removed"}


@pytest.mark.usefixtures("filled")
def test_one_that_is_away_is_named_and_the_others_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYWORKERS_REDIS__ARCHIVE__URL", "redis://127.0.0.1:1/0")
    for words in LISTS:
        if words[0] != "jobs":
            found = run(*words)
            assert (found.exit_code, len(found.stdout.splitlines())) == (4, 2), (words, found.output)
            assert "the Redis archive is unreachable" in found.stderr
    for words in (
        ["status", "nowhere"],
        ["cancel", "nowhere"],
        ["result", "nowhere"],
        ["cron", "pause", "x"],
    ):
        found = run(*words)
        assert "the Redis archive is unreachable" in found.stderr
        # Not with --url, which names the default one.
        assert "change url in [redis.archive]" in found.stderr and "--url" not in found.stderr
        assert found.exit_code == 4, found.output
    # What is found does not need the others.
    found = run("status", "later-default", "--json")
    assert (found.exit_code, json.loads(found.stdout)["state"]) == (0, "scheduled")


def test_check_names_the_redis_of_each_finding(there: redis.Redis, keys: Keys) -> None:
    there.hset(keys.moves, "reports", "x 1 default")
    result = run("check", "--json")
    found: list[dict[str, Any]] = json.loads(result.stdout)["findings"]
    assert {one["redis"] for one in found if one["code"] == "move"} == {"archive"}
    assert "move of archive: " in run("check").stdout


def test_the_acl_is_of_one_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYWORKERS_REDIS__ARCHIVE__NAMESPACE", "archive:")
    assert "~archive:queues" in run("acl", "--redis", "archive").stdout
    assert "~archive:queues" not in run("acl").stdout
    assert run("acl", "--redis", "archive", "--oldest", "6.2").exit_code == 0
    assert run("acl", "--redis", "attic").exit_code == 2


def test_a_dead_process_is_adopted_in_the_redis_that_has_its_jobs(
    there: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyworkers.cli.adopt._WATCH_S", 0.05)
    there.sadd(keys.queues, "mail")
    there.lpush(keys.queue("mail:worker-1:inprogress"), b"{}")
    found = run("adopt", "go-workers", "--process", "worker-1", "--yes")
    assert (found.exit_code, found.stdout) == (0, "worker-1: 1 job returned to mail (1)\n"), found.output
    assert as_list(there.lrange(keys.queue("mail"), 0, -1)) == [b"{}"]
    assert run("adopt", "go-workers", "--process", "worker-1", "--yes").exit_code == 1


def test_a_redis_that_is_not_configured_is_refused() -> None:
    found = run("queues", "--redis", "attic")
    assert (found.exit_code, "there is no Redis 'attic'" in found.stderr) == (2, True)


def test_a_job_is_enqueued_where_its_queue_is(
    db: redis.Redis, there: redis.Redis, keys: Keys, tmp_path: Path
) -> None:
    (tmp_path / "workers.toml").write_text('[queues.q-archive]\nredis = "archive"\n')
    for queue in ("q-archive", "q-default"):
        assert run("enqueue", queue, "C", "--config", str(tmp_path / "workers.toml")).exit_code == 0
    assert (db.llen(keys.queue("q-default")), there.llen(keys.queue("q-archive"))) == (1, 1)
    assert run("enqueue", "q-default", "C", "--redis", "archive").exit_code == 0
    assert there.llen(keys.queue("q-default")) == 1
