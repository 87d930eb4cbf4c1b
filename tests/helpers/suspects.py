"""The marked jobs that are kept back, without Redis. Used by the tests alone, in the process of the test."""

from __future__ import annotations

from pyworkers.server.pool.delivery import Delivery, Events
from pyworkers.server.pool.gates import START, Decided, Decision, Suspects


class FakeSuspects(Suspects):
    """Keeps marked jobs back until the test decides on them."""

    def __init__(self) -> None:
        self.kept: dict[Delivery, Events] = {}

    def keep(self, job: Delivery, events: Events) -> None:
        self.kept[job] = events

    def drop(self, job: Delivery) -> None:
        self.kept.pop(job, None)

    def decide(self, decision: Decision) -> None:
        """Decide on the oldest job."""
        job = next(iter(self.kept))
        if decision is START:
            job.clear()
        self.kept.pop(job).put_nowait(Decided(job, decision))
