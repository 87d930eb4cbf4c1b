"""Stacks: where a running job is, for people who ask, in each mode; also while it hangs in C code."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from pyworkers.api import AuditLog, JobStack, WorkSet
from pyworkers.cli import main
from tests.helpers.records import job
from tests.helpers.replies import as_list
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

SLEEPING = """
def deep_inside():
    note("busy")
    time.sleep(3600)

@worker.job(queue="q", concurrency=2, mode="{mode}")
def hangs():
    deep_inside()
"""
# It backtracks for ever, and does not release the GIL.
MATCHING = """
import re

def deep_inside():
    note("busy")
    re.match(r"(a+)+$", "a" * 200 + "b")

@worker.job(queue="q", concurrency=2, mode="{mode}")
def hangs():
    deep_inside()
"""
# Without a signal's handler in Python: usleep by ctypes keeps the GIL.
HOLDING = """
import ctypes
usleep = ctypes.PyDLL(None).usleep

def deep_inside():
    note("busy")
    while True:
        usleep(60_000_000)

@worker.job(queue="q", concurrency=2, mode="{mode}")
def hangs():
    deep_inside()
"""
AWAITING = """
import asyncio

async def deep_inside():
    note("busy")
    await asyncio.sleep(3600)

@worker.job(queue="q", concurrency=2, mode="{mode}")
async def hangs():
    await deep_inside()
"""


def works(server: ServerProcess) -> WorkSet:
    return WorkSet(server.url, namespace=server.keys.namespace)


def asked(server: ServerProcess, jid: str = "a") -> JobStack:
    """The answer of the server about a job."""
    found = works(server)
    [identity] = as_list(server.redis.hkeys(server.keys.owners))
    assert found.ask_stack(jid, identity.decode(), "q")

    def answer() -> JobStack | None:
        stack = found.stack(jid)
        return stack if stack is not None and stack.answered else None

    return wait_for(answer, message="the answer of the server")


def of_job(stack: JobStack) -> str:
    """The stacks of the job, without those of the other threads."""
    return stack.text.partition("\n\nAnother thread")[0]


@pytest.mark.parametrize("mode", ["process", "thread", "async"])
@pytest.mark.parametrize("code", [SLEEPING, AWAITING], ids=["def", "async"])
def test_a_stack_shows_where_a_job_waits_and_the_memory_of_its_process(
    serve: Serve, mode: str, code: str
) -> None:
    with serve(code.format(mode=mode)) as server:
        server.push("q", job("a", "hangs"))
        [[pid, _]] = server.wait_for_notes(1, "busy")
        stack = asked(server)
        assert (stack.pid, stack.problem, stack.queue) == (pid, "", "q")
        assert "in deep_inside" in of_job(stack)
        assert "in hangs" in of_job(stack)
        assert stack.state[0] in "SR"
        assert 1000 < stack.rss_kb <= stack.peak_kb
        again = asked(server)
        assert of_job(again) == of_job(stack)


@pytest.mark.parametrize("mode", ["process", "thread", "async"])
@pytest.mark.parametrize("code", [MATCHING, HOLDING], ids=["matching", "holding"])
def test_a_stack_shows_a_job_in_c_code_that_holds_the_gil(serve: Serve, mode: str, code: str) -> None:
    with serve(code.format(mode=mode)) as server:
        server.push("q", job("a", "hangs"))
        [[pid, _]] = server.wait_for_notes(1, "busy")
        stack = asked(server)
        assert stack.pid == pid
        assert "in deep_inside" in stack.text
        assert "GIL" in stack.problem if mode != "process" else stack.problem == ""
        assert process_runs(pid)


def process_runs(pid: int) -> bool:
    return " Z " not in Path(f"/proc/{pid}/stat").read_text()


def test_of_several_jobs_in_one_process_each_has_its_own_stack(serve: Serve) -> None:
    code = """
    import asyncio, threading
    ended = threading.Event()

    @worker.job(queue="threads", processes=1, concurrency=2, mode="thread")
    def one():
        first()

    @worker.job(queue="threads")
    def two():
        second()

    def first():
        note("busy")
        ended.wait()

    def second():
        note("busy")
        ended.wait()

    @worker.job(queue="tasks", processes=1, concurrency=2, mode="async")
    async def three():
        await third()

    @worker.job(queue="tasks")
    async def four():
        await fourth()

    async def third():
        note("busy")
        await asyncio.sleep(3600)

    async def fourth():
        note("busy")
        await asyncio.sleep(3600)
    """
    names = {"one": "first", "two": "second", "three": "third", "four": "fourth"}
    with serve(code) as server:
        for name in names:
            server.push("threads" if name in ("one", "two") else "tasks", job(name, name))
        server.wait_for_notes(4, "busy")
        for name, function in names.items():
            text = of_job(asked(server, name))
            assert [one for one in names.values() if f"in {one}\n" in text + "\n"] == [function]


def test_a_suspended_process_does_not_answer_and_its_memory_is_shown(serve: Serve) -> None:
    with serve(SLEEPING.format(mode="process")) as server:
        server.push("q", job("a", "hangs"))
        [[pid, _]] = server.wait_for_notes(1, "busy")
        os.kill(pid, signal.SIGSTOP)
        try:
            stack = asked(server)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert stack.text == ""
        assert "did not answer within 5 s" in stack.problem
        assert stack.rss_kb > 1000
        wait_for(lambda: "in deep_inside" in asked(server).text, message="the stack of the continued process")


def test_a_job_that_has_ended_has_no_stack(serve: Serve) -> None:
    with serve("worker.job(queue='q')(print)") as server:
        server.push("q", job("a", "print"))
        server.wait_for_event("job.done", jid="a")
        stack = asked(server)
        assert (stack.pid, stack.text, stack.problem) == (
            0,
            "",
            "The job did not run any more when its server was asked.",
        )


def test_a_request_costs_nothing_that_a_job_sees(serve: Serve) -> None:
    code = """
    import signal
    seen = []

    @worker.job(queue="q", concurrency=1)
    def waits():
        before = signal.getsignal(signal.SIGWINCH)
        meet("waits", before == signal.SIG_DFL)
        note("after", before == signal.getsignal(signal.SIGWINCH))
    """
    with serve(code) as server:
        server.push("q", job("a", "waits"))
        server.wait_for_notes(1, "waits")
        assert "in waits" in asked(server).text
        server.let_go("waits")
        [[_, _, same]] = server.wait_for_notes(1, "after")
        assert same
        server.wait_for_event("job.done", jid="a")
        assert server.events("worker.lost") == []


def test_the_command_prints_the_stack_and_notes_it_in_the_audit(serve: Serve) -> None:
    with serve(SLEEPING.format(mode="process")) as server:
        server.push("q", job("a", "hangs"))
        server.wait_for_notes(1, "busy")
        where = ["--url", server.url, "--namespace", server.keys.namespace]
        result = CliRunner().invoke(main, ["stack", "a", *where])
        assert result.exit_code == 0, result.output
        assert "in deep_inside" in result.stdout
        assert "peak memory" in result.stdout
        [entry] = AuditLog(server.url, namespace=server.keys.namespace).page(0, 10).actions
        assert (entry.action, entry.target, entry.result) == ("job.stack", "a", "done")
        absent = CliRunner().invoke(main, ["stack", "b", *where])
        assert (absent.exit_code, absent.stdout) == (1, "")
        assert "the job b does not run" in absent.stderr
