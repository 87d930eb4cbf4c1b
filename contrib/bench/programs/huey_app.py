"""The application of Huey."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from huey import RedisHuey

from contrib.bench.programs import work

# Results are off: no program reads them, and storing them would be one more command per job.
huey = RedisHuey(work.QUEUE, url=work.URL, results=False)


@huey.task(name="bench")
def bench(kind: str, value: work.Value) -> None:
    work.run(kind, value)


async def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    for value in values:
        bench(kind, value)


async def later(kind: str, value: work.Value, at: float) -> None:
    bench.schedule((kind, value), eta=datetime.fromtimestamp(at, UTC))
