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
@worker.job(queue="MODE", mode="MODE", concurrency=2)
def run_MODE(how):
    if how == "crash":
        os._exit(9)
    if how == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, list(signal.Signals))
        time.sleep(60)
    raise ValueError(how)
"""
PROCESS = CODE.replace("MODE", "process")
MODES = ("process", "async", "thread")
ALL_MODES = "".join(CODE.replace("MODE", mode) for mode in MODES)


def reports(server: ServerProcess) -> list[list[object]]:
    return [words[2:] for words in server.ledger() if words[1] == "report"]


def test_a_crash_is_reported_by_another_worker(serve: Serve) -> None:
    with serve(HANDLER + ALL_MODES) as server:
        for mode in MODES:
            server.push(mode, job(mode, f"run_{mode}", "crash"))
        for mode in MODES:
            # The third crash ends it.
            server.wait_for_notes(3, "report", mode)
        wait_for(lambda: server.settled(*MODES))
        assert len(server.zset("dead")) == len(MODES)
        found = reports(server)
    fates = ["RETRY", "RETRY", "DEAD"]
    for mode in MODES:
        own = [words[:6] for words in found if words[0] == mode]
        assert own == [[mode, "WorkerLost", fate, True, 0, mode] for fate in fates]
    assert all(str(words[6]).startswith("the worker exited with status 9") for words in found)


def test_a_kill_after_the_time_limit_is_reported(serve: Serve) -> None:
    expected = {}
    with serve(HANDLER + ALL_MODES) as server:
        for mode in MODES:
            hangs, raises = f"hangs {mode}", f"raises {mode}"
            server.push(
                mode,
                job(hangs, f"run_{mode}", "hang", timeout=0.2, retry_count=0),
                job(raises, f"run_{mode}", "raise"),
            )
            expected[hangs] = ["JobTimeout", "RETRY", False, 1, hangs]
            expected[raises] = ["ValueError", "RETRY", False, 0, raises]
        server.wait_for_notes(len(expected), "report")
        wait_for(lambda: len(server.zset("retry")) == len(expected))
        found = {words[0]: words[1:6] for words in reports(server)}
    assert found == expected


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
    with serve(handler + PROCESS) as server:
        server.push("process", job("j1", "run_process", "raise"))
        server.wait_for_event("job.failed", outcome="dead")
        wait_for(lambda: server.settled("process"))
        # Each run is reported as it failed, then as one that was lost; the last of these comes after the end.
        server.wait_for_notes(6, "report")
        assert Counter(words[0] for words in reports(server)) == {"ValueError": 3, "WorkerLost": 3}
        assert [b'"jid":"j1"' in raw.replace(b" ", b"") for raw, _ in server.zset("dead")] == [True]
        server.push("process", job("j2", "run_process", "raise", retry=0))
        server.wait_for_notes(7, "report")


@pytest.mark.fault("E1")
@pytest.mark.parametrize("victim", ["worker", "server"])
def test_a_kill_while_a_handler_runs(serve: Serve, victim: str) -> None:
    handler = """
@worker.on_error
def report(message, error, outcome):
    meet("report", type(error).__name__)
"""
    with serve(handler + PROCESS, PYWORKERS_SERVER__LEASE="2") as server:
        server.push("process", job("j1", "run_process", "raise", retry=0))
        [[pid, *_]] = server.wait_for_notes(1, "report")
        os.kill(server.pid if victim == "server" else pid, signal.SIGKILL)
        if victim == "server":
            server.wait()
            assert len(server.inprogress("process")) == 1
            server.start(ready=False)
        server.let_go("report")
        wait_for(lambda: server.settled("process") and len(server.zset("dead")) == 1)
        # The run that was cut off and the next one; the crash is reported between them or later.
        crashes = {"WorkerLost": 1} if victim == "worker" else {}
        server.wait_for_notes(2 + len(crashes), "report")
        assert Counter(words[0] for words in reports(server)) == {"ValueError": 2, **crashes}
