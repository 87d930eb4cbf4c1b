"""The history of a tracked job, through the real server, in each mode."""

from __future__ import annotations

import asyncio

import pytest

from pyworkers import JobHistory
from pyworkers.asyncclient import AsyncClient
from pyworkers.client import Client
from pyworkers.errors import JobFailedError
from tests.helpers.server_process import Serve
from tests.helpers.support import PATIENCE_S

CODE = """
@worker.job(queue="MODE", mode="MODE", concurrency=2, retry=1, retry_in=lambda count, error, message: 0.2)
def MODE_work(what):
    message = current_message()
    note(what, message.attempt, message.crash_count)
    if what == "die" and not message.crash_count:
        os.kill(os.getpid(), 9)
    if what.startswith("fail"):
        raise ValueError(f"broken {message.attempt}")
    return what
"""


def code_of(mode: str) -> str:
    """The job of a mode, in a queue of its name."""
    code = CODE.replace("MODE", mode)
    return code.replace("def ", "async def ") if mode == "async" else code


def test_each_run_has_its_start_its_worker_and_its_error(
    serve_either: Serve, redis_url: str, namespace: str
) -> None:
    modes = ("process", "thread", "async")
    with (
        serve_either("".join(map(code_of, modes))) as server,
        Client(redis_url, namespace=namespace) as client,
    ):
        for mode in modes:
            words = [f"fail {mode}"]
            jid = client.enqueue(mode, f"{mode}_work", words, track=60, history=True)
            with pytest.raises(JobFailedError):
                client.result(jid, PATIENCE_S)
            found = client.history(jid)
            assert found is not None
            assert (found.status.state, found.job["args"], found.result) == ("dead", words, None)
            assert [(run.number, run.error_class, run.error) for run in found.runs] == [
                (0, "ValueError", "broken 0"),
                (1, "ValueError", "broken 1"),
            ]
            pids = [str(pid) for pid, *_ in server.wait_for_notes(2, *words)]
            assert [run.worker.rpartition(":")[2] for run in found.runs] == pids
            assert all(run.started_at and f"in {mode}_work\n" in run.traceback for run in found.runs)
            assert 50 < server.redis.ttl(server.keys.job(jid)) <= 60
            assert asyncio.run(read(redis_url, namespace, jid)) == found
        assert asyncio.run(read(redis_url, namespace, "nothing")) is None


async def read(url: str, namespace: str, jid: str) -> JobHistory | None:
    async with AsyncClient(url, namespace=namespace) as client:
        return await client.history(jid)


@pytest.mark.fault("J3")
def test_a_run_whose_worker_is_killed_counts_too(serve_either: Serve, redis_url: str, namespace: str) -> None:
    with (
        serve_either(code_of("process")) as server,
        Client(redis_url, namespace=namespace) as client,
    ):
        jid = client.enqueue("process", "process_work", ["die"], track=60, history=True)
        assert client.result(jid, PATIENCE_S) == "die"
        found = client.history(jid)
        assert found is not None
        assert [(run.number, run.error_class, run.traceback) for run in found.runs] == [
            (0, "WorkerLost", ""),
            (1, "", ""),
        ]
        assert found.runs[0].error.startswith("the worker was killed by SIGKILL")
        pids = [str(pid) for pid, *_ in server.wait_for_notes(2, "die")]
        assert [run.worker.rpartition(":")[2] for run in found.runs] == pids
        assert (found.status.state, found.result) == ("done", "die")
