"""Executions: the number and the durations of the jobs of each class, as in Sidekiq's metrics.

Pure; counted by the master as outcomes are settled, written by the store with the heartbeat. The classes are
the application's handlers, never names in payloads, so their number is limited.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

# Sidekiq's metrics/shared.rb: a duration belongs to the first bound above it, in ms.
BOUNDS_MS = (
    20, 30, 45, 65, 100, 150, 225, 335, 500, 750, 1100, 1700, 2500, 3800, 5750, 8500, 13000, 20000, 30000,
    45000, 65000, 100000, 150000, 225000, 335000,
)  # fmt: skip


@dataclass(slots=True)
class Tally:
    """The jobs of one class. ``total_ms`` and ``buckets`` count successful jobs alone, as in Sidekiq."""

    processed: int = 0
    failed: int = 0
    total_ms: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))

    def add(self, elapsed_ms: int, failed: bool, jobs: int = 1) -> None:
        """Count jobs that took this long each."""
        self.processed += jobs
        if failed:
            self.failed += jobs
        else:
            self.total_ms += elapsed_ms * jobs
            self.buckets[bisect_right(BOUNDS_MS, elapsed_ms)] += jobs

    def merge(self, other: Tally) -> None:
        """Add the numbers of another tally."""
        self.processed += other.processed
        self.failed += other.failed
        self.total_ms += other.total_ms
        self.buckets = [a + b for a, b in zip(self.buckets, other.buckets, strict=True)]


class Executions:
    """The counts since the start, and those that are not written yet."""

    def __init__(self) -> None:
        self._fresh: dict[str, Tally] = {}
        self._unsent: dict[str, Tally] = {}
        self._totals: dict[str, Tally] = {}

    def add(self, job_class: str, elapsed_ms: int, failed: bool, jobs: int = 1) -> None:
        """Count jobs that took this long each."""
        tally = self._fresh.get(job_class)
        if tally is None:
            tally = self._fresh[job_class] = Tally()
        tally.add(elapsed_ms, failed, jobs)

    def take(self) -> Mapping[str, Tally]:
        """The counts that are not written yet. Later calls return them again, and more, until ``sent``."""
        for target in (self._unsent, self._totals):
            for job_class, tally in self._fresh.items():
                target.setdefault(job_class, Tally()).merge(tally)
        self._fresh = {}
        return self._unsent

    def sent(self) -> None:
        """Forget the counts that ``take`` has returned: they are written, or dropped."""
        self._unsent = {}

    def totals(self) -> Mapping[str, Tally]:
        """The counts since the start."""
        self.take()
        return self._totals
