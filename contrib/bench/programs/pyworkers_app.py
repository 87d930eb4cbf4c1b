"""The application of pyworkers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from contrib.bench.programs import work
from pyworkers import Worker

BULK = 1000

worker = Worker(work.URL)


@worker.job(queue=work.QUEUE, concurrency=work.WORKERS)
def bench(kind: str, value: work.Value) -> None:
    work.run(kind, value)


async def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    if bulk:
        for first in range(0, len(values), BULK):
            bench.enqueue_bulk([(kind, value) for value in values[first : first + BULK]])
    else:
        for value in values:
            bench.enqueue(kind, value)


async def later(kind: str, value: work.Value, at: float) -> None:
    bench.enqueue_at(datetime.fromtimestamp(at, UTC), kind, value)
