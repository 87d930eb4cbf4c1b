"""Counters: the numbers of settled jobs of this server that are not yet written to Redis.

Runs in the master's event loop. It never decides the outcome of a job.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from datetime import UTC, datetime

from pyworkers.errors import PyworkersError, StoreError
from pyworkers.protocol.flow import counted
from pyworkers.protocol.histogram import Executions
from pyworkers.protocol.outcome import DONE, Fate, Report
from pyworkers.store import counters
from pyworkers.store.measures import runs
from pyworkers.store.store import Store


class Counters:
    """Counts settled jobs. Sidekiq counts a failed job as processed, too.

    A crash of the worker does not count as a failed job, nor does an interruption, nor a run of a job that
    does not fit this server: each has its own counter.
    An expired job did not run, so it is not processed.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._done: defaultdict[str, int] = defaultdict(int)
        """The successful jobs, which are most, by queue."""
        self._runs: Counter[str] = Counter()
        """The runs and failures by queue, as ``Keys.runs`` names the fields."""
        self.expired: Counter[str] = Counter()
        """The expired jobs since the start, by the name of their handler."""
        self.incidents: Counter[str] = Counter()
        """The counters since the start that have no label, by name."""
        self.executions = Executions()

    def add(self, queue: str, report: Report, jobs: int = 1) -> None:
        """Count settled jobs with this report; not one that was given back or put off, or is invalid."""
        outcome = report.outcome
        if (outcome is DONE or outcome.member is not None) and report.job_class:
            self._done[queue] += jobs
            self.executions.add(report.job_class, report.elapsed_ms, False, jobs)
            return
        for _ in range(jobs):
            self._add_one(queue, report)

    def _add_one(self, queue: str, report: Report) -> None:
        """Count a job whose report is no plain success."""
        outcome = report.outcome
        if outcome.crashed:
            self._happened(counted.CRASHED)
            return
        if outcome.misfit:
            self._happened(counted.MISFITS)
        if outcome.fate is Fate.CANCELLED:
            self._happened(counted.CANCELLED)
        if outcome.fate is Fate.EXPIRED:
            self._counts["expired"] += 1
            self.expired[report.job_class] += 1
        if outcome.failed:
            self._counts["failed"] += 1
            self._runs[f"{queue}|f"] += 1
        if outcome.failed or outcome.fate == 0:
            self._counts["processed"] += 1
            self._runs[f"{queue}|p"] += 1
            if report.job_class:
                self.executions.add(report.job_class, report.elapsed_ms, outcome.failed)

    def interrupted(self, jobs: int) -> None:
        """Count jobs that run again after a stop, or because their server or their shared process ended."""
        self._happened(counted.INTERRUPTED, jobs)

    def recovered(self, jobs: int) -> None:
        """Count jobs that run again because their server was lost: interrupted ones, too."""
        self._happened(counted.RECOVERED, jobs)
        self.interrupted(jobs)

    def suspected(self) -> None:
        """Count a job that runs alone, because its servers died."""
        self._happened(counted.SUSPECTS)

    def _happened(self, name: str, number: int = 1) -> None:
        if number:
            self._counts[name] += number
            self.incidents[name] += number

    def take(self) -> Counter[str]:
        """The counts so far; they start again at zero."""
        self._add_done()
        counts, self._counts = self._counts, Counter()
        return counts

    def take_runs(self) -> Counter[str]:
        """The runs and failures by queue so far; they start again at zero."""
        self._add_done()
        runs, self._runs = self._runs, Counter()
        return runs

    def _add_done(self) -> None:
        done, self._done = self._done, defaultdict(int)
        for queue, jobs in done.items():
            self._counts["processed"] += jobs
            self._runs[f"{queue}|p"] += jobs

    def put_back(self, counts: Counter[str]) -> None:
        """Keep counts that could not be written."""
        self._counts += counts


class CounterWriter:
    """Writes ``counters`` to Redis."""

    def __init__(self, store: Store, counters: Counters) -> None:
        self._store = store
        self._counters = counters

    async def write(self) -> None:
        """Write everything. Raises PyworkersError."""
        await self.write_counts()
        await self._write_executions()

    async def write_counts(self) -> None:
        """Write the counts of all jobs together, and by queue. Raises PyworkersError."""
        # Taken first: if they cannot be written, they are dropped, because a later minute would be wrong.
        taken = self._counters.take_runs()
        await self._write_totals()
        if taken:
            await self._store.arun(runs.add(self._store.keys, taken, time.time()))

    async def _write_totals(self) -> None:
        """Write the counts of all jobs together. Raises PyworkersError; the counts are kept then."""
        counts = self._counters.take()
        if counts:
            try:
                today = datetime.now(UTC).strftime("%Y-%m-%d")
                await self._store.arun(counters.add(self._store.keys, counts, today))
            except (PyworkersError, OSError, MemoryError):
                self._counters.put_back(counts)
                raise

    async def _write_executions(self) -> None:
        """Write the numbers by class. Raises PyworkersError; they are kept if Redis could not be reached."""
        executions = self._counters.executions
        unsent = executions.take()
        if unsent:
            try:
                await self._store.arun(counters.add_executions(self._store.keys, unsent, datetime.now(UTC)))
            except StoreError:
                # A part of them may have been written, and the rest would be refused again.
                executions.sent()
                raise
            executions.sent()
