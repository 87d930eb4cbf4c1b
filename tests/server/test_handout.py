"""The hand-out with real forks: workers that die, stop or leave between the job socket and the claim."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyworkers.failpoints import LOG_VARIABLE, VARIABLE
from pyworkers.ipc import jobsocket
from pyworkers.ipc.frames import Frame, FrameKind, pack_short
from pyworkers.ipc.jobsocket import LARGE
from pyworkers.ipc.page import ATTENTION
from pyworkers.protocol.outcome import DONE, Fate
from pyworkers.server.pool.handout import OutcomePipe
from pyworkers.server.pool.jobs import JobTable
from pyworkers.server.pool.worker import Limits, State, WorkerProcess
from tests.helpers.processes import close_garbage, descriptors, process_alive, state
from tests.helpers.support import STALL_S, async_wait_for, stretched, wait_for
from tests.server.test_pool import Crew, a_crew

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

RECORD = """
def record(message):
    with (here / "runs").open("a") as file:
        file.write(f"{message.jid} {os.getpid()} {time.time()}\\n")

@worker.process("q")
def handle(message):
    record(message)
    if message.job_class == "Meet":
        meet(message.jid)
"""


class Fired:
    """The failpoints of the workers that start from now on."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, points: str) -> None:
        self._path = folder / "fired"
        monkeypatch.setenv(VARIABLE, points)
        monkeypatch.setenv(LOG_VARIABLE, str(self._path))

    async def wait(self) -> tuple[int, float]:
        """The pid in which the first one has fired, and the time."""
        await async_wait_for(lambda: self._path.exists() and self._path.read_text().endswith("\n"))
        _, _, pid, at = self._path.read_text().split()[:4]
        return int(pid), float(at)


def runs(crew: Crew) -> list[tuple[str, int, float]]:
    """Each run: jid, pid and time."""
    path = crew.folder / "runs"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(jid, int(pid), float(at)) for jid, pid, at in map(str.split, lines)]


@pytest.mark.fault("H1")
@pytest.mark.parametrize("padding", ["", "x" * (LARGE + 1)], ids=["small", "by descriptor"])
async def test_a_job_whose_worker_dies_before_the_claim_runs_elsewhere_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, padding: str
) -> None:
    fired = Fired(tmp_path, monkeypatch, "before_claim=kill*1")
    async with a_crew(tmp_path, RECORD, concurrency=2) as crew:
        raw = crew.deliver("j", padding=padding)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome) == (raw, DONE)
        died, at = await fired.wait()
        [(_, pid, began)] = runs(crew)
        assert pid != died
        assert began - at < stretched(1)


DIES_READING = """
from pyworkers.ipc.jobsocket import Unread

read = Unread.read
def die_once(packet):
    if not (here / "died").exists():
        (here / "died").touch()
        os._exit(3)
    return read(packet)
Unread.read = die_once

@worker.process("q", retry=3)
def handle(message):
    pass
"""


@pytest.mark.fault("H6")
async def test_a_death_while_a_large_job_is_read_is_charged_to_it_at_once(tmp_path: Path) -> None:
    # Without a claim it would be handed out again, uncharged, until it has ended all its tries.
    async with a_crew(tmp_path, DIES_READING) as crew:
        raw = crew.deliver("j", padding="x" * LARGE, retry=3)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome.crashed, report.outcome.fate) == (raw, True, Fate.RETRY)


@linux_only
@pytest.mark.fault("H1")
async def test_a_job_that_was_often_taken_back_is_not_charged_with_the_death_of_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fired(tmp_path, monkeypatch, "before_claim=kill*1")
    async with a_crew(tmp_path, RECORD) as crew:
        [pid] = crew.pool.pids()
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: state(pid) == "T", message="it is stopped")
        raw = crew.deliver("j")
        for _ in range(5):
            assert crew.jobs.take_back(lambda _: False) == []
        os.kill(pid, signal.SIGCONT)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome) == (raw, DONE)
        assert not process_alive(pid)


@linux_only
@pytest.mark.fault("H2")
async def test_only_the_worker_that_is_stopped_before_the_claim_is_killed_and_its_job_runs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = Fired(tmp_path, monkeypatch, "before_claim=stop*1")
    async with a_crew(tmp_path, RECORD, concurrency=3, limits=Limits(stalled_s=STALL_S)) as crew:
        pids = set(crew.pool.pids())
        raw = crew.deliver("j")
        stopped, _ = await fired.wait()
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome) == (raw, DONE)
        assert not process_alive(stopped)
        assert all(map(process_alive, pids - {stopped}))
        [(_, pid, _)] = runs(crew)
        assert pid != stopped


@linux_only
@pytest.mark.fault("H2")
async def test_a_worker_that_is_stopped_before_the_claim_and_goes_on_runs_its_job_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = Fired(tmp_path, monkeypatch, "before_claim=stop*1")
    async with a_crew(tmp_path, RECORD, concurrency=2) as crew:
        crew.deliver("j")
        stopped, _ = await fired.wait()
        wait_for(lambda: state(stopped) == "T", message="it is stopped")
        # Two looks, the first of which takes place after a second.
        await async_wait_for(lambda: crew.jobs._missing.any, message="it is missing")
        os.kill(stopped, signal.SIGCONT)
        [(_, report)] = await crew.outcomes(1)
        assert report.outcome == DONE
        assert [(jid, pid) for jid, pid, _ in runs(crew)] == [("j", stopped)]


@linux_only
async def test_a_job_whose_outcome_is_not_read_yet_is_not_missing(tmp_path: Path) -> None:
    async with a_crew(tmp_path, RECORD) as crew:
        [worker] = crew.workers
        crew.deliver("a"), crew.deliver("b", **{"class": "Meet"})
        # Without the loop, so that the outcome of the first stays in the pipe.
        wait_for(lambda: worker.claims() == [2], message="it has claimed the second job")
        crew.jobs.died("was killed by SIGKILL")
        crew.pool.look()
        time.sleep(0.6)
        crew.pool.look()
        crew.let_go("b")
        await crew.outcomes(2)
        assert [jid for jid, _, _ in runs(crew)] == ["a", "b"]


@pytest.mark.fault("H4")
async def test_each_job_runs_once_while_others_are_taken_back_and_cancelled(tmp_path: Path) -> None:
    """One that was taken back is handed out again, as if another server had fetched it."""
    rng = random.Random(12)
    async with a_crew(tmp_path, RECORD, concurrency=4) as crew:
        total, delivered = 3000, 0
        jobs, taken_back, cancelled = crew.jobs, 0, set()
        while len(crew.settled) < total:
            for number in range(delivered, min(total, delivered + rng.randrange(40))):
                crew.deliver(str(number))
                delivered = number + 1
            for job in jobs.take_back(lambda _: rng.random() < 0.2):
                jobs._offer(job)
                taken_back += 1
            waiting = [job for job in jobs.offered.values() if rng.random() < 0.01]
            for job in waiting:
                job.cancel(f"number {job.number}")
                cancelled.add(job.raw)
            if waiting:
                jobs._cancel(waiting)
            await asyncio.sleep(rng.choice([0, 0, 0.001]))
        settled = Counter(raw for raw, _ in crew.settled)
        assert set(settled.values()) == {1}
        assert len(settled) == total
        found = Counter(jid for jid, _, _ in runs(crew))
        assert set(found.values()) == {1}
        # Those that no worker had begun do not run.
        fates = Counter(report.outcome.fate for _, report in crew.settled)
        assert total - len(found) <= fates[Fate.CANCELLED] <= len(cancelled)
        assert taken_back > 0
        assert fates[Fate.DONE] + fates[Fate.CANCELLED] == total


def count_calls(monkeypatch: pytest.MonkeyPatch, calls: Counter[str], owner: type, name: str) -> None:
    method = getattr(owner, name)

    def counted(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        return method(*args, **options)

    monkeypatch.setattr(owner, name, counted)


@linux_only
async def test_a_cancelled_job_that_is_not_claimed_yet_is_asked_once_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = Fired(tmp_path, monkeypatch, "before_claim=stop*1")
    async with a_crew(tmp_path, RECORD) as crew:
        crew.deliver("j", **{"class": "Meet"})
        stopped, _ = await fired.wait()
        calls: Counter[str] = Counter()
        for name in ("take_back", "_request"):
            count_calls(monkeypatch, calls, JobTable, name)
        [job] = crew.jobs.jobs()
        job.cancel("j")
        crew.jobs._cancel([job])
        await async_wait_for(lambda: calls["_request"] > 3)
        assert calls["take_back"] == 1
        os.kill(stopped, signal.SIGCONT)
        [(_, report)] = await crew.outcomes(1)
        assert report.outcome.fate is Fate.CANCELLED


async def test_what_stands_in_the_socket_is_given_back_together_and_in_order(tmp_path: Path) -> None:
    async with a_crew(tmp_path, RECORD) as crew:
        crew.deliver("long", **{"class": "Meet"})
        await crew.met("long")
        older = crew.deliver("older")
        # Without the loop, so that no look takes place.
        time.sleep(0.06)
        newer = crew.deliver("newer")
        crew.pool.look()
        # The last one that is given back is popped first.
        assert crew.given_back == [newer, older]


async def test_the_time_in_the_socket_does_not_begin_again_when_other_jobs_are_taken_back(
    tmp_path: Path,
) -> None:
    async with a_crew(tmp_path, RECORD) as crew:
        crew.deliver("long", **{"class": "Meet"})
        await crew.met("long")
        raw = crew.deliver("j")
        time.sleep(0.06)
        crew.jobs.take_back(lambda _: False)
        crew.pool.look()
        assert crew.given_back == [raw]


@linux_only
@pytest.mark.fault("H6")
async def test_thousands_of_large_jobs_leave_no_descriptor(tmp_path: Path) -> None:
    async with a_crew(tmp_path, RECORD, concurrency=2) as crew:
        pids = list(crew.pool.pids())
        crew.deliver("first", padding="x" * LARGE)
        await crew.outcomes(1)
        close_garbage()
        before = [descriptors(pid) for pid in (os.getpid(), *pids)]
        total = int(os.environ.get("FAULTS_LARGE", "2000"))
        for start in range(0, total, 50):
            for number in range(start, start + 50):
                crew.deliver(str(number), padding="x" * LARGE)
            crew.jobs.take_back(lambda _: False)
            await crew.outcomes(1 + start + 50)
        assert [descriptors(pid) for pid in (os.getpid(), *pids)] == before
        assert {report.outcome for _, report in crew.settled} == {DONE}


@pytest.mark.fault("H6")
async def test_a_master_without_descriptors_sends_large_jobs_later_and_kills_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    memory_file = jobsocket.memory_file

    def refuse(size: int) -> int:
        nonlocal tries
        tries += 1
        if tries <= 40:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return memory_file(size)

    async with a_crew(tmp_path, RECORD, concurrency=2, limits=Limits(stalled_s=0.0)) as crew:
        pids = crew.pool.pids()
        monkeypatch.setattr(jobsocket, "memory_file", refuse)
        crew.deliver("large", padding="x" * LARGE)
        crew.deliver("small")
        jobs = crew.jobs
        for _ in range(10):
            jobs.take_back(lambda _: False)
        assert tries == 11
        # One timer for any number of refusals.
        began = asyncio.get_running_loop().time()
        await crew.outcomes(2)
        assert asyncio.get_running_loop().time() - began > 25 * 0.05
        assert {jid for jid, _, _ in runs(crew)} == {"large", "small"}
        assert crew.pool.pids().keys() == pids.keys()


@linux_only
@pytest.mark.fault("H6")
async def test_jobs_that_do_not_fit_into_the_socket_are_sent_later_and_in_order(tmp_path: Path) -> None:
    async with a_crew(tmp_path, RECORD) as crew:
        [pid] = crew.pool.pids()
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: state(pid) == "T", message="it is stopped")
        names = [str(number) for number in range(1000)]
        for jid in names:
            crew.deliver(jid, padding="x" * 1000)
        assert crew.jobs._hand_out._unsent
        os.kill(pid, signal.SIGCONT)
        # Some may be given back and come again, in the order of their numbers.
        await crew.outcomes(1000)
        assert Counter(jid for jid, _, _ in runs(crew)) == Counter(names)


@linux_only
async def test_a_worker_that_takes_one_more_job_while_it_leaves_is_not_overdue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired = Fired(tmp_path, monkeypatch, "before_claim=stop*1")
    async with a_crew(tmp_path, RECORD) as crew:
        [worker] = crew.workers
        crew.deliver("j", **{"class": "Meet"})
        pid, _ = await fired.wait()
        wait_for(lambda: state(pid) == "T", message="it is stopped")
        crew.pool.resize([])
        assert worker.state is State.LEAVING
        os.kill(pid, signal.SIGCONT)
        await crew.met("j")
        worker._overdue()
        assert process_alive(pid)
        crew.let_go("j")
        [(_, report)] = await crew.outcomes(1)
        assert report.outcome == DONE
        await async_wait_for(lambda: crew.pool.empty, message="it has left")


async def test_a_worker_leaves_although_its_first_signal_had_no_effect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that comes just before the worker waits in the kernel does not end the wait."""
    lost: list[WorkerProcess] = []
    send = WorkerProcess.signal

    def lose_the_first(worker: WorkerProcess, number: int) -> None:
        if number == ATTENTION and not lost:
            lost.append(worker)
        else:
            send(worker, number)

    monkeypatch.setattr(WorkerProcess, "signal", lose_the_first)
    async with a_crew(tmp_path, RECORD) as crew:
        crew.pool.resize([])
        await async_wait_for(lambda: crew.pool.empty, stretched(3), "it has left")
        assert lost


@linux_only
@pytest.mark.parametrize("leaving", [False, True])
async def test_a_job_that_is_taken_and_not_claimed_is_abandoned_with_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaving: bool
) -> None:
    fired = Fired(tmp_path, monkeypatch, "before_claim=stop*1")
    async with a_crew(tmp_path, RECORD) as crew:
        crew.deliver("j")
        pid, _ = await fired.wait()
        if leaving:
            crew.pool.resize([])
        crew.pool.abandon()
        assert crew.jobs.busy == 0
        await async_wait_for(lambda: not process_alive(pid), stretched(2), "it is killed")
        assert runs(crew) == []


async def test_a_pipe_that_is_filled_as_fast_as_it_is_read_does_not_block_the_master() -> None:
    frame = pack_short(FrameKind.OUTCOME, 1, 1, b"x")
    seen: list[Frame] = []

    def write_another(found: Frame) -> None:
        seen.append(found)
        assert len(seen) < 100
        os.write(pipe.write_end, frame)

    pipe = OutcomePipe("q", write_another)
    os.write(pipe.write_end, frame)
    pipe.drain()
    assert len(seen) == 1
    pipe.close()


async def test_outcomes_wait_while_the_pipe_rests() -> None:
    frame, seen = pack_short(FrameKind.READY, 1, os.getpid(), b""), list[Frame]()
    rests_s = iter([0.001, 3600.0])
    pipe = OutcomePipe("q", seen.append, lambda: next(rests_s))
    os.write(pipe.write_end, frame)
    await async_wait_for(lambda: len(seen) == 1, message="the frame is read")
    os.write(pipe.write_end, frame)
    await async_wait_for(lambda: len(seen) == 2, message="the frame is read after a rest")
    os.write(pipe.write_end, frame)
    for _ in range(10):
        await asyncio.sleep(0.001)
    assert len(seen) == 2
    pipe.drain()
    assert len(seen) == 3
    pipe.close()


@linux_only
async def test_a_worker_that_writes_an_invalid_limit_is_ended(tmp_path: Path) -> None:
    code = f"""
    import stat
    @worker.process("q")
    def handle(message):
        for name in os.listdir("/proc/self/fd"):
            try:
                if int(name) > 2 and stat.S_ISFIFO(os.fstat(int(name)).st_mode):
                    os.write(int(name), {pack_short(FrameKind.LIMIT, 1, 1, b"?")!r})
            except OSError:
                pass
        meet("job")
    """
    async with a_crew(tmp_path, code) as crew:
        crew.deliver("j")
        [(_, report)] = await crew.outcomes(1)
        assert "wrote an invalid time limit" in report.outcome.error_message
        await crew.free(1)


@pytest.mark.fault("H6")
@pytest.mark.parametrize("mode", ["process", "async", "thread"])
async def test_a_worker_without_descriptors_gives_a_large_job_back_and_is_replaced(
    tmp_path: Path, mode: str
) -> None:
    code = """
    import resource
    @worker.on_startup
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    @worker.process("q")
    def handle(message):
        (here / f"ran.{message.jid}").write_text(str(os.getpid()))
        if message.jid == "leak":
            try:
                while True:
                    os.dup(0)
            except OSError:
                pass
    """
    async with a_crew(tmp_path, code, mode=mode) as crew:
        crew.deliver("leak")
        await crew.outcomes(1)
        large = crew.deliver("large", padding="x" * LARGE)
        raw, report = (await crew.outcomes(2))[1]
        assert (raw, report.outcome.fate) == (large, Fate.REQUEUE)
        await crew.free(1)
        crew.jobs.deliver("q", large)
        raw, report = (await crew.outcomes(3))[2]
        assert (raw, report.outcome) == (large, DONE)
        assert crew.ran_in("large") != crew.ran_in("leak")


@linux_only
async def test_room_that_a_look_finds_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fired = Fired(tmp_path, monkeypatch, "before_claim=stop*1")
    async with a_crew(tmp_path, RECORD, concurrency=2) as crew:
        crew.deliver("j", **{"class": "Meet"})
        pid, _ = await fired.wait()
        wait_for(lambda: state(pid) == "T", message="it is stopped")
        [leaving] = [worker for worker in crew.workers if worker.pid == pid]
        # As if it left: its job seems to wait for the other worker.
        crew.jobs.withdraw(leaving)
        assert crew.jobs.free == 0
        crew.rooms.clear()
        os.kill(pid, signal.SIGCONT)
        await crew.met("j")
        await async_wait_for(lambda: crew.rooms == [1], message="the fetcher is asked for one job")
        crew.let_go("j")
        await crew.outcomes(1)
