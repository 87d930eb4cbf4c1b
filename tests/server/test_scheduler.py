"""The scheduler against real servers: on time, each job once, and several of them without work in vain."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any, TypeVar

import pytest

from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol import envelope
from pyworkers.server import scheduler as scheduler_module
from pyworkers.server.health import ServerHealth
from pyworkers.server.scheduler import PORTION, Scheduler
from pyworkers.store import sets
from pyworkers.store.calls import Operation, Request, arun
from pyworkers.store.sets import Promoted
from pyworkers.store.store import Store
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.replies import as_list
from tests.helpers.support import PATIENCE_S, async_wait_for, by_load, stretched

T = TypeVar("T")


class Observed(Store):
    """A store whose Redis can be away, and that counts."""

    away = False
    looks = handed_out = moved = 0

    async def arun(self, operation: Operation[T]) -> T:
        assert isinstance(operation, Request)
        if operation.commands[0].parts[0] == "ZRANGE":
            self.looks += 1
            if self.away:
                raise RedisUnavailableError("away")
        found = await super().arun(operation)
        if isinstance(found, Promoted):
            self.handed_out += len(found.due)
            self.moved += found.moved
        return found


class Bench(RedisBench):
    """The schedulers of several masters, each with its own connection."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.stores: list[Observed] = []
        self.health = ServerHealth(time.monotonic, random.Random())

    def scheduler(self, poll_interval_s: float = 60.0, drain_goretry: bool = False) -> Scheduler:
        store = Observed(self.connection(), self.keys)
        name = f"host:{len(self.stores)}:x"
        self.stores.append(store)
        return Scheduler(store, lambda: name, self.health, poll_interval_s, drain_goretry)

    async def put(self, count: int, at: float, zset: str = "schedule", queue: str = "q") -> None:
        """Jobs that say when they are due."""
        for begin in range(0, count, 1000):
            jobs = {
                envelope.encode({"queue": queue, "class": "C", "args": [number], "due": at}): at
                for number in range(begin, min(begin + 1000, count))
            }
            await self.redis.zadd(getattr(self.keys, zset), jobs)

    async def arrived(
        self, count: int, queue: str = "q", timeout: float = PATIENCE_S
    ) -> list[dict[str, Any]]:
        """So many jobs of a queue, in the order of their arrival."""

        async def all_there() -> bool:
            return await self.redis.llen(self.keys.queue(queue)) >= count

        await async_wait_for(all_there, timeout, message=f"{count} jobs in {queue}")
        return [envelope.decode(raw) for raw in await self.waiting(queue)]


bench = bench_fixture(Bench)


def lateness(jobs: list[dict[str, float]]) -> list[float]:
    return sorted(job["enqueued_at"] - job["due"] for job in jobs)


async def test_a_score_that_was_seen_is_awaited_to_the_millisecond(bench: Bench) -> None:
    async def most_are_on_time() -> bool:
        queue = f"q{len(bench.stores)}"
        due = [time.time() + 0.3 + 0.05 * number for number in range(10)]
        for at in due:
            await bench.put(1, at, queue=queue)
        bench.start(bench.scheduler().run())
        late = lateness(await bench.arrived(10, queue))
        assert late[0] >= 0
        assert bench.stores[-1].looks < 40
        return late[5] < by_load(0.05)  # usually 2 ms; the later ones, too

    # In the first round, unless the machine stalls.
    await async_wait_for(most_are_on_time)


async def test_what_a_producer_puts_in_front_starts_at_its_time(bench: Bench) -> None:
    await bench.put(1, time.time() + 1000)
    scheduler = bench.scheduler()
    bench.start(scheduler.run())
    bench.follow(scheduler)
    await async_wait_for(lambda: bench.stores[0].looks >= 2)
    for number in range(10):
        await bench.put(1, time.time() + 0.3, queue="sooner")
        await bench.arrived(number + 1, "sooner")
    late = lateness(await bench.arrived(10, "sooner"))
    assert late[0] >= 0
    # One after the other, so that a stall delays one or two.
    assert late[5] < by_load(0.05)


async def test_a_job_that_this_master_put_away_needs_no_poll(bench: Bench) -> None:
    scheduler = bench.scheduler()
    bench.start(scheduler.run())
    await async_wait_for(lambda: bench.stores[0].looks >= 2)
    at = time.time() + 0.3
    await bench.put(1, at, "retry")
    scheduler.expect(at)
    assert lateness(await bench.arrived(1))[0] < stretched(0.5)


async def test_all_sets_are_drained_in_batches_and_the_earliest_job_is_first(bench: Bench) -> None:
    long_ago = time.time() - 100
    for number in range(3):
        await bench.put(PORTION, long_ago + number, queue="q")
    await bench.put(PORTION + 1, long_ago, "retry", queue="r")
    await bench.put(1, long_ago, "goretry", queue="g")
    assert await bench.scheduler(drain_goretry=True).move_due() == float("inf")
    assert [job["due"] for job in await bench.arrived(3 * PORTION)] == [
        long_ago + number for number in range(3) for _ in range(PORTION)
    ]
    assert len(await bench.arrived(PORTION + 1, "r")) == PORTION + 1
    assert len(await bench.arrived(1, "g")) == 1
    assert await bench.redis.exists(bench.keys.schedule, bench.keys.retry, bench.keys.goretry) == 0


async def test_eight_masters_move_each_job_once_and_hardly_read_one_twice(bench: Bench) -> None:
    count = 20 * PORTION
    # All of them sleep until the same moment.
    await bench.put(count, time.time() + 2)
    for _ in range(8):
        bench.start(bench.scheduler().run())
    jobs = await bench.arrived(count)
    assert sorted(job["args"][0] for job in jobs) == list(range(count))
    assert sum(store.moved for store in bench.stores) == count
    # Without turns it is 8 x 4,000. A turn may change hands when the machine stalls for a second.
    assert sum(store.handed_out for store in bench.stores) <= count + 3 * PORTION
    assert await bench.redis.zcard(bench.keys.schedule) == 0


async def test_sidekiqs_pollers_and_ours_share_the_sets(bench: Bench) -> None:
    async def poll_as_sidekiq(bench: Bench, done: asyncio.Event) -> int:
        """What Sidekiq's scheduled.rb does: one member at a time; the one whose ZREM takes it pushes it."""
        taken = 0
        while not done.is_set():
            found = await bench.redis.zrangebyscore(bench.keys.schedule, "-inf", time.time(), 0, 1)
            for member in as_list(found):
                if await bench.redis.zrem(bench.keys.schedule, member):
                    taken += 1
                    await bench.redis.lpush(bench.keys.queue("q"), member)
        return taken

    count, done = 10 * PORTION, asyncio.Event()
    pollers = [asyncio.create_task(poll_as_sidekiq(bench, done)) for _ in range(2)]
    await bench.put(count, time.time() + 0.5)
    bench.start(bench.scheduler().run())
    jobs = await bench.arrived(count)
    done.set()
    taken = sum(await asyncio.gather(*pollers))
    assert sorted(job["args"][0] for job in jobs) == list(range(count))
    assert await bench.redis.llen(bench.keys.queue("q")) == count
    assert taken + bench.stores[0].moved == count
    assert taken > 0 and bench.stores[0].moved > 0


async def test_a_master_that_dies_in_its_turn_is_replaced(bench: Bench) -> None:
    await bench.put(1, time.time() - 1)
    zset = bench.keys.schedule
    promotion = sets.promote(bench.keys, zset, [], time.time(), "dead", PORTION)
    dead = await arun(bench.redis, promotion)
    assert len(dead.due) == 1
    bench.start(bench.scheduler().run())
    await bench.arrived(1, timeout=stretched(10))


async def test_a_redis_that_is_away_is_asked_again_until_it_is_back(bench: Bench) -> None:
    bench.start(bench.scheduler().run())
    await async_wait_for(lambda: bench.stores[0].looks >= 2)
    bench.stores[0].away = True
    await bench.put(1, time.time() + 0.2)
    bench.start(bench.scheduler(poll_interval_s=0.1).run())
    bench.stores[1].away = True
    await async_wait_for(lambda: bench.health.is_down)
    for store in bench.stores:
        store.away = False
    await bench.arrived(1)
    await async_wait_for(lambda: not bench.health.is_down)


async def test_a_set_that_is_none_does_not_stop_the_others(bench: Bench) -> None:
    await bench.redis.set(bench.keys.retry, "no set")
    await bench.put(1, time.time() - 1)
    scheduler = bench.scheduler()
    assert await scheduler.move_due() > time.time() + 40
    await bench.arrived(1)
    assert not bench.health.is_down
    # It is no reason to look again at once, and none to stop looking.
    await bench.put(1, time.time() + 50)
    assert await scheduler.move_due() > time.time() + 40
    await bench.redis.delete(bench.keys.retry)
    await bench.put(1, time.time() - 1, "retry", "r")
    await scheduler.move_due()
    await bench.arrived(1, "r")


async def test_other_work_gets_its_turn_between_portions(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "PORTION", 50)

    await bench.put(5000, time.time() - 1)
    drained = asyncio.create_task(bench.scheduler().move_due())
    turns = 0
    while not drained.done():
        await bench.redis.ping()
        turns += 1
    assert turns >= 50
