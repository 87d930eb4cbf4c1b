"""Counters: runs and failures in Redis, by day and by class, as Sidekiq counts them.

Run by the master, which adds to them with its heartbeat. The keys of the Metrics page are those that 7.x and
8.x read, all with a TTL (metrics/tracking.rb of 7.3.9 and 8.1.7; protocol.md, Counters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyworkers.protocol.flow.counted import COUNTERS
from pyworkers.protocol.histogram import Tally
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Command, Request, Steps, command, every
from pyworkers.store.measures.look import look, since
from pyworkers.store.transport.replies import seconds
from pyworkers.store.values import as_count

STATS_TTL_S = 5 * 365 * 86_400
SHORT_TTL_S = 8 * 3600
LONG_TTL_S = 72 * 3600
DURATIONS_TTL_S = 25 * 3600


@dataclass(frozen=True, slots=True)
class Counts:
    """The counters of all servers, and how many jobs wait; ``enqueued`` is by queue."""

    counted: Mapping[str, int]
    """By the names of counted.py."""
    retries: int
    enqueued: Mapping[str, int]
    scheduled: int = 0
    dead: int = 0
    latencies_s: Mapping[str, float] = field(default_factory=dict)
    """By queue, the seconds that the next job has been waiting by Redis' clock; missing if unknown."""


def read(keys: Keys, queues: Sequence[str]) -> Steps[Counts]:
    """Read the counters, and the sizes and latencies of these queues."""
    *numbers, retries, scheduled, dead, time = yield from every(
        [
            *(command("GET", keys.stat(name), read=as_count) for name in COUNTERS),
            command("ZCARD", keys.retry),
            command("ZCARD", keys.schedule),
            command("ZCARD", keys.dead),
            command("TIME", read=seconds),
        ]
    )
    counted = dict(zip(COUNTERS, numbers, strict=True))
    lists = [keys.queue(queue) for queue in queues]
    sizes = yield from look([(key, "length") for key in lists])
    stored = yield from look([(key, "since") for key in lists])
    enqueued = {queue: size or 0 for queue, size in zip(queues, sizes, strict=True)}
    waits = {queue: _wait(text, time) for queue, text in zip(queues, stored, strict=True)}
    latencies_s = {queue: wait for queue, wait in waits.items() if wait is not None}
    return Counts(counted, retries, enqueued, scheduled, dead, latencies_s)


def add(keys: Keys, counters: Mapping[str, int], day: str) -> Request[list[Any]]:
    """Add to ``stat:*``; ``day`` is ``YYYY-MM-DD`` in UTC."""
    commands: list[Command] = []
    for name, increment in counters.items():
        daily = keys.stat(name, day)
        commands += (
            command("INCRBY", keys.stat(name), increment),
            command("INCRBY", daily, increment),
            command("EXPIRE", daily, STATS_TTL_S),
        )
    return every(commands)


def add_executions(keys: Keys, tallies: Mapping[str, Tally], now: datetime) -> Request[list[Any]]:
    """Add the tallies of each class to the minute of ``now``, which is in UTC."""
    return every(list(_executions(keys, tallies, now)))


def _executions(keys: Keys, tallies: Mapping[str, Tally], now: datetime) -> Iterator[Command]:
    hashes = {keys.executions(moment): ttl_s for moment, ttl_s in moments(now).items()}
    for name, tally in tallies.items():
        # Readers split the names of the fields at ``|``.
        job_class = name.replace("|", "_")
        for key in hashes:
            yield _increment(key, f"{job_class}|p", tally.processed)
            if tally.failed:
                yield _increment(key, f"{job_class}|f", tally.failed)
            if any(tally.buckets):
                yield _increment(key, f"{job_class}|ms", tally.total_ms)
        if any(tally.buckets):
            for moment in histogram_moments(job_class, now):
                yield _add_to_histogram(keys.histogram(moment), "u16", tally.buckets)
                yield command("EXPIRE", keys.histogram(moment), SHORT_TTL_S)
            # Sidekiq keeps no durations for a day.
            durations = keys.durations(job_class, int(now.timestamp() // 3600))
            yield _add_to_histogram(durations, "u32", tally.buckets)
            yield command("EXPIRE", durations, DURATIONS_TTL_S)
    for key, ttl_s in hashes.items():
        yield command("EXPIRE", key, ttl_s)


def moments(now: datetime) -> dict[str, int]:
    """The times in the names of the hashes, each with its TTL: 7.x's minute, 8.x's minute and ten minutes."""
    return {
        f"{now:%Y%m%d}|{now.hour}:{now.minute}": SHORT_TTL_S,
        minute_of(now): SHORT_TTL_S,
        ten_minutes_of(now): LONG_TTL_S,
    }


def minute_of(now: datetime) -> str:
    """The minute in the name of 8.x's hash."""
    return f"{now:%y%m%d}|{now.hour}:{now.minute:02}"


def ten_minutes_of(now: datetime) -> str:
    """The ten minutes in the name of 8.x's hash."""
    return f"{now:%y%m%d}|{now.hour}:{now.minute // 10}"


def histogram_moments(job_class: str, now: datetime) -> tuple[str, str]:
    """The names of the histograms of 7.x and of 8.x."""
    return (
        f"{job_class}-{now:%d}-{now:%H}:{now.minute}",
        f"h|{job_class}-{now.day}-{now.hour}:{now.minute}",
    )


def _increment(key: str, field: str, number: int) -> Command:
    return command("HINCRBY", key, field, number)


def _add_to_histogram(key: str, kind: str, buckets: list[int]) -> Command:
    parts: list[str | int] = []
    for place, number in enumerate(buckets):
        if number:
            parts += ["INCRBY", kind, f"#{place}", number]
    return command("BITFIELD", key, "OVERFLOW", "SAT", *parts)


def _wait(stored: bytes | None, now: float) -> float | None:
    """The seconds since a stored time: 0 without one, for an empty queue; None if it is unknown."""
    if stored is None:
        return 0.0
    enqueued_at = since(stored)
    return None if enqueued_at is None else max(0.0, now - enqueued_at)
