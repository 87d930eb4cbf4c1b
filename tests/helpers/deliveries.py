"""Jobs as the master has them. Used by the tests alone, in the process of the test."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from pyworkers.protocol.effects import Effect
from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.outbox import Outbox

_NUMBERS = itertools.count(1)


def delivery(raw: bytes, queue: str = "q") -> Delivery:
    """A job that was fetched."""
    return Delivery(next(_NUMBERS), queue, raw)


class FakeOutbox(Outbox):
    """Keeps the notes of jobs; ``room`` is called whenever there may be room for another one."""

    def __init__(self, room: Callable[[], None]) -> None:
        super().__init__(lambda _, report: report)
        self.changed = _Bell(room)
        self.notes: list[tuple[bytes, tuple[Effect, ...]]] = []

    def note(self, job: Delivery, noted: Sequence[Effect]) -> None:
        self.notes.append((job.raw, tuple(noted)))


class _Bell(asyncio.Event):
    def __init__(self, rung: Callable[[], None]) -> None:
        super().__init__()
        self._rung = rung

    def set(self) -> None:
        super().set()
        self._rung()
