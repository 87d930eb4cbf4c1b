"""Missing: the jobs that a worker took without a claim, and the workers that take none although there is one.

Runs in the master's event loop, at the looks of the table of jobs, never for each job. It settles nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from pyworkers.ipc.page import ATTENTION
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.worker import Limits, Worker

# For how long a job is neither in the socket nor claimed until it is lost, if a worker has died. Another
# worker may have taken it, and wait for a processor before it claims it.
_MISSING_S = 0.5


class Missing:
    """What the last looks have found, and since when."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._since: dict[int, float] = {}
        self._idle: dict[Worker, tuple[tuple[int, int], float]] = {}
        self.died_at = 0.0
        """The time of the last end of a worker, in seconds of the monotonic clock."""
        self.reason = ""
        """The reason of that end."""

    @property
    def any(self) -> bool:
        """True if a job is missing."""
        return bool(self._since)

    def died(self, reason: str) -> None:
        """Note that a worker has ended: it may have taken a job without a claim."""
        self.died_at, self.reason = time.monotonic(), reason

    def forget(self) -> None:
        """Forget the findings: every job has a worker."""
        self._since.clear()
        self._idle.clear()

    def overdue(self, missing: list[Delivery]) -> list[Delivery]:
        """Those of the jobs taken without a claim that are lost, because they remain so.

        A worker claims a job within microseconds. If one has died since, it took the job with it; else a
        worker may be suspended between the two steps, and is killed for that: see ``end_stalled``.
        """
        now = time.monotonic()
        since = {d.number: self._since.get(d.number, now) for d in missing}
        lost = [d for d in missing if now - since[d.number] >= self._patience_s(d)]
        for delivery in lost:
            del since[delivery.number]
        self._since = since
        return lost

    def _patience_s(self, delivery: Delivery) -> float:
        return _MISSING_S if self.died_at >= delivery.handed_at else 2 * self._limits.stalled_s

    def end_stalled(self, serving: Iterable[Worker], *, ask: bool = False) -> None:
        """Kill the idle workers that for long have neither taken a job nor answered, while there was one.

        ``ask``: request an answer. One that waits in vain gives it, because it is not suspended.
        """
        now = self._loop.time()
        idle = {worker for worker in serving if len(worker.unfinished()) < worker.slots}
        before, self._idle = self._idle, {}
        for worker in idle:
            signs = worker.jobs_done, worker.answers
            seen, since = before.get(worker, (signs, now))
            if seen != signs:
                since = now
            self._idle[worker] = signs, since
            if now - since > self._limits.stalled_s:
                worker.end_stalled()
        if ask:
            for worker in self._idle:
                worker.signal(ATTENTION)
