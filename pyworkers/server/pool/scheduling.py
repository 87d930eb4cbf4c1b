"""Scheduling: the policy by which Linux gives the workers of one group the CPU.

Runs in the master's event loop, at each look of the hand-out, never for a job. It changes no priority: the
share of the CPU stays the same.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from pyworkers.server.pool.crew import Crew

# Below this number of jobs a second, nothing is to be gained, and the time until a job starts counts.
_MANY_PER_S = 1000


class Scheduling:
    """Chooses SCHED_BATCH (sched(7)) while many short jobs end: a worker that wakes up waits for its turn.

    Otherwise each of a dozen jobs that the master hands out at once interrupts the master, or Redis: a job
    costs a third more. Longer jobs wait for a network or a disk, and must not wait for the CPU after that. A
    policy that was chosen for the server is kept.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._done, self._since = 0, 0.0
        self._pids: set[int] = set()
        """The workers that run in batches."""

    def look(self, short: bool, now: float) -> bool:
        """Choose the policies; ``short``: the jobs are short. True if the workers run in batches."""
        done, before = sum(worker.jobs_done for worker in self._crew), self._done
        batches = short and done - before >= _MANY_PER_S * (now - self._since)
        self._done, self._since = done, now
        if batches or self._pids:
            self._choose(batches)
        return batches

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
