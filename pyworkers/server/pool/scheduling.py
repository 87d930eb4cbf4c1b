"""Scheduling: which worker of one group wakes up for a job, and when Linux gives it the CPU.

Runs in the master's event loop, at each look of the hand-out, never for a job. It changes no priority: the
share of the CPU stays the same.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from pyworkers.server.pool.crew import Crew

# Below this number of jobs a second, the time until a job starts counts, and above it the CPU time.
_MANY_PER_S = 1000


class Scheduling:
    """Has the workers wait in turn while many jobs end, and otherwise in rank (worker/ends/intake.py).

    Chooses SCHED_BATCH (sched(7)) while many short jobs end: a worker that wakes up waits for its turn.
    Otherwise each of a dozen jobs that the master hands out at once interrupts the master, or Redis: a job
    costs a third more. Longer jobs wait for a network or a disk, and must not wait for the CPU after that. A
    policy that was chosen for the server is kept.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._done, self._since = 0, 0.0
        self._many = False
        self._pids: set[int] = set()
        """The workers that run in batches."""

    def look(self, short: bool, now: float) -> bool:
        """Choose for the time until the next look; ``short``: the jobs are short. True if many jobs end."""
        done, before = sum(worker.jobs_done for worker in self._crew), self._done
        many, before_many = done - before >= _MANY_PER_S * (now - self._since), self._many
        self._done, self._since, self._many = done, now, many
        if many or before_many:
            for worker in self._crew:
                worker.set_busy(many)
        batches = short and many
        if batches or self._pids:
            self._choose(batches)
        return many

    def _choose(self, batches: bool) -> None:
        pids = {worker.pid for worker in self._crew if worker.pid and worker.mode == "process"}
        wanted = pids if batches else set()
        if sys.platform == "linux":
            for pid in wanted - self._pids:
                _change(pid, os.SCHED_OTHER, os.SCHED_BATCH)
            for pid in (self._pids - wanted) & pids:
                _change(pid, os.SCHED_BATCH, os.SCHED_OTHER)
        self._pids = wanted


def _change(pid: int, before: int, after: int) -> None:
    with suppress(OSError):  # it has ended, or a sandbox refuses
        if os.sched_getscheduler(pid) == before:
            os.sched_setscheduler(pid, after, os.sched_param(0))
