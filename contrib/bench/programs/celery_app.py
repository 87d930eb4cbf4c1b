"""The application of Celery. ``BENCH_CELERY=late`` acknowledges after the job instead of before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime

from celery import Celery

from contrib.bench.programs import work

LATE = os.environ.get("BENCH_CELERY") == "late"

app = Celery("bench", broker=work.URL)
app.conf.update(
    task_default_queue=work.QUEUE,
    task_ignore_result=True,
    task_acks_late=LATE,
    task_reject_on_worker_lost=LATE,
    # Late: 4 for each process, the default, unacknowledged at a time. Early: more cost nothing.
    worker_prefetch_multiplier=4 if LATE else 64,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
)


@app.task(name="bench")
def bench(kind: str, value: work.Value) -> None:
    work.run(kind, value)


async def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    with app.producer_pool.acquire(block=True) as producer:
        for value in values:
            bench.apply_async((kind, value), producer=producer)


async def later(kind: str, value: work.Value, at: float) -> None:
    bench.apply_async((kind, value), eta=datetime.fromtimestamp(at, UTC))
