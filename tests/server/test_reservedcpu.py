"""ReservedCpu: when the workers leave one CPU to the master."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from pyworkers.server.pool.cpus import ReservedCpu

WORKER = 2**22 - 1
# One second of no-op jobs on two cores: seconds of CPU time of the master and of the workers, and the jobs;
# without the reserved CPU, and with it.
NOOP, NOOP_RESERVED = (0.45, 0.75, 28_000), (0.65, 0.85, 44_000)
# With jobs that use 50 µs.
LONGER, LONGER_RESERVED = (0.35, 1.3, 15_000), (0.55, 0.85, 11_500)


class Load:
    """A group with one worker, and the CPU time of both processes."""

    def __init__(self, cpus: tuple[int, ...] = (0, 1)) -> None:
        self.worker: Any = SimpleNamespace(pid=WORKER, jobs_done=0)
        self.used = {os.getpid(): 7.0, WORKER: 5.0}
        self.measured = 0
        self.now = 100.0
        self.reserved = ReservedCpu(cpus, self._used_s)
        crew: Any = [self.worker]
        self.reserved.add(crew)

    def _used_s(self, pid: int) -> float:
        self.measured += 1
        return self.used[pid]

    def run(self, seconds: float, each: tuple[float, float, int]) -> bool:
        """Let this many seconds with these figures pass; returns the answer of the last look."""
        found = False
        for _ in range(round(seconds / 0.25)):
            self.now += 0.25
            for pid, used in zip((os.getpid(), WORKER), each[:2], strict=True):
                self.used[pid] += used / 4
            self.worker.jobs_done += each[2] // 4
            found = self.reserved.look(self.now)
        return found


def kept(load: Load) -> Load:
    """The load once a trial with no-op jobs has gone well."""
    load.reserved.look(load.now)
    assert load.run(0.5, NOOP)
    assert load.run(0.25, NOOP_RESERVED)
    return load


@pytest.mark.parametrize(
    ("before", "trial", "expected"),
    [
        (NOOP, NOOP_RESERVED, True),
        (LONGER, LONGER_RESERVED, False),
        # As many jobs, because no more come: for a fifth less.
        ((0.2, 0.3, 8000), (0.16, 0.24, 8000), True),
        ((0.2, 0.3, 8000), (0.2, 0.3, 8000), False),
        # As dear, but a CPU idled before.
        ((0.45, 0.75, 20_000), (0.54, 0.90, 24_000), True),
    ],
)
def test_a_trial_decides(before: Any, trial: Any, expected: bool) -> None:
    load = Load()
    assert not load.reserved.look(load.now)
    assert not load.run(0.25, NOOP)
    assert load.run(0.25, before)
    assert load.run(0.5, trial) is expected
    assert load.run(20.0, trial if expected else before) is expected


def test_without_much_work_for_the_master_there_is_no_trial() -> None:
    load = Load()
    load.reserved.look(load.now)
    assert not load.run(2.0, (0.15, 1.7, 4000))
    # The more CPUs the workers have left, the more they may use.
    load = Load((0, 1, 2, 3))
    load.reserved.look(load.now)
    assert load.run(0.5, (0.15, 1.7, 4000))


def test_a_trial_that_failed_is_tried_again_after_half_a_minute() -> None:
    load = Load()
    load.reserved.look(load.now)
    assert load.run(0.75, LONGER)
    assert not load.run(29.5, LONGER)
    assert load.run(0.25, NOOP)


def test_a_trial_that_went_well_is_tried_again_after_half_a_minute() -> None:
    load = kept(Load())
    assert load.run(29.5, NOOP_RESERVED)
    assert not load.run(0.25, NOOP_RESERVED)
    assert load.run(0.25, NOOP)


def test_the_cpu_is_shared_again_once_a_job_costs_much_more() -> None:
    load = kept(Load())
    assert load.run(1.0, (0.65, 0.85, 32_000))
    assert not load.run(0.5, (0.55, 0.85, 20_000))
    # The next trial comes in its time: otherwise a load that alternates would move the workers all the time.
    assert not load.run(28.0, NOOP)
    assert load.run(0.25, NOOP)


@pytest.mark.parametrize("state", ["trial", "reserved"])
def test_one_bad_quarter_of_a_second_decides_nothing(state: str) -> None:
    load = Load()
    if state == "reserved":
        kept(load)
    else:
        load.reserved.look(load.now)
        assert load.run(0.5, NOOP)
    for _ in range(5):
        assert load.run(0.25, (0.3, 0.4, 8000))
        assert load.run(0.25, NOOP_RESERVED)
    assert load.run(0.25, (0.3, 0.4, 8000))
    assert not load.run(0.25, (0.3, 0.4, 8000))


@pytest.mark.parametrize("state", ["shared", "trial", "reserved"])
def test_no_pause_counts_as_slow_jobs(state: str) -> None:
    load = Load()
    load.reserved.look(load.now)
    load.run({"shared": 0.25, "trial": 0.5, "reserved": 1.0}[state], NOOP)
    load.now += 1.6
    assert not load.reserved.look(load.now)
    assert not load.run(0.25, LONGER)
    assert load.run(0.25, LONGER)
    assert not load.run(0.5, LONGER_RESERVED)


def test_every_group_counts() -> None:
    load = Load()
    other: Any = SimpleNamespace(pid=WORKER - 1, jobs_done=0)
    starting: Any = SimpleNamespace(pid=0, jobs_done=0)
    crew: Any = [other, starting]
    load.reserved.add(crew)
    load.used[other.pid] = 0.0
    load.reserved.look(load.now)
    for _ in range(4):
        load.used[other.pid] += 0.75
        assert not load.run(0.25, NOOP)
    for _ in range(2):
        load.reserved.remove(crew)
    load.used[other.pid] += 0.75
    assert load.run(0.25, NOOP)


@pytest.mark.parametrize("cpus", [(), (3,), range(5)])
def test_one_cpu_cannot_be_spared_and_of_many_linux_finds_one(cpus: Any) -> None:
    load = Load(cpus)
    load.reserved.look(load.now)
    assert not load.run(2.0, NOOP)
    assert not load.measured


def test_the_first_cpu_is_the_reserved_one() -> None:
    reserved = Load((5, 3, 4)).reserved
    assert sorted(reserved.every) == [3, 4, 5]
    assert sorted(reserved.others) == [4, 5]


def test_workers_that_end_or_start_do_not_distort_the_figures() -> None:
    load = kept(Load())
    load.worker.pid, load.used[WORKER] = WORKER - 2, 0.0
    load.used[WORKER - 2], load.worker.jobs_done = 0.0, 0
    for _ in range(2):
        for pid, used in ((os.getpid(), 0.16), (WORKER - 2, 0.21)):
            load.used[pid] += used
        load.worker.jobs_done += 11_000
        load.now += 0.25
        assert load.reserved.look(load.now)
    load.used[WORKER - 2] = 0.0
    load.worker.jobs_done += 11_000
    load.now += 0.25
    assert load.reserved.look(load.now)


def test_a_system_without_clocks_of_processes_is_no_error() -> None:
    reserved = ReservedCpu((0, 1), lambda _: 0.0)
    crew: Any = [SimpleNamespace(pid=WORKER, jobs_done=0)]
    reserved.add(crew)
    for at in range(1, 10):
        reserved.look(at / 2)
