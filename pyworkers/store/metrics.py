"""Metrics: the execution metrics behind Sidekiq's Metrics page, as 7.x and as 8.x read them.

Written by the master with its heartbeat. Both generations read keys of their own, all with a TTL
(metrics/tracking.rb of 7.3.9 and 8.1.7; protocol.md, Counters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from redis.asyncio import Redis

from pyworkers.protocol.histogram import Tally
from pyworkers.protocol.keys import Keys
from pyworkers.store.transport.connections import errors_translated

SHORT_TTL_S = 8 * 3600
LONG_TTL_S = 72 * 3600

Command = tuple[str | int, ...]


class MetricsStore:
    """Adds to the metrics of one namespace."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    async def write(self, tallies: Mapping[str, Tally], now: datetime) -> None:
        """Add the tallies of each class to the minute of ``now``, which is in UTC. Raises PyworkersError."""
        with errors_translated():
            async with self._redis.pipeline(transaction=False) as pipe:
                for command in commands(self._keys, tallies, now):
                    pipe.execute_command(*command)
                await pipe.execute()


def commands(keys: Keys, tallies: Mapping[str, Tally], now: datetime) -> Iterator[Command]:
    """The Redis commands that add these tallies."""
    hashes = {keys.executions(moment): ttl_s for moment, ttl_s in moments(now).items()}
    for name, tally in tallies.items():
        # Readers split the fields there.
        job_class = name.replace("|", "_")
        for key in hashes:
            yield "HINCRBY", key, f"{job_class}|p", tally.processed
            if tally.failed:
                yield "HINCRBY", key, f"{job_class}|f", tally.failed
            if any(tally.buckets):
                yield "HINCRBY", key, f"{job_class}|ms", tally.total_ms
        if any(tally.buckets):
            for moment in histogram_moments(job_class, now):
                yield _add_to_histogram(keys.histogram(moment), tally.buckets)
                yield "EXPIRE", keys.histogram(moment), SHORT_TTL_S
    for key, ttl_s in hashes.items():
        yield "EXPIRE", key, ttl_s


def moments(now: datetime) -> dict[str, int]:
    """The times by which hashes are named, each with its TTL: 7.x's minute, 8.x's minute and ten minutes."""
    return {
        f"{now:%Y%m%d}|{now.hour}:{now.minute}": SHORT_TTL_S,
        f"{now:%y%m%d}|{now.hour}:{now.minute:02}": SHORT_TTL_S,
        f"{now:%y%m%d}|{now.hour}:{now.minute // 10}": LONG_TTL_S,
    }


def histogram_moments(job_class: str, now: datetime) -> tuple[str, str]:
    """The names of the histograms of 7.x and of 8.x."""
    return (
        f"{job_class}-{now:%d}-{now:%H}:{now.minute}",
        f"h|{job_class}-{now.day}-{now.hour}:{now.minute}",
    )


def _add_to_histogram(key: str, buckets: list[int]) -> Command:
    command: list[str | int] = ["BITFIELD", key, "OVERFLOW", "SAT"]
    for place, number in enumerate(buckets):
        if number:
            command += ["INCRBY", "u16", f"#{place}", number]
    return tuple(command)
