"""The marked jobs that are kept back, without Redis. Used by the tests alone, in the process of the test."""

from __future__ import annotations

from collections.abc import Callable

from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.gates import Suspects
from pyworkers.server.pool.jobs import JobTable


class FakeSuspects(Suspects):
    """Keeps marked jobs back until the test decides on them."""

    def __init__(self) -> None:
        self.kept: dict[Delivery, JobTable] = {}

    def add(self, job: Delivery, jobs: JobTable) -> None:
        self.kept[job] = jobs

    def drop(self, job: Delivery) -> None:
        self.kept.pop(job, None)

    def decide(self, decision: Callable[[JobTable, Delivery], None]) -> None:
        """Decide on the oldest job."""
        job = next(iter(self.kept))
        decision(self.kept.pop(job), job)
