"""Scheduling: the policy by which Linux gives a worker process the CPU.

Runs in the worker process, after each job. It changes no priority: the share of the CPU stays the same.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

# The weight of the newest job in the mean.
_WEIGHT = 1 / 16
# Longer jobs may wait for a network or a disk, and must not wait for the CPU after that.
_SHORT_MS = 1.0
# The mean at first: a good number of short jobs must have ended before the policy is changed.
_UNKNOWN_MS = 2.0


class Scheduling:
    """Chooses SCHED_BATCH (sched(7)) while jobs are short: when woken, wait for the process that has the CPU.

    That is the master, which hands out a dozen short jobs at once, or Redis. If each of them interrupts it, a
    job costs a third more. A policy that was chosen for the server is kept.
    """

    def __init__(self) -> None:
        self._mean_ms = _UNKNOWN_MS
        self._in_batches = False
        self._free = sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER

    def ended(self, elapsed_ms: int) -> None:
        """Note the length of a job."""
        self._mean_ms += (elapsed_ms - self._mean_ms) * _WEIGHT
        if (self._mean_ms < _SHORT_MS) is not self._in_batches:
            self._change()

    def _change(self) -> None:
        self._in_batches = not self._in_batches
        if self._free and sys.platform == "linux":
            with suppress(OSError):  # a sandbox may refuse it
                policy = os.SCHED_BATCH if self._in_batches else os.SCHED_OTHER
                os.sched_setscheduler(0, policy, os.sched_param(0))
