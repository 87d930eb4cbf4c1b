"""Cpus: which worker of one group wakes up for a job, when Linux gives it a CPU, and which one.

Runs in the master's event loop, at each look of the jobs, never for a job. It changes no priority: the share
of the CPU stays the same.

A wake-up through a socket tells Linux that the sender is about to sleep, so it places the worker on the
sender's CPU. But the master sends on, and if a small machine is busy, Linux looks for no other CPU
(select_idle_sibling in its kernel/sched/fair.c): the worker waits, and another CPU idles. Whether it helps to
reserve a CPU for the master depends on the jobs, so it is tried, and kept if more jobs end, or for less CPU
time.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyworkers.server.pool.worker import Workers

# Below this number of jobs a second, the time until a job starts counts, and above it the CPU time.
_MANY_PER_S = 1000
_PROC = Path("/proc")


class Scheduling:
    """Has the workers wait in turn while many jobs end, and otherwise in rank (worker/connection.py).

    Chooses SCHED_BATCH (sched(7)) while many short jobs end: a worker that wakes up waits for its turn.
    Otherwise each of a dozen jobs that the master hands out at once interrupts the master, or Redis: a job
    costs a third more. Longer jobs wait for a network or a disk, and must not wait for the CPU after that.
    Those workers also keep off the reserved CPU. A policy, or CPUs, that were chosen for the server or by a
    job are kept.
    """

    def __init__(self, workers: Workers, reserved: ReservedCpu) -> None:
        self._workers = workers
        self._reserved = reserved
        self._done: dict[int, int] = {}
        """The number of jobs that each worker had ended at the last look, by pid."""
        self._since = 0.0
        self._many = False
        self._batches: set[int] = set()
        """The workers that run in batches."""
        self._apart: set[int] = set()
        """The workers that were moved off the reserved CPU."""
        reserved.add(workers)

    def close(self) -> None:
        """The group has ended; a second call does nothing."""
        self._reserved.remove(self._workers)

    def look(self, short: bool, now: float) -> bool:
        """Choose for the time until the next look; ``short``: the jobs are short. True if many jobs end."""
        done = {worker.pid: worker.jobs_done for worker in self._workers}
        jobs = sum(max(0, number - self._done.get(pid, 0)) for pid, number in done.items())
        many, before_many = jobs >= _MANY_PER_S * (now - self._since), self._many
        self._done, self._since, self._many = done, now, many
        if many or before_many:
            for worker in self._workers:
                worker.page.set_busy(many)
        batches = short and many
        if sys.platform == "linux" and (batches or self._batches):
            self._choose(batches, now)
        return many

    def _choose(self, batches: bool, now: float) -> None:
        pids = {worker.pid for worker in self._workers if worker.pid and worker.mode == "process"}
        in_batches = pids if batches else set()
        off = in_batches if in_batches and self._reserved.look(now) else set()
        for pid in in_batches - self._batches:
            _change_policy(pid, os.SCHED_OTHER, os.SCHED_BATCH)
        for pid in (self._batches - in_batches) & pids:
            _change_policy(pid, os.SCHED_BATCH, os.SCHED_OTHER)
        every, others = self._reserved.every, self._reserved.others
        back = (self._apart - off) & pids
        self._apart &= off
        self._apart |= {pid for pid in off - self._apart if _change_cpus(pid, every, others)}
        for pid in back:
            # A thread that a job has started has the CPUs of its worker.
            for thread in {pid, *_threads(pid)}:
                _change_cpus(thread, others, every)
        self._batches = in_batches


def _change_policy(pid: int, before: int, after: int) -> None:
    with suppress(OSError):  # it has ended, or a sandbox refuses
        if os.sched_getscheduler(pid) == before:
            os.sched_setscheduler(pid, after, os.sched_param(0))


def _change_cpus(pid: int, before: frozenset[int], after: frozenset[int]) -> bool:
    """True if it had the CPUs ``before``, and has those ``after`` now."""
    with suppress(OSError):
        if os.sched_getaffinity(pid) == before:
            os.sched_setaffinity(pid, after)
            return True
    return False


def _threads(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(thread.name) for thread in (_PROC / str(pid) / "task").iterdir()]
    return []


# With more, Linux finds one that idles. Measured with two.
_MOST_CPUS = 4
_WINDOW_S = 0.25
# Looks are a second apart at most. A longer window has a pause in it, and its figures are about two loads.
_STALE_S = 1.5
# From one trial to the next, whether it went well or not: jobs change.
_AGAIN_S = 30.0
# With jobs that need more than this many times the master's time on each of the other CPUs, the workers
# would miss the reserved one.
_LOAD = 4.0
# Kept if jobs a second, times those that a second of CPU time buys, grow by this factor.
_GAIN = 1.1
# Until a job costs this many times as much as in the trial.
_DEARER = 1.5
# No job costs less than the clocks can tell.
_CLOCK_S = 1e-9


@dataclass(frozen=True, slots=True)
class _Use:
    """The CPU time used up to a moment, in seconds; each worker's with the number of its jobs, by pid."""

    at: float
    master_s: float
    workers: dict[int, tuple[float, int]]


class ReservedCpu:
    """Decides whether workers with many short jobs keep to ``others`` among all CPUs, ``every``."""

    def __init__(self, cpus: Iterable[int], used_s: Callable[[int], float]) -> None:
        """``used_s`` returns the CPU time that a process has used, in seconds."""
        self.every = frozenset(cpus)
        few = 2 <= len(self.every) <= _MOST_CPUS
        self.others = self.every - {min(self.every)} if few else frozenset()
        self._used_s = used_s
        self._groups: list[Workers] = []
        self._last: _Use | None = None
        self._reserved = False
        self._change_at = 0.0
        """When the next trial begins; while the CPU is reserved, when it ends."""
        self._trial = False
        self._poor = False
        """The last window spoke against it. The next one decides: others may have needed the CPUs."""
        self._value = 0.0
        """Before the trial: jobs a second, times those that a second of CPU time buys."""
        self._most_s = 0.0
        """After the trial: the most that a job may cost, in seconds of CPU time."""

    def add(self, workers: Workers) -> None:
        """Count the workers of another group."""
        self._groups.append(workers)

    def remove(self, workers: Workers) -> None:
        """Forget a group; a second call does nothing."""
        with suppress(ValueError):
            self._groups.remove(workers)

    def look(self, now: float) -> bool:
        """True if the workers of a group with many short jobs are to keep to ``others``."""
        if not self.others:
            return False
        last = self._last
        if last is None or now - last.at > _STALE_S:
            self._last = self._use(now)
            self._share(math.inf)
        elif now - last.at >= _WINDOW_S:
            self._last = self._use(now)
            self._decide(last, self._last)
        return self._reserved

    def _decide(self, before: _Use, after: _Use) -> None:
        now, master_s, workers_s, jobs = after.at, after.master_s - before.master_s, 0.0, 1
        for pid, (used_s, done) in after.workers.items():
            used_before, done_before = before.workers.get(pid, (0.0, 0))
            # It may have ended, and another process may have its number.
            workers_s += max(0.0, used_s - used_before)
            jobs += max(0, done - done_before)
        job_s = (master_s + workers_s) / jobs
        value = jobs / (now - before.at) / max(job_s, _CLOCK_S)
        if self._change_at == math.inf:
            # The first window does not count as the figures before a trial: its caches are cold.
            self._change_at = now
        elif not self._reserved:
            if now >= self._change_at and workers_s <= _LOAD * len(self.others) * master_s:
                self._reserved = self._trial = True
                self._value, self._change_at = value, now + _AGAIN_S
        else:
            poor = value < self._value * _GAIN if self._trial else job_s > self._most_s
            if now >= self._change_at or (poor and self._poor):
                self._share(self._change_at)
            elif self._trial and not poor:
                self._trial, self._poor, self._most_s = False, False, job_s * _DEARER
            else:
                self._poor = poor

    def _share(self, next_at: float) -> None:
        self._reserved = self._trial = self._poor = False
        self._change_at = next_at

    def _use(self, now: float) -> _Use:
        workers = [worker for group in self._groups for worker in group if worker.pid]
        used = {worker.pid: (self._used_s(worker.pid), worker.jobs_done) for worker in workers}
        return _Use(now, self._used_s(os.getpid()), used)
