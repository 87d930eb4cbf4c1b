"""The application of RQ."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from redis import Redis
from rq import Queue

from contrib.bench.programs import work

BULK = 1000

queue = Queue(work.QUEUE, connection=Redis(port=work.PORT))


def bench(kind: str, value: work.Value) -> None:
    work.run(kind, value)


async def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    if bulk:
        for first in range(0, len(values), BULK):
            some = values[first : first + BULK]
            queue.enqueue_many([Queue.prepare_data(bench, (kind, value), result_ttl=0) for value in some])
    else:
        for value in values:
            queue.enqueue(bench, args=(kind, value), result_ttl=0)


async def later(kind: str, value: work.Value, at: float) -> None:
    queue.enqueue_at(datetime.fromtimestamp(at, UTC), bench, args=(kind, value), result_ttl=0)
