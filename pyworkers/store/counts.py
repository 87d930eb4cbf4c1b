"""Counts: the few numbers that the HTTP endpoint shows. Read by the master, in one round trip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from pyworkers.protocol.keys import Keys
from pyworkers.store.transport.connections import errors_translated


@dataclass(frozen=True, slots=True)
class Counts:
    """All servers' counters, and how many jobs wait; ``enqueued`` is by queue."""

    processed: int
    failed: int
    retries: int
    enqueued: Mapping[str, int]


async def read_counts(redis: Redis, keys: Keys, queues: Sequence[str]) -> Counts:
    """The numbers now. Raises RedisUnavailableError and StoreError."""
    with errors_translated():
        async with redis.pipeline(transaction=False) as pipe:
            pipe.execute_command("GET", keys.stat("processed"), read=_number)
            pipe.execute_command("GET", keys.stat("failed"), read=_number)
            pipe.zcard(keys.retry)
            for queue in queues:
                pipe.llen(keys.queue(queue))
            processed, failed, retries, *sizes = await pipe.execute()
    enqueued = dict(zip(queues, sizes, strict=True))
    return Counts(processed, failed, retries, enqueued)


def _number(stored: bytes | None) -> int:
    return int(stored or 0)
