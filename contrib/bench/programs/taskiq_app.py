"""The application of taskiq. ``BENCH_TASKIQ=stream`` uses Redis streams instead of lists."""

from __future__ import annotations

import os
from collections.abc import Sequence

from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from contrib.bench.programs import work

if os.environ.get("BENCH_TASKIQ") == "stream":
    # From the start of the stream: what was enqueued before the first worker came is executed, too.
    broker = RedisStreamBroker(work.URL, queue_name=work.QUEUE, consumer_id="0")
else:
    broker = ListQueueBroker(work.URL, queue_name=work.QUEUE)
broker = broker.with_serializer(ORJSONSerializer())

_started = False


@broker.task(task_name="bench")
async def bench(kind: str, value: work.Value) -> None:
    await work.run_async(kind, value)


async def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    global _started
    if not _started:
        await broker.startup()
        _started = True
    for value in values:
        await bench.kiq(kind, value)
