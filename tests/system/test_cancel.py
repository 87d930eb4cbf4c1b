"""Cancel: a waiting job never starts, a running one is asked and then killed; neither is tried again."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyworkers import AsyncClient, Cancelled, Client
from pyworkers.cli import main
from tests.helpers.records import job
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import ROOT, wait_for

CODE = """
def wait(how):
    if how != "end":
        wait_for_file("finish")

@worker.process("q", concurrency=1, retry=5)
def handle(message):
    how = message.args[0] if message.args else "end"
    try:
        # From the first note on it may be asked to end.
        try:
            note("start", message.jid)
            wait(how)
        except Exception as error:
            note("asked", message.jid, type(error).__name__)
            if how == "snooze":
                from pyworkers import Snooze
                raise Snooze(60)
            if how != "deaf":
                raise ValueError("something else") if how == "fail" else error
            wait(how)
    finally:
        note("end", message.jid)
"""


def nothing_is_left(server: ServerProcess) -> bool:
    return server.settled("q", sets=("schedule", "retry", "dead", "cancelled"))


def cancelled(server: ServerProcess) -> int:
    return int(server.redis.get(server.keys.stat("cancelled")) or 0)


def test_a_running_job_is_asked_and_its_worker_goes_on(
    serve_either: Serve, redis_url: str, namespace: str
) -> None:
    with serve_either(CODE) as server:
        server.push("q", job("a", "Any", "wait"))
        (start,) = server.wait_for_notes(1, "start", "a")
        shown = CliRunner().invoke(main, ["cancel", "a", "--url", redis_url, "--namespace", namespace])
        said = "a: running; it is asked to end, and killed with its worker if it runs two seconds later\n"
        assert (shown.exit_code, shown.output) == (0, said)
        server.wait_for_notes(1, "asked", "a", "JobCancelled")
        server.wait_for_notes(1, "end", "a")
        server.wait_for_event("job.cancelled", jid="a", job_class="Any")
        server.push("q", job("b"))
        (again,) = server.wait_for_notes(1, "start", "b")
        assert again[0] == start[0]
        wait_for(lambda: nothing_is_left(server) and cancelled(server) == 1)
        wait_for(lambda: server.redis.get(server.keys.stat("processed")) == b"1")
        assert server.redis.get(server.keys.stat("failed")) is None
        # The note has gone with the job: another one of the same name runs.
        server.push("q", job("a"))
        server.wait_for_notes(2, "start", "a")


@pytest.mark.parametrize(("how", "instead_of"), [("deaf", None), ("fail", "retry"), ("snooze", "snooze")])
def test_a_job_that_does_not_end_is_killed_and_not_tried_again(
    serve: Serve, one_redis_url: str, namespace: str, how: str, instead_of: str | None
) -> None:
    with serve(CODE) as server:
        server.push("q", job("a", "Any", how))
        server.wait_for_notes(1, "start", "a")
        Client(one_redis_url, namespace=namespace).cancel("a")
        server.wait_for_notes(1, "asked", "a")
        wait_for(lambda: nothing_is_left(server) and cancelled(server) == 1)
        ended = server.wait_for_event("job.cancelled", jid="a", job_class="Any")
        assert ended.get("instead_of") == instead_of
        lost = server.events("worker.lost", reason="was killed: its job was cancelled")
        assert len(lost) == (how == "deaf")
        server.push("q", job("b"))
        server.wait_for_notes(1, "end", "b")
        assert server.redis.get(server.keys.stat("failed")) is None


def test_a_job_that_waits_never_starts(serve_either: Serve, redis_url: str, namespace: str) -> None:
    with serve_either(CODE) as server:
        server.push("q", job("long", "Any", "wait"))
        server.wait_for_notes(1, "start", "long")
        now = time.time()
        server.push("q", job("waits"), b"no job", job("stays"))
        server.redis.zadd(server.keys.schedule, {json.dumps(job("later")): now + 600})
        server.redis.zadd(server.keys.retry, {json.dumps(job('é "')).encode(): now + 600, b"\xff": now + 600})
        client = Client(redis_url, namespace=namespace)
        for jid in ("waits", "later", 'é "'):
            assert client.cancel(jid) is Cancelled.REMOVED
        assert asyncio.run(AsyncClient(redis_url, namespace=namespace).cancel("none")) is Cancelled.UNKNOWN
        assert server.zset("schedule") == [] and [raw for raw, _ in server.zset("retry")] == [b"\xff"]
        assert server.redis.zrange(server.keys.cancelled, 0, -1) == [b"none"]
        assert 0 < server.redis.ttl(server.keys.cancelled) <= 86_400
        server.let_go("finish")
        server.wait_for_notes(1, "end", "stays")
        assert {note[2] for note in server.ledger() if note[1] == "start"} == {"long", "stays"}
        assert cancelled(server) == 3


def test_a_job_that_turns_up_later_does_not_start(serve: Serve, one_redis_url: str, namespace: str) -> None:
    with serve(CODE) as server:
        assert server.stop() == 0
        # Neither does a server that starts later let it run.
        assert Client(one_redis_url, namespace=namespace).cancel("a") is Cancelled.UNKNOWN
        server.push("q", job("a"), job("b"))
        server.start(ready=False)
        server.wait_for_notes(1, "end", "b")
        server.wait_for_event("job.cancelled", jid="a", job_class="Any")
        wait_for(lambda: nothing_is_left(server) and cancelled(server) == 1)
        assert [note for note in server.ledger() if note[2] == "a"] == []


def test_a_job_is_cancelled_while_its_server_drains(serve: Serve, one_redis_url: str, namespace: str) -> None:
    with serve(CODE, PYWORKERS_SERVER__SHUTDOWN_TIMEOUT="300") as server:
        server.push("q", job("a", "Any", "wait"))
        server.wait_for_notes(1, "start", "a")
        server.signal(signal.SIGTERM)
        server.wait_for_event("manager.state", state="quiet")
        Client(one_redis_url, namespace=namespace).cancel("a")
        assert server.wait() == 0
        assert nothing_is_left(server) and cancelled(server) == 1


def test_a_job_that_is_cancelled_when_time_is_up_is_not_given_back(
    serve: Serve, one_redis_url: str, namespace: str
) -> None:
    with serve(CODE, PYWORKERS_SERVER__SHUTDOWN_TIMEOUT="0.1") as server:
        server.push("q", job("a", "Any", "deaf"))
        server.wait_for_notes(1, "start", "a")
        Client(one_redis_url, namespace=namespace).cancel("a")
        server.wait_for_notes(1, "asked", "a")
        assert server.stop() == 0
        assert nothing_is_left(server) and cancelled(server) == 1


def test_every_server_takes_part(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        serving(tmp_path / "a", one_redis_url, namespace, CODE) as first,
        serving(tmp_path / "b", one_redis_url, namespace, CODE) as second,
    ):
        first.push("q", job("one", "Any", "wait"), job("two", "Any", "wait"))
        first.wait_for_notes(1, "start")
        second.wait_for_notes(1, "start")
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pyworkers", "cancel", "one", "two", "none", "--json"),
                *("--url", one_redis_url, "--namespace", namespace),
            ],
            cwd=ROOT,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 1, done.stderr
        results = {"one": "running", "two": "running", "none": "unknown"}
        assert json.loads(done.stdout) == {"action": "cancel", "done": 2, "results": results}
        for server in (first, second):
            server.wait_for_notes(1, "end")
        wait_for(lambda: cancelled(first) == 2)
        first.redis.zrem(first.keys.cancelled, "none")
        wait_for(lambda: nothing_is_left(first))


def test_sidekiqs_cancellation_ends_a_running_job(serve_either: Serve) -> None:
    """Whether it was cancelled before it began or while it runs, as Sidekiq's ``cancel!`` does it."""
    code = CODE.replace("concurrency=1", "concurrency=4")
    with serve_either(code) as server:
        db, keys = server.redis, server.keys
        db.hset(keys.iteration("early"), "cancelled", int(time.time()))
        # The state of an iteration, and one that is none, cancel nothing.
        db.hset(keys.iteration("other"), mapping={"ex": 1, "c": "7", "rt": 1.5})
        db.set(keys.iteration("broken"), "no hash")
        for jid in ("late", "broken", "other", "early"):
            server.push("q", job(jid, "Any", "wait"))
        server.wait_for_notes(4, "start")
        server.wait_for_notes(1, "end", "early")
        server.wait_for_event("job.cancelled", jid="early")
        db.hset(keys.iteration("late"), "cancelled", int(time.time()))
        server.wait_for_notes(1, "end", "late")
        wait_for(lambda: cancelled(server) == 2 and not db.exists(keys.cancelled))
        # Another job of that id may run.
        assert not db.exists(keys.iteration("early"), keys.iteration("late"))
        assert len(server.inprogress("q")) == 2
        server.let_go("finish")
        wait_for(lambda: nothing_is_left(server))
        assert db.hlen(keys.iteration("other")) == 3
