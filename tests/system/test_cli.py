"""The command line against real servers: what it writes, what it shows, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result
from redis.typing import EncodableT, FieldT

from pyworkers.cli import main
from pyworkers.embedded import EmbeddedServer, socket_url
from pyworkers.protocol.flow.counted import INCIDENTS
from pyworkers.protocol.keys import Keys
from tests.helpers.support import ROOT, free_port

Cli = Callable[..., Result]
# The variables of ours that reach no command.
OURS = ("PYWORKERS_", "REDIS_")


def python_m_pyworkers(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process, which no variable of ours reaches."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    settings: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "encoding": "utf-8",
        "timeout": 60,
    }
    command = [sys.executable, "-m", "pyworkers", *words]
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, env=env | {"PYTHONPATH": str(ROOT)}, **(settings | options)
    )
    return done


@pytest.fixture
def cli(redis_url: str, namespace: str) -> Cli:
    """Run a command on the Redis of this test, without a new process; it must succeed."""
    without = {name: None for name in os.environ if name.startswith(OURS)}

    def run(*words: str, **options: Any) -> Result:
        place = ["--url", redis_url, "--namespace", namespace]
        done = CliRunner(env=without).invoke(main, [*words, *place], catch_exceptions=False, **options)
        assert (done.exit_code, done.stderr) == (0, "")
        return done

    return run


# enqueue


def test_enqueue_puts_the_job_where_sidekiq_looks_for_it(cli: Cli, db: redis.Redis, keys: Keys) -> None:
    jid = cli("enqueue", "mail", "SendMail", '[12345678901234567890123, "grüße"]').stdout.rstrip("\n")
    assert db.smembers(keys.queues) == {b"mail"}
    [raw] = db.lrange(keys.queue("mail"), 0, -1)
    assert '"args":[12345678901234567890123,"grüße"]'.encode() in raw
    envelope = json.loads(raw)
    assert (envelope["jid"], envelope["class"], envelope["queue"]) == (jid, "SendMail", "mail")
    assert abs(envelope["enqueued_at"] - time.time()) < 60


# stats and queues


@pytest.fixture
def two_servers(db: redis.Redis, keys: Keys) -> None:
    """Jobs in every state: a live server with two queues, a dead one, and a queue that no server serves."""
    now = time.time()
    db.mset(
        {
            keys.stat("processed"): 120,
            keys.stat("failed"): 7,
            keys.stat("expired"): 5,
            keys.stat("crashed"): 9,
        }
    )
    db.hset(keys.owners, mapping={"live:1:a": '["mail","bare"]', "dead:1:b": '["mail"]', "odd": "no JSON"})
    db.set(keys.lease("live:1:a"), "live:1:a", px=60_000)
    db.lpush(keys.inprogress("mail", "live:1:a"), "x", "x")
    db.lpush(keys.inprogress("bare", "live:1:a"), "x")
    db.lpush(keys.inprogress("mail", "dead:1:b"), "x")
    db.sadd(keys.queues, "mail", "idle", b"\xff")
    db.lpush(keys.queue("mail"), json.dumps({"enqueued_at": now - 100}), json.dumps({"enqueued_at": now}))
    db.lpush(keys.queue("bare"), "not a job")
    db.zadd(keys.schedule, {"a": 1, "b": 2})
    db.zadd(keys.retry, {"a": 1, "b": 2, "c": 3})
    db.zadd(keys.dead, {"a": 1})


EXPECTED = {
    "processed": 120,
    "failed": 7,
    "expired": 5,
    **dict.fromkeys(INCIDENTS, 0),
    "crashed": 9,
    "enqueued": 3,
    "busy": 4,
    "scheduled": 2,
    "retries": 3,
    "dead": 1,
    "processes": 1,
}
SIZES = {"bare": 1, "idle": 0, "mail": 2, r"\xff": 0}


@pytest.mark.usefixtures("two_servers")
def test_stats_count_the_jobs_in_each_state(cli: Cli) -> None:
    found = json.loads(cli("stats", "--json").stdout)
    assert {queue["name"]: queue["size"] for queue in found.pop("queues")} == SIZES
    oldest = found.pop("oldest")
    assert oldest["queue"] == "mail"
    assert 100 <= oldest["age_s"] < 160
    assert found == EXPECTED | {"groups": [], "lost": ["dead:1:b", "odd"]}
    counts, queues = (text.splitlines() for text in cli("stats").stdout.split("\n\n"))
    assert {name: int(count) for name, count in map(str.split, counts)} == EXPECTED
    header, *rows = map(str.split, queues)
    assert header == ["queue", "size"]
    assert {name: int(size) for name, size in rows} == SIZES


@pytest.mark.usefixtures("two_servers")
def test_stats_show_the_groups_of_all_servers_together(cli: Cli, db: redis.Redis, keys: Keys) -> None:
    web = {"queues": {"a": 5, "b": 1}, "strict": False, "mode": "async", "processes": 2, "concurrency": 50}
    for identity, busy in (("one:1:a", 40), ("two:2:b", 2)):
        groups = {"web": {**web, "busy": busy}, "odd\n": {"queues": ["x"], "busy": "many"}, "broken": 5}
        about: dict[FieldT, EncodableT] = {
            "info": "{}",
            "beat": f"{time.time()}",
            "groups": json.dumps(groups),
        }
        db.sadd(keys.processes, identity)
        db.hset(keys.process(identity), mapping=about)
    db.sadd(keys.processes, "silent:3:c")
    db.hset(keys.process("silent:3:c"), mapping={**about, "beat": "1"})
    unknown = {"workers": {}, "restarts": 0}
    odd = {"name": "odd\n", "queues": {}, "strict": False, "mode": "", "servers": 2, **unknown}
    assert json.loads(cli("stats", "--json").stdout)["groups"] == [
        {**odd, "processes": 0, "concurrency": 0, "busy": 0},
        {**web, "name": "web", "servers": 2, "processes": 4, "concurrency": 100, "busy": 42, **unknown},
    ]
    _, _, groups_shown = cli("stats").stdout.split("\n\n")
    assert groups_shown.splitlines() == [
        "group  mode   servers  processes  busy   of  queues",
        "odd\\n               2          0     0    0",
        "web    async        2          4    42  100  a:5,b:1",
    ]


def test_stats_of_an_empty_namespace_are_zeros(cli: Cli) -> None:
    empty: dict[str, object] = {
        **dict.fromkeys(EXPECTED, 0),
        "queues": [],
        "groups": [],
        "lost": [],
        "oldest": None,
    }
    assert json.loads(cli("stats", "--json").stdout) == empty


@pytest.mark.usefixtures("two_servers")
def test_queues_show_size_latency_and_jobs_in_progress(cli: Cli) -> None:
    found = json.loads(cli("queues", "--json").stdout)
    by_name = {queue["name"]: queue for queue in found}
    assert list(by_name) == ["bare", "idle", "mail", r"\xff"]
    latency_s = by_name["mail"].pop("latency_s")
    assert 100 <= latency_s < 160
    served, unserved = {"paused": False, "served": True}, {"paused": False, "served": False}
    whose = {name: queue.pop("in_progress_by") for name, queue in by_name.items()}
    rates = {
        name: (queue.pop("rate_per_min"), queue.pop("failed_per_min")) for name, queue in by_name.items()
    }
    assert rates["mail"] == (0, 0)
    assert rates["idle"] == (None, None)
    assert whose["mail"] == {"live:1:a": 2, "dead:1:b": 1}
    assert sum(whose["bare"].values()) == 1
    assert whose["idle"] == {}
    assert by_name["mail"] == {"name": "mail", "size": 2, "in_progress": 3, **served}
    assert by_name["bare"] == {"name": "bare", "size": 1, "latency_s": 0.0, "in_progress": 1, **served}
    assert by_name["idle"] == {"name": "idle", "size": 0, "latency_s": 0.0, "in_progress": 0, **unserved}
    rows = [line.split() for line in cli("queues").stdout.splitlines()]
    assert [row[0] for row in rows] == ["queue", "bare", "idle", "mail", r"\xff"]


def test_queues_of_an_empty_namespace_say_so(cli: Cli) -> None:
    assert cli("queues").stdout == "No queues: no job was ever enqueued, and no server is running.\n"
    assert json.loads(cli("queues", "--json").stdout) == []


# How it ends


def test_an_unreachable_redis_ends_with_4_and_shows_no_password() -> None:
    url = f"redis://me:hunter2@127.0.0.1:{free_port()}/0"
    for words in (["stats"], ["queues"], ["enqueue", "mail", "SendMail"]):
        done = python_m_pyworkers(*words, "--url", url)
        assert done.returncode == 4
        warning, _, error = done.stderr.partition("\n")
        assert warning.startswith("Warning: ") and error.startswith("Error: Redis cannot be reached: ")
        assert "--url" in error
        assert "hunter2" not in done.stderr
        assert "Traceback" not in done.stderr


def test_what_redis_refuses_ends_with_1_and_its_words(
    redis_url: str, namespace: str, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.queue("mail"), "no list")
    db.sadd(keys.queues, "mail")
    done = python_m_pyworkers("jobs", "mail", "--url", redis_url, "--namespace", namespace)
    assert done.returncode == 1
    assert "WRONGTYPE" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_usage_error_names_the_command_as_it_is_installed() -> None:
    done = python_m_pyworkers("enqueue", "mail")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "Usage: pyworkers enqueue [OPTIONS] QUEUE CLASS [JSON_ARGS]",
        "Try 'pyworkers enqueue --help' for help.",
        "",
        "Error: Missing argument 'CLASS'.",
    ]


def test_a_reader_that_has_seen_enough_makes_no_noise() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = python_m_pyworkers("config", "show", stdout=writing)
    finally:
        os.close(writing)
    assert done.stderr == ""


# The embedded server


def test_commands_find_the_embedded_server_that_another_process_runs(
    tmp_path: Path, valkey_binary: str
) -> None:
    (tmp_path / "workers.toml").write_text('[redis]\nurl = "embedded:data"\n')
    options = ("--config", "workers.toml")
    absent = python_m_pyworkers("enqueue", "mail", "SendMail", *options, cwd=tmp_path)
    assert absent.returncode == 4
    assert "Start `pyworkers run` with the same configuration" in absent.stderr
    with EmbeddedServer(tmp_path / "data"):
        jid = python_m_pyworkers("enqueue", "mail", "SendMail", *options, cwd=tmp_path).stdout.rstrip("\n")
        with redis.Redis.from_url(socket_url(f"embedded:{tmp_path / 'data'}")) as connection:
            assert json.loads(connection.lindex("queue:mail", 0))["jid"] == jid
        done = python_m_pyworkers("stats", "--json", *options, cwd=tmp_path)
        assert json.loads(done.stdout)["enqueued"] == 1
