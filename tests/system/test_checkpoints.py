"""Long jobs with a checkpoint, through the real server: they continue where they were.

One server runs all modes, each with a queue of its name.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pyworkers.client import Client
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import PATIENCE_S, wait_for

CODE = """
@worker.job(queue="MODE", OPTIONS, retry=2, retry_in=lambda count, error, message: 0.2)
def export_MODE(what):
    at = checkpoint(0)
    note("begin", "MODE", at.value, current_message().attempt)
    for page in range(at.value, 1_000_000):
        if what == "fail" and page == 3 and current_message().attempt == 0:
            raise ValueError("no page")
        if what == "end" and page == 5:
            return
        if what == "bad":
            at.save({1, 2})
        if what == "huge":
            at.save("x" * 600_000)
        note("saved", "MODE", page + 1)
        at.save(page + 1)
        if what == "end":
            note("again", "MODE", checkpoint(0).value)
        time.sleep(0.01)
"""
MODES = {
    "process": "concurrency=2",
    "thread": 'concurrency=2, mode="thread", processes=1',
    "async": 'concurrency=2, mode="async", processes=1',
}


def code_of(mode: str) -> str:
    code = CODE.replace("MODE", mode).replace("OPTIONS", MODES[mode])
    if mode == "async":
        code = code.replace("def export", "async def export").replace("time.sleep", "await asyncio.sleep")
        code = "import asyncio\n" + code.replace("        at.save(", "        await at.asave(")
    return code


@pytest.fixture
def server(serve_either: Serve) -> Iterator[ServerProcess]:
    environment = {"PYWORKERS_SERVER__LEASE": "2", "PYWORKERS_SERVER__SHUTDOWN_TIMEOUT": "60"}
    code = "".join(map(code_of, MODES))
    with serve_either(code, **environment) as running:
        yield running


def push(server: ServerProcess, what: str, suffix: str = "", **fields: Any) -> list[str]:
    """Enqueue a job in each mode; its id is that of the mode and the suffix. Returns the ids."""
    for mode in MODES:
        server.push(mode, {"class": f"export_{mode}", "args": [what], "jid": mode + suffix, **fields})
    return [mode + suffix for mode in MODES]


def saved(server: ServerProcess, mode: str) -> int:
    """The last value that the job has saved."""
    return max(pages(server, mode), default=0)


def pages(server: ServerProcess, mode: str) -> list[int]:
    """The values that the job has saved."""
    return [note[3] for note in server.ledger() if note[1:3] == ["saved", mode]]


def begins(server: ServerProcess, mode: str, count: int) -> list[list[Any]]:
    """Value and attempt of each run, once there are this many."""
    return [note[3:] for note in server.wait_for_notes(count, "begin", mode)]


def written(server: ServerProcess, jid: str) -> int | None:
    """The value that Redis holds."""
    found = server.redis.hget(server.keys.iteration(jid), "c")
    return None if found is None else int(found)


def wait_until_written(server: ServerProcess, jids: list[str]) -> None:
    wait_for(lambda: all(written(server, jid) for jid in jids), message="a value of each is written")


def wait_until_settled(server: ServerProcess) -> None:
    wait_for(lambda: server.settled(*MODES), message="settled")


@pytest.mark.fault("C2")
def test_a_stop_gives_the_job_back_at_once_and_the_next_server_continues(server: ServerProcess) -> None:
    jids = push(server, "long")
    wait_for(lambda: all(saved(server, mode) >= 5 for mode in MODES), message="five pages of each")
    wait_until_written(server, jids)
    began = time.monotonic()
    assert server.stop() == 0
    # The timeout of the stop is 60 s, and a page takes 10 ms.
    assert time.monotonic() - began < 20
    last = {mode: saved(server, mode) for mode in MODES}
    for mode in MODES:
        assert server.waiting(mode) == 1, mode
        state = server.redis.hgetall(server.keys.iteration(mode))
        assert (int(state[b"c"]), int(state[b"ex"])) == (last[mode], 1), mode
        assert float(state[b"rt"]) > 0, mode
        assert 86_400 * 29 < server.redis.ttl(server.keys.iteration(mode)) <= 86_400 * 30, mode
        assert server.events("job.interrupted", jid=mode), mode
    server.start()
    for mode in MODES:
        assert begins(server, mode, 2)[1] == [last[mode], 0], mode
    wait_for(lambda: all(saved(server, mode) > last[mode] for mode in MODES), message="they continue")


@pytest.mark.fault("C2")
def test_a_reload_hands_the_job_to_the_new_code(server: ServerProcess) -> None:
    push(server, "long")
    wait_for(lambda: all(saved(server, mode) >= 5 for mode in MODES), message="five pages of each")
    server.signal(signal.SIGHUP)
    for mode in MODES:
        [first, second] = begins(server, mode, 2)
        assert (first, second[1]) == ([0, 0], 0), mode
        assert second[0] >= 5, mode
        runs = server.wait_for_notes(2, "begin", mode)
        assert runs[0][0] != runs[1][0], mode
        # Each page once, by one of the two.
        values = pages(server, mode)
        assert values == list(range(1, len(values) + 1)), mode


def test_a_failed_attempt_keeps_its_last_value_for_the_retry(server: ServerProcess) -> None:
    push(server, "fail")
    for mode in MODES:
        assert begins(server, mode, 2) == [[0, 0], [3, 1]], mode
    wait_for(lambda: all(saved(server, mode) >= 6 for mode in MODES), message="they continue")


@pytest.mark.fault("C1")
@pytest.mark.parametrize("victim", ["worker", "server"])
def test_after_a_kill_it_continues_from_the_last_written_value(server: ServerProcess, victim: str) -> None:
    wait_until_written(server, push(server, "long"))
    if victim == "worker":
        for mode in MODES:
            [run] = server.wait_for_notes(1, "begin", mode)
            os.kill(run[0], signal.SIGKILL)
    else:
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        server.start()
    for mode in MODES:
        second = begins(server, mode, 2)[1]
        # At most a second is lost.
        assert 1 <= second[0] <= saved(server, mode), mode


def test_a_second_checkpoint_of_a_run_has_the_last_saved_value(server: ServerProcess) -> None:
    for jid in push(server, "end"):
        server.wait_for_event("job.done", jid=jid)
    for mode in MODES:
        assert [note[3] for note in server.ledger() if note[1:3] == ["again", mode]] == [1, 2, 3, 4, 5]


def test_the_value_is_deleted_when_the_job_ends(server: ServerProcess) -> None:
    for jid in push(server, "end"):
        server.wait_for_event("job.done", jid=jid)
    wait_until_settled(server)
    assert server.redis.exists(*map(server.keys.iteration, MODES)) == 0
    jids = push(server, "long", "2")
    wait_until_written(server, jids)
    with Client(server.url, namespace=server.keys.namespace) as client:
        for jid in jids:
            client.cancel(jid)
    wait_until_settled(server)
    assert server.redis.exists(*map(server.keys.iteration, jids)) == 0


def test_a_cancellation_by_sidekiq_ends_the_job(server: ServerProcess) -> None:
    jids = push(server, "long")
    wait_until_written(server, jids)
    for jid in jids:
        server.redis.hset(server.keys.iteration(jid), "cancelled", int(time.time()))
    for jid in jids:
        server.wait_for_event("job.cancelled", jid=jid, timeout=PATIENCE_S)
    wait_until_settled(server)


def test_a_value_that_cannot_be_saved_fails_the_job(server: ServerProcess) -> None:
    errors = {"bad": "value is of type set", "huge": "value has 600002 bytes as JSON; the limit is 524288"}
    for what, error in errors.items():
        for jid in push(server, what, f"-{what}", retry=False):
            failed = server.wait_for_event("job.failed", jid=jid)
            assert failed["error"].startswith(error), jid


def test_a_foreign_state_is_the_default(server: ServerProcess) -> None:
    for mode in MODES:
        server.redis.hset(server.keys.iteration(mode), mapping={"ex": "x", "c": "no JSON", "rt": "?"})
    push(server, "end")
    for mode in MODES:
        assert begins(server, mode, 1) == [[0, 0]], mode
        server.wait_for_event("job.done", jid=mode)


def test_in_threads_a_time_limit_is_raised_at_the_next_checkpoint(server: ServerProcess) -> None:
    raw = {"class": "export_thread", "args": ["long"], "jid": "j1", "timeout": 0.3, "retry": False}
    server.push("thread", raw)
    server.wait_for_event("job.timeout", jid="j1")
    assert server.events("worker.lost") == []
