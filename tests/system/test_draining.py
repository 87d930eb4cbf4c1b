"""Draining: a server that ends by itself, when nothing is left for it to run, or after one job."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.records import job
from tests.helpers.replies import as_bytes, as_list
from tests.helpers.server_process import ServerProcess

CODE = """
@worker.process("q", concurrency=2, retry=5)
def handle(message):
    word = message.args[0]
    note("start", word, message.attempt)
    if word == "child":
        # As another program does.
        import redis
        url, key, raw = message.args[1:]
        redis.Redis.from_url(url).lpush(key, raw)
    if word == "soon" and message.attempt == 0:
        raise Retry(delay=0.3)
    if word == "late":
        raise Retry(delay=3600)
    if word == "hang":
        wait_for_file("finish")
    note("end", word)

@worker.process("paused")
def never(message):
    note("start", "paused")

@worker.process("line", ordered=True, retry=5)
def line(message):
    note("start", *message.args)
    if message.args[0] == "late":
        raise Retry(delay=3600)

@worker.process("other")
def other(message):
    note("start", "other")
"""
QUEUES = ("--queue", "q", "--queue", "paused", "--queue", "line")


@contextlib.contextmanager
def made(folder: Path, url: str, namespace: str, *options: str, code: str = CODE) -> Iterator[ServerProcess]:
    """A server that is not started yet."""
    server = ServerProcess(folder, url, namespace, *options)
    server.write_app(code)
    try:
        yield server
    finally:
        server.kill()


def text(jid: str, word: str, queue: str) -> str:
    return json.dumps(job(jid, "Any", word, queue=queue))


def drained(server: ServerProcess) -> dict[str, Any]:
    """Run the server to its end; returns the last line of its log, without the fields of every line."""
    server.start(ready=False)
    assert server.wait() == 0, server.log_text()
    last = server.events()[-1]
    return {name: last[name] for name in last.keys() - {"timestamp", "level", "identity", "pid", "logger"}}


def test_a_drain_runs_what_waits_what_that_enqueues_and_what_comes_due_soon(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    with made(tmp_path, redis_url, namespace, *QUEUES, "--drain=5s") as server:
        now, keys = time.time(), server.keys
        child = json.dumps(job("c", "Any", "from a job"))
        server.push("q", *(job(f"p{number}", "Any", f"plain {number}") for number in range(20)))
        server.push("q", job("a", "Any", "child", redis_url, keys.queue("q"), child))
        server.push("q", job("b", "Any", "soon"), job("d", "Any", "late"))
        server.push("line", job("e", "Any", "first"))
        server.redis.zadd(keys.schedule, {text("f", "scheduled", "q"): now + 1})
        # Not for it: much later, of a queue that it does not serve, paused, and behind a head that waits.
        server.redis.zadd(keys.schedule, {text("g", "far", "q"): now + 3600})
        others = {text(f"o{number}", "", "other"): now + 4 for number in range(150)}
        server.redis.zadd(keys.schedule, others)
        server.push("paused", job("h", "Any"))
        server.redis.sadd(keys.paused, "paused")
        last = drained(server)
        ran = [note[2] for note in server.ledger() if note[1] == "start"]
        assert sorted(ran) == sorted(
            ["child", "from a job", "soon", "soon", "late", "first", "scheduled"]
            + [f"plain {number}" for number in range(20)]
        )
        moved = server.waiting("other")
        assert last == {
            "event": "server.drained", "jobs": 27, "failed": 2, "left": 153 - moved, "waiting": 0,
            "paused": 1, "scheduled": 151 - moved, "retries": 1, "elsewhere": 0,
        }  # fmt: skip


def test_a_drain_of_empty_queues_ends_at_once(tmp_path: Path, redis_url: str, namespace: str) -> None:
    with made(tmp_path, redis_url, namespace, *QUEUES, "--drain") as server:
        last = drained(server)
        assert (last["event"], last["jobs"], last["left"]) == ("server.drained", 0, 0)
        names = server.redis.scan_iter(f"{namespace}pyworkers:*")
        left = {as_bytes(name).decode() for name in names if server.redis.ttl(name) < 0}
        # The fence of an ordered queue stays, if the server came to be its active one.
        assert left <= {server.keys.ordered("line")}


def test_a_drain_does_not_wait_for_the_head_of_an_ordered_queue_that_comes_due_later(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    with made(tmp_path, redis_url, namespace, *QUEUES, "--drain") as server:
        server.push("line", job("a", "Any", "late"), job("b", "Any", "behind"))
        last = drained(server)
        assert [note[2] for note in server.ledger()] == ["late"]
        assert (last["jobs"], last["waiting"], last["left"]) == (1, 2, 2)


def test_a_drain_that_a_signal_stops_exits_with_5(tmp_path: Path, redis_url: str, namespace: str) -> None:
    with made(tmp_path, redis_url, namespace, *QUEUES, "--drain") as server:
        server.push("q", *(job(f"h{number}", "Any", "hang") for number in range(3)))
        server.start()
        server.wait_for_notes(2, "start", "hang")
        server.signal(signal.SIGTERM)
        server.wait_for_event("manager.state", state="quiet", queue="q")
        server.let_go("finish")
        assert server.wait() == 5
        assert "Error: stopped before the end: jobs may be left" in server.log_text()
        assert not server.events("server.drained")


def test_a_drain_ends_with_the_reason_if_its_workers_cannot_start(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    code = CODE + "\n@worker.on_startup\ndef fail():\n    raise OSError('no database')\n"
    with made(tmp_path, redis_url, namespace, "--queue", "q", "--drain", code=code) as server:
        server.push("q", job("a", "Any", "plain"))
        server.start(ready=False)
        assert server.wait() == 1
        assert "the group 'q' runs no jobs" in server.log_text()
        assert server.waiting("q") == 1


def test_a_drain_waits_for_the_jobs_of_a_drain_that_was_killed(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    (tmp_path / "workers.toml").write_text("[server]\nlease = 1\n")
    options = (*QUEUES, "--drain", "--config", str(tmp_path / "workers.toml"))
    with made(tmp_path, redis_url, namespace, *options) as killed:
        killed.push("q", *(job(f"h{number}", "Any", "hang") for number in range(4)))
        killed.start()
        killed.wait_for_notes(2, "start", "hang")
        killed.process.kill()  # type: ignore[union-attr]
        killed.wait()
        assert len(killed.inprogress("q")) + killed.waiting("q") == 4
        killed.let_go("finish")
        # Its lease still lives: then the jobs count as those of another server. So wait for its end.
        deadline = time.monotonic() + 30
        while any(killed.redis.scan_iter(f"{namespace}pyworkers:lease:*")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        killed.clear_log()
        last = drained(killed)
        assert (last["jobs"], last["left"]) == (4, 0)
        assert len([note for note in killed.ledger() if note[1] == "end"]) == 4


@pytest.mark.parametrize("jobs", [0, 1, 3])
def test_once_runs_one_job(tmp_path: Path, redis_url: str, namespace: str, jobs: int) -> None:
    with made(tmp_path, redis_url, namespace, *QUEUES, "--once") as server:
        server.push("paused", job("h", "Any"))
        server.redis.sadd(server.keys.paused, "paused")
        for number in range(jobs):
            server.push("q", job(f"a{number}", "Any", number))
        last = drained(server)
        assert [note[2] for note in server.ledger() if note[1] == "start"] == [0][:jobs]
        assert (last["jobs"], last["waiting"]) == (min(jobs, 1), max(jobs - 1, 0))
        left = [
            json.loads(raw)["args"] for raw in as_list(server.redis.lrange(server.keys.queue("q"), 0, -1))
        ]
        assert left == [[number] for number in reversed(range(1, jobs))]


def test_once_gives_back_what_other_queues_bring_at_the_same_moment(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    with made(tmp_path, redis_url, namespace, "--queue", "q", "--queue", "other", "--once") as server:
        server.push("q", job("a", "Any", "plain"))
        server.push("other", job("b", "Any"))
        last = drained(server)
        assert (last["jobs"], last["left"], last["waiting"]) == (1, 1, 1)
