"""When a worker process is due to be replaced by a fresh one.

Runs in the worker process, between jobs.
"""

from __future__ import annotations

import time
from pathlib import Path

from pyworkers.envelope import Rng

# Workers that started together must not all leave together: up to a tenth later.
_JITTER = 10
# Reading the memory map costs about 0.1 ms, so not after every job.
_MEMORY_CHECK_S = 0.5


class Recycler:
    """Counts jobs and watches private memory. 0 switches a limit off."""

    def __init__(self, max_jobs: int, max_memory_mb: int, rng: Rng) -> None:
        self._jobs_left = max_jobs + rng.randrange(max_jobs // _JITTER + 1) if max_jobs else None
        self._max_memory_kb = max_memory_mb * 1024
        self._next_check = 0.0

    def due(self) -> bool:
        """To be asked once after each job: True when the worker shall take no more."""
        if self._jobs_left is not None:
            self._jobs_left -= 1
        return self._jobs_left == 0 or (self._max_memory_kb > 0 and self._too_large())

    def _too_large(self) -> bool:
        now = time.monotonic()
        if now < self._next_check:
            return False
        self._next_check = now + _MEMORY_CHECK_S
        return private_memory_kb() > self._max_memory_kb


def private_memory_kb() -> int:
    """Memory that only this process uses, in KiB: what it would give back. 0 where /proc has no such file.

    Not RSS, which counts every page that is still shared with the fork server.
    """
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_", "Swap:")))
