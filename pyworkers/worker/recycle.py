"""Recycling: decides when a worker process is replaced, by its number of jobs or its memory.

Runs in the worker process, between jobs. It reads /proc and ends nothing itself.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from contextlib import suppress
from pathlib import Path

from pyworkers.protocol.envelope import Rng

# Workers that started together must not all be replaced together: each runs up to a tenth more jobs.
_JITTER = 10
# Private memory can grow while RSS does not: when a shared page is written to, or a page is swapped out.
_MEMORY_CHECK_S = 0.5
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


class Recycler:
    """Counts jobs and watches private memory. 0 switches a limit off."""

    def __init__(self, max_jobs: int, max_memory_mb: int, rng: Rng) -> None:
        self._jobs_left = max_jobs + rng.randrange(max_jobs // _JITTER + 1) if max_jobs else None
        self._max_memory_kb = max_memory_mb * 1024
        self._next_check = 0.0
        self._next_peak_kb = 0

    def due(self) -> bool:
        """True if the worker must take no further job. Call this once after each job."""
        if self._jobs_left is not None:
            self._jobs_left -= 1
        return self._jobs_left == 0 or (self._max_memory_kb > 0 and self._too_large())

    def retire(self) -> None:
        """Have the worker replaced after this job."""
        self._jobs_left = 1

    def _too_large(self) -> bool:
        # Reading the memory map takes about 0.1 ms, so read it only when the limit may be exceeded.
        now = time.monotonic()
        if now < self._next_check and peak_kb() < self._next_peak_kb:
            return False
        left_kb = self._max_memory_kb - private_memory_kb()
        if left_kb < 0:
            return True
        self._next_check = now + _MEMORY_CHECK_S
        self._next_peak_kb = resident_kb() + left_kb
        if peak_kb() >= self._next_peak_kb:
            # A job needed this much memory and freed it: growth below this peak would not be noticed.
            forget_peak()
        return False


def private_memory_kb() -> int:
    """Memory that only this process uses, in KiB, and that its exit frees. 0 where /proc has no such file.

    Not RSS, which counts every page that is still shared with the fork server.
    """
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_", "Swap:")))


def resident_kb() -> int:
    """The memory of this process in KiB, shared pages included."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KB
    except OSError:
        return 0


def peak_kb() -> int:
    """The highest value of ``resident_kb`` since the last ``forget_peak``. Takes half a microsecond."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1024 if sys.platform == "darwin" else peak


def forget_peak() -> None:
    """Reset the peak to the present resident memory, where the kernel can (clear_refs, since Linux 4.0)."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
