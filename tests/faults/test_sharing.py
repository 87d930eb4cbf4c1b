"""Faults of processes that run several jobs: a job that blocks, one that does not end, one that crashes."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyworkers import Cancelled, Client
from tests.helpers.processes import anonymous_kb
from tests.helpers.records import job
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import wait_for

# A job waits for its file; ``bad`` does its worst once all the others run alongside it.
APP = """
import asyncio, ctypes, re

HERE = Path(__file__).parent
OPTIONS = dict(queue="web", concurrency=60, processes=1, retry=3, retry_in=lambda *_: 0.1)

@worker.job(**OPTIONS)
async def good(name):
    note("in", name)
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    note("out", name)

@worker.job(**OPTIONS)
async def bad():
    while not (HERE / "bad").exists():
        await asyncio.sleep(0.01)
    note("bad")
    (HERE / "go").touch()
    WORST
"""
FREES = '(HERE / "go").touch()\n    '


@pytest.fixture
def serve(tmp_path: Path, one_redis_url: str, namespace: str) -> Serve:
    return functools.partial(serving, tmp_path, one_redis_url, namespace)


def push_all(server: ServerProcess, count: int, *, good: float = 0, bad: float = 0, **fields: Any) -> None:
    """Start the jobs, with these time limits, and let ``bad`` do its worst once all run."""
    limits = {"timeout": bad} if bad else {}
    worst = job("bad", "bad", **limits, **fields)
    # If it alone has a limit, that begins when the others run: they may need longer to start.
    is_last = bool(bad and not good)
    if not is_last:
        server.push("web", worst)
    limits = {"timeout": good} if good else {}
    server.push("web", *(job(f"j{n}", "good", n, **limits) for n in range(count)))
    server.wait_for_notes(count, "in")
    server.let_go("bad")
    if is_last:
        server.push("web", worst)
    server.wait_for_notes(1, "bad")


def charged(server: ServerProcess) -> set[str]:
    """The jobs that have failed, crashed or exceeded their limits."""
    return {e["jid"] for name in ("job.failed", "job.timeout") for e in server.events(name)}


def end_well(server: ServerProcess, count: int) -> None:
    """Wait for the end of the others, of which each ran twice, and see that only ``bad`` was charged."""
    server.wait_for_notes(count, "out")
    wait_for(lambda: server.settled("web"), message="all are settled")
    assert charged(server) == {"bad"}
    assert len(server.zset("dead")) == 1
    assert not server.zset("retry")
    runs = Counter(note[2] for note in server.wait_for_notes(count, "in"))
    assert runs == Counter(dict.fromkeys(range(count), 2))


@pytest.mark.fault("A1")
@pytest.mark.parametrize(
    ("worst", "limits"),
    [
        ("time.sleep(600)", {"bad": 0.5}),
        ("time.sleep(600)", {"bad": 5, "good": 5}),
        ("time.sleep(600)", {"good": 5}),
        # Takes a processor: once.
        ("re.match('(a+)+$', 'a' * 50 + 'b')", {"bad": 0.5}),
    ],
    ids=str,
)
def test_a1_only_the_job_that_blocks_the_loop_is_charged(
    serve: Serve, worst: str, limits: dict[str, float]
) -> None:
    with serve(APP.replace("WORST", worst)) as server:
        push_all(server, 50, **limits, retry=0)
        end_well(server, 50)


@pytest.mark.fault("A1")
@pytest.mark.parametrize("limits", [{"bad": 0.5}, {"bad": 5, "good": 5}], ids=str)
def test_a1_a_call_that_no_signal_interrupts_charges_no_other_job(
    serve: Serve, limits: dict[str, float]
) -> None:
    with serve(APP.replace("WORST", "sum(range(10 ** 14))")) as server:
        push_all(server, 50, **limits, retry=0)
        end_well(server, 50)


NEVER_ENDS = {
    "swallows": """
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
    """,
    "shields": """
    async def inner():
        await asyncio.sleep(600)
    task = asyncio.create_task(inner())
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            pass
    """,
    "cleans up": """
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(600)
    """,
}


@pytest.mark.fault("A2")
@pytest.mark.parametrize("way", NEVER_ENDS)
@pytest.mark.parametrize("cancelled", [False, True], ids=["limit", "cancelled"])
def test_a2_a_job_that_does_not_end_is_killed_with_its_process(
    serve: Serve, way: str, cancelled: bool, namespace: str
) -> None:
    code = APP.replace(FREES, "").replace("WORST", NEVER_ENDS[way].strip())
    with serve(code) as server:
        push_all(server, 20, retry=0, bad=0 if cancelled else 0.5)
        if cancelled:
            Client(server.url, namespace=namespace).cancel("bad")
        server.wait_for_event("worker.lost")
        server.wait_for_notes(40, "in")
        server.let_go("go")
        server.wait_for_notes(20, "out")
        wait_for(lambda: server.settled("web"), message="all are settled")
        assert charged(server) == (set() if cancelled else {"bad"})
        assert len(server.zset("dead")) == (not cancelled)
        assert not server.zset("retry")
        assert len(server.events("job.interrupted")) == 20


@pytest.mark.fault("A2")
def test_a2_a_job_that_is_interrupted_by_chance_is_not_charged(serve: Serve) -> None:
    code = """
    import asyncio
    OPTIONS = dict(queue="web", concurrency=30, processes=1, retry=0)

    @worker.job(**OPTIONS)
    async def good(name):
        note("in", name)
        while not Path(__file__).with_name("go").exists():
            end = time.monotonic() + 0.002
            while time.monotonic() < end:
                pass
            await asyncio.sleep(0)
        note("out", name)

    @worker.job(**OPTIONS)
    async def bad():
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
    """
    with serve(code) as server:
        server.push("web", *(job(f"j{n}", "good", n) for n in range(20)))
        server.wait_for_notes(20, "in")
        server.push("web", job("bad", "bad", timeout=0.2))
        server.wait_for_event("worker.lost")
        server.let_go("go")
        server.wait_for_notes(20, "out")
        wait_for(lambda: server.settled("web"), message="all are settled")
        assert charged(server) == {"bad"}


THREADS = """
import ctypes

OPTIONS = dict(queue="web", concurrency=60, processes=1, mode="thread", retry=3, retry_in=lambda *_: 0.1)

@worker.job(**OPTIONS)
def good(name):
    note("in", name)
    wait_for_file("go")
    note("out", name)

@worker.job(**OPTIONS)
def bad():
    wait_for_file("bad")
    note("bad")
    WORST
"""


@pytest.mark.fault("A3")
@pytest.mark.parametrize("worst", ["os.abort()", "os._exit(1)", "ctypes.string_at(0)"])
@pytest.mark.parametrize("code", [APP.replace(FREES, ""), THREADS], ids=["async", "thread"])
def test_a3_of_forty_jobs_only_the_one_that_crashes_is_dead(serve: Serve, worst: str, code: str) -> None:
    with serve(code.replace("WORST", worst)) as server:
        push_all(server, 39)
        server.wait_for_event("job.suspected")
        server.let_go("go")
        wait_for(lambda: server.zset("dead"), message="it is dead")
        end_well(server, 39)
        # The first crash is held against none of them.
        assert len(server.wait_for_notes(4, "bad")) == 4


@pytest.mark.fault("A2")
@pytest.mark.parametrize("cancelled", [False, True], ids=["limit", "cancelled"])
def test_a2_a_thread_that_does_not_end_is_killed_with_its_process(
    serve: Serve, cancelled: bool, namespace: str
) -> None:
    with serve(THREADS.replace("WORST", "time.sleep(600)")) as server:
        push_all(server, 15, retry=0, bad=0 if cancelled else 0.5)
        if cancelled:
            Client(server.url, namespace=namespace).cancel("bad")
        server.wait_for_event("worker.lost")
        server.let_go("go")
        server.wait_for_notes(15, "out")
        wait_for(lambda: server.settled("web"), message="all are settled")
        assert charged(server) == (set() if cancelled else {"bad"})
        assert not server.zset("retry")
        assert len(server.events("job.interrupted")) == 15


TOGETHER = """
import asyncio

GATE = asyncio.Event()
OPEN = Path(__file__).with_name("open")
OPTIONS = dict(queue="web", concurrency=30, processes=1, retry=3, retry_in=lambda *_: 0.1)

@worker.job(**OPTIONS)
async def work(name):
    note("in", name)
    if not OPEN.exists():
        await GATE.wait()

@worker.job(**OPTIONS)
async def end_all():
    OPEN.touch()
    GATE.set()
"""


@pytest.mark.fault("A5")
def test_a5_jobs_that_ended_before_their_process_died_run_again_uncharged(
    serve: Serve, tmp_path: Path
) -> None:
    # The first frame says that the process has started; the next write has the outcomes of all.
    dying = {
        "PYWORKERS_FAILPOINTS": "mid_frame=kill@2*1",
        "PYWORKERS_FAILPOINTS_LOG": str(tmp_path / "fired"),
    }
    with serve(TOGETHER, **dying) as server:
        server.push("web", *(job(f"j{n}", "work", n) for n in range(29)))
        server.wait_for_notes(29, "in")
        server.push("web", job("last", "end_all"))
        server.wait_for_event("worker.lost")
        server.wait_for_notes(2 * 29, "in")
        wait_for(lambda: server.settled("web"), message="all are settled")
        assert len(server.events("job.suspected")) == 30
        assert charged(server) == set()
        assert not server.zset("dead")
        assert not server.zset("retry")
        assert len(server.wait_for_notes(2 * 29, "in")) == 2 * 29


RANDOM = """
import asyncio

@worker.job(queue="web", concurrency=100, processes=2, retry_in=lambda *_: 0.1)
async def work(seconds, stubborn):
    while True:
        try:
            await asyncio.sleep(600 if stubborn else seconds)
            return
        except asyncio.CancelledError:
            if not stubborn:
                raise
"""


@pytest.mark.fault("A4")
@pytest.mark.lengthy
@pytest.mark.timeout(300)
def test_a4_each_of_thousands_of_limited_and_cancelled_jobs_has_one_end(serve: Serve, namespace: str) -> None:
    rng = random.Random(12)
    memory: list[int] = []
    removed: list[str] = []
    with serve(RANDOM, log_level="info") as server:
        client = Client(server.url, namespace=namespace)
        for turn in range(40):
            jobs = [
                job(f"j{turn}.{n}", "work", rng.choice([0, 0.01, 0.1, 0.3]), False, retry=1, **limit(rng))
                for n in range(250)
            ]
            if turn % 5 == 0:
                jobs.append(job(f"stubborn.{turn}", "work", 0, True, retry=0, timeout=0.1))
            server.push("web", *jobs)
            chosen = [one["jid"] for one in rng.sample(jobs, 20)]
            removed += [jid for jid in chosen[:10] if client.cancel(jid) is Cancelled.REMOVED]
            wait_for(lambda: server.waiting("web") < 100, message="most have begun")
            removed += [jid for jid in chosen[10:] if client.cancel(jid) is Cancelled.REMOVED]
            memory.append(anonymous_kb(server.pid))
        wait_for(lambda: server.settled("web", sets=["retry"]), timeout=120, message="all are settled")
        dead = [json.loads(raw)["jid"] for raw, _ in server.zset("dead")]
        ends = [event["jid"] for name in ("job.done", "job.cancelled") for event in server.events(name)]
        assert len(server.events("worker.lost")) > 0
    assert len(dead) > 0
    every = Counter(ends + dead + removed)
    assert every.most_common(1)[0][1] == 1
    assert len(every) == 40 * 250 + 8
    assert max(memory[20:]) < max(memory[:20]) + 2000


def limit(rng: random.Random) -> dict[str, float]:
    """The field of a time limit, for some jobs."""
    return {"timeout": rng.choice([0.05, 0.2])} if rng.random() < 0.3 else {}
