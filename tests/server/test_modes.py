"""Workers that run several jobs at once, on a loop or on threads, through the pool with real forks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from pyworkers.protocol.outcome import CANCELLED, DONE, Fate
from pyworkers.server.pool import worker as worker_module
from tests.helpers.processes import process_alive
from tests.helpers.support import PATIENCE_S, STALL_S, async_wait_for, wait_for
from tests.server.test_pool import MEETS, NO_OP, Crew, a_crew, linux_only

BOTH = pytest.mark.parametrize("mode", ["async", "thread"])
MEET = """
import asyncio
async def ameet(name):
    (here / f"{name}.{os.getpid()}").touch()
    while not (here / f"{name}.go").exists():
        await asyncio.sleep(0.005)

@worker.process("q")
async def handle(message):
    await ameet(message.jid)
"""
CODES = {"async": MEET, "thread": MEETS}
# As if it were not installed.
NO_UVLOOP = "sys.modules['uvloop'] = None\n"


def cancel(crew: Crew, jid: str, *, interrupt: bool = False) -> None:
    """Ask the job to end, as the server does."""
    for worker in crew.workers:
        for delivery in worker.unfinished():
            if f'"jid": "{jid}"'.encode() in delivery.raw:
                worker.request(delivery.number, interrupt)


def fates(outcomes: list[tuple[bytes, Any]]) -> list[Fate]:
    return [report.outcome.fate for _, report in outcomes]


@pytest.mark.parametrize(
    ("mode", "code"), [("async", MEET), ("async", MEETS), ("thread", MEET), ("thread", MEETS)]
)
async def test_a_process_runs_as_many_jobs_as_it_has_room_for(tmp_path: Path, mode: str, code: str) -> None:
    async with a_crew(tmp_path, code, slots=3, mode=mode) as crew:
        for jid in "abc":
            crew.deliver(jid)
        pids = [pid for jid in "abc" for pid in await crew.met(jid)]
        assert len(set(pids)) == 1
        # Only now: it would come before one of the others, if that was given back.
        crew.deliver("d")
        [worker] = crew.workers
        assert len(worker.unfinished()) == 3
        crew.let_go("b")
        await crew.met("d")
        for jid in "acd":
            crew.let_go(jid)
        assert [report.outcome for _, report in await crew.outcomes(4)] == [DONE] * 4


@linux_only
async def test_processes_with_threads_take_turns_also_while_there_are_few_jobs(tmp_path: Path) -> None:
    # Otherwise most jobs would run in one process, and share one core.
    async with a_crew(tmp_path, MEETS, concurrency=2, slots=2, mode="thread") as crew:
        await crew.asleep()
        crew.deliver("a")
        first = await crew.met("a")
        await crew.asleep()
        crew.deliver("b")
        assert await crew.met("b") != first
        for jid in "ab":
            crew.let_go(jid)
        await crew.outcomes(2)


@BOTH
async def test_a_process_that_leaves_ends_its_jobs_first(tmp_path: Path, mode: str) -> None:
    code = """
    import asyncio
    @worker.on_startup
    async def begin():
        await asyncio.sleep(0)
        (here / "startup").touch()

    @worker.on_shutdown
    async def finish():
        (here / "shutdown").touch()
    """
    async with a_crew(tmp_path, code, CODES[mode], slots=2, mode=mode) as crew:
        assert (tmp_path / "startup").exists()
        crew.deliver("a")
        await crew.met("a")
        crew.pool.close()
        crew.let_go("a")
        assert len(await crew.outcomes(1)) == 1
        await async_wait_for(lambda: crew.pool.empty, message="it left")
        assert (tmp_path / "shutdown").exists()


@BOTH
async def test_an_idle_process_leaves_at_once(tmp_path: Path, mode: str) -> None:
    async with a_crew(tmp_path, CODES[mode], slots=2, mode=mode) as crew:
        crew.pool.close()
        await async_wait_for(lambda: crew.pool.empty, message="it left")


@pytest.mark.parametrize("without", ["", NO_UVLOOP], ids=["uvloop", "asyncio"])
async def test_async_code_sees_why_it_is_cancelled(tmp_path: Path, without: str) -> None:
    code = """
    import asyncio
    @worker.job(name="Any", queue="q")
    async def handle():
        message = current_message()
        (here / f"in.{message.jid}").touch()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError as error:
            (here / f"{message.jid}.why").write_text(f"{type(error.args[0]).__name__} {message.stopping}")
            raise
    """
    async with a_crew(tmp_path, without, code, slots=4, mode="async") as crew:
        crew.deliver("late", timeout=0.05)
        crew.deliver("unwanted")
        crew.deliver("stopped")
        crew.deliver("other")
        for jid in ("unwanted", "stopped", "other"):
            await async_wait_for((tmp_path / f"in.{jid}").exists, message=f"{jid} runs")
        cancel(crew, "unwanted")
        cancel(crew, "stopped", interrupt=True)
        assert sorted(fates(await crew.outcomes(3))) == [Fate.RETRY, Fate.REQUEUE, Fate.CANCELLED]
        why = {path.stem: path.read_text() for path in tmp_path.glob("*.why")}
        assert why == {
            "late": "JobTimeout True", "unwanted": "JobCancelled True", "stopped": "Interrupted True",
        }  # fmt: skip


async def test_a_job_that_blocks_the_loop_is_killed_with_its_process(tmp_path: Path) -> None:
    code = """
    import asyncio
    @worker.job(name="Any", queue="q")
    async def handle():
        (here / f"in.{os.getpid()}").touch()
        time.sleep(600)
    """
    async with a_crew(tmp_path, code, slots=2, mode="async") as crew:
        raw = crew.deliver("late", timeout=0.05)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome.fate) == (raw, Fate.RETRY)


async def test_a_thread_is_told_to_stop(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    def handle(message):
        (here / f"in.{message.jid}").touch()
        while not current_message().stopping:
            time.sleep(0.001)
    """
    async with a_crew(tmp_path, code, slots=3, mode="thread") as crew:
        for jid, fields in {"late": {"timeout": 0.05}, "unwanted": {}, "stopped": {}}.items():
            crew.deliver(jid, **fields)
        for jid in ("unwanted", "stopped"):
            await async_wait_for((tmp_path / f"in.{jid}").exists, message=f"{jid} runs")
        cancel(crew, "unwanted")
        cancel(crew, "stopped", interrupt=True)
        assert [report.outcome for _, report in await crew.outcomes(3)] == [DONE] * 3


@BOTH
async def test_async_code_is_cancelled_in_every_mode(tmp_path: Path, mode: str) -> None:
    async with a_crew(tmp_path, MEET, slots=2, mode=mode) as crew:
        crew.deliver("a")
        await crew.met("a")
        cancel(crew, "a")
        assert [report.outcome for _, report in await crew.outcomes(1)] == [CANCELLED]


async def test_a_request_is_repeated_until_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signal is lost if it arrives just before the main thread begins to wait for a job."""
    async with a_crew(tmp_path, MEET, slots=2, mode="thread") as crew:
        crew.deliver("a")
        await crew.met("a")
        [worker] = crew.workers
        with monkeypatch.context() as patch:
            patch.setattr(worker, "signal", lambda number: None)
            cancel(crew, "a")
        assert [report.outcome for _, report in await crew.outcomes(1)] == [CANCELLED]


@BOTH
async def test_a_process_is_replaced_after_its_jobs(tmp_path: Path, mode: str) -> None:
    code = CODES[mode]
    async with a_crew(tmp_path, code, slots=2, mode=mode, max_jobs_per_worker=1) as crew:
        crew.deliver("a")
        crew.deliver("b")
        [first], [second] = await crew.met("a"), await crew.met("b")
        assert first == second
        crew.let_go("a")
        await crew.outcomes(1)
        crew.deliver("c")
        [third] = await crew.met("c")
        assert third != first
        crew.let_go("b")
        crew.let_go("c")
        assert [report.outcome for _, report in await crew.outcomes(3)] == [DONE] * 3
        await async_wait_for(lambda: first not in crew.pool.pids(), message="the first process left")


@BOTH
async def test_a_lost_job_has_its_hooks_run_in_another_process(tmp_path: Path, mode: str) -> None:
    code = """
    @worker.on_exhausted
    def gone(message, error):
        (here / "gone").write_text(f"{message.jid} {type(error).__name__}")

    @worker.process("q", retry=0)
    def handle(message):
        os.kill(os.getpid(), signal.SIGKILL)
    """
    async with a_crew(tmp_path, code, slots=2, mode=mode) as crew:
        crew.deliver("bad", crash_count=2)
        assert fates(await crew.outcomes(1)) == [Fate.DEAD]
        gone = tmp_path / "gone"
        await async_wait_for(
            lambda: gone.exists() and gone.read_text() == "bad WorkerLost", message="the hook has run"
        )


START = """
import asyncio, subprocess
def start(name):
    program = subprocess.Popen(["sleep", "600"])
    (here / name).write_text(f"{program.pid} ")
"""


@linux_only
async def test_programs_of_a_thread_end_with_its_job_that_was_asked_to_end(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    def handle(message):
        start(message.jid)
        while not message.stopping:
            time.sleep(0.001)
    """
    async with a_crew(tmp_path, START, code, slots=2, mode="thread") as crew:
        for jid in ("unwanted", "other"):
            crew.deliver(jid)
        unwanted, other = await pid_in(tmp_path / "unwanted"), await pid_in(tmp_path / "other")
        cancel(crew, "unwanted")
        await crew.outcomes(1)
        wait_for(lambda: not process_alive(unwanted), message="the program has ended")
        assert process_alive(other)
        cancel(crew, "other")
        await crew.outcomes(2)


@linux_only
async def test_programs_of_a_lone_async_job_end_with_it_and_others_do_not(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    async def handle(message):
        start(message.jid)
        await asyncio.sleep(600)
    """
    async with a_crew(tmp_path, START, code, slots=2, mode="async") as crew:
        crew.deliver("first")
        first = await pid_in(tmp_path / "first")
        cancel(crew, "first")
        await crew.outcomes(1)
        assert not process_alive(first)
        await crew.free(2)
        for jid in ("second", "third"):
            crew.deliver(jid)
        second, third = await pid_in(tmp_path / "second"), await pid_in(tmp_path / "third")
        cancel(crew, "second")
        await crew.outcomes(2)
        assert process_alive(second)
        assert process_alive(third)
        for pid in (second, third):
            os.kill(pid, signal.SIGKILL)


async def pid_in(path: Path) -> int:
    """The pid that a job writes into a file."""

    def written() -> bool:
        return path.exists() and path.read_text().endswith(" ")

    await async_wait_for(written, message=f"a pid in {path.name}")
    return int(path.read_text())


@BOTH
async def test_a_context_variable_ends_with_its_job(tmp_path: Path, mode: str) -> None:
    code = """
    from contextvars import ContextVar
    var = ContextVar("var", default="unset")
    @worker.process("q")
    async def handle(message):
        (here / f"{message.jid}.var").write_text(var.get() + " ")
        var.set("set")
    """
    async with a_crew(tmp_path, code, slots=1, mode=mode) as crew:
        for number in range(4):
            crew.deliver(str(number))
            await crew.outcomes(number + 1)
        assert [(tmp_path / f"{number}.var").read_text() for number in range(4)] == ["unset "] * 4


@BOTH
async def test_what_a_job_leaves_in_its_context_needs_no_garbage_collector(tmp_path: Path, mode: str) -> None:
    code = """
    import gc, weakref
    from contextvars import ContextVar
    gc.disable()
    var = ContextVar("var")
    things = []

    class Thing:
        pass

    @worker.process("q")
    async def handle(message):
        (here / f"{message.jid}.kept").write_text(str(sum(thing() is not None for thing in things)) + " ")
        var.set(thing := Thing())
        things.append(weakref.ref(thing))
    """
    async with a_crew(tmp_path, code, slots=1, mode=mode) as crew:
        for number in range(3):
            crew.deliver(str(number))
            await crew.outcomes(number + 1)
        assert [(tmp_path / f"{number}.kept").read_text() for number in range(3)] == ["0 "] * 3


EXITS = """
import asyncio

async def end():
    sys.exit("enough")

@worker.process("q", retry=1)
async def handle(message):
    if message.jid == "awaits":
        await asyncio.create_task(end())
    task = asyncio.create_task(end())
    await asyncio.wait([task])
    await asyncio.to_thread(meet, message.jid)
"""


@pytest.mark.parametrize("without", ["", NO_UVLOOP], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("mode", ["process", "async", "thread"])
async def test_a_task_that_calls_sys_exit_ends_no_other_task(tmp_path: Path, mode: str, without: str) -> None:
    async with a_crew(tmp_path, without, EXITS, slots=1, mode=mode) as crew:
        crew.deliver("leaves")
        [pid] = await crew.met("leaves")
        crew.let_go("leaves")
        [(_, report)] = await crew.outcomes(1)
        assert report.outcome == DONE
        crew.deliver("awaits")
        outcome = (await crew.outcomes(2))[1][1].outcome
        assert (outcome.fate, outcome.crashed) == (Fate.RETRY, False)
        assert json.loads(outcome.payload)["error_class"] == "SystemExit"
        assert list(crew.pool.pids()) == [pid]


BLOCKS = """
import asyncio
@worker.job(name="Any", queue="q")
async def handle():
    message = current_message()
    (here / f"in.{message.jid}").touch()
    if message.jid == "blocks":
        while not (here / "in.innocent").exists():
            await asyncio.sleep(0.001)
        async def child():
            time.sleep(600)
        await asyncio.create_task(child())
    await asyncio.sleep(600)
"""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a process count as one that reacts although it gets no processor for a while."""
    monkeypatch.setattr(worker_module, "_ANSWER_S", STALL_S)


async def run_beside_one_that_blocks(crew: Crew, tmp_path: Path) -> None:
    """Check that the job that blocks the loop is charged when the limit of another one ends."""
    blocks = crew.deliver("blocks", timeout=60)
    await async_wait_for((tmp_path / "in.blocks").exists, message="it runs")
    # Its limit, which ends first, is what makes the server look.
    crew.deliver("innocent", timeout=1)
    [(raw, report)] = await crew.outcomes(1)
    assert (raw, report.outcome.fate) == (blocks, Fate.RETRY)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("without", ["", NO_UVLOOP], ids=["uvloop", "asyncio"])
async def test_the_job_that_blocks_the_loop_is_blamed_and_not_another(tmp_path: Path, without: str) -> None:
    async with a_crew(tmp_path, without, BLOCKS, slots=2, mode="async") as crew:
        await run_beside_one_that_blocks(crew, tmp_path)


FACTORIES = {"without context": "lambda loop, work: asyncio.Task(work, loop=loop)"}
if sys.version_info >= (3, 12):
    FACTORIES["eager"] = "asyncio.eager_task_factory"


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)
async def test_a_task_factory_of_the_application_has_no_part_in_how_jobs_start(
    tmp_path: Path, factory: str
) -> None:
    code = f"""
    import asyncio
    @worker.on_startup
    async def start():
        asyncio.get_running_loop().set_task_factory({factory})
    @worker.on_shutdown
    async def stop():
        (here / "stopped").touch()
    @worker.process("q")
    async def handle(message):
        pass
    """
    async with a_crew(tmp_path, NO_UVLOOP, code, slots=2, mode="async") as crew:
        crew.deliver("a")
        crew.deliver("b")
        assert [report.outcome for _, report in await crew.outcomes(2)] == [DONE] * 2
        [worker] = crew.workers
        worker.leave()
        await async_wait_for((tmp_path / "stopped").exists, message="it has left")


LEAVES_A_TASK = """
import asyncio
async def blocks():
    while not (here / "in.innocent").exists():
        await asyncio.sleep(0.001)
    (here / "blocked").touch()
    time.sleep(600)

tasks = []
async def start():
    if not (here / "blocked").exists():
        tasks.append(asyncio.create_task(blocks()))

@worker.on_startup
def be_slow():
    # The next process starts so late that the hand-out gives back what waits for it.
    if (here / "blocked").exists():
        time.sleep(0.2)

@worker.job(name="Any", queue="q")
async def handle():
    message = current_message()
    (here / f"in.{message.jid}").touch()
    if message.jid == "leaves":
        await start()
    elif not (here / "blocked").exists():
        await asyncio.sleep(600)
"""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("without", ["", NO_UVLOOP], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("at_start", ["", "worker.on_startup(start)\n"], ids=["job", "on_startup"])
async def test_no_job_is_charged_if_a_task_of_no_running_job_blocks_the_loop(
    tmp_path: Path, without: str, at_start: str
) -> None:
    with capture_logs() as logged:
        async with a_crew(tmp_path, without, LEAVES_A_TASK + at_start, slots=2, mode="async") as crew:
            if not at_start:
                crew.deliver("leaves")
                await crew.outcomes(1)
            innocent = crew.deliver("innocent", timeout=1)
            (*_, (raw, report)) = await crew.outcomes(1 if at_start else 2)
            assert (raw, report.outcome) == (innocent, DONE)
            # Also by the hand-out, which logs nothing.
            assert set(crew.given_back) == {innocent}
    assert [event["jid"] for event in logged if event["event"] == "job.interrupted"] == ["innocent"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("late_s", [None, 0.45], ids=["lost", "late"])
async def test_a_signal_that_is_not_answered_in_time_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late_s: float | None
) -> None:
    """A process may get no processor for a while: two signals reach it together, or one after the other."""
    async with a_crew(tmp_path, BLOCKS, slots=2, mode="async") as crew:
        [worker] = crew.workers
        send, sent = worker.signal, []

        def signal_late(number: int) -> None:
            sent.append(number)
            if len(sent) > 1:
                send(number)
            elif late_s is not None:
                asyncio.get_running_loop().call_later(late_s, send, number)

        monkeypatch.setattr(worker, "signal", signal_late)
        await run_beside_one_that_blocks(crew, tmp_path)


@pytest.mark.usefixtures("patient")
async def test_one_of_two_jobs_that_never_end_is_charged_for_one_kill(tmp_path: Path) -> None:
    code = """
    import asyncio
    @worker.job(name="Any", queue="q")
    async def handle():
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
    """
    async with a_crew(tmp_path, code, slots=2, mode="async") as crew:
        first = crew.deliver("first", timeout=0.5)
        crew.deliver("second", timeout=0.5)
        [(raw, report)] = await crew.outcomes(1)
        assert (raw, report.outcome.fate) == (first, Fate.RETRY)


async def test_which_loop_runs(tmp_path: Path) -> None:
    code = """
    import asyncio
    @worker.on_startup
    async def begin():
        global loop
        loop = asyncio.get_running_loop()

    @worker.process("q")
    async def handle(message):
        assert asyncio.get_running_loop() is loop
        (here / "loop").write_text(type(loop).__module__.partition(".")[0])
    """
    for without, mode, name in [
        ("", "async", "uvloop"),
        (NO_UVLOOP, "async", "asyncio"),
        ("", "process", "asyncio"),
    ]:
        async with a_crew(tmp_path, without, code, mode=mode) as crew:
            crew.deliver("a")
            assert [report.outcome for _, report in await crew.outcomes(1)] == [DONE]
            assert (tmp_path / "loop").read_text() == name


@pytest.mark.parametrize(
    ("own", "expected"),
    [((700, 7), [5000, 7]), ((9000, 7), [9000, 7]), ((0, 7), [0, 7])],
    ids=["default", "higher", "off"],
)
async def test_the_garbage_collector_allows_for_the_objects_of_all_jobs(
    tmp_path: Path, own: tuple[int, int], expected: list[int]
) -> None:
    code = """
    import gc, json
    gc.set_threshold(*own)

    @worker.process("q")
    async def handle(message):
        (here / "threshold").write_text(json.dumps(gc.get_threshold()[:2]))
    """
    async with a_crew(tmp_path, f"own = {own}\n", code, slots=50, mode="async") as crew:
        crew.deliver("a")
        await crew.outcomes(1)
        assert json.loads((tmp_path / "threshold").read_text()) == expected


async def test_a_start_up_hook_that_fails_on_the_loop_is_a_failed_start(tmp_path: Path) -> None:
    code = """
    @worker.on_startup
    async def begin():
        raise ValueError("no")
    """
    async with a_crew(tmp_path, code, NO_OP, slots=2, mode="async", ready=False) as crew:
        await async_wait_for(lambda: crew.failing, message="starts fail")


@BOTH
async def test_many_jobs_run_and_none_is_lost(tmp_path: Path, mode: str) -> None:
    code = """
    import asyncio
    @worker.middleware
    def outer(message, call_next):
        return call_next(message)

    @worker.job(name="Any", queue="q")
    async def handle():
        await asyncio.sleep(0)
    """
    async with a_crew(tmp_path, code, slots=20, concurrency=2, mode=mode) as crew:
        raws = [crew.deliver(str(number)) for number in range(500)]
        done = await crew.outcomes(500)
        assert sorted(raw for raw, _ in done) == sorted(raws)
        assert {report.outcome for _, report in done} == {DONE}


@BOTH
async def test_a_suspended_process_goes_on(tmp_path: Path, mode: str) -> None:
    async with a_crew(tmp_path, CODES[mode], slots=2, mode=mode) as crew:
        crew.deliver("a")
        [pid] = await crew.met("a")
        os.kill(pid, signal.SIGSTOP)
        cancel(crew, "a")
        crew.deliver("b")
        os.kill(pid, signal.SIGCONT)
        if mode == "thread":
            crew.let_go("a")
        crew.let_go("b")
        started = time.monotonic()
        await crew.outcomes(2)
        assert time.monotonic() - started < PATIENCE_S
        await asyncio.sleep(0)


@linux_only
@BOTH
async def test_a_process_that_cannot_read_its_job_ends(tmp_path: Path, mode: str) -> None:
    code = """
    import resource
    @worker.on_startup
    def limit():
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + (28 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    @worker.process("q")
    def handle(message):
        pass
    """
    async with a_crew(tmp_path, code, slots=2, mode=mode) as crew:
        raw = crew.deliver("large", padding="x" * (64 << 20))
        [(settled, report)] = await crew.outcomes(1)
        assert settled is raw
        assert (report.outcome.fate, report.outcome.crashed) == (Fate.RETRY, True)
        # The master has not waited until it took a worker for suspended.
        error = json.loads(report.outcome.payload)["error_message"]
        assert error.startswith("the worker exited with status 1")
