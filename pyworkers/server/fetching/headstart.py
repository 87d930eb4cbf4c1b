"""HeadStart: a short sleep of the master after it has woken a worker of an idle group.

Used in the master's event loop. It is never for a job that an exchange has brought, so not while jobs wait.
"""

from __future__ import annotations

import time

# Linux takes a wake-up through a socket as a sign that the sender is about to sleep, and often places the
# worker on the CPU of the master. There it would wait for the rest of the master's turn: 0.15 to 0.35 ms.
# sched_yield(2) does not help, because a worker has a session of its own, and so a scheduling group of its
# own (sched(7), autogroup). With the kernel's slack of 50 µs, the master sleeps for 0.1 ms: about as long as
# a worker with cold caches takes to reach the first line of its job.
_SLEEP_S = 50e-6
# A group that gets jobs more often is not idle. So a group has the master sleep for 2% of the time at most.
_IDLE_S = 0.005


class HeadStart:
    """The head start of the jobs of one group."""

    def __init__(self) -> None:
        self._job_at = 0.0

    def due(self, now_s: float) -> bool:
        """True if the job of this moment is the first one for a while. Call this once for each job."""
        before, self._job_at = self._job_at, now_s
        return now_s - before >= _IDLE_S

    def give(self) -> None:
        """Leave the CPU to the worker."""
        time.sleep(_SLEEP_S)
