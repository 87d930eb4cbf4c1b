"""Encrypted arguments through real servers: rotation, missing keys, and no plain text anywhere."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers import Client
from pyworkers.api import DeadSet, LimitSet
from pyworkers.config.fields import RedisConfig
from tests.helpers import warm
from tests.helpers.processes import process_alive
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import ROOT, wait_for

PAGE = (ROOT / "contrib" / "docs" / "encryption.md").read_text()
OLD, NEW = (base64.b64encode(bytes([byte]) * 32).decode() for byte in (1, 2))
SECRET = "a-card-number"
CODE = """
import os
from datetime import date

@worker.job(queue="q", retry=2, concurrency=5, encrypt=True, retry_in=lambda count, error, message: 0.1)
def pay(card, what="", day: date = date(2026, 1, 2)):
    note("pay", len(card), what, day.isoformat(), current_message().attempt)
    if what == "fail" and current_message().attempt == 0:
        raise ValueError("failed")
    if what == "snooze" and "snoozed" not in os.listdir():
        Path("snoozed").touch()
        raise Snooze(0.1)
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "wait":
        wait_for_file("finish")
    if what == "enqueue":
        pay.enqueue(card, "inner")
        Client().enqueue("q", "pay", [card, "bare"], encrypt=True)

@worker.job(queue="q", limits=[worker.limit("card", rate=9, per=600, by=lambda card: card)], encrypt=True)
def refund(card):
    note("refund", len(card))

@worker.on_startup
def up():
    note("up")

@worker.on_exhausted
def lost(message, error):
    note("exhausted", len(message.args[0]), type(error).__name__)
"""


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"{NEW}\n")
    return path


@pytest.fixture
def server(serve_either: Serve, keys: Path) -> Iterator[ServerProcess]:
    settings = {"PYWORKERS_ENCRYPTION__KEYS": str(keys), "PYWORKERS_RETRY__MAX": "3"}
    with serve_either(CODE, **settings) as running:
        yield running


def producer(url: str, namespace: str, *own: str) -> Client:
    return Client(url, namespace=namespace, encryption=own or (NEW,))


def everything(db: redis.Redis, namespace: str) -> str:
    """All that Redis holds under a namespace, as text."""
    found: list[Any] = []
    for key in db.scan_iter(f"{namespace}*"):
        kind = db.type(key)
        if kind == b"string":
            found.append(db.get(key))
        elif kind == b"list":
            found += db.lrange(key, 0, -1)
        elif kind == b"zset":
            found += db.zrange(key, 0, -1)
        elif kind == b"set":
            found += db.smembers(key)
        elif kind == b"hash":
            found.append(db.hgetall(key))
        elif kind == b"stream":  # The gauges, if a minute began during the test.
            found.append(db.xrange(key))
        elif kind != b"none":  # The server has not deleted it meanwhile.
            raise AssertionError(f"{key!r} is a {kind!r}")
        found.append(key)
    return repr(found)


def command(url: str, namespace: str, *words: str) -> str:
    words = ("-m", "pyworkers", *words, "--url", url, "--namespace", namespace)
    done = warm.run(words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    done.check_returncode()
    return done.stdout


def reload(server: ServerProcess) -> None:
    """Reload, and wait for the end of the workers with the keys from before: they still take jobs."""
    old = [pid for pid, *_ in server.wait_for_notes(5, "up")]
    server.signal(signal.SIGHUP)
    server.wait_for_event("reload.done")
    wait_for(lambda: not any(map(process_alive, old)), message="the workers before are gone")


@pytest.mark.fault("P8")
def test_the_plain_text_is_nowhere(server: ServerProcess, redis_url: str, namespace: str) -> None:
    client = producer(redis_url, namespace)
    for what in ("", "fail", "snooze", "die", "enqueue"):
        client.enqueue("q", "pay", [SECRET, what], encrypt=True, retry=2)
    client.enqueue_in(600, "q", "pay", [SECRET, "later"], encrypt=True)
    client.enqueue("q", "pay", [SECRET, "", "no date " + SECRET], encrypt=True, retry=0)
    client.enqueue("elsewhere", "pay", [SECRET], encrypt=True, unique_for=600)
    for what in ("", "enqueue", "inner", "bare"):
        server.wait_for_notes(1, "pay", len(SECRET), what)
    server.wait_for_notes(2, "pay", len(SECRET), "fail")
    server.wait_for_notes(2, "pay", len(SECRET), "snooze")
    [misfit] = wait_for(lambda: [raw for raw, _ in server.zset("retry") if b"misfit_at" in raw])
    server.redis.zrem(server.keys.retry, misfit)
    server.push("q", json.loads(misfit) | {"misfits": 20, "misfit_at": 1.5})
    server.wait_for_notes(1, "exhausted", len(SECRET), "BadArgumentError")
    client.enqueue("q", "pay", [SECRET, "wait"], encrypt=True)
    server.wait_for_notes(1, "pay", len(SECRET), "wait")
    listed = command(redis_url, namespace, "scheduled", "list")
    listed += command(redis_url, namespace, "dead", "list", "--json")
    assert "(encrypted)" in listed
    assert SECRET not in listed
    assert SECRET not in everything(server.redis, namespace)
    server.let_go("finish")
    assert server.stop() == 0
    assert SECRET not in everything(server.redis, namespace)
    assert SECRET not in server.log_text()


def test_a_limit_counts_by_the_open_arguments_and_shows_none(
    server: ServerProcess, redis_url: str, namespace: str
) -> None:
    client = producer(redis_url, namespace)
    for card in (SECRET, SECRET, SECRET + "!"):
        client.enqueue("q", "refund", [card], encrypt=True)
    server.wait_for_notes(2, "refund", len(SECRET))
    server.wait_for_notes(1, "refund", len(SECRET) + 1)
    used = {stats.key: stats.used for stats in LimitSet(RedisConfig(redis_url, namespace))}
    names = [f"card:{sha256(card.encode()).hexdigest()}" for card in (SECRET, SECRET + "!")]
    assert used == {names[0]: 2, names[1]: 1}
    assert SECRET not in everything(server.redis, namespace)


@pytest.mark.fault("P8")
def test_a_job_without_its_key_is_retried_then_dead_and_can_be_retried(
    server: ServerProcess, redis_url: str, namespace: str, keys: Path
) -> None:
    client = producer(redis_url, namespace, OLD)
    jid = client.enqueue("q", "pay", [SECRET, "old"], encrypt=True, retry=1)
    dead = DeadSet(RedisConfig(redis_url, namespace))
    wait_for(lambda: len(dead) == 1, message="the job is dead")
    (job,) = dead
    assert (job.jid, job.error_class, job.args) == (jid, "EncryptionKeyError", ["(encrypted)"])
    assert job.error_message.startswith("the arguments need the key ")
    outcomes = [event["outcome"] for event in server.events("job.failed")]
    assert outcomes == ["retry", "dead"]
    assert SECRET not in everything(server.redis, namespace)
    # The key is back: HUP reads the file again.
    keys.write_text(f"{NEW}\n{OLD}\n")
    reload(server)
    assert dead.retry_all() == 1
    server.wait_for_notes(1, "pay", len(SECRET), "old")


def test_keys_rotate_without_losing_a_job(
    server: ServerProcess, redis_url: str, namespace: str, keys: Path
) -> None:
    before, after = producer(redis_url, namespace, NEW), producer(redis_url, namespace, OLD, NEW)
    before.enqueue_in(3600, "q", "pay", [SECRET, "before"], encrypt=True)
    keys.write_text(f"{OLD}\n{NEW}\n")
    reload(server)
    after.enqueue("q", "pay", [SECRET, "after"], encrypt=True)
    command(redis_url, namespace, "scheduled", "retry", "--all", "--yes")
    for what in ("before", "after"):
        server.wait_for_notes(1, "pay", len(SECRET), what)
    assert server.events("job.failed") == []


def test_an_invalid_file_refuses_a_reload_and_a_start(
    server: ServerProcess, redis_url: str, namespace: str, keys: Path
) -> None:
    keys.write_text(f"# one\n{NEW[:20]}\n")
    server.signal(signal.SIGHUP)
    failed = server.wait_for_event("reload.failed")
    assert f"{keys}:2: encryption keys: " in json.dumps(failed)
    producer(redis_url, namespace).enqueue("q", "pay", [SECRET, "still"], encrypt=True)
    server.wait_for_notes(1, "pay", len(SECRET), "still")
    assert server.stop() == 0
    server.start(ready=False)
    assert server.wait() == 2
    server.wait_for_output(f"{keys}:2: encryption keys: a key of 15 bytes, not 32")
    assert NEW[:20] not in server.log_text()


@pytest.mark.fault("P8")
def test_garbage_is_retried(server: ServerProcess, redis_url: str, namespace: str) -> None:
    server.push("q", {"class": "pay", "args": [SECRET], "jid": "x", "retry": True, "encrypted": True})
    event = server.wait_for_event("job.failed")
    assert (event["error_class"], event["outcome"]) == ("EncryptionKeyError", "retry")


def test_the_program_of_the_page_runs(tmp_path: Path, redis_url: str, namespace: str, keys: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "tasks.py").write_text(program)
    settings = {
        "PYWORKERS_REDIS__URL": redis_url,
        "PYWORKERS_REDIS__NAMESPACE": namespace,
        "PYWORKERS_ENCRYPTION__KEYS": str(keys),
    }
    environment = os.environ | settings | {"PYTHONPATH": str(ROOT)}
    warm.run([str(tmp_path / "tasks.py")], cwd=ROOT, env=environment).check_returncode()
    done = warm.run(
        ["-m", "pyworkers", "enqueue", "--encrypt", "default", "pay", '["4111-1234", 9]'],
        cwd=ROOT, env=environment,
    )  # fmt: skip
    done.check_returncode()
    assert re.fullmatch("[0-9a-f]{24}\n", done.stdout)
    server = ServerProcess(tmp_path, redis_url, namespace, PYWORKERS_ENCRYPTION__KEYS=str(keys))
    # Its digits alone may stand in an id or a time.
    assert "4111-1" not in everything(server.redis, namespace)
    try:
        server.start()
        for amount in (7, 8, 9):
            server.wait_for_output(f"paid {amount} with 1234\n")
        assert server.stop() == 0
    finally:
        server.kill()
