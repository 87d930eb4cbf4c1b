"""Asks without Redis, for tests of the tables that hold jobs.

Used by the tests alone, in the process of the test.
"""

from __future__ import annotations

from pyworkers.protocol.effects import Effect, NoteStart, PassSlot
from pyworkers.protocol.limits import Ask
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.gates import Asks
from pyworkers.server.pool.jobs import JobTable


class FakeAsks(Asks):
    """Keeps jobs that ask until the test answers."""

    def __init__(self) -> None:
        self.kept: dict[Delivery, JobTable] = {}

    def add(self, job: Delivery, ask: Ask, jobs: JobTable) -> None:
        job.hold(self.frees(ask), self.starts(ask))
        self.kept[job] = jobs

    def drop(self, job: Delivery) -> None:
        self.kept.pop(job, None)

    def frees(self, ask: Ask) -> tuple[Effect, ...]:
        """What frees the slots that a job asks for."""
        return tuple(PassSlot(want.key, ask.holder) for want in ask.wants)

    def starts(self, ask: Ask) -> tuple[Effect, ...]:
        """What notes the start of a job."""
        return tuple(NoteStart(want.key, ask.holder, 60) for want in ask.wants if want.window_s)

    def grant(self) -> None:
        """Let the oldest job start."""
        job = next(iter(self.kept))
        job.grant()
        self.kept.pop(job).start(job)

    def put_off(self) -> None:
        """The oldest job is in schedule."""
        job = next(iter(self.kept))
        self.kept.pop(job).put_off(job)
