"""A drain ends only when no job of its queues is left, also if jobs move while it reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import redis

from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.server.draining import Draining
from pyworkers.store.admin import Admin
from tests.helpers.records import raw_job

OTHERS = 40
DEAD = "our:2:bbbbbbbbbbbb"


def left(where: RedisConfig, keys: Keys, between: Callable[[int], None]) -> bool:
    """Whether a drain of the queue ``q`` finds a job; ``between`` is called with the number of each read."""
    admin, reads = Admin(where), iter(range(100))

    async def arun(work: Any) -> Any:
        found = admin.run(work)
        between(next(reads))
        return found

    shard: Any = SimpleNamespace(
        store=SimpleNamespace(arun=arun, keys=keys),
        plan=SimpleNamespace(queues=["q"], groups={}),
        identity="our:1:aaaaaaaaaaaa",
        services=SimpleNamespace(scheduler=SimpleNamespace(zsets=[keys.schedule])),
    )
    workload: Any = SimpleNamespace(health_of=lambda _name: None, shards={"default": shard})
    drain = Draining(60.0, workload, lambda: None, lambda *_: None)
    coroutine = drain._any_left()
    try:
        coroutine.send(None)
    except StopIteration as end:
        return bool(end.value)
    raise AssertionError("it waits")


@pytest.mark.parametrize(
    ("what", "gap"),
    [
        *product(["it becomes due", "others become due"], range(3)),
        *product(["it is recovered"], range(6)),
    ],
)
def test_a_job_that_moves_during_the_reads_is_left(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis, what: str, gap: int
) -> None:
    soon = time.time() + 5
    mine = raw_job("mine", queue="q")
    db.zadd(keys.schedule, {raw_job(f"j{n}", queue="other"): soon + n / 1000 for n in range(OTHERS)})
    held = keys.inprogress("q", DEAD)
    if what == "it is recovered":
        db.hset(keys.owners, DEAD, '["q"]')
        db.lpush(held, mine)
    else:
        # In none of the first pages, from both ends.
        db.zadd(keys.schedule, {mine: soon + 0.0255})

    moved = []

    def between(number: int) -> None:
        if number != gap:
            return
        moved.append(number)
        if what == "others become due":
            db.zremrangebyrank(keys.schedule, 0, OTHERS // 2)
        elif db.zrem(keys.schedule, mine) or db.delete(held):
            db.lpush(keys.queue("q"), mine)

    assert left(RedisConfig(redis_url, namespace), keys, between)
    assert moved, "there were fewer reads"
    assert not left(RedisConfig(redis_url, namespace), Keys(f"{namespace}empty:"), lambda _: None)
