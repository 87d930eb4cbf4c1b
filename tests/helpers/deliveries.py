"""Jobs as the master has them. Used by the tests alone, in the process of the test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from pyworkers.protocol.effects import Effect
from pyworkers.protocol.outcome import Report
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.outbox import UNTAKEN, Outbox

_NUMBERS = itertools.count(1)


def delivery(raw: bytes, queue: str = "q") -> Delivery:
    """A job that was fetched."""
    return Delivery(next(_NUMBERS), queue, raw)


class FakeOutbox(Outbox):
    """Passes each report on to ``settle``, and keeps the notes of jobs.

    ``room`` is called whenever there may be room for another job.
    """

    def __init__(
        self, settle: Callable[[Delivery, Report], None], room: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self._pass_on = settle
        self.changed = _Bell(room)
        self.notes: list[tuple[bytes, tuple[Effect, ...]]] = []

    def settle(self, job: Delivery, report: Report) -> None:
        self._pass_on(job, report)

    def give_back(self, jobs: Sequence[Delivery]) -> None:
        for job in reversed(jobs):
            self._pass_on(job, UNTAKEN)

    def note(self, job: Delivery, noted: Sequence[Effect]) -> None:
        self.notes.append((job.raw, tuple(noted)))


class _Bell(asyncio.Event):
    def __init__(self, rung: Callable[[], None]) -> None:
        super().__init__()
        self._rung = rung

    def set(self) -> None:
        super().set()
        self._rung()


def unmarked(_job: Delivery, report: Report) -> Report:
    """The step of jobs that have no mark."""
    return report
