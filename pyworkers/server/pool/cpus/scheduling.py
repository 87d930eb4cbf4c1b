"""Scheduling: which worker of one group wakes up for a job, when Linux gives it a CPU, and which one.

Runs in the master's event loop, at each look of the hand-out, never for a job. It changes no priority: the
share of the CPU stays the same.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from pyworkers.server.pool.cpus.reserved import ReservedCpu
from pyworkers.server.pool.crew import Crew

# Below this number of jobs a second, the time until a job starts counts, and above it the CPU time.
_MANY_PER_S = 1000
_PROC = Path("/proc")


class Scheduling:
    """Has the workers wait in turn while many jobs end, and otherwise in rank (worker/ends/intake.py).

    Chooses SCHED_BATCH (sched(7)) while many short jobs end: a worker that wakes up waits for its turn.
    Otherwise each of a dozen jobs that the master hands out at once interrupts the master, or Redis: a job
    costs a third more. Longer jobs wait for a network or a disk, and must not wait for the CPU after that.
    Those workers also keep off the reserved CPU. A policy, or CPUs, that were chosen for the server or by a
    job are kept.
    """

    def __init__(self, crew: Crew, reserved: ReservedCpu) -> None:
        self._crew = crew
        self._reserved = reserved
        self._done: dict[int, int] = {}
        """The number of jobs that each worker had ended at the last look, by pid."""
        self._since = 0.0
        self._many = False
        self._batches: set[int] = set()
        """The workers that run in batches."""
        self._apart: set[int] = set()
        """The workers that were moved off the reserved CPU."""
        reserved.add(crew)

    def close(self) -> None:
        """The group has ended; a second call does nothing."""
        self._reserved.remove(self._crew)

    def look(self, short: bool, now: float) -> bool:
        """Choose for the time until the next look; ``short``: the jobs are short. True if many jobs end."""
        done = {worker.pid: worker.jobs_done for worker in self._crew}
        jobs = sum(max(0, number - self._done.get(pid, 0)) for pid, number in done.items())
        many, before_many = jobs >= _MANY_PER_S * (now - self._since), self._many
        self._done, self._since, self._many = done, now, many
        if many or before_many:
            for worker in self._crew:
                worker.set_busy(many)
        batches = short and many
        if sys.platform == "linux" and (batches or self._batches):
            self._choose(batches, now)
        return many

    def _choose(self, batches: bool, now: float) -> None:
        pids = {worker.pid for worker in self._crew if worker.pid and worker.mode == "process"}
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
