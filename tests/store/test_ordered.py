"""Ordered queues against real servers: which server takes the next job, and when."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from pyworkers.errors import StoreError
from pyworkers.protocol.effects import HoldHead, PauseQueue
from pyworkers.protocol.outcome import DONE, Fate, Outcome
from pyworkers.store.calls import arun
from pyworkers.store.flow import ordered
from pyworkers.store.flow.ordered import TakeReply
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.owner import Owner

NOW = 1_795_225_197.5
ONE, TWO = b'{"jid":"1"}', b'{"jid":"2"}'


class Bench(RedisBench):
    """Two servers of one ordered queue."""

    async def prepare(self) -> None:
        self.connected = self.connection()
        self.a, self.b = [Owner(self.connected, self.keys, f"host:{n}:abc") for n in (1, 2)]
        for owner in (self.a, self.b):
            await owner.renew(30, ["q"])

    async def take(self, owner: Owner, known: str = "") -> TakeReply:
        return await arun(self.connected, ordered.take(self.keys, "q", owner.identity, known))

    async def release(self, owner: Owner) -> bool:
        return await arun(self.connected, ordered.release(self.keys, "q", owner.identity))

    async def push(self, *jobs: bytes) -> None:
        await self.redis.lpush(self.keys.queue("q"), *jobs)

    async def settle(self, owner: Owner, job: bytes, outcome: Outcome) -> None:
        assert (await owner.exchange("q", [(job, outcome)], 0, NOW)).stale == []

    async def retry(self, owner: Owner, job: bytes, payload: bytes, delay_ms: int) -> None:
        held = HoldHead("ordered:q", delay_ms, hashlib.sha1(payload).hexdigest())
        await self.settle(owner, job, Outcome(Fate.REQUEUE, payload=payload).with_effects(held))


bench = bench_fixture(Bench)


async def test_one_server_is_active_and_takes_the_jobs_in_their_order(bench: Bench) -> None:
    await bench.push(ONE, TWO)
    first = await bench.take(bench.a)
    assert (first.word, first.raw) == ("job", ONE)
    # The reply was lost: the job is found again, and no other is taken.
    assert await bench.take(bench.a) == first
    other = await bench.take(bench.b)
    assert (other.word, other.active) == ("other", bench.a.identity)
    standby = await bench.take(bench.b, bench.a.identity)
    assert standby.word == "standby" and 0 < standby.wait_s <= 30
    await bench.settle(bench.a, ONE, DONE)
    assert (await bench.take(bench.a)).raw == TWO
    await bench.settle(bench.a, TWO, DONE)
    assert (await bench.take(bench.a)).word == "empty"


async def test_a_released_queue_goes_to_another_server_under_a_greater_token(bench: Bench) -> None:
    await bench.push(ONE)
    first = await bench.take(bench.a)
    assert not await bench.release(bench.a)
    assert not await bench.release(bench.b)
    await bench.settle(bench.a, ONE, DONE)
    assert await bench.release(bench.a)
    assert not await bench.release(bench.a)
    second = await bench.take(bench.b)
    assert second.word == "empty" and second.fence > first.fence
    # Also if Redis loses the hash.
    await bench.release(bench.b)
    await bench.redis.hset(bench.keys.ordered("q"), "fence", 10**12)
    assert (await bench.take(bench.a)).fence == 10**12 + 1
    await bench.redis.delete(bench.keys.ordered("q"))
    assert (await bench.take(bench.b)).fence >= first.fence


async def test_a_dead_server_is_replaced_once_its_job_is_recovered(bench: Bench) -> None:
    await bench.push(ONE, TWO)
    first = await bench.take(bench.a)
    await bench.redis.delete(bench.keys.lease(bench.a.identity))
    waiting = await bench.take(bench.b, bench.a.identity)
    assert (waiting.word, waiting.wait_s, waiting.active) == ("expired", 0, bench.a.identity)
    assert await bench.b.recover(bench.a.identity, ["q"], 10) == 1
    found = await bench.take(bench.b, bench.a.identity)
    assert found.word == "job" and found.raw.rstrip(b"\t") == ONE and found.fence > first.fence
    assert (await bench.take(bench.a, bench.b.identity)).word == "lost"


async def test_a_failed_job_waits_at_the_head_until_its_time(bench: Bench) -> None:
    await bench.push(ONE, TWO)
    await bench.take(bench.a)
    again = b'{"jid":"1","retry_count":0}'
    await bench.retry(bench.a, ONE, again, 60_000)
    waits = await bench.take(bench.a)
    assert waits.word == "wait" and 50 < waits.wait_s <= 60
    # Another server that takes over waits, too.
    await bench.release(bench.a)
    assert (await bench.take(bench.b)).word == "wait"
    await bench.redis.hset(bench.keys.ordered("q"), "until", 1)
    assert (await bench.take(bench.b)).raw == again
    assert not await bench.redis.hexists(bench.keys.ordered("q"), "until")


async def test_the_next_job_does_not_wait_for_one_that_was_deleted(bench: Bench) -> None:
    await bench.push(ONE, TWO)
    await bench.take(bench.a)
    await bench.retry(bench.a, ONE, ONE + b" ", 60_000)
    await bench.redis.lrem(bench.keys.queue("q"), 1, (ONE + b" ").decode())
    assert (await bench.take(bench.a)).raw == TWO


async def test_a_paused_queue_gives_nothing(bench: Bench) -> None:
    await bench.push(ONE, TWO)
    await bench.take(bench.a)
    await bench.settle(bench.a, ONE, DONE.with_effects(PauseQueue("q")))
    assert (await bench.take(bench.a)).word == "paused"
    await bench.redis.srem(bench.keys.paused, "q")
    assert (await bench.take(bench.a)).raw == TWO


async def test_a_server_that_is_not_registered_takes_nothing(bench: Bench) -> None:
    await bench.push(ONE)
    with pytest.raises(StoreError, match="not registered yet"):
        await bench.take(Owner(bench.connected, bench.keys, "host:3:abc"))
    assert not await bench.redis.exists(bench.keys.ordered("q"))


async def test_keys_of_another_type_are_an_error_and_lose_nothing(bench: Bench) -> None:
    await bench.push(ONE)
    await bench.redis.set(bench.keys.ordered("q"), "x")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await bench.take(bench.a)
    await bench.redis.delete(bench.keys.ordered("q"))
    assert (await bench.take(bench.a)).raw == ONE


async def test_odd_values_in_the_state_do_not_stop_the_queue(bench: Bench) -> None:
    await bench.push(ONE)
    odd: Any = {"identity": b"\xff\xed", "fence": "nan", "until": "soon", "head": "x"}
    await bench.redis.hset(bench.keys.ordered("q"), mapping=odd)
    found = await bench.take(bench.a)
    assert found.word == "other"
    # It has no lease, so its place is free.
    found = await bench.take(bench.a, found.active)
    assert (found.word, found.raw) == ("job", ONE)
    assert found.fence > 1_000_000_000
    await bench.redis.hset(bench.keys.ordered("q"), "fence", "9" * 400)
    assert (await bench.take(bench.a)).fence > 1_000_000_000
