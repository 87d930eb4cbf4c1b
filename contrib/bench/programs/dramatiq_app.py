"""The application of Dramatiq."""

from __future__ import annotations

import time
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from contrib.bench.programs import work

broker = RedisBroker(url=work.URL)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name=work.QUEUE)
def bench(kind: str, value: work.Value) -> None:
    work.run(kind, value)


async def push(kind: str, values: Sequence[work.Value], bulk: bool) -> None:
    for value in values:
        bench.send(kind, value)


async def later(kind: str, value: work.Value, at: float) -> None:
    bench.send_with_options(args=(kind, value), delay=max(0, round((at - time.time()) * 1000)))
