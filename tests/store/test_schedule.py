"""The schedule store against real servers: each due member is moved once, by the server that has the turn."""

from __future__ import annotations

import asyncio

import pytest

from pyworkers.errors import StoreError
from pyworkers.store import sets
from pyworkers.store.sets import PUT_OFF_S, Move, Promoted
from pyworkers.store.store import Store
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.support import async_wait_for, stretched

NOW = 1_795_225_197.25


class Promoter(Store):
    """What one server does with sorted sets."""

    async def first_score(self, zset: str) -> float | None:
        return await self.arun(sets.first_score(zset))

    async def promote(
        self, zset: str, moves: list[Move], now: float, identity: str, wanted: int = 0
    ) -> Promoted:
        return await self.arun(sets.promote(self.keys, zset, moves, now, identity, wanted))


class Bench(RedisBench):
    """A store, and a set whose members become due."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.store = Promoter(self.redis, self.keys)
        self.zset = self.keys.schedule

    async def plan(self, count: int, queue: str = "q") -> list[Move]:
        """That many due jobs in ``schedule``, and what is to become of them."""
        names = [f"{queue}{number:04}" for number in range(count)]
        await self.redis.zadd(self.zset, {name: NOW - count + place for place, name in enumerate(names)})
        return [Move(name.encode(), f"{name}!".encode(), queue) for name in names]


bench = bench_fixture(Bench)


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Turns that outlast a stall of the machine; ``undo`` gives the next ones their usual length."""
    monkeypatch.setattr(sets, "TURN_MS", 600_000)
    return monkeypatch


async def test_due_jobs_are_handed_out_in_order_and_moved(bench: Bench) -> None:
    planned = await bench.plan(5)
    await bench.redis.zadd(bench.zset, {"later": NOW + 1, "much later": NOW + 2})
    found = await bench.store.promote(bench.zset, [], NOW, "a", 3)
    assert (found.due, found.moved, found.upcoming) == ([p.member for p in planned[:3]], 0, NOW + 1)
    found = await bench.store.promote(bench.zset, planned[:3], NOW, "a", 3)
    assert (found.due, found.moved) == ([p.member for p in planned[3:]], 3)
    found = await bench.store.promote(bench.zset, planned[3:], NOW, "a", 3)
    assert (found.due, found.moved, found.broken, found.others_s) == ([], 2, [], 0)
    assert await bench.waiting() == [p.payload for p in planned]
    assert await bench.redis.smembers(bench.keys.queues) == {b"q"}
    assert await bench.store.first_score(bench.zset) == NOW + 1
    await bench.redis.delete(bench.zset)
    assert await bench.store.first_score(bench.zset) is None


async def test_of_many_who_move_the_same_members_one_moves_each(bench: Bench) -> None:
    planned = await bench.plan(50)
    found = await asyncio.gather(
        *(bench.store.promote(bench.zset, planned, NOW, f"host:{n}:x") for n in range(5))
    )
    assert sorted(one.moved for one in found) == [0, 0, 0, 0, 50]
    assert await bench.waiting() == [p.payload for p in planned]


async def test_members_that_a_peer_of_another_kind_took_are_left_alone(bench: Bench) -> None:
    # As Sidekiq's pollers do it: ZREM, and a push by the one whose ZREM took the member.
    planned = [*await bench.plan(4, "q"), *await bench.plan(4, "r")]
    for taken in planned[1:6:2]:
        await bench.redis.zrem(bench.zset, taken.member)
    found = await bench.store.promote(bench.zset, planned, NOW, "a")
    assert found.moved == 5
    assert await bench.waiting("q") == [b"q0000!", b"q0002!"]
    assert await bench.waiting("r") == [b"r0000!", b"r0002!", b"r0003!"]


@pytest.mark.usefixtures("long_turns")
async def test_one_master_at_a_time_has_the_turn_of_a_set(bench: Bench) -> None:
    planned = await bench.plan(4)
    assert len((await bench.store.promote(bench.zset, [], NOW, "a", 2)).due) == 2
    other = await bench.store.promote(bench.zset, [], NOW, "b", 2)
    assert other.due == []
    assert 0 < other.others_s <= sets.TURN_MS / 1000
    # What it asked for before is moved all the same, and the other set has its own turn.
    assert (await bench.store.promote(bench.zset, planned[2:], NOW, "b", 2)).moved == 2
    await bench.redis.zadd(bench.keys.retry, {"x": 1})
    assert (await bench.store.promote(bench.keys.retry, [], NOW, "b", 2)).due == [b"x"]
    # Nothing is left: the turn is over.
    assert (await bench.store.promote(bench.zset, planned[:2], NOW, "a", 2)).due == []
    assert not await bench.redis.exists(bench.keys.turn(bench.zset))
    await bench.redis.zadd(bench.zset, {"y": 1})
    assert (await bench.store.promote(bench.zset, [], NOW, "b", 2)).due == [b"y"]


async def test_the_turn_of_a_master_that_died_ends_by_itself(
    bench: Bench, long_turns: pytest.MonkeyPatch
) -> None:
    async def due(identity: str = "b") -> list[bytes]:
        return (await bench.store.promote(bench.zset, [], NOW, identity, 1)).due

    await bench.plan(1)
    assert await due("dead") == [b"q0000"]
    assert await due() == []
    long_turns.undo()
    assert await due("dead") == [b"q0000"]
    assert await async_wait_for(due, timeout=stretched(sets.TURN_MS / 1000)) == [b"q0000"]
    # One without an end, which is not ours, is none.
    await bench.redis.set(bench.keys.turn(bench.zset), "another")
    assert await due() == [b"q0000"]


async def test_a_member_without_a_queue_is_buried_as_it_is(bench: Bench) -> None:
    await bench.redis.zadd(bench.keys.retry, {"not json": 1})
    found = await bench.store.promote(bench.keys.retry, [Move(b"not json")], NOW, "a", 5)
    assert (found.moved, found.due) == (1, [])
    assert await bench.redis.zrange(bench.keys.dead, 0, -1, withscores=True) == [(b"not json", NOW)]
    assert await bench.redis.zcard(bench.keys.retry) == 0


async def test_a_member_without_a_queue_is_buried_with_its_payload(bench: Bench) -> None:
    await bench.redis.zadd(bench.keys.retry, {"a": 1, "b": 2, "c": 3})
    buried = [
        Move(b"a", b"a!"),
        Move(b"gone", b"gone!"),
        Move(b"c"),
        Move(b"b", b"b!"),
    ]
    found = await bench.store.promote(bench.keys.retry, buried, NOW, "a", 5)
    assert (found.moved, found.due) == (3, [])
    assert await bench.redis.zrange(bench.keys.dead, 0, -1) == [b"a!", b"b!", b"c"]
    assert await bench.redis.zcard(bench.keys.retry) == 0


async def test_a_queue_whose_key_is_no_list_loses_nothing_and_delays_no_other(bench: Bench) -> None:
    planned = [*await bench.plan(2, "bad"), *await bench.plan(2, "good")]
    await bench.redis.set(bench.keys.queue("bad"), "no list")
    found = await bench.store.promote(bench.zset, planned, NOW, "a", 10)
    assert (found.moved, found.broken, found.due) == (2, ["bad"], [])
    assert found.upcoming == NOW + PUT_OFF_S
    assert await bench.waiting("good") == [b"good0000!", b"good0001!"]
    left = await bench.redis.zrange(bench.zset, 0, -1, withscores=True)
    assert left == [(b"bad0000", NOW + PUT_OFF_S), (b"bad0001", NOW + PUT_OFF_S)]


@pytest.mark.parametrize("key", ["queues", "dead"])
async def test_an_error_in_the_middle_removes_nothing(bench: Bench, key: str) -> None:
    planned = await bench.plan(2)
    await bench.redis.zadd(bench.zset, {"not json": 1})
    await bench.redis.set(getattr(bench.keys, key), "something else")
    broken = planned if key == "queues" else [Move(b"not json")]
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await bench.store.promote(bench.zset, broken, NOW, "a")
    assert await bench.redis.zcard(bench.zset) == 3
