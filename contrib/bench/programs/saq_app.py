"""The application of SAQ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from saq import Queue

from contrib.bench.programs import work

PROCESSES = 2
# Results are not kept. With the usual ten seconds, jobs that had to wait for a CPU were run twice.
OPTIONS = {"ttl": -1, "timeout": 120}

queue = Queue.from_url(work.URL, name=work.QUEUE)


async def bench(_context: dict[str, Any], *, kind: str, value: work.Value) -> None:
    await work.run_async(kind, value)


settings = {"queue": queue, "functions": [bench], "concurrency": max(1, work.WORKERS // PROCESSES)}


async def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    for value in values:
        await queue.enqueue("bench", kind=kind, value=value, **OPTIONS)


async def later(kind: str, value: work.Value, at: float) -> None:
    await queue.enqueue("bench", kind=kind, value=value, scheduled=math.ceil(at), **OPTIONS)
