"""Error handlers on real servers: crashes, kills after a time limit, and handlers that end their process."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from tests.helpers.records import job
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

HANDLER = """
@worker.on_error
def report(message, error, outcome):
    about = message.jid, type(error).__name__, outcome.fate.name, outcome.crashed, message.attempt
    note("report", *about, current_message().jid, str(error))
"""
CODE = """
@worker.job(queue="q", mode="MODE", concurrency=2)
def run(how):
    if how == "crash":
        os._exit(9)
    if how == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, list(signal.Signals))
        time.sleep(60)
    raise ValueError(how)
"""
MODES = pytest.mark.parametrize("mode", ["process", "async", "thread"])


def reports(server: ServerProcess) -> list[list[object]]:
    return [words[2:] for words in server.ledger() if words[1] == "report"]


@MODES
def test_a_crash_is_reported_by_another_worker(serve: Serve, mode: str) -> None:
    with serve(HANDLER + CODE.replace("MODE", mode)) as server:
        server.push("q", job("j1", "run", "crash"))
        # The third crash ends it.
        server.wait_for_notes(3, "report")
        wait_for(lambda: server.settled("q"))
        assert len(server.zset("dead")) == 1
        found = reports(server)
    fates = ["RETRY", "RETRY", "DEAD"]
    assert [words[:6] for words in found] == [["j1", "WorkerLost", fate, True, 0, "j1"] for fate in fates]
    assert all(str(words[6]).startswith("the worker exited with status 9") for words in found)


@MODES
def test_a_kill_after_the_time_limit_is_reported(serve: Serve, mode: str) -> None:
    with serve(HANDLER + CODE.replace("MODE", mode)) as server:
        server.push("q", job("j1", "run", "hang", timeout=0.2, retry_count=0), job("j2", "run", "raise"))
        server.wait_for_notes(2, "report")
        wait_for(lambda: len(server.zset("retry")) == 2)
        found = {words[0]: words[1:6] for words in reports(server)}
    assert found == {
        "j1": ["JobTimeout", "RETRY", False, 1, "j1"],
        "j2": ["ValueError", "RETRY", False, 0, "j2"],
    }


@pytest.mark.fault("W2")
def test_a_suspect_is_reported_when_it_is_proved(serve: Serve) -> None:
    code = """
@worker.job(queue="q", mode="thread", concurrency=2, processes=1)
def run(how):
    note("run", how)
    if how == "innocent":
        return wait_for_file("innocent")
    wait_for_file("go")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with serve(HANDLER + code) as server:
        server.push("q", job("j1", "run", "poison"), job("j2", "run", "innocent"))
        server.wait_for_notes(2, "run")
        server.let_go("go")
        server.wait_for_event("job.suspected", count=2)
        [[*_, jid, name, fate, crashed, _, _, text]] = server.wait_for_notes(1, "report")
        assert (jid, name, fate, crashed) == ("j1", "WorkerLost", "RETRY", True)
        assert "SIGKILL" in text
        server.let_go("innocent")
        server.wait_for_event("job.done", jid="j2")
        assert {words[0] for words in reports(server)} == {"j1"}


@pytest.mark.fault("E1")
def test_a_handler_that_ends_its_process(serve: Serve) -> None:
    handler = """
@worker.on_error
def report(message, error, outcome):
    note("report", type(error).__name__)
    os._exit(3)
"""
    with serve(handler + CODE.replace("MODE", "process")) as server:
        server.push("q", job("j1", "run", "raise"))
        server.wait_for_event("job.failed", outcome="dead")
        wait_for(lambda: server.settled("q"))
        # Each run is reported as it failed, then as one that was lost; the last of these comes after the end.
        server.wait_for_notes(6, "report")
        assert Counter(words[0] for words in reports(server)) == {"ValueError": 3, "WorkerLost": 3}
        assert [b'"jid":"j1"' in raw.replace(b" ", b"") for raw, _ in server.zset("dead")] == [True]
        server.push("q", job("j2", "run", "raise", retry=0))
        server.wait_for_notes(7, "report")


@pytest.mark.fault("E1")
@pytest.mark.parametrize("victim", ["worker", "server"])
def test_a_kill_while_a_handler_runs(serve: Serve, victim: str) -> None:
    handler = """
@worker.on_error
def report(message, error, outcome):
    meet("report", type(error).__name__)
"""
    with serve(handler + CODE.replace("MODE", "process"), PYWORKERS_SERVER__LEASE="2") as server:
        server.push("q", job("j1", "run", "raise", retry=0))
        [[pid, *_]] = server.wait_for_notes(1, "report")
        os.kill(server.pid if victim == "server" else pid, signal.SIGKILL)
        if victim == "server":
            server.wait()
            assert len(server.inprogress("q")) == 1
            server.start(ready=False)
        server.let_go("report")
        wait_for(lambda: server.settled("q") and len(server.zset("dead")) == 1)
        # The run that was cut off and the next one; the crash is reported between them or later.
        crashes = {"WorkerLost": 1} if victim == "worker" else {}
        server.wait_for_notes(2 + len(crashes), "report")
        assert Counter(words[0] for words in reports(server)) == {"ValueError": 2, **crashes}
