"""Status, progress and results of tracked jobs, through the real server, in each mode.

One server runs all modes, each with a queue of its name.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import pytest
from click.testing import CliRunner

from pyworkers.asyncclient import AsyncClient
from pyworkers.cli import main
from pyworkers.client import Client
from pyworkers.errors import JobFailedError, ResultTimeout, UntrackedJobError
from pyworkers.protocol.flow.track import MAX_RESULT_BYTES
from pyworkers.protocol.status import JobState, JobStatus, Progress
from tests.helpers.proxy import Proxy, proxied
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import PATIENCE_S, wait_for

CODE = """
def pass_on_MODE(message, call_next):
    return call_next(message)

OPTIONS = dict(concurrency=3, retry=1, retry_in=lambda count, error, message: 0.2)

@worker.job(queue="MODE", mode="MODE", middleware=[pass_on_MODE], **OPTIONS)
def work_MODE(what, *rest):
    message = current_message()
    if what == "return":
        return rest[0] if rest else None
    if what == "progress":
        for number in range(rest[0] + 1):
            message.progress(number, rest[0], f"page {number}")
        meet("progress MODE")
        message.progress(1)
        message.progress(2, text="last")
    if what == "meet":
        meet(rest[0], message.attempt)
        return "met"
    if what == "fail":
        raise ValueError("it is broken")
    if what == "discard":
        raise Discard("not needed")
    if what == "die":
        note("pid", message.attempt)
        os.kill(os.getpid(), 9)
    if what == "bad":
        return {"a": [1, {2, 3}]}
    if what == "huge":
        return "x" * rest[0]
    if what == "sleep":
        note("asleep", "MODE")
        time.sleep(600)
"""


MODES = ("process", "thread", "async")


def code_of(mode: str) -> str:
    code = CODE.replace("MODE", mode)
    if mode == "async":
        code = code.replace("def ", "async def ").replace("return call_next(", "return await call_next(")
        code = code.replace("    time.sleep(600)", "    await asyncio.sleep(600)")
        code = code.replace("meet(", "await met(")
        code = (
            """
import asyncio
async def met(name, *words):
    note(name, *words)
    while not Path(__file__).with_name(name).exists():
        await asyncio.sleep(0.005)
"""
            + code
        )
    return code


@pytest.fixture
def server(serve_either: Serve) -> Iterator[ServerProcess]:
    with serve_either("".join(map(code_of, MODES))) as running:
        yield running


@pytest.fixture
def client(redis_url: str, namespace: str) -> Iterator[Client]:
    with Client(redis_url, namespace=namespace) as opened:
        yield opened


def enqueue(client: Client, mode: str, *args: object, **options: Any) -> str:
    """Enqueue a job that runs in this mode."""
    return client.enqueue(mode, f"work_{mode}", args, **options)


def becomes(client: Client, jid: str, state: str) -> JobStatus:
    def there() -> JobStatus | None:
        status = client.status(jid)
        return status if status.state == state else None

    return wait_for(there, message=f"the job is {state}")


def shows(client: Client, jid: str, progress: Progress) -> None:
    wait_for(lambda: client.status(jid).progress == progress, message="the progress")


def test_a_tracked_job_shows_its_way_its_progress_and_its_result(
    server: ServerProcess, client: Client
) -> None:
    for mode in MODES:
        before = time.time()
        # A shorter delay might be over before the test has seen it.
        jid = enqueue(client, mode, "progress", 50, track=60, delay=3600)
        assert client.status(jid) == JobStatus(JobState.SCHEDULED, mode)
        server.make_due("schedule")
        server.wait_for_notes(1, f"progress {mode}")
        running = becomes(client, jid, "running")
        assert (running.queue, running.attempt, running.finished_at, running.error) == (mode, 0, None, None)
        assert running.started_at is not None
        assert before <= running.started_at <= time.time()
        # Only the first one, since the others came right after it.
        shows(client, jid, Progress(0, 50, "page 0"))
        server.let_go(f"progress {mode}")
        assert client.result(jid, PATIENCE_S) is None
        done = client.status(jid)
        assert (done.state, done.progress, done.error) == (JobState.DONE, Progress(2, None, "last"), None)
        assert done.finished_at is not None
        assert done.finished_at >= running.started_at
        keys = server.keys
        assert all(50 < server.redis.ttl(key) <= 60 for key in (keys.job(jid), keys.result(jid)))


def test_a_result_is_read_by_any_number_of_readers(server: ServerProcess, client: Client) -> None:
    values: list[object] = [7, "ä", [1, {"a": None}], True, 1.5, None]
    for mode, value in product(MODES, values):
        jid = enqueue(client, mode, "return", value, track=60)
        with ThreadPoolExecutor(5) as readers:
            found = list(readers.map(client.result, [jid] * 5, [PATIENCE_S] * 5))
        assert [(type(one), one) for one in found] == [(type(value), value)] * 5, mode
        assert client.result(jid, 0) == value


def test_a_failed_job_shows_its_error_and_its_result_raises_it(server: ServerProcess, client: Client) -> None:
    for mode in MODES:
        jid = enqueue(client, mode, "fail", track=60)
        message = rf"the job {jid} is dead: ValueError: it is broken"
        with pytest.raises(JobFailedError, match=message) as caught:
            client.result(jid, PATIENCE_S)
        error = caught.value
        assert (error.jid, error.state, error.error_class, error.error) == (
            jid, "dead", "ValueError", "it is broken",
        )  # fmt: skip
        status = client.status(jid)
        assert (status.state, status.attempt, status.error) == ("dead", 1, "ValueError: it is broken")


def test_the_other_ends_of_a_job_have_their_states(server: ServerProcess, client: Client) -> None:
    for mode in MODES:
        discarded = enqueue(client, mode, "discard", track=60)
        dropped = enqueue(client, mode, "fail", retry=False, track=60)
        asleep = enqueue(client, mode, "sleep", track=60)
        scheduled = enqueue(client, mode, "sleep", delay=3600, track=60)
        server.wait_for_notes(1, "asleep", mode)
        becomes(client, asleep, "running")
        for jid in (asleep, scheduled):
            client.cancel(jid)
        ends = {discarded: "failed", dropped: "failed", asleep: "cancelled", scheduled: "cancelled"}
        for jid, state in ends.items():
            with pytest.raises(JobFailedError, match=f"is {state}"):
                client.result(jid, PATIENCE_S)
            assert client.status(jid).state == state, mode


def test_a_command_enqueues_and_waits_for_the_result(server: ServerProcess, client: Client) -> None:
    where = ["--url", client.config.url, "--namespace", client.config.namespace]

    def enqueue_by_hand(jid: str, args: list[Any], *words: str) -> tuple[int, str, str]:
        call = ["enqueue", "process", "work_process", json.dumps(args), "--jid", jid, "--retry", "false"]
        found = CliRunner().invoke(main, [*call, *words, *where])
        return found.exit_code, found.stdout, found.stderr

    value, patience = [1, {"a": "\u202e"}], f"{PATIENCE_S}s"
    assert enqueue_by_hand("j1", ["return", value], "--wait", patience) == (0, '[1,{"a":"\\u202e"}]\n', "")
    code, out, _ = enqueue_by_hand("j2", ["return", value], "--wait", patience, "--track", "1h", "--json")
    facts = {"action": "enqueue", "done": 1, "jids": ["j2"], "state": "done", "result": value}
    assert (code, json.loads(out)) == (0, facts)
    error = "Error: the job j3 is failed: ValueError: it is broken\n"
    assert enqueue_by_hand("j3", ["fail"], "--wait", patience) == (1, "", error)
    late = enqueue_by_hand("j4", ["return"], "--wait", "50ms", "--in", "1h")
    assert late == (1, "", "Error: the job j4 has not ended in the time\n")


def test_a_retried_job_is_shown_as_such_and_its_result_is_awaited(
    serve_either: Serve, client: Client
) -> None:
    with serve_either(code_of("process")) as server:
        jid = enqueue(client, "process", "die", track=60)
        server.wait_for_notes(1, "pid", 0)
        retrying = becomes(client, jid, "retrying")
        assert retrying.attempt == 1
        assert retrying.error is not None
        assert retrying.error.startswith("WorkerLost: the worker was killed by SIGKILL")
        with pytest.raises(ResultTimeout):
            client.result(jid, 0.01)


def test_a_result_that_cannot_be_kept_fails_the_job(server: ServerProcess, client: Client) -> None:
    errors: list[tuple[list[object], str]] = [
        (["bad"], r"result\['a'\]\[1\] is of type set, which JSON does not carry: it cannot be kept"),
        (["huge", MAX_RESULT_BYTES], f"the result has {MAX_RESULT_BYTES + 2} bytes; the limit is 4194304"),
    ]
    for mode, (what, error) in product(MODES, errors):
        jid = enqueue(client, mode, *what, retry=False, track=60)
        with pytest.raises(JobFailedError, match=f"BadResultError: {error}"):
            client.result(jid, PATIENCE_S)
        untracked = enqueue(client, mode, *what)
        server.wait_for_event("job.done", jid=untracked)
    for mode in MODES:
        # The largest one arrives.
        jid = enqueue(client, mode, "huge", MAX_RESULT_BYTES - 2, track=60)
        assert client.result(jid, PATIENCE_S) == "x" * (MAX_RESULT_BYTES - 2)


def readers(server: ServerProcess) -> int:
    """The clients that Redis blocks in XREAD; the blocking moves of the server are no readers."""
    return sum(one["cmd"] == "xread" and "b" in one["flags"] for one in server.redis.client_list())


def test_a_waiting_reader_sends_one_command(server: ServerProcess, redis_url: str, namespace: str) -> None:
    async def wait() -> tuple[Any, Any]:
        async with AsyncClient(redis_url, namespace=namespace) as client:
            jid = await client.enqueue("process", "work_process", ["meet", "wait"], track=60)
            waits = [asyncio.create_task(client.result(jid, PATIENCE_S)) for _ in range(3)]
            while readers(server) < 3:
                await asyncio.sleep(0.01)
            server.redis.config_resetstat()
            # No command is sent in this time.
            await asyncio.sleep(0.5)
            calls = server.redis.info("commandstats")
            server.let_go("wait")
            return await asyncio.gather(*waits), calls

    values, calls = asyncio.run(wait())
    assert values == ["met"] * 3
    # Three readers that polled would send more of these; the server reads its gauges once in ten minutes.
    assert "cmdstat_xread" not in calls
    assert calls.get("cmdstat_xrange", {"calls": 0})["calls"] <= 1


def test_a_wait_for_a_result_outlives_its_connections(
    server: ServerProcess, redis_url: str, namespace: str
) -> None:
    def blocked() -> bool:
        clients = server.redis.client_list()
        return any(one["cmd"] == "xread" and "b" in one["flags"] for one in clients)

    def lose(proxy: Proxy) -> None:
        for _ in range(2):
            wait_for(blocked)
            with proxy.refused():
                wait_for(lambda: not blocked())
        server.let_go("wait")

    async def wait(url: str, jid: str) -> Any:
        async with AsyncClient(url, namespace=namespace) as client:
            return await client.result(jid, PATIENCE_S)

    for name in ("blocking", "async"):
        with proxied(redis_url) as proxy, Client(proxy.url, namespace=namespace) as client:
            jid = enqueue(client, "process", "meet", "wait", track=60)
            losing = threading.Thread(target=lose, args=(proxy,))
            losing.start()
            if name == "blocking":
                assert client.result(jid, PATIENCE_S) == "met"
            else:
                assert asyncio.run(wait(proxy.url, jid)) == "met"
            losing.join()
        server.folder.joinpath("wait").unlink()


def test_a_job_of_a_producer_in_another_language_is_tracked(server: ServerProcess, client: Client) -> None:
    track: object
    for track in (3600, "an hour", True, 1e30, 0.001):
        jid = f"go-{track}"
        raw = json.dumps(
            {"class": "work_process", "args": ["return", 1], "jid": jid, "track": track}
        ).encode()
        server.redis.lpush(server.keys.queue("process"), raw)
        assert client.result(jid, PATIENCE_S) == 1
    for track in (None, False, 0, -5):
        jid = f"untracked-{track}"
        raw = json.dumps(
            {"class": "work_process", "args": ["return", 1], "jid": jid, "track": track}
        ).encode()
        server.redis.lpush(server.keys.queue("process"), raw)
        server.wait_for_event("job.done", jid=jid)
        with pytest.raises(UntrackedJobError):
            client.result(jid, PATIENCE_S)


@pytest.mark.fault("J2")
def test_an_evicted_status_neither_stops_the_job_nor_its_result(
    server: ServerProcess, client: Client
) -> None:
    for mode in MODES:
        jid = enqueue(client, mode, "meet", mode, track=60)
        server.wait_for_notes(1, mode)
        becomes(client, jid, "running")
        server.redis.delete(server.keys.job(jid))
        assert client.status(jid).state == "unknown"
        server.let_go(mode)
        assert client.result(jid, PATIENCE_S) == "met"
        server.redis.delete(server.keys.result(jid))
        with pytest.raises(UntrackedJobError, match="is done, but its result is gone"):
            client.result(jid, PATIENCE_S)


@pytest.mark.fault("J1")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_whose_server_ends_has_its_result_from_the_next(
    serve_either: Serve, client: Client, number: int
) -> None:
    options = {"PYWORKERS_SERVER__LEASE": "2", "PYWORKERS_SERVER__SHUTDOWN_TIMEOUT": "0.5"}
    with serve_either(code_of("process"), **options) as server:
        jid = enqueue(client, "process", "meet", "end", track=60)
        server.wait_for_notes(1, "end")
        becomes(client, jid, "running")
        os.kill(server.pid, number)
        server.wait()
        server.let_go("end")
        server.start()
        assert client.result(jid, PATIENCE_S) == "met"
        assert client.status(jid).state == "done"
