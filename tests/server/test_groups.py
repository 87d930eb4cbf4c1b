"""The fetcher of several queues against a real server: their order, pauses and waits; jobs given back."""

from __future__ import annotations

import asyncio
import operator
from collections import Counter
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from pyworkers.protocol.limits import QueueLimit
from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Outcome, Report
from pyworkers.server.plan import Group
from pyworkers.store.jobs import InProgress, Taken
from tests.helpers.bench import bench_fixture
from tests.helpers.deliveries import delivery
from tests.helpers.support import async_wait_for
from tests.server import test_fetcher
from tests.server.test_fetcher import IDENTITY


class Bench(test_fetcher.Bench):
    """The fetcher of the queues a, b and c."""

    queues = MappingProxyType({"a": 1, "b": 1, "c": 1})

    async def push(self, queue: str, *jobs: bytes) -> None:
        await self.redis.lpush(self.keys.queue(queue), *jobs)

    def blocked(self) -> str:
        """The queues in which a blocking move waits."""
        return "".join(queue for queue, waiter in self.waiters.items() if waiter.blocked)

    def end(self, queue: str, raw: bytes, outcome: Outcome = DONE) -> None:
        """Settle a job that was delivered."""
        jobs = self.jobs.by_queue[queue]
        self.outbox.settle(delivery(jobs.pop(jobs.index(raw)), queue), Report(outcome))

    async def runs(self, free: int = 1) -> None:
        """Run the fetcher for this many idle workers, until it waits in all queues."""
        self.jobs.free = free
        self.start(self.fetcher.run())
        await async_wait_for(lambda: self.blocked() == "abc")


bench = bench_fixture(Bench)


class WeightedBench(Bench):
    """As ``Bench``, with weights."""

    queues = MappingProxyType({"a": 1, "b": 5, "c": 2})
    strict = False


weighted = bench_fixture(WeightedBench)


async def test_a_strict_group_empties_its_first_queue_first(bench: Bench) -> None:
    await bench.push("c", b"c1", b"c2")
    await bench.push("a", b"a1", b"a2")
    await bench.push("b", b"b1")
    bench.jobs.free = 0
    bench.start(bench.fetcher.run())
    for free, jobs in ((1, [b"a1"]), (3, [b"a2", b"b1", b"c1"])):
        bench.jobs.delivered.clear()
        bench.jobs.free = free
        bench.outbox.changed.set()
        await async_wait_for(partial(operator.eq, bench.jobs.delivered, jobs))
    assert bench.blocked() == ""
    assert await bench.waiting("c") == [b"c2"]


async def test_a_reload_changes_the_order(bench: Bench) -> None:
    for queue in "abc":
        await bench.push(queue, queue.encode())
    bench.fetcher.use(Group("g", {"c": 1, "a": 1, "b": 1}, True, 1, 1, "process"))
    bench.jobs.free = 2
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.jobs.delivered == [b"c", b"a"])


async def test_a_reload_removes_the_limits_of_a_queue_that_is_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = QueueLimit.of("100/s", None)
    assert slow is not None
    before, after = (
        Group("g", bench.queues, True, 1, 1, "process", limits=dict.fromkeys(limited, slow))
        for limited in ("abc", "c")
    )
    take = InProgress.take

    async def reloading(*args: Any) -> Taken:
        bench.fetcher.use(after)
        return await take(*args)

    monkeypatch.setattr(InProgress, "take", reloading)
    for queue in "abc":
        await bench.push(queue, queue.encode())
    bench.fetcher.use(before)
    bench.jobs.free = 4
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: sorted(bench.jobs.delivered) == [b"a", b"b", b"c"])


async def test_weights_are_the_chances_to_be_asked_first(weighted: WeightedBench) -> None:
    fetcher = weighted.fetcher
    orders = Counter("".join(source.queue for source in fetcher._ready()) for _ in range(8000))
    # Among those that remain, the chance of each to be the next is in proportion to its weight.
    expected = {
        "bca": 5 / 8 * 2 / 3, "bac": 5 / 8 * 1 / 3, "cba": 2 / 8 * 5 / 6,
        "cab": 2 / 8 * 1 / 6, "abc": 1 / 8 * 5 / 7, "acb": 1 / 8 * 2 / 7,
    }  # fmt: skip
    assert {order: orders[order] / 8000 for order in expected} == pytest.approx(expected, abs=0.02)


async def test_a_job_ends_the_wait_of_its_queue_and_the_others_wait_on_while_a_worker_is_idle(
    bench: Bench,
) -> None:
    await bench.runs(free=2)
    await bench.push("b", b"b1")
    await async_wait_for(lambda: bench.waiters["b"]._moves == 2)
    assert bench.jobs.by_queue == {"b": [b"b1"]}
    assert (bench.waiters["a"]._moves, bench.waiters["c"]._moves) == (1, 1)


async def test_no_queue_waits_while_no_worker_is_idle(bench: Bench) -> None:
    await bench.runs()
    await bench.push("b", b"b1")
    await async_wait_for(lambda: bench.jobs.delivered == [b"b1"] and bench.blocked() == "")
    await bench.push("a", b"a1")
    await bench.push("c", b"c1")
    bench.jobs.free = 1
    bench.outbox.settle(delivery(b"b1", "b"), Report(DONE))
    await async_wait_for(lambda: bench.jobs.delivered == [b"b1", b"a1"])
    assert await bench.waiting("c") == [b"c1"]
    assert await bench.redis.llen(bench.keys.inprogress("b", IDENTITY)) == 0


async def test_jobs_that_several_queues_bring_at_once_are_all_delivered(bench: Bench) -> None:
    await bench.runs()
    async with bench.redis.pipeline(transaction=True) as pipe:
        for queue in "abc":
            pipe.lpush(bench.keys.queue(queue), queue)
        await pipe.execute()
    await async_wait_for(lambda: sorted(bench.jobs.delivered) == [b"a", b"b", b"c"])
    await async_wait_for(lambda: bench.blocked() == "")
    for queue in "abc":
        assert await bench.redis.llen(bench.keys.inprogress(queue, IDENTITY)) == 1


async def test_a_paused_queue_is_passed_over(bench: Bench) -> None:
    await bench.runs(free=5)
    bench.fetcher.fetch("ac")
    await bench.fetcher.quiet()
    assert bench.blocked() == "ac"
    for queue in "bca":
        await bench.push(queue, queue.encode())
    await async_wait_for(lambda: bench.jobs.delivered == [b"c", b"a"])
    assert await bench.waiting("b") == [b"b"]
    bench.fetcher.fetch("abc")
    await async_wait_for(lambda: bench.jobs.delivered == [b"c", b"a", b"b"])


@pytest.mark.fault("R8")
async def test_a_queue_of_the_wrong_type_stops_alone_and_is_mended(bench: Bench) -> None:
    await bench.redis.set(bench.keys.queue("b"), "no list")
    bench.jobs.free = 5
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.health.troubles == {"fetcher b": ["WRONGTYPE"]})
    await async_wait_for(lambda: bench.blocked() == "ac")
    # Its job cannot go back now. The outcomes of the others are settled nevertheless.
    await bench.redis.lpush(bench.keys.inprogress("b", IDENTITY), b"b1")
    await bench.redis.lpush(bench.keys.inprogress("c", IDENTITY), b"c0")
    bench.outbox.settle(delivery(b"b1", "b"), Report(REQUEUE))
    bench.outbox.settle(delivery(b"c0", "c"), Report(DONE))
    await bench.push("c", b"c1")
    await async_wait_for(lambda: len(bench.outbox) == 1 and bench.jobs.delivered == [b"c1"])
    await bench.redis.delete(bench.keys.queue("b"))
    await async_wait_for(lambda: bench.jobs.delivered == [b"c1", b"b1"])
    await async_wait_for(lambda: bench.health.troubles == {} and not bench.outbox)


async def test_strays_of_each_queue_are_adopted_after_two_checks(bench: Bench) -> None:
    await bench.runs(free=9)
    bench.jobs.deliver("a", b"same")
    await bench.redis.lpush(bench.keys.inprogress("a", IDENTITY), b"same")
    for queue, stray in (("b", b"same"), ("c", b"c"), ("c", b"c")):
        await bench.redis.lpush(bench.keys.inprogress(queue, IDENTITY), stray)
    await bench.fetcher.adopt()
    # The moves that were under way must have their replies before the second check.
    await async_wait_for(lambda: bench.waiters["b"]._moves > 1 and bench.waiters["c"]._moves > 1)
    await bench.fetcher.adopt()
    assert bench.jobs.by_queue == {"a": [b"same"], "b": [b"same"], "c": [b"c", b"c"]}


async def test_everything_is_given_back_to_its_own_queue(bench: Bench) -> None:
    for queue in "abc":
        await bench.push(queue, queue.encode())
    bench.jobs.free = 3
    task = bench.start(bench.fetcher.run())
    await async_wait_for(lambda: len(bench.jobs.delivered) == 3)
    task.cancel()
    assert await bench.fetcher.give_back() == 3
    assert [await bench.waiting(queue) for queue in "abc"] == [[b"a"], [b"b"], [b"c"]]


@pytest.mark.fault("H5")
async def test_jobs_that_are_given_back_keep_their_order_and_are_not_taken_at_once(bench: Bench) -> None:
    await bench.push("a", b"1", b"2", b"3", b"4")
    bench.jobs.free = 3
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.jobs.delivered == [b"1", b"2", b"3"])
    bench.jobs.free = 0
    bench.outbox.give_back([delivery(b"2", "a"), delivery(b"3", "a")])
    await async_wait_for(lambda: not bench.outbox)
    assert await bench.waiting("a") == [b"2", b"3", b"4"]
    assert await bench.redis.lrange(bench.keys.inprogress("a", IDENTITY), 0, -1) == [b"1"]
    assert bench.outbox.given_back == frozenset()


@pytest.mark.fault("H5")
async def test_the_wait_of_a_queue_takes_no_job_that_is_given_back(bench: Bench) -> None:
    await bench.runs(free=2)
    held = bench.keys.inprogress("b", IDENTITY)
    await bench.redis.lpush(held, b"b1", b"b2")
    exchanges: list[tuple[list[str], int]] = []
    exchange = bench.fetcher._inprogress.exchange

    async def noted(link: Any, batch: Any, wanted: int, order: list[str], *rest: Any) -> object:
        exchanges.append((order, await bench.redis.llen(held)))
        return await exchange(link, batch, wanted, order, *rest)

    bench.fetcher._inprogress.exchange = noted  # type: ignore[assignment, method-assign]
    bench.outbox.give_back([delivery(b"b1", "b"), delivery(b"b2", "b")])
    # In the next exchange, for there are idle workers.
    await async_wait_for(lambda: bench.jobs.delivered == [b"b1", b"b2"])
    assert exchanges[:2] == [([], 2), (["b"], 0)]


async def test_a_flush_gives_jobs_back(bench: Bench) -> None:
    await bench.redis.lpush(bench.keys.inprogress("b", IDENTITY), b"b1", b"b2")
    await bench.redis.lpush(bench.keys.queue("b"), b"b3")
    bench.outbox.give_back([delivery(b"b1", "b"), delivery(b"b2", "b")])
    assert bench.outbox.given_back == {"b"}
    await asyncio.wait_for(bench.fetcher.flush(), 10)
    assert await bench.waiting("b") == [b"b1", b"b2", b"b3"]
    assert bench.outbox.given_back == frozenset()


def large(number: int) -> bytes:
    return b'{"jid":"%024d"}' % number + b"x" * 50_000


async def test_large_jobs_are_settled_by_less_than_their_bytes(bench: Bench) -> None:
    jobs = [large(n) for n in range(6)]
    await bench.push("a", *jobs)
    await bench.push("b", b"small")
    bench.jobs.free = 7
    sent = _sizes(bench)
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: len(bench.jobs.delivered) == 7)
    for raw in (*jobs[3:], b"small", *jobs[:3]):
        bench.end("b" if raw == b"small" else "a", raw, Outcome(Fate.RETRY, at=len(bench.outbox)))
    await async_wait_for(lambda: not bench.outbox)
    assert await bench.redis.zcard(bench.keys.retry) == 7
    assert max(sent) < 6 * 5000
    assert bench.fetcher._large._order == {}


async def test_two_large_jobs_that_differ_in_one_byte_are_settled_by_all_their_bytes(bench: Bench) -> None:
    one = large(1)
    twin = one[:25_001] + b"y" + one[25_002:]
    await bench.push("a", one, twin)
    bench.jobs.free = 2
    sent = _sizes(bench)
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: len(bench.jobs.delivered) == 2)
    # The one that was fetched last ends first.
    bench.end("a", twin)
    await async_wait_for(lambda: not bench.outbox)
    assert await bench.redis.lrange(bench.keys.inprogress("a", IDENTITY), 0, -1) == [one]
    assert max(sent) >= len(twin)
    bench.end("a", one)
    await async_wait_for(lambda: not bench.outbox)
    assert not await bench.redis.exists(bench.keys.inprogress("a", IDENTITY))


async def test_a_large_job_is_settled_by_all_its_bytes_beside_a_stray(bench: Bench) -> None:
    await bench.push("a", large(1))
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.jobs.delivered == [large(1)])
    stray = large(1)[:25_001] + b"y" + large(1)[25_002:]
    held = bench.keys.inprogress("a", IDENTITY)
    await bench.redis.rpush(held, stray)
    bench.end("a", large(1))
    await async_wait_for(lambda: not bench.outbox)
    assert await bench.redis.lrange(held, 0, -1) == [stray]


async def test_a_large_outcome_without_a_reply_is_sent_again_with_all_its_bytes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.push("a", large(1))
    task = bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.jobs.delivered == [large(1)])
    send = bench.link.execute_command

    async def lose(*command: Any, **options: Any) -> object:
        await send(*command, **options)
        monkeypatch.setattr(bench.link, "execute_command", send)
        raise ConnectionError("the reply is lost")

    monkeypatch.setattr(bench.link, "execute_command", lose)
    # What a lost fetch may have left there.
    twin = large(1)[:25_001] + b"y" + large(1)[25_002:]
    bench.end("a", large(1), Outcome(Fate.RETRY, at=1.0))
    await async_wait_for(lambda: bench.health.troubles != {})
    await bench.redis.lpush(bench.keys.inprogress("a", IDENTITY), twin)
    await async_wait_for(lambda: not bench.outbox)
    assert not task.done()
    assert await bench.redis.lrange(bench.keys.inprogress("a", IDENTITY), 0, -1) == [twin]
    assert await bench.redis.zrange(bench.keys.retry, 0, -1) == [large(1)]


def _sizes(bench: Bench) -> list[int]:
    """The sizes of the exchanges that are sent from now on."""
    sizes: list[int] = []
    send = bench.link.execute_command

    async def noted(*command: Any, **options: Any) -> object:
        if command[0] == "EVALSHA":
            sizes.append(sum(len(part) for part in command if isinstance(part, bytes)))
        return await send(*command, **options)

    bench.link.execute_command = noted  # type: ignore[method-assign]
    return sizes
