"""The application of pyworkers. ``BENCH_MODE`` is "async" or "thread" for jobs that share two processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from contrib.bench.programs import work
from pyworkers import Worker

BULK = 1000
MODE = os.environ.get("BENCH_MODE", "process")
SHARED: dict[str, Any] = {} if MODE == "process" else {"mode": MODE, "processes": 2}

worker = Worker(work.URL)
declare: Any = worker.job(queue=work.QUEUE, concurrency=work.WORKERS, **SHARED)

if MODE == "async":

    @declare
    async def bench(kind: str, value: work.Value) -> None:
        await work.run_async(kind, value)

else:

    @declare
    def bench(kind: str, value: work.Value) -> None:
        work.run(kind, value)


def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    if bulk:
        for first in range(0, len(values), BULK):
            bench.enqueue_bulk([(kind, value) for value in values[first : first + BULK]])
    else:
        for value in values:
            bench.enqueue(kind, value)


def batch(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    with worker.batch("bench"):
        push(kind, values, bulk)


def later(kind: str, value: work.Value, at: float) -> None:
    bench.enqueue_at(datetime.fromtimestamp(at, UTC), kind, value)
