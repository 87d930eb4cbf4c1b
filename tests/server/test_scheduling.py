"""Scheduling: which policy and CPUs workers have, by the number and the length of their jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from pyworkers.server.pool.cpus import ReservedCpu, Scheduling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SCHED_BATCH is Linux's")

StartWorker = Callable[..., Any]


def worker(pid: int, mode: str = "process", jobs_done: int = 0) -> Any:
    found = SimpleNamespace(pid=pid, mode=mode, jobs_done=jobs_done, busy=False)
    found.page = SimpleNamespace(set_busy=lambda busy: setattr(found, "busy", busy))
    return found


@pytest.fixture
def start() -> Iterator[StartWorker]:
    """Starts a process that waits, as a worker."""
    with ExitStack() as stack:

        def start_one(mode: str = "process", *, policy: int = os.SCHED_OTHER) -> Any:
            process = stack.enter_context(subprocess.Popen(["sleep", "600"]))
            stack.callback(process.kill)
            os.sched_setscheduler(process.pid, policy, os.sched_param(0))
            return worker(process.pid, mode)

        yield start_one


def policy(of: Any) -> int:
    return os.sched_getscheduler(of.pid)


@pytest.mark.parametrize(
    ("short", "jobs", "expected"),
    [
        (True, 1000, os.SCHED_BATCH),
        (True, 999, os.SCHED_OTHER),
        (False, 100_000, os.SCHED_OTHER),
    ],
)
def test_workers_run_in_batches_while_many_short_jobs_end(
    start: StartWorker, short: bool, jobs: int, expected: int
) -> None:
    crew: Any = [start(), start()]
    scheduling = Scheduling(crew, ReservedCpu((), float))
    assert not scheduling.look(True, 100.0)
    crew[0].jobs_done += jobs
    assert scheduling.look(short, 101.0) is (jobs >= 1000)
    assert [policy(worker) for worker in crew] == [expected] * 2
    assert not scheduling.look(True, 102.0)
    assert [policy(worker) for worker in crew] == [os.SCHED_OTHER] * 2


@pytest.mark.parametrize("short", [True, False])
def test_workers_wait_in_turn_while_many_jobs_end(start: StartWorker, short: bool) -> None:
    crew: Any = [start(), start("thread")]
    scheduling = Scheduling(crew, ReservedCpu((), float))
    scheduling.look(short, 100.0)
    for jobs, at, busy in ((999, 101.0, False), (1000, 102.0, True), (2000, 103.0, True), (0, 104.0, False)):
        crew[1].jobs_done += jobs
        crew.append(start())
        assert scheduling.look(short, at) is busy
        assert [one.busy for one in crew] == [busy] * len(crew)


def test_a_worker_that_starts_later_follows_and_one_that_is_gone_is_forgotten(start: StartWorker) -> None:
    crew: Any = [start()]
    scheduling = Scheduling(crew, ReservedCpu((), float))
    crew[0].jobs_done += 10_000
    assert scheduling.look(True, 1.0)
    gone = crew[0]
    crew[:] = [start(), worker(0)]
    crew[0].jobs_done += 1000
    assert scheduling.look(True, 2.0)
    assert policy(crew[0]) == os.SCHED_BATCH
    assert not scheduling.look(True, 3.0)
    assert policy(crew[0]) == os.SCHED_OTHER
    # Its number may be that of another process now.
    assert policy(gone) == os.SCHED_BATCH


def test_a_policy_that_was_chosen_for_the_server_is_kept(start: StartWorker) -> None:
    crew: Any = [start(policy=os.SCHED_IDLE)]
    scheduling = Scheduling(crew, ReservedCpu((), float))
    crew[0].jobs_done += 10_000
    assert scheduling.look(True, 1.0)
    assert policy(crew[0]) == os.SCHED_IDLE
    assert not scheduling.look(False, 2.0)
    assert policy(crew[0]) == os.SCHED_IDLE


def test_processes_with_several_jobs_keep_theirs(start: StartWorker) -> None:
    crew: Any = [start("async"), start("thread")]
    scheduling = Scheduling(crew, ReservedCpu((), float))
    crew[0].jobs_done += 10_000
    scheduling.look(True, 1.0)
    assert [policy(worker) for worker in crew] == [os.SCHED_OTHER] * 2


class Reserved:
    """Always says ``reserve``, about two CPUs of this machine."""

    def __init__(self) -> None:
        self.every = frozenset(sorted(os.sched_getaffinity(0))[:2])
        self.others = self.every - {min(self.every)}
        self.reserve = True
        self.crews: list[Any] = []
        self.add = self.crews.append
        self.remove = self.crews.remove

    def look(self, _: float) -> bool:
        return self.reserve


@pytest.fixture
def reserved() -> Iterator[Any]:
    """While it is used, this process and those that it starts keep to two CPUs."""
    before, found = os.sched_getaffinity(0), Reserved()
    if not found.others:
        pytest.skip("one CPU")
    os.sched_setaffinity(0, found.every)
    yield found
    os.sched_setaffinity(0, before)


def cpus(of: Any) -> frozenset[int]:
    return frozenset(os.sched_getaffinity(of.pid))


@pytest.mark.parametrize("reason", ["few", "longer", "no use"])
def test_workers_leave_the_reserved_cpu_while_many_short_jobs_end(
    start: StartWorker, reserved: Any, reason: str
) -> None:
    crew: Any = [start(), start("async")]
    scheduling = Scheduling(crew, reserved)
    for now in (1.0, 2.0):
        crew[0].jobs_done += 10_000
        crew.append(start())
        scheduling.look(True, now)
        assert [cpus(one) for one in crew] == [reserved.others, reserved.every] + [reserved.others] * int(now)
    crew[0].jobs_done += 0 if reason == "few" else 10_000
    reserved.reserve = reason != "no use"
    scheduling.look(reason != "longer", 3.0)
    assert [cpus(one) for one in crew] == [reserved.every] * 4


def test_threads_of_a_worker_get_all_cpus_back(reserved: Any) -> None:
    code = "import threading; input(); t = threading.Thread(target=input); t.start(); print(t.native_id)"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-u", "-c", code], text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        crew: Any = [worker(process.pid)]
        scheduling = Scheduling(crew, reserved)
        crew[0].jobs_done += 10_000
        scheduling.look(True, 1.0)
        print(file=process.stdin, flush=True)
        thread = int(process.stdout.readline())
        assert os.sched_getaffinity(thread) == reserved.others
        scheduling.look(True, 2.0)
        assert os.sched_getaffinity(thread) == reserved.every
        print(file=process.stdin, flush=True)


def test_cpus_that_were_chosen_for_a_worker_are_kept(start: StartWorker, reserved: Any) -> None:
    crew: Any = [start(), start(), start()]
    first = {min(reserved.every)}
    os.sched_setaffinity(crew[0].pid, first)
    os.sched_setaffinity(crew[1].pid, reserved.others)
    scheduling = Scheduling(crew, reserved)
    for now in (1.0, 2.0):
        crew[0].jobs_done += 10_000
        assert scheduling.look(True, now)
    os.sched_setaffinity(crew[2].pid, first)
    assert not scheduling.look(True, 3.0)
    assert [cpus(one) for one in crew] == [first, reserved.others, first]


def test_a_group_that_has_ended_counts_no_more(reserved: Any) -> None:
    crew: Any = []
    scheduling = Scheduling(crew, reserved)
    assert reserved.crews == [crew]
    scheduling.close()
    assert not reserved.crews


def test_a_worker_that_has_just_ended_is_no_error(start: StartWorker) -> None:
    crew: Any = [worker(2**22 - 1, jobs_done=10_000), start()]
    scheduling = Scheduling(crew, ReservedCpu((), float))
    assert scheduling.look(True, 1.0)
    assert policy(crew[1]) == os.SCHED_BATCH
