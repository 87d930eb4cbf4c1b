"""Asks without Redis, for tests of the tables that hold jobs.

Used by the tests alone, in the process of the test.
"""

from __future__ import annotations

from pyworkers.protocol.effects import Effect, NoteStart, PassSlot
from pyworkers.protocol.limits import Ask
from pyworkers.server.pool.delivery import Delivery, Events
from pyworkers.server.pool.gates import START, Asks, Decided, Settle
from pyworkers.server.pool.settling import PutOff


class FakeAsks(Asks):
    """Keeps jobs that ask until the test answers."""

    def __init__(self) -> None:
        self.kept: dict[Delivery, Events] = {}

    def keep(self, job: Delivery, events: Events) -> None:
        assert job.ask is not None
        job.hold(self.frees(job.ask), self.starts(job.ask))
        self.kept[job] = events

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
        self.kept.pop(job).put_nowait(Decided(job, START))

    def put_off(self) -> None:
        """The oldest job is in schedule."""
        job = next(iter(self.kept))
        self.kept.pop(job).put_nowait(Decided(job, Settle(PutOff())))
