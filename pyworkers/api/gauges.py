"""Gauges: how many jobs ran, of how many that can, and how long queues let jobs wait, over the last hours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.metrics import Window, begins_of, by_begin
from pyworkers.api.schemas import NUMBER, by_name
from pyworkers.api.target import Where, admin_of
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.heartbeat import clock
from pyworkers.store.measures import gauges
from pyworkers.text import valid


@dataclass(frozen=True, slots=True)
class Gauges:
    """The gauges of a part of the last hours, which begins at ``at`` (epoch seconds).

    A minute has the numbers at its begin; a longer part has the mean of ``busy``, and the highest of the
    others. Numbers are None, and no queue has a latency, if no server of pyworkers ran.
    """

    at: float
    busy: float | None = None
    """The jobs that ran on all servers."""
    concurrency: int | None = None
    """The jobs that could run at a time."""
    latencies_s: Mapping[str, float] = field(default_factory=dict)
    """The seconds that the next job of a queue had been waiting: of at most 50 queues, the longest first."""
    left_out: int = 0
    """How many more queues had jobs that waited, for a shorter time or an unknown one."""

    @property
    def queue(self) -> str:
        """The queue with the longest wait; empty if no job waited."""
        return next(iter(self.latencies_s), "")

    def latency_s(self, queue: str) -> float | None:
        """The seconds that the next job of a queue had been waiting; None if unknown."""
        if queue in self.latencies_s:
            return self.latencies_s[queue]
        return None if self.busy is None or self.left_out else 0.0

    @classmethod
    def fetch(
        cls, window: Window | str = Window.QUARTER, where: Where = None, *, namespace: str | None = None
    ) -> list[Gauges]:
        """The parts of the last 15 minutes, or of another ``Window``, the first one first.

        Raises ValueError for an unknown window, and ConfigError, RedisUnavailableError and StoreError.
        """
        admin = admin_of(where, namespace)
        return admin.run(read_gauges(admin.keys, Window(window)))

    def as_dict(self) -> dict[str, Any]:
        """The part for JSON."""
        return GAUGES.as_dict(self)


def _latencies(part: Gauges, _now: float) -> dict[str, float]:
    return {valid(queue): wait for queue, wait in part.latencies_s.items()}


GAUGES: Table[Gauges] = Table(
    "Gauges",
    Column("at", Kind.MOMENT, "Begin"),
    Column(
        "busy", Kind.NUMBER, "Busy", nullable=True, about="The jobs that ran; null if no server noted it."
    ),
    Column("concurrency", Kind.COUNT, "Of", nullable=True, about="The jobs that could run at a time."),
    Column(
        "latencies_s",
        Kind.PARTS,
        value=_latencies,
        schema=by_name(NUMBER),
        about="By queue, the longest first.",
    ),
    Column("left_out", Kind.COUNT, about="How many more queues had waiting jobs."),
)


def read_gauges(keys: Keys, window: Window) -> Steps[list[Gauges]]:
    """Read what ``Gauges.fetch`` returns."""
    begins = begins_of((yield from clock()), window)
    length_s = begins[1] - begins[0]
    size = gauges.MINUTE if length_s == 60 else gauges.TEN_MINUTES
    entries = yield from gauges.read(keys, begins[0], size)
    grouped = groupby(entries, key=lambda one: one.at // length_s * length_s)
    found = {at: gauges.merged(at, list(some)) for at, some in grouped}
    return [_gauges(found[at]) if at in found else Gauges(at) for at in begins]


def summed_gauges(found: Iterable[Sequence[Gauges]]) -> list[Gauges]:
    """The parts of several Redis servers as one. Of a queue that several have, the longest wait counts."""
    return [_sum(parts) for parts in by_begin(found)]


def _sum(parts: Sequence[Gauges]) -> Gauges:
    busy = [part.busy for part in parts if part.busy is not None]
    concurrency = [part.concurrency for part in parts if part.concurrency is not None]
    waits = sorted(
        ((wait, queue) for part in parts for queue, wait in part.latencies_s.items()), reverse=True
    )
    latencies: dict[str, float] = {}
    for wait, queue in waits:
        latencies.setdefault(queue, wait)
    return Gauges(
        parts[0].at,
        busy=sum(busy) if busy else None,
        concurrency=sum(concurrency) if concurrency else None,
        latencies_s=latencies,
        left_out=sum(part.left_out for part in parts),
    )


def _gauges(entry: gauges.GaugeEntry) -> Gauges:
    return Gauges(entry.at, entry.busy, entry.concurrency, entry.latencies_s, entry.left_out)
