"""Long jobs with a checkpoint, through the real server: they continue where they were."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyworkers.client import Client
from tests.helpers.server_process import ServerProcess, serving
from tests.helpers.support import PATIENCE_S, wait_for

CODE = """
@worker.job(queue="q", MODE, retry=2, retry_in=lambda count, error, message: 0.2)
def export(what):
    at = checkpoint(0)
    note("begin", at.value, current_message().attempt, os.getpid())
    for page in range(at.value, 1_000_000):
        if what == "fail" and page == 3 and current_message().attempt == 0:
            raise ValueError("no page")
        if what == "end" and page == 5:
            return
        if what == "bad":
            at.save({1, 2})
        if what == "huge":
            at.save("x" * 600_000)
        note("saved", page + 1)
        at.save(page + 1)
        time.sleep(0.01)
"""
MODES = {
    "process": "concurrency=2",
    "thread": 'concurrency=2, mode="thread", processes=1',
    "async": 'concurrency=2, mode="async", processes=1',
}


def code_of(mode: str) -> str:
    code = CODE.replace("MODE", MODES[mode])
    if mode == "async":
        code = code.replace("def export", "async def export").replace("time.sleep", "await asyncio.sleep")
        code = "import asyncio\n" + code.replace("        at.save(", "        await at.asave(")
    return code


@pytest.fixture(params=list(MODES))
def server(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str, namespace: str
) -> Iterator[ServerProcess]:
    environment = {"PYWORKERS_SERVER__LEASE": "2", "PYWORKERS_SERVER__SHUTDOWN_TIMEOUT": "60"}
    with serving(tmp_path, redis_url, namespace, code_of(request.param), **environment) as running:
        yield running


def push(server: ServerProcess, what: str, jid: str = "j1", **fields: Any) -> None:
    server.push("q", {"class": "export", "args": [what], "jid": jid, **fields})


def saved(server: ServerProcess) -> int:
    """The last value that the job has saved."""
    return max((note[2] for note in server.ledger() if note[1] == "saved"), default=0)


def begins(server: ServerProcess, count: int) -> list[list[Any]]:
    """Value and attempt of each run, once there are so many."""
    return [note[2:4] for note in server.wait_for_notes(count, "begin")]


def written(server: ServerProcess, jid: str = "j1") -> int | None:
    """The value that Redis holds."""
    found = server.redis.hget(server.keys.iteration(jid), "c")
    return None if found is None else int(found)


@pytest.mark.fault("C2")
def test_a_stop_gives_the_job_back_at_once_and_the_next_server_continues(server: ServerProcess) -> None:
    push(server, "long")
    wait_for(lambda: saved(server) >= 5, message="five pages")
    wait_for(lambda: written(server) is not None, message="a page is written")
    began = time.monotonic()
    assert server.stop() == 0
    # The timeout of the stop is 60 s, and a page takes 10 ms.
    assert time.monotonic() - began < 20
    last = saved(server)
    assert server.waiting("q") == 1
    state = server.redis.hgetall(server.keys.iteration("j1"))
    assert (int(state[b"c"]), int(state[b"ex"])) == (last, 1)
    assert float(state[b"rt"]) > 0
    assert 86_400 * 29 < server.redis.ttl(server.keys.iteration("j1")) <= 86_400 * 30
    assert server.events("job.interrupted", jid="j1")
    server.start()
    assert begins(server, 2)[1] == [last, 0]
    wait_for(lambda: saved(server) > last, message="it continues")


@pytest.mark.fault("C2")
def test_a_reload_hands_the_job_to_the_new_code(server: ServerProcess) -> None:
    push(server, "long")
    wait_for(lambda: saved(server) >= 5, message="five pages")
    server.signal(signal.SIGHUP)
    [first, second] = begins(server, 2)
    assert (first, second[1]) == ([0, 0], 0)
    assert second[0] >= 5
    runs = server.wait_for_notes(2, "begin")
    assert runs[0][0] != runs[1][0]
    # Each page once, by one of the two.
    pages = [note[2] for note in server.ledger() if note[1] == "saved"]
    assert pages == list(range(1, len(pages) + 1))


def test_a_failed_attempt_keeps_its_last_value_for_the_retry(server: ServerProcess) -> None:
    push(server, "fail")
    assert begins(server, 2) == [[0, 0], [3, 1]]
    wait_for(lambda: saved(server) >= 6, message="it continues")


@pytest.mark.fault("C1")
@pytest.mark.parametrize("victim", ["worker", "server"])
def test_after_a_kill_it_continues_from_the_last_written_value(server: ServerProcess, victim: str) -> None:
    push(server, "long")
    wait_for(lambda: written(server), message="a value is written")
    [run] = server.wait_for_notes(1, "begin")
    if victim == "worker":
        os.kill(run[0], signal.SIGKILL)
    else:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        server.start()
    second = begins(server, 2)[1]
    # At most a second is lost.
    assert 1 <= second[0] <= saved(server)


def test_the_value_is_deleted_when_the_job_ends(server: ServerProcess) -> None:
    push(server, "end")
    server.wait_for_event("job.done", jid="j1")
    wait_for(lambda: server.settled("q"), message="settled")
    assert server.redis.exists(server.keys.iteration("j1")) == 0
    push(server, "long", "j2")
    wait_for(lambda: written(server, "j2"), message="a value is written")
    with Client(server.url, namespace=server.keys.namespace) as client:
        client.cancel("j2")
    wait_for(lambda: server.settled("q"), message="cancelled")
    assert server.redis.exists(server.keys.iteration("j2")) == 0


def test_a_cancellation_by_sidekiq_ends_the_job(server: ServerProcess) -> None:
    push(server, "long")
    wait_for(lambda: written(server), message="a value is written")
    server.redis.hset(server.keys.iteration("j1"), "cancelled", int(time.time()))
    server.wait_for_event("job.cancelled", jid="j1", timeout=PATIENCE_S)
    wait_for(lambda: server.settled("q"), message="settled")


@pytest.mark.parametrize(
    ("what", "error"),
    [("bad", "value is of type set"), ("huge", "value has 600002 bytes as JSON; the limit is 524288")],
)
def test_a_value_that_cannot_be_saved_fails_the_job(server: ServerProcess, what: str, error: str) -> None:
    push(server, what, retry=False)
    failed = server.wait_for_event("job.failed", jid="j1")
    assert failed["error"].startswith(error)


def test_a_foreign_state_is_the_default(server: ServerProcess) -> None:
    server.redis.hset(server.keys.iteration("j1"), mapping={"ex": "x", "c": "no JSON", "rt": "?"})
    push(server, "end")
    assert begins(server, 1) == [[0, 0]]
    server.wait_for_event("job.done", jid="j1")


def test_in_threads_a_time_limit_is_raised_at_the_next_checkpoint(
    tmp_path: Path, redis_url: str, namespace: str
) -> None:
    with serving(tmp_path, redis_url, namespace, code_of("thread")) as server:
        raw = {"class": "export", "args": ["long"], "jid": "j1", "timeout": 0.3, "retry": False}
        server.redis.lpush(server.keys.queue("q"), json.dumps(raw))
        server.wait_for_event("job.timeout", jid="j1")
        assert server.events("worker.lost") == []
