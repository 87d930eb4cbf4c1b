"""Requests: asks jobs of one group to end, because they are cancelled or because the server stops.

Runs in the master's event loop. A job that no worker has taken ends at once; a running one gets a request.
"""

from __future__ import annotations

import asyncio

from pyworkers.server.cancellations import Cancellations
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.jobs import Jobs
from pyworkers.server.pool.settling import KILL_GRACE_S
from pyworkers.server.pool.worker import Crew

# A worker has taken the job, and says so within microseconds; but it may be suspended.
_CLAIMED_S, _LATEST_S = 0.01, 0.5


class Requests:
    """Ends jobs in the socket, and asks those that workers have taken."""

    def __init__(self, crew: Crew, jobs: Jobs, cancellations: Cancellations) -> None:
        self._crew = crew
        self._jobs = jobs
        self._cancellations = cancellations

    def cancel_noted(self) -> None:
        """End the jobs that are cancelled. A running one gets a request, and is killed a little later."""
        jobs = []
        for job in self._jobs.jobs():
            if not job.cancelled and (jid := self._cancellations.jid_of(job.raw)):
                job.cancel(jid)
                jobs.append(job)
        if jobs:
            self._cancel(jobs)

    def interrupt(self) -> None:
        """Ask all jobs to end, because they are given back soon; those that wait do not begin."""
        self._jobs.give_back()
        self._ask([job for job in self._jobs.jobs() if not job.cancelled], interrupt=True)

    def _cancel(self, jobs: list[Delivery]) -> None:
        # Once is enough: what a worker has taken never stands in the socket again if it is cancelled.
        for job in self._jobs.take_back(jobs.__contains__):
            self._jobs.cancelled(job)
        self._ask(jobs, interrupt=False)

    def _ask(self, jobs: list[Delivery], interrupt: bool, again_s: float = _CLAIMED_S) -> None:
        """Ask the workers of these jobs; later again for those that none has claimed yet."""
        if unclaimed := self._request(jobs, interrupt):
            later_s = min(2 * again_s, _LATEST_S)
            asyncio.get_running_loop().call_later(again_s, self._ask, unclaimed, interrupt, later_s)

    def _request(self, jobs: list[Delivery], interrupt: bool) -> list[Delivery]:
        """Ask the workers of these jobs; returns the jobs that none has claimed yet."""
        loop, claims = asyncio.get_running_loop(), self._crew.claims()
        unclaimed = []
        for job in self._jobs.unfinished([job.number for job in jobs]):
            worker = claims.get(job.number)
            if worker is None:
                unclaimed.append(job)
                continue
            worker.request(job.number, interrupt)
            if not interrupt:
                fault = "was killed: its job was cancelled"
                loop.call_later(KILL_GRACE_S, worker.end_job, job, fault)
        return unclaimed
