"""Many jobs in one process under a real server: at once, cancelled one by one, stopped, and reloaded."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pyworkers import Client
from pyworkers.server.pool.worker import KILL_GRACE_S
from tests.helpers.records import job
from tests.helpers.server_process import Serve
from tests.helpers.support import wait_for

APP = """
import asyncio

@worker.on_startup
async def begin():
    note("begin")

@worker.middleware
def around(message, call_next):
    outcome = call_next(message)
    note("left", message.jid)
    return outcome

@worker.job(queue="web", concurrency=100, processes=1, retry=3)
async def waits(name):
    note("in", name)
    try:
        while not Path(__file__).with_name(name).exists():
            await asyncio.sleep(0.01)
    except asyncio.CancelledError as error:
        note("cancelled", name, type(error.args[0]).__name__)
        raise
    note("out", name)

@worker.job(queue="web")
async def dies(name):
    note("in", name)
    try:
        await asyncio.sleep(600)
    finally:
        os._exit(1)

@worker.job(queue="web")
async def sleeps(seconds):
    await asyncio.sleep(seconds)
    note("slept")
"""


@pytest.fixture
def code() -> str:
    return APP


def test_a_hundred_jobs_run_at_once_in_one_process(serve: Serve, code: str) -> None:
    with serve(code) as server:
        server.push("web", *(job(f"j{number}", "waits", "all") for number in range(100)))
        pids = {note[0] for note in server.wait_for_notes(100, "in", "all")}
        assert len(pids) == 1
        server.let_go("all")
        server.wait_for_notes(100, "out", "all")
        wait_for(lambda: server.settled("web"), message="all are settled")
        assert len(server.wait_for_notes(100, "left")) == 100
        assert server.stop() == 0


def test_one_of_them_is_cancelled_and_the_others_run_on(serve: Serve, code: str, namespace: str) -> None:
    with serve(code) as server:
        server.push("web", job("a", "waits", "a"), job("b", "waits", "b"))
        server.wait_for_notes(1, "in", "a")
        server.wait_for_notes(1, "in", "b")
        Client(server.url, namespace=namespace).cancel("a")
        [note] = server.wait_for_notes(1, "cancelled", "a")
        assert note[3] == "JobCancelled"
        server.let_go("b")
        server.wait_for_notes(1, "out", "b")
        wait_for(lambda: server.settled("web"), message="both are settled")


def test_the_process_of_a_cancelled_job_may_end_before_the_grace(
    serve: Serve, code: str, namespace: str
) -> None:
    with serve(code) as server:
        server.push("web", job("a", "dies", "a"))
        server.wait_for_notes(1, "in", "a")
        Client(server.url, namespace=namespace).cancel("a")
        server.wait_for_event("worker.lost")
        # It ends after the grace, which began with the cancellation.
        server.push("web", job("b", "sleeps", KILL_GRACE_S + 0.5))
        server.wait_for_notes(1, "slept")
        wait_for(lambda: server.settled("web"), message="both are settled")
        assert not server.events("server.failed")


def test_jobs_whose_process_ended_beside_them_are_counted_as_interrupted(
    serve: Serve, code: str, namespace: str
) -> None:
    with serve(code) as server:
        server.push("web", job("a", "waits", "all"), job("b", "waits", "all"), job("c", "dies", "c"))
        server.wait_for_notes(2, "in", "all")
        server.wait_for_notes(1, "in", "c")
        # The process ends because of this job.
        Client(server.url, namespace=namespace).cancel("c")
        pids = [note[0] for note in server.wait_for_notes(4, "in", "all")]
        # It ends, and nothing shows because of which job.
        os.kill(pids[-1], signal.SIGKILL)
        server.wait_for_event("job.suspected", 2)
        server.let_go("all")
        wait_for(lambda: server.settled("web"), message="all are settled")
        assert server.stop() == 0
        assert server.redis.get(server.keys.stat("interrupted")) == b"4"
        assert server.redis.get(server.keys.stat("processed")) == b"2"


def test_a_stop_gives_them_back(serve: Serve, code: str, tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("[server]\nshutdown_timeout = 3\n")
    with serve(code, "--config", str(settings)) as server:
        server.push("web", *(job(f"j{number}", "waits", "never") for number in range(10)))
        server.wait_for_notes(10, "in", "never")
        assert server.stop() == 0
        assert {note[3] for note in server.wait_for_notes(10, "cancelled", "never")} == {"Interrupted"}
        assert server.waiting("web") == 10


def test_new_code_runs_beside_jobs_of_the_old_one(serve: Serve, code: str) -> None:
    with serve(code) as server:
        server.push("web", job("a", "waits", "a"))
        [[old, *_]] = server.wait_for_notes(1, "in", "a")
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done")
        wait_for(lambda: len({note[0] for note in server.wait_for_notes(1, "begin")}) == 2)
        server.push("web", job("b", "waits", "b"))
        [[new, *_]] = server.wait_for_notes(1, "in", "b")
        server.let_go("a")
        server.let_go("b")
        assert server.wait_for_notes(1, "out", "a")[0][0] == old
        assert server.wait_for_notes(1, "out", "b")[0][0] == new
        wait_for(lambda: server.settled("web"), message="both are settled")


def test_a_reload_changes_the_mode_to_and_fro(serve: Serve, tmp_path: Path) -> None:
    code = """
    @worker.job(queue="web", concurrency=4)
    async def counts(number):
        note("ran", number)
    """
    settings = tmp_path / "settings.toml"
    settings.write_text('[queues.web]\nmode = "process"\n')
    with serve(code, "--config", str(settings)) as server:
        for turn, mode in enumerate(["async", "process", "thread", "async", "process"]):
            server.push("web", *(job(f"j{turn}.{n}", "counts", n) for n in range(100)))
            settings.write_text(f'[queues.web]\nmode = "{mode}"\n')
            server.signal(signal.SIGHUP)
            server.wait_for_event("reload.done", turn + 1)
        server.wait_for_notes(500, "ran")
        wait_for(lambda: server.settled("web"), message="all are settled")
        assert len(server.ledger()) == 500
        assert not server.events("worker.lost")
