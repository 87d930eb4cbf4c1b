"""The pool with real forks: jobs in, outcomes out, also if the processes in between end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pyworkers.ipc.control import AboutWorker, Exited, Load, Loaded, Spawned
from pyworkers.ipc.frames import FrameKind, pack_short
from pyworkers.protocol.effects import DeleteKey, StoreValue
from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Report
from pyworkers.server import proc
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.generations.launch import Launched
from pyworkers.server.generations.reaper import Died, Reaper
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.pool.cpus import ReservedCpu, Scheduling
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.gates import CancelledJobs, Gates
from pyworkers.server.pool.jobs import JobTable
from pyworkers.server.pool.pool import Pool
from pyworkers.server.pool.settling import Rules, Settling
from pyworkers.server.pool.worker import DEFAULTS, Limits, State
from pyworkers.server.pool.worker import Workers as Workers
from pyworkers.server.waiting import cancel
from tests.helpers.asks import FakeAsks
from tests.helpers.deliveries import FakeOutbox, unmarked
from tests.helpers.launching import launched_warm
from tests.helpers.processes import children, close_garbage, descriptors, process_alive, state
from tests.helpers.support import PATIENCE_S, STALL_S, async_wait_for, wait_for
from tests.helpers.suspects import FakeSuspects

# What hangs is overdue soon; a fork server or a worker that gets no processor for a while is not.
PATIENT = Limits(overdue_s=STALL_S)
HEADER = """
import os, signal, sys, time
from pathlib import Path
from pyworkers import *
worker = Worker()
here = Path(__file__).parent
def meet(name):
    (here / f"{name}.{os.getpid()}").touch()
    while not (here / f"{name}.go").exists():
        time.sleep(0.005)
"""
NO_OP = """
@worker.process("q")
def handle(message):
    (here / f"ran.{message.jid}").write_text(str(os.getpid()))
"""

MEETS = """
@worker.process("q")
def handle(message):
    meet(message.jid)
"""


class HeldBack(Spawner):
    """A fork server's handle that keeps back some messages about workers."""

    def __init__(self, launched: Launched, reaper: Reaper, on_down: Callable[[Spawner], None]) -> None:
        super().__init__(launched, reaper, on_down)
        self.kinds: tuple[type[AboutWorker], ...] = ()
        self.held: list[AboutWorker] = []

    def _pass_on(self, word: AboutWorker) -> None:
        if isinstance(word, self.kinds):
            self.held.append(word)
        else:
            super()._pass_on(word)

    def let_through(self) -> None:
        self.kinds = ()
        for word in self.held:
            self._pass_on(word)


class Crew:
    """A pool with one fork server after the other, and what it told its owner."""

    pool: Pool
    jobs: JobTable

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self.settled: list[tuple[bytes, Report]] = []
        self.given_back: list[bytes] = []
        self.failing: list[bool] = []
        self.rooms: list[int] = []
        self.down: list[Spawner] = []
        self.spawners: list[HeldBack] = []
        self.reaper = Reaper()

    def _settle(self, job: Delivery, report: Report) -> None:
        if report.outcome is REQUEUE:
            # It comes back from its queue.
            self.given_back.append(job.raw)
            asyncio.get_running_loop().call_soon(self.jobs.deliver, job.queue, job.raw)
        else:
            self.settled.append((job.raw, report))

    async def use(
        self, *codes: str, concurrency: int = 1, slots: int = 1, mode: str = "process", **settings: Any
    ) -> Spawner:
        """Load an application, and have the pool use it from now on."""
        name = f"app{len(self.spawners)}"
        (self.folder / f"{name}.py").write_text(HEADER + "".join(map(textwrap.dedent, codes)))
        load = Load(f"{name}:worker", [str(self.folder)], "info", "json", "me", settings)
        launched = launched_warm(load)
        spawner = HeldBack(launched, self.reaper, self.down.append)
        self.spawners.append(spawner)
        loaded = await spawner.loaded()
        assert isinstance(loaded, Loaded), loaded
        rules = Rules(loaded.manifest, 25, time.time, random.Random())
        if len(self.spawners) == 1:
            self._build(spawner, rules)
        else:
            self.settling.decide_by(rules)
        self.pool.use(spawner, [slots] * concurrency, mode)
        return spawner

    def _build(self, spawner: Spawner, rules: Rules) -> None:
        self.workers = Workers(self.limits)
        self.outbox = FakeOutbox(self._settle, lambda: self.rooms.append(self.jobs.free))
        self.settling = Settling(self.outbox, rules, lambda _: None, unmarked)
        self.asks = FakeAsks()
        self.jobs = JobTable(
            self.workers,
            self.settling,
            Gates(CancelledJobs(Cancellations()), FakeSuspects(), self.asks),
            self.outbox,
        )
        scheduling = Scheduling(self.workers, ReservedCpu((), float))
        self.pool = Pool("q", spawner, self.jobs, scheduling, self.failing.append)
        self.run = asyncio.create_task(self.pool.run())

    def deliver(self, jid: str, **fields: Any) -> bytes:
        raw = json.dumps({"class": "Any", "args": [], "jid": jid, "queue": "q", **fields}).encode()
        self.jobs.deliver("q", raw)
        return raw

    async def free(self, count: int) -> None:
        await async_wait_for(lambda: self.jobs.free == count, message=f"{count} idle workers")

    async def outcomes(self, count: int, timeout: float = PATIENCE_S) -> list[tuple[bytes, Report]]:
        """The first outcomes, once there are this many; no more must have come."""
        await async_wait_for(lambda: len(self.settled) >= count, timeout, f"{count} outcomes")
        assert len(self.settled) == count
        return self.settled

    async def met(self, name: str, count: int = 1) -> list[int]:
        """The pids of workers whose jobs wait in ``meet(name)``."""
        paths = await async_wait_for(lambda: self._waiting(name, count), message=f"{count} in meet({name})")
        return [int(path.suffix[1:]) for path in paths]

    def _waiting(self, name: str, count: int) -> list[Path]:
        found = [path for path in self.folder.glob(f"{name}.*") if path.suffix != ".go"]
        return found if len(found) >= count else []

    async def asleep(self) -> None:
        """Wait until the main threads of all workers wait: for a job, unless one is in it."""
        pids = list(self.pool.pids())
        await async_wait_for(lambda: all(state(pid) == "S" for pid in pids), message="all workers wait")

    def let_go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def ran_in(self, jid: str) -> int:
        return int((self.folder / f"ran.{jid}").read_text())

    async def close(self) -> None:
        self.pool.kill(0)
        await async_wait_for(lambda: self.pool.empty, message="the pool is empty")
        for spawner in self.spawners:
            spawner.kill()
            spawner.process.wait()
        self.pool.end()
        await cancel([self.run])


@contextlib.asynccontextmanager
async def a_crew(
    folder: Path,
    *codes: str,
    concurrency: int = 1,
    slots: int = 1,
    limits: Limits = DEFAULTS,
    ready: bool = True,
    **settings: Any,
) -> AsyncIterator[Crew]:
    """A crew whose workers serve ``codes``, and are idle at first if ``ready``; it ends after the block."""
    async with asyncio.timeout(3 * PATIENCE_S):
        crew = Crew(folder, limits)
        try:
            await crew.use(*codes, concurrency=concurrency, slots=slots, **settings)
            if ready:
                await crew.free(concurrency * slots)
            yield crew
        finally:
            crew.pool.resize([])
            await crew.close()


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


async def test_each_idle_worker_takes_one_job_and_its_outcome_comes_back(tmp_path: Path) -> None:
    code = """
    @worker.process("q", retry=3)
    def handle(message):
        meet(message.jid)
        if message.jid == "bad":
            raise ValueError("no")
    """

    async with a_crew(tmp_path, code, concurrency=2) as crew:
        good, bad = crew.deliver("good"), crew.deliver("bad")
        assert (crew.jobs.free, crew.jobs.busy) == (0, 2)
        assert crew.jobs.known("q") == {good: 1, bad: 1}
        [first], [second] = await crew.met("good"), await crew.met("bad")
        assert first != second
        assert sorted(crew.pool.pids().items()) == sorted({first: "busy", second: "busy"}.items())
        assert crew.settled == []
        crew.let_go("good")
        [(raw, report)] = await crew.outcomes(1)
        assert (raw, report.outcome) == (good, DONE)
        crew.let_go("bad")
        raw, report = (await crew.outcomes(2))[1]
        assert (raw, report.outcome.fate, report.outcome.crashed) == (bad, Fate.RETRY, False)
        assert json.loads(report.outcome.payload)["error_message"] == "no"
        assert (crew.jobs.free, crew.jobs.busy, crew.jobs.known("q")) == (2, 0, {})


@linux_only
async def test_one_worker_of_an_idle_group_runs_all_jobs_and_those_of_a_busy_group_take_turns(
    tmp_path: Path,
) -> None:
    async with a_crew(tmp_path, NO_OP, concurrency=3) as crew:
        for number in range(11):
            if number == 5:
                for worker in crew.workers:
                    worker.page.set_busy(True)
            await crew.asleep()
            crew.deliver(str(number))
            await crew.outcomes(number + 1)
        ran_in = [crew.ran_in(str(number)) for number in range(11)]
        assert len(set(ran_in[:6])) == 1
        assert len(set(ran_in[5:8])) == 3
        assert ran_in[5:8] == ran_in[8:11]


@pytest.mark.parametrize("stopped", [False, True], ids=["dead", "dies before it reads"])
async def test_a_job_that_its_dead_worker_never_began_is_not_a_crash(tmp_path: Path, stopped: bool) -> None:
    async with a_crew(tmp_path, NO_OP) as crew:
        [pid] = crew.pool.pids()
        os.kill(pid, signal.SIGSTOP if stopped else signal.SIGKILL)
        wait_for(lambda: state(pid) in "TZX", message=f"{pid} is stopped")
        # The loop has not run since: the pool still takes it for idle.
        raw = crew.deliver("j")
        if stopped:
            os.kill(pid, signal.SIGKILL)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome) == (raw, DONE)
        assert crew.ran_in("j") != pid


@linux_only
async def test_a_job_that_kills_its_worker_before_it_begins_is_a_crash(tmp_path: Path) -> None:
    code = """
    import resource
    @worker.on_startup
    def limit():
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + (12 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        (here / f"started.{os.getpid()}").touch()

    @worker.process("q")
    def handle(message):
        pass
    """

    async with a_crew(tmp_path, code) as crew:
        raw = crew.deliver("large", padding="x" * (32 << 20))
        [(settled, report)] = await crew.outcomes(1)
        assert settled is raw
        assert (report.outcome.fate, report.outcome.crashed) == (Fate.RETRY, True)
        assert report.outcome.error_message.startswith("the worker exited with status 1")
        await crew.free(1)
        # A worker claims a large job before it reads the file: the first death shows which job it was.
        assert len(await crew.met("started", 2)) == 2


async def test_a_worker_takes_one_job_at_a_time_and_none_once_it_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, the second job would be given back before the worker has left.
    monkeypatch.setattr(Pool, "look", lambda _: None)
    async with a_crew(tmp_path, MEETS) as crew:
        crew.deliver("a")
        await crew.met("a")
        [worker] = crew.workers
        waiting = crew.deliver("b")
        assert worker.claims() == [1]
        crew.pool.close()
        crew.let_go("a")
        assert (await crew.outcomes(1))[0][1].outcome == DONE
        await async_wait_for(lambda: crew.pool.empty, message="it left")
        assert worker.state is State.GONE
        assert list(crew.jobs.known("q")) == [waiting]
        assert len(crew.settled) == 1


async def test_a_job_that_waits_for_a_successor_is_the_first_that_it_runs(tmp_path: Path) -> None:
    async with a_crew(tmp_path, NO_OP) as crew:
        [pid] = crew.pool.pids()
        os.kill(pid, signal.SIGKILL)
        await async_wait_for(lambda: pid not in crew.pool.pids(), message="its end is known")
        raw = crew.deliver("j")
        assert (crew.jobs.free, crew.jobs.busy, crew.jobs.known("q")) == (-1, 1, {raw: 1})
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome) == (raw, DONE)


async def test_what_a_worker_reported_before_it_died_counts(tmp_path: Path) -> None:
    async with a_crew(tmp_path, NO_OP) as crew:
        raw = crew.deliver("j")
        [pid] = crew.pool.pids()
        # Without the loop, so that death and outcome are seen together.
        wait_for(lambda: _unread(crew.pool) > 0, message="its outcome is in the pipe")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: state(pid) in "TZX", message="it is dead")
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome) == (raw, DONE)
        await crew.free(1)
        assert len(crew.settled) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_worker_that_dies_in_a_job_costs_a_crash_and_no_sibling(tmp_path: Path, number: int) -> None:
    async with a_crew(tmp_path, MEETS, concurrency=2) as crew:
        victim, other = crew.deliver("victim"), crew.deliver("other")
        [pid], [sibling] = await crew.met("victim"), await crew.met("other")
        os.kill(pid, number)
        [(raw, report)] = await crew.outcomes(1)
        assert (raw, report.outcome.fate, report.outcome.crashed) == (victim, Fate.RETRY, True)
        assert signal.Signals(number).name in report.outcome.error_message
        assert json.loads(report.outcome.payload)["crash_count"] == 1
        assert process_alive(sibling)
        await crew.free(1)
        crew.let_go("other")
        assert (await crew.outcomes(2))[1][0] == other


async def test_exhaustion_hooks_of_a_lost_job_run_in_another_worker(tmp_path: Path) -> None:
    code = """
    @worker.on_exhausted
    def gone(message, error):
        (here / "gone").write_text(f"{message.jid} {type(error).__name__} {error}")

    @worker.process("q")
    def handle(message):
        os._exit(9)
    """

    async with a_crew(tmp_path, code) as crew:
        raw = crew.deliver("j", crash_count=2)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome.fate) == (raw, Fate.DEAD)
        await async_wait_for((tmp_path / "gone").exists, message="the hook ran")
        await crew.free(1)
        words = (tmp_path / "gone").read_text()
        assert words.startswith("j WorkerLost the worker exited with status 9")
        assert len(crew.settled) == 1


async def test_resizing_starts_and_dismisses_workers_but_ends_no_job(tmp_path: Path) -> None:
    async with a_crew(tmp_path, MEETS, concurrency=3) as crew:
        crew.deliver("a"), crew.deliver("b")
        busy = [*await crew.met("a"), *await crew.met("b")]
        crew.pool.resize([1] * 1)
        await async_wait_for(lambda: len(crew.pool.pids()) == 2, message="the idle one left")
        assert crew.jobs.free == 0
        assert sorted(crew.pool.pids().values()) == ["busy", "leaving"]
        for jid in "ab":
            crew.let_go(jid)
        assert {report.outcome for _, report in await crew.outcomes(2)} == {DONE}
        await async_wait_for(lambda: len(crew.pool.pids()) == 1, message="one worker is left")
        await crew.free(1)
        assert set(crew.pool.pids()) < set(busy)
        crew.pool.resize([1] * 4)
        await crew.free(4)
        crew.pool.resize([])
        await async_wait_for(lambda: crew.pool.empty, message="all left")


async def test_a_new_generation_takes_over_while_jobs_of_the_old_one_finish(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    def handle(message):
        meet(message.jid)
        raise Discard("VERSION")
    """

    async with a_crew(tmp_path, code.replace("VERSION", "old"), concurrency=2) as crew:
        crew.deliver("long")
        [pid] = await crew.met("long")
        old = crew.spawners[0]
        await crew.use(code.replace("VERSION", "new"), concurrency=2)
        await async_wait_for(lambda: crew.jobs.free == 2, message="two workers with the new code")
        await async_wait_for(lambda: len(crew.pool.pids()) == 3, message="the old idle one left")
        assert crew.pool.pids()[pid] == "leaving"
        unused = asyncio.create_task(old.unused())
        crew.let_go("next")
        crew.deliver("next")
        await crew.outcomes(1)
        assert not unused.done()
        crew.let_go("long")
        await crew.outcomes(2)
        errors = [json.loads(raw)["jid"] for raw, _ in crew.settled]
        assert errors == ["next", "long"]
        await asyncio.wait_for(unused, PATIENCE_S)
        assert len(crew.pool.pids()) == crew.jobs.free == 2


async def test_old_workers_serve_until_the_new_code_boots(tmp_path: Path) -> None:
    broken = """
    @worker.on_startup
    def fail():
        raise RuntimeError("not today")
    """

    async with a_crew(tmp_path, NO_OP, concurrency=2) as crew:
        pids = set(crew.pool.pids())
        await crew.use(broken, NO_OP, concurrency=2)
        await async_wait_for(lambda: crew.failing == [True], message="the pool is failing")
        crew.deliver("a")
        await crew.outcomes(1)
        assert crew.ran_in("a") in pids
        await crew.use(NO_OP, concurrency=2)
        await async_wait_for(lambda: crew.failing == [True, False], message="it works again")
        await async_wait_for(lambda: set(crew.pool.pids()).isdisjoint(pids), message="replaced")
        await crew.free(2)


@linux_only
async def test_200_recycled_workers_leave_no_descriptor_and_no_zombie(tmp_path: Path) -> None:
    async with a_crew(tmp_path, NO_OP, concurrency=4, max_jobs_per_worker=1) as crew:
        server = crew.spawners[0].process.pid
        close_garbage()
        before = descriptors(os.getpid()), descriptors(server)
        for number in range(200):
            await async_wait_for(lambda: crew.jobs.free > 0, message="a worker is free")
            crew.deliver(str(number))
        await crew.outcomes(200)
        # So many short jobs are followed by some that are fetched ahead.
        await async_wait_for(lambda: crew.jobs.free >= 4, message="4 idle workers")
        await async_wait_for(lambda: len(crew.pool.pids()) == 4, message="the retired are gone")
        # The fork server may have held the pipes of the last worker, before and now.
        await async_wait_for(lambda: descriptors(os.getpid()) <= before[0], message="no descriptor here")
        await async_wait_for(lambda: descriptors(server) <= before[1], message="none in the fork server")
        await async_wait_for(lambda: set(children(server)) == set(crew.pool.pids()), message="no zombie")
        assert all(report.retiring and report.outcome.fate is Fate.DONE for _, report in crew.settled)
        assert len({crew.ran_in(str(number)) for number in range(200)}) == 200
        assert crew.failing == []


@linux_only
async def test_a_large_job_and_a_large_outcome_pass_in_pieces(tmp_path: Path) -> None:
    code = """
    @worker.process("q", retry=3)
    def handle(message):
        if message.jid == "large":
            raise ValueError(str(len(message.args[0])))
    """

    async with a_crew(tmp_path, code, concurrency=2) as crew:
        pids = crew.pool.pids()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        large = crew.deliver("large", args=["x" * (10 << 20)], unknown="kept")
        small = crew.deliver("small")
        await asyncio.sleep(0)
        assert (crew.settled, crew.jobs.busy) == ([], 2)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        outcomes = {raw: report.outcome for raw, report in await crew.outcomes(2)}
        assert outcomes[small] == DONE
        after = json.loads(outcomes[large].payload)
        assert (after["error_message"], after["unknown"]) == (str(10 << 20), "kept")
        assert after["args"] == json.loads(large)["args"]


REFUSING = """
real_fork = os.fork
def fork():
    if (here / "refuse").exists():
        with (here / "refusals").open("a") as file:
            file.write("x")
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return real_fork()
os.fork = fork
"""


async def test_a_refused_fork_is_a_failed_start_and_not_the_end_of_the_fork_server(tmp_path: Path) -> None:
    async with a_crew(tmp_path, REFUSING, NO_OP, concurrency=2) as crew:
        server = crew.spawners[0].process.pid
        # A worker may be ready before the fork server has closed its pipes.
        wait_for(lambda: state(server) == "S", message="the fork server has nothing to do")
        before = descriptors(server)
        (tmp_path / "refuse").touch()
        started = time.monotonic()
        for pid in crew.pool.pids():
            os.kill(pid, signal.SIGKILL)
        refusals = tmp_path / "refusals"
        await async_wait_for(lambda: refusals.exists() and len(refusals.read_text()) >= 6)
        # 0.1 s, 0.2 s and so on lie between the attempts, each of which is for both workers.
        assert time.monotonic() - started > 0.3
        assert crew.failing == [True]
        (tmp_path / "refuse").unlink()
        await crew.free(2)
        assert crew.failing == [True, False]
        assert process_alive(crew.spawners[0].process.pid)
        await async_wait_for(lambda: descriptors(server) == before, message="no descriptor is left")
        crew.deliver("j")
        await crew.outcomes(1)


async def test_a_start_without_descriptors_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    async with a_crew(tmp_path, NO_OP) as crew:
        close_garbage()
        before = descriptors(os.getpid())
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Room for four more: not for three pipes.
        highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
        fillers = [os.open("/dev/null", os.O_RDONLY) for _ in range(highest + 1 - before)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 3, hard))
        try:
            crew.pool.resize([1] * 2)
            assert len(crew.pool.pids()) == 1
            assert crew.jobs.free == 1
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for fd in fillers:
                os.close(fd)
        await crew.free(2)


async def test_a_start_up_hook_that_hangs_is_reported_and_another_generation_replaces_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hanging = """
    @worker.on_startup
    def hang():
        meet("hanging")
    """
    async with a_crew(tmp_path, hanging, NO_OP, limits=PATIENT, ready=False) as crew:
        [pid] = await crew.met("hanging")
        await async_wait_for(lambda: "worker.overdue" in capfd.readouterr().out, message="reported")
        assert process_alive(pid)
        await crew.use(NO_OP)
        await crew.free(1)
        await async_wait_for(lambda: not process_alive(pid), message="it is not wanted any more")


async def test_a_shutdown_hook_that_hangs_is_killed(tmp_path: Path) -> None:
    hanging = """
    @worker.on_shutdown
    def hang():
        meet("hanging")
    """
    async with a_crew(tmp_path, hanging, NO_OP, max_jobs_per_worker=1, limits=PATIENT) as crew:
        crew.deliver("j")
        [pid] = await crew.met("hanging")
        await crew.free(1)
        assert process_alive(pid)
        await async_wait_for(lambda: not process_alive(pid), message="killed")
        await async_wait_for(lambda: len(crew.pool.pids()) == 1, message="forgotten")
        assert crew.failing == []


DEFILING = """
import stat
def own_pipes():
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if int(name) > 2 and stat.S_ISFIFO(os.fstat(int(name)).st_mode):
                yield int(name)

def defile(garbage):
    for fd in list(own_pipes()):
        with contextlib.suppress(OSError):
            (here / "defiled").touch()
            os.write(fd, garbage)

import contextlib
@worker.process("q")
def handle(message):
    if message.job_class == "Defile":
        defile(bytes.fromhex(message.args[0]))
    elif message.job_class == "Close":
        os.closerange(3, 1024)
    meet(message.jid)
"""


@linux_only
@pytest.mark.parametrize(
    "garbage",
    [
        b"debug: hello\n",
        b"\0" * 100,
        b"\n\n",
        os.urandom(4096),
        pack_short(FrameKind.OUTCOME, 99, 2, b"?"),
    ],
    ids=["text", "zeros", "short", "random", "an outcome of no worker"],
)
async def test_garbage_in_the_outcome_pipe_is_skipped(tmp_path: Path, garbage: bytes) -> None:
    async with a_crew(tmp_path, DEFILING, concurrency=2) as crew:
        sibling = crew.deliver("sibling")
        await crew.met("sibling")
        bad = crew.deliver("bad", **{"class": "Defile", "args": [garbage.hex()]})
        crew.let_go("bad")
        [(raw, report)] = await crew.outcomes(1)
        assert (tmp_path / "defiled").exists()
        assert (raw, report.outcome) == (bad, DONE)
        await crew.free(1)
        crew.let_go("sibling")
        raw, report = (await crew.outcomes(2))[1]
        assert (raw, report.outcome) == (sibling, DONE)


NOTING = """
    from pyworkers.protocol.effects import DeleteKey, StoreValue
    from pyworkers.worker.execution import current_execution
    import threading

    @worker.process("q")
    def handle(message):
        run = current_execution()
        run.note(DeleteKey("first"))
        # Longer than a pipe holds, and from several threads at once.
        threads = [
            threading.Thread(target=run.note, args=(StoreValue(name, name.encode() * 300_000, 60),))
            for name in "abc"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.note(DeleteKey("last"))
"""


@pytest.mark.parametrize("mode", ["process", "thread", "async"])
async def test_notes_arrive_before_the_outcome_of_their_job(tmp_path: Path, mode: str) -> None:
    async with a_crew(tmp_path, NOTING, mode=mode) as bench:
        raw = bench.deliver("j1")
        await bench.outcomes(1)
        assert {job for job, _ in bench.outbox.notes} == {raw}
        [(_, first), *others, (_, last)] = bench.outbox.notes
        assert (first, last) == ((DeleteKey("first"),), (DeleteKey("last"),))
        large = {effect for _, noted in others for effect in noted}
        assert large == {StoreValue(name, name.encode() * 300_000, 60) for name in "abc"}


async def test_a_note_after_the_end_of_its_job_is_dropped(tmp_path: Path) -> None:
    late = """
        from pyworkers.protocol.effects import DeleteKey
        from pyworkers.worker.execution import current_execution
        runs = []

        @worker.process("q")
        def handle(message):
            runs.append(current_execution())
            for run in runs:
                run.note(DeleteKey(message.jid))
    """
    async with a_crew(tmp_path, late) as bench:
        first = bench.deliver("j1")
        await bench.outcomes(1)
        # Not before: a job that the worker has not taken in time is handed out again, behind the other one.
        second = bench.deliver("j2")
        await bench.outcomes(2)
        assert bench.outbox.notes == [(first, (DeleteKey("j1"),)), (second, (DeleteKey("j2"),))]


async def test_a_worker_that_writes_an_invalid_note_is_ended(tmp_path: Path) -> None:
    async with a_crew(tmp_path, NO_OP) as bench:
        [worker] = bench.workers
        os.write(
            bench.pool._outcomes.write_end, pack_short(FrameKind.NOTE, worker.member, 1, b"\xff\0\0\0\1")
        )
        await async_wait_for(lambda: not process_alive(worker.pid))


@linux_only
async def test_a_worker_that_writes_an_invalid_outcome_is_ended(tmp_path: Path) -> None:
    garbage = pack_short(FrameKind.OUTCOME, 1, 1, b"?")
    async with a_crew(tmp_path, DEFILING) as crew:
        bad = crew.deliver("bad", **{"class": "Defile", "args": [garbage.hex()]})
        [(raw, report)] = await crew.outcomes(1)
        assert (raw, report.outcome.crashed, report.outcome.fate) == (bad, True, Fate.RETRY)
        assert "wrote an invalid outcome" in report.outcome.error_message
        await crew.free(1)


@linux_only
async def test_a_program_that_a_job_starts_gets_none_of_the_workers_pipes(tmp_path: Path) -> None:
    code = """
    import subprocess
    @worker.process("q")
    def handle(message):
        listing = subprocess.run(["ls", "-l", "/proc/self/fd"], close_fds=False, stdout=subprocess.PIPE)
        (here / "listing").write_bytes(listing.stdout)
    """

    async with a_crew(tmp_path, code) as crew:
        crew.deliver("j")
        await crew.outcomes(1)
        found = re.findall(r" (\d+) -> (.*)", (tmp_path / "listing").read_text())
        held = {int(fd): name for fd, name in found}
        assert set(held) >= {0, 1, 2}
        assert [name for fd, name in held.items() if fd > 2 and name.startswith(("pipe", "socket"))] == []


async def test_a_worker_that_closes_its_pipe_and_goes_on_is_ended(tmp_path: Path) -> None:
    async with a_crew(tmp_path, DEFILING) as crew:
        crew.deliver("forever", **{"class": "Close"})
        [pid] = await crew.met("forever")
        [(_, report)] = await crew.outcomes(1)
        assert report.outcome.crashed
        assert report.outcome.error_message.startswith("the worker closed its pipe")
        assert not process_alive(pid)
        await crew.free(1)


async def test_a_worker_that_closes_its_pipe_and_returns_is_replaced(tmp_path: Path) -> None:
    async with a_crew(tmp_path, DEFILING) as crew:
        crew.let_go("j")
        crew.deliver("j", **{"class": "Close"})
        [(_, report)] = await crew.outcomes(1)
        assert report.outcome.error_message.startswith("the worker exited with status 1")
        await crew.free(1)


@linux_only
async def test_a_job_that_forks_and_returns_twice_is_one_job_and_leaves_one_worker(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    def handle(message):
        if message.jid == "fork" and os.fork() == 0:
            meet("child")
            raise SystemExit(3)
    """

    async with a_crew(tmp_path, code) as crew:
        [pid] = crew.pool.pids()
        crew.deliver("fork")
        [child] = await crew.met("child")
        [(_, report)] = await crew.outcomes(1)
        assert report.outcome == DONE
        assert children(pid) == [child]
        crew.let_go("child")
        await async_wait_for(lambda: not process_alive(child), message="the copy ends")
        for jid in "abc":
            await crew.free(1)
            crew.deliver(jid)
        await crew.outcomes(4)
        assert list(crew.pool.pids()) == [pid]


async def test_workers_whose_pid_is_not_known_yet_can_be_killed(tmp_path: Path) -> None:
    slow = """
    @worker.on_startup
    def hang():
        meet("hanging")
    """

    async with a_crew(tmp_path, slow, NO_OP, concurrency=0) as crew:
        [spawner] = crew.spawners
        spawner.kinds = (Spawned, Exited)
        crew.pool.resize([1] * 3)
        pids = await crew.met("hanging", 3)
        assert crew.pool.pids() == {}
        crew.pool.resize([])
        crew.pool.kill(0)
        await async_wait_for(lambda: not any(map(process_alive, pids)), message="killed unseen")
        await async_wait_for(lambda: len(spawner.held) == 6, message="their ends are told")
        spawner.let_through()
        await async_wait_for(lambda: crew.pool.empty, message="their ends are applied")


async def test_a_job_runs_although_the_pid_of_its_worker_was_not_reported(tmp_path: Path) -> None:
    async with a_crew(tmp_path, MEETS, concurrency=0) as crew:
        [spawner] = crew.spawners
        spawner.kinds = (Spawned, Exited)
        crew.pool.resize([1] * 1)
        await crew.free(1)
        crew.deliver("a")
        [pid] = await crew.met("a")
        assert crew.pool.pids() == {pid: "busy"}
        # As the reaper would say it of an orphan.
        process = crew.reaper._workers[pid]
        process.put(Died(process.member, signal.SIGKILL))
        [(_, report)] = await crew.outcomes(1)
        assert report.outcome.crashed
        assert pid not in crew.reaper._workers
        spawner.let_through()
        await crew.free(1)


async def test_a_worker_whose_end_is_not_reported_is_given_up(tmp_path: Path) -> None:
    async with a_crew(tmp_path, MEETS, limits=Limits(unreported_s=0.1)) as crew:
        [spawner] = crew.spawners
        spawner.kinds = (Exited,)
        raw = crew.deliver("j")
        [pid] = await crew.met("j")
        os.kill(pid, signal.SIGKILL)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome.crashed) == (raw, True)
        await async_wait_for(lambda: spawner.held, message="not reported")
        spawner.let_through()


async def test_idle_workers_stay_while_no_fork_server_can_replace_them(tmp_path: Path) -> None:
    async with a_crew(tmp_path, NO_OP) as crew:
        crew.spawners[0].kill()
        crew.pool.replace_idle()
        assert crew.jobs.free == 1
        raw = crew.deliver("j")
        assert await crew.outcomes(1) == [(raw, crew.settled[0][1])]


async def test_workers_asked_of_a_dead_fork_server_do_not_hold_a_place(tmp_path: Path) -> None:
    async with a_crew(tmp_path, NO_OP, concurrency=0) as crew:
        dead = crew.spawners[0]
        os.kill(dead.process.pid, signal.SIGKILL)
        # Without the loop: the pool still believes in it.
        wait_for(lambda: state(dead.process.pid) in "TZX", message="it is dead")
        assert dead.alive
        crew.pool.resize([1] * 2)
        await async_wait_for(lambda: not dead.alive, message="its end is seen")
        await crew.use(NO_OP, concurrency=2)
        await crew.free(2)
        await asyncio.wait_for(dead.unused(), PATIENCE_S)
        crew.deliver("j")
        await crew.outcomes(1)


async def test_abandoned_jobs_are_killed_and_forgotten_but_not_what_was_reported(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    def handle(message):
        (here / f"began.{message.jid}").touch()
        meet(message.jid)
    """

    async with a_crew(tmp_path, code, concurrency=2) as crew:
        done, running = crew.deliver("done"), crew.deliver("running")
        _, [runner] = await crew.met("done"), await crew.met("running")
        crew.let_go("done")
        # Without the loop, so that the outcome stays in the pipe.
        wait_for(lambda: _unread(crew.pool) > 0, message="its outcome is in the pipe")
        crew.pool.abandon()
        assert [(raw, report.outcome) for raw, report in crew.settled] == [(done, DONE)]
        assert crew.jobs.known("q") == {}
        await async_wait_for(lambda: crew.pool.abandoned == 0, message="its process is gone")
        assert not process_alive(runner)
        await crew.free(2)
        assert running not in dict(crew.settled)


async def test_a_job_that_ends_while_others_are_killed_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_tree = proc.kill_tree

    async with a_crew(tmp_path, MEETS, concurrency=2) as crew:

        def kill_late(pid: int, job_age_s: float | None = None) -> None:
            crew.let_go("late")
            wait_for(lambda: _unread(crew.pool) > 0, message="its outcome is in the pipe")
            kill_tree(pid, job_age_s)

        late = crew.deliver("late")
        crew.deliver("running")
        await crew.met("late")
        [runner] = await crew.met("running")
        with monkeypatch.context() as patch:
            patch.setattr(proc, "kill_tree", kill_late)
            crew.pool.abandon()
        assert [(raw, report.outcome) for raw, report in crew.settled] == [(late, DONE)]
        assert crew.jobs.busy == 0
        await async_wait_for(lambda: crew.pool.abandoned == 0, message="the processes are gone")
        assert not process_alive(runner)
        await crew.free(2)
        assert len(crew.settled) == 1


def _unread(pool: Pool) -> int:
    """How many bytes the workers have written that the pool has not read."""
    import fcntl
    import struct
    import termios

    answer: int = struct.unpack("i", fcntl.ioctl(pool._outcomes._fd, termios.FIONREAD, bytes(4)))[0]
    return answer


async def test_what_the_application_printed_at_import_is_printed_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code = """
    print("imported")
    @worker.process("q")
    def handle(message):
        print("job", message.jid)
    """

    async with a_crew(tmp_path, code, concurrency=3) as crew:
        crew.deliver("a")
        await crew.outcomes(1)
        # Seen as soon as the job is over, though stdout is no terminal.
        printed = capfd.readouterr().out
        assert "job a" in printed
        crew.pool.resize([])
        await async_wait_for(lambda: crew.pool.empty, message="all left")
        assert (printed + capfd.readouterr().out).count("imported") == 1


@linux_only
async def test_a_job_that_a_stopped_worker_does_not_take_goes_to_another(tmp_path: Path) -> None:
    async with a_crew(tmp_path, NO_OP, limits=Limits(stalled_s=0.3)) as crew:
        [pid] = crew.pool.pids()
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: state(pid) in "TZX", message=f"{pid} is stopped")
        raw = crew.deliver("j")
        await async_wait_for(lambda: crew.settled, message="another one has run it")
        assert crew.settled[0][0] == raw
        assert crew.settled[0][1].outcome == DONE
        assert crew.ran_in("j") != pid
        assert not process_alive(pid)


@linux_only
async def test_a_worker_that_runs_a_long_job_does_not_count_as_stalled(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    def handle(message):
        meet("long")
        note("ran", message.jid)
    """

    async with a_crew(tmp_path, code, limits=Limits(stalled_s=0.0)) as crew:
        crew.deliver("j")
        [pid] = await crew.met("long")
        for _ in range(3):
            crew.pool.look()
            await asyncio.sleep(0.01)
        assert process_alive(pid)
        assert crew.jobs.busy == 1


@linux_only
async def test_a_fork_server_that_stands_still_is_given_up(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with a_crew(tmp_path, NO_OP, limits=PATIENT) as crew:
        [spawner] = crew.spawners
        # Until then it holds the worker's pipes, too, and their end would not be seen.
        wait_for(lambda: state(spawner.process.pid) == "S", message="the fork server has nothing to do")
        os.kill(spawner.process.pid, signal.SIGSTOP)
        [pid] = crew.pool.pids()
        os.kill(pid, signal.SIGKILL)
        await async_wait_for(lambda: crew.down, message="it is given up")
        assert "forkserver.silent" in capfd.readouterr().out
        await async_wait_for(lambda: not process_alive(spawner.process.pid), message="it is killed")
        await crew.use(NO_OP)
        await crew.free(1)


@linux_only
async def test_a_worker_that_its_fork_server_never_forked_is_lost_without_a_pid(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def printed() -> list[str]:
        return capfd.readouterr().out.splitlines()

    async with a_crew(tmp_path, NO_OP) as crew:
        [spawner] = crew.spawners
        os.kill(spawner.process.pid, signal.SIGSTOP)
        crew.pool.resize([1, 1])
        await async_wait_for(lambda: len(crew.workers) == 2, message="a second worker is requested")
        os.kill(spawner.process.pid, signal.SIGKILL)
        [lost] = await async_wait_for(lambda: [line for line in printed() if "worker.lost" in line])
        assert "pid=None" in lost
        assert "reason='did not start: its fork server ended'" in lost


@linux_only
async def test_a_worker_that_leaves_before_it_is_forked_is_not_overdue(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with a_crew(tmp_path, NO_OP, limits=PATIENT) as crew:
        [spawner] = crew.spawners
        os.kill(spawner.process.pid, signal.SIGSTOP)
        crew.pool.resize([1, 1])
        await async_wait_for(lambda: len(crew.workers) == 2, message="a second worker is requested")
        crew.pool.replace_idle()
        await async_wait_for(lambda: crew.down, message="its fork server is given up")
        printed = capfd.readouterr().out
        assert "forkserver.silent" in printed
        assert "pid=0" not in printed


@linux_only
async def test_a_job_whose_process_died_before_runs_alone_where_several_share_one(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    def handle(message):
        (here / f"ran.{message.jid}").write_text(str(os.getpid()))
        meet(message.jid)
    """

    async with a_crew(tmp_path, code, slots=2) as crew:
        [pid] = crew.pool.pids()
        close_garbage()
        before = descriptors(os.getpid())
        crew.deliver("common")
        crew.deliver("poison", crash_count=1)
        crew.deliver("next", crash_count=1)
        await crew.met("common")
        await crew.met("poison")
        assert crew.ran_in("common") == pid != crew.ran_in("poison")
        # It uses none of the room, and the other one waits, because the group has one process.
        assert crew.jobs.free == 1
        assert crew.jobs.busy == 3
        await async_wait_for(lambda: len(crew.pool.pids()) == 2, message="its own worker")
        crew.let_go("poison")
        await crew.met("next")
        assert crew.ran_in("next") not in (crew.ran_in("poison"), pid)
        crew.let_go("next")
        crew.let_go("common")
        assert {report.outcome for _, report in await crew.outcomes(3)} == {DONE}
        await async_wait_for(lambda: list(crew.pool.pids()) == [pid], message="their workers are gone")
        assert descriptors(os.getpid()) == before


async def test_a_suspect_does_not_begin_once_a_stop_gives_jobs_back(tmp_path: Path) -> None:
    async with a_crew(tmp_path, MEETS, slots=2, mode="thread") as crew:
        crew.deliver("a")
        crew.deliver("b")
        [pid] = await crew.met("a")
        await crew.met("b")
        crew.jobs.give_back()
        os.kill(pid, signal.SIGKILL)
        await async_wait_for(lambda: crew.jobs.busy == 0, message="both are left to the stop")
        await crew.free(2)
        assert [worker.slots for worker in crew.workers] == [2]
        assert crew.settled == []
        assert len(list(tmp_path.glob("[ab].*"))) == 2


@linux_only
async def test_a_suspect_that_crashes_alone_is_charged(tmp_path: Path) -> None:
    code = """
    @worker.process("q")
    def handle(message):
        os.kill(os.getpid(), signal.SIGKILL)
    """

    async with a_crew(tmp_path, code, slots=2) as crew:
        raw = crew.deliver("poison", crash_count=2)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome.fate, report.outcome.crashed) == (raw, Fate.DEAD, True)
        await async_wait_for(lambda: crew.jobs.busy == 0, message="its exhaustion hooks have run")
        await crew.free(2)


@linux_only
async def test_a_suspect_whose_own_worker_dies_too_early_gets_another(tmp_path: Path) -> None:
    code = """
    @worker.on_startup
    def start():
        if (here / "kill").exists():
            (here / "kill").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
    """
    async with a_crew(tmp_path, code, NO_OP, slots=2) as crew:
        (tmp_path / "kill").touch()
        raw = crew.deliver("poison", crash_count=1)
        [(settled, report)] = await crew.outcomes(1)
        assert (settled, report.outcome) == (raw, DONE)
        assert not (tmp_path / "kill").exists()


async def test_the_kill_of_a_cancelled_job_whose_worker_is_gone_does_nothing(tmp_path: Path) -> None:
    async with a_crew(tmp_path, NO_OP) as crew:
        [worker] = crew.workers
        crew.deliver("j")
        [job] = crew.jobs.jobs()
        await crew.outcomes(1)
        worker.kill()
        await async_wait_for(lambda: worker.state is State.GONE, message="the worker is gone")
        worker.end_job(job, "was killed: its job was cancelled")
        assert worker.unfinished() == []
