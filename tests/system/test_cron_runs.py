"""The runs of cron entries with their outcome, through the real server, with workers and servers killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from pyworkers.api import CronRun, CronSet
from tests.helpers.server_process import Serve
from tests.helpers.support import wait_for

CODE = """
@worker.cron("0 0 29 2 *", name="rare")
@worker.job(queue="q", concurrency=2, retry=1, retry_in=lambda count, error, message: 0.2)
def work():
    message = current_message()
    note("work", message.attempt, message.crash_count)
    if os.environ["HOW"] == "fail":
        raise ValueError(f"broken {message.attempt}")
    if os.environ["HOW"] == "die" and not message.crash_count:
        os.kill(os.getpid(), 9)
    if os.environ["HOW"] == "meet":
        meet("met")
"""


@pytest.fixture
def entries(redis_url: str, namespace: str) -> CronSet:
    return CronSet(redis_url, namespace=namespace)


def triggered(entries: CronSet) -> str:
    """Trigger the entry, once the server has declared it."""
    wait_for(lambda: entries.find("rare"))
    return entries.trigger("rare")


def becomes(entries: CronSet, jid: str, fits: Callable[[CronRun], bool]) -> CronRun:
    """Its one run, as soon as it is like this. Without a server, the entry is not declared."""

    def look() -> CronRun | None:
        job = entries.find("rare")
        found = job.runs if job else []
        assert [run.jid for run in found] in ([], [jid])
        return next(filter(fits, found), None)

    found = wait_for(look)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("how", "state", "error"), [("pass", "done", ""), ("fail", "dead", "ValueError: broken 1")]
)
def test_a_run_has_its_outcome(
    serve_either: Serve, entries: CronSet, how: str, state: str, error: str
) -> None:
    with serve_either(CODE, HOW=how):
        jid = triggered(entries)
        run = becomes(entries, jid, lambda run: run.state.final)
        assert (run.state, run.error, run.triggered, run.queue) == (state, error, True, "q")
        assert run.duration_s is not None


@pytest.mark.fault("T6")
def test_a_run_whose_worker_is_killed_has_the_outcome_of_the_next(
    serve_either: Serve, entries: CronSet
) -> None:
    with serve_either(CODE, HOW="die") as server:
        run = becomes(entries, triggered(entries), lambda run: run.state.final)
        assert (run.state, run.error) == ("done", "")
        assert [note[2:] for note in server.wait_for_notes(2, "work")] == [[0, 0], [0, 1]]


@pytest.mark.fault("T6")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_whose_server_ends_has_the_outcome_of_the_next(
    serve_either: Serve, entries: CronSet, number: int
) -> None:
    options = {"PYWORKERS_SERVER__LEASE": "2", "PYWORKERS_SERVER__SHUTDOWN_TIMEOUT": "0.5", "HOW": "meet"}
    with serve_either(CODE, **options) as server:
        jid = triggered(entries)
        server.wait_for_notes(1, "met")
        becomes(entries, jid, lambda run: run.state == "running")
        os.kill(server.pid, number)
        server.wait()
        server.let_go("met")
        server.start()
        assert becomes(entries, jid, lambda run: run.state.final).state == "done"
