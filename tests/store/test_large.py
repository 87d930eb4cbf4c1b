"""Large jobs are settled by an extract of their bytes: the right one, once, wherever it is."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError
from pyworkers.protocol.effects import StoreValue, Unlock
from pyworkers.protocol.extract import LARGE_BYTES, equal_extracts, extract
from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Outcome, Report
from pyworkers.store.acl import Role
from pyworkers.store.jobs import (
    Exchange,
    InProgress,
    Settlement,
    WatchedExchange,
    WatchedList,
    exchange_watched,
    watch,
)
from pyworkers.store.transport.link import Link
from tests.helpers.acl import url_of
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.redises import OwnRedis
from tests.helpers.replies import as_list

NOW = 1_795_225_197.5
IDENTITY = "host:1:aaa"


def large(number: int, size: int = 40_000) -> bytes:
    return random.Random(number).randbytes(size)


def changed(raw: bytes, at: int) -> bytes:
    """The same job with another byte in one place."""
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


class Bench(RedisBench):
    """One incarnation with the queue ``q``."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.worker = RedisConfig(url=url_of(url, Role.WORKER, namespace), namespace=namespace)
        self.lists = InProgress(self.keys, ["q"], IDENTITY)
        self.held = self.keys.inprogress("q", IDENTITY)
        self.queue = self.keys.queue("q")
        self.link = Link(self.worker)
        self.ends.push_async_callback(self.link.aclose)

    async def prepare(self) -> None:
        self.config = self.worker
        self.restricted = self.connection()
        await self.redis.hset(self.keys.owners, IDENTITY, '["q"]')

    async def watch(self, held: int) -> WatchedList | None:
        return await watch(self.lists, self.link, "q", held)

    async def exchange(
        self, watched: WatchedList, places: Sequence[int], wanted: int, held: int
    ) -> WatchedExchange | None:
        return await exchange_watched(self.lists, self.link, watched, places, wanted, held)

    async def hold(self, *jobs: bytes) -> None:
        """Have these jobs in progress, the first one fetched first."""
        await self.redis.lpush(self.held, *jobs)

    async def holds(self) -> list[bytes]:
        return as_list(await self.redis.lrange(self.held, 0, -1))[::-1]

    async def settle(
        self, *batch: tuple[bytes, Outcome], places: Sequence[int] = (), held: int | None = None
    ) -> Exchange:
        """Settle by extracts; ``places`` are the probable ones."""
        known = await self.redis.llen(self.held) if held is None else held
        settlements = [Settlement("q", raw, Report(outcome)) for raw, outcome in batch]
        hints = places or [-1] * len(batch)
        extracts = {n: extract(raw, known, hints[n]) for n, (raw, _) in enumerate(batch)}
        return await self.lists.exchange(self.restricted, settlements, 0, (), NOW, extracts)


bench = bench_fixture(Bench)


@pytest.mark.parametrize("place", [-1, -20, -7, 0, 5, -21, 1000])
async def test_a_job_is_found_at_every_place_with_any_place_expected(bench: Bench, place: int) -> None:
    jobs = [large(n) for n in range(20)]
    for number in (0, 19, 6):
        await bench.redis.delete(bench.held)
        await bench.hold(*jobs)
        found = await bench.settle((jobs[number], DONE), places=[place])
        assert (found.stale, found.left) == ([], ())
        assert await bench.holds() == jobs[:number] + jobs[number + 1 :]


@pytest.mark.parametrize("size", [LARGE_BYTES + 1, 1_000_000])
async def test_an_outcome_without_a_payload_keeps_the_whole_job(bench: Bench, size: int) -> None:
    jobs = [large(n, size) for n in range(4)]
    await bench.hold(*jobs)
    outcomes = [Outcome(Fate.DEAD), Outcome(Fate.RETRY, NOW + 1), REQUEUE, Outcome(Fate.SNOOZE, NOW, b"new")]
    assert (await bench.settle(*zip(jobs, outcomes, strict=True))).stale == []
    assert await bench.holds() == []
    assert await bench.redis.zrange(bench.keys.dead, 0, -1) == [jobs[0]]
    assert await bench.redis.zrange(bench.keys.retry, 0, -1) == [jobs[1]]
    assert await bench.waiting() == [jobs[2]]
    assert await bench.redis.zrange(bench.keys.schedule, 0, -1) == [b"new"]


async def test_large_and_small_jobs_are_settled_in_one_batch(bench: Bench) -> None:
    job = large(1)
    await bench.hold(b"small", job, b"other")
    batch = [Settlement("q", raw, Report(DONE)) for raw in (b"small", job, b"late")]
    found = await bench.lists.exchange(bench.restricted, batch, 0, (), NOW, {1: extract(job, 3, -1)})
    assert found.stale == [2]
    assert await bench.holds() == [b"other"]


async def test_a_batch_that_is_sent_twice_is_applied_once(bench: Bench) -> None:
    job = large(1)
    await bench.hold(job, large(2))
    outcome = Outcome(Fate.RETRY, NOW).with_effects(Unlock("lock", "me"))
    assert (await bench.settle((job, outcome), held=2)).stale == []
    # Now the list has another length than the sender knows.
    assert list((await bench.settle((job, outcome), held=2)).left) == [0]
    assert (await bench.settle((job, outcome), held=1)).stale == [0]
    assert await bench.redis.zcard(bench.keys.retry) == 1
    assert await bench.holds() == [large(2)]


async def test_nothing_is_settled_by_an_extract_in_a_list_of_another_length(bench: Bench) -> None:
    """A job that this server has not received might have an equal extract."""
    await bench.hold(changed(large(1), 20_001), large(1))
    found = await bench.settle((large(1), REQUEUE), held=1)
    assert (found.stale, found.left, found.refused) == ([], [0], {})
    assert len(await bench.holds()) == 2
    assert not await bench.redis.exists(bench.keys.queue("q"))


async def test_equal_jobs_are_settled_one_by_one(bench: Bench) -> None:
    await bench.hold(large(1), large(1), large(1))
    batch = [(large(1), Outcome(Fate.RETRY, NOW)), (large(1), Outcome(Fate.RETRY, NOW))]
    assert (await bench.settle(*batch, places=[-3, 7])).stale == []
    assert await bench.holds() == [large(1)]
    assert await bench.redis.zrange(bench.keys.retry, 0, -1) == [large(1), large(1) + b" "]


@pytest.mark.parametrize("at", [0, 1023, 39_999, 38_976, 1024, 38_975])
async def test_a_job_that_differs_in_a_byte_of_the_extract_is_another_one(bench: Bench, at: int) -> None:
    other = changed(large(1), at)
    assert not equal_extracts(large(1), other)
    await bench.hold(other)
    assert (await bench.settle((large(1), DONE))).stale == [0]
    assert await bench.holds() == [other]


def test_jobs_that_differ_between_the_samples_have_equal_extracts() -> None:
    assert equal_extracts(large(1), changed(large(1), 20_001))
    assert not equal_extracts(large(1), large(1))
    assert not equal_extracts(large(1), large(1) + b" ")


async def test_a_wrong_type_of_the_list_leaves_the_outcome(bench: Bench) -> None:
    await bench.redis.set(bench.held, "no list")
    assert (await bench.settle((large(1), DONE), held=1)).left == [0]


async def test_a_note_of_a_large_job_finds_it_by_its_extract_and_leaves_it(bench: Bench) -> None:
    jobs = [large(n) for n in range(3)]
    await bench.hold(*jobs)
    noted = Outcome(Fate.NOTE, effects=(StoreValue("v", b"1", 60),))
    assert (await bench.settle((jobs[1], noted))).stale == []
    assert await bench.redis.get(bench.keys.own("v")) == b"1"
    assert await bench.holds() == jobs
    assert list((await bench.settle((jobs[1], noted), held=2)).left) == [0]
    await bench.settle((jobs[1], DONE))
    assert (await bench.settle((jobs[1], noted))).stale == [0]


# Transactions


async def test_a_transaction_settles_by_places_and_takes_without_a_script(bench: Bench) -> None:
    jobs = [large(n) for n in range(8)]
    await bench.hold(*jobs[:4])
    await bench.redis.lpush(bench.queue, *jobs[4:])
    watched = await bench.watch(4)
    assert watched is not None
    # The oldest and the third; then all that are left, and the last one of the queue.
    result = await bench.exchange(watched, [-1, -3], 3, 4)
    assert result is not None
    assert result.found == Exchange([("q", jobs[4:7])], [])
    assert await bench.holds() == [jobs[1], jobs[3], *jobs[4:7]]
    assert result.watched == watched
    result = await bench.exchange(watched, [-1, -2, -3, -4, -5], 2, 5)
    assert result is not None
    assert result.found == Exchange([("q", jobs[7:])], [])
    assert await bench.holds() == jobs[7:]


async def add_job(bench: Bench) -> None:
    await bench.redis.lpush(bench.held, large(9))


async def exchange_a_job(bench: Bench) -> None:
    await bench.redis.rpop(bench.held)
    await bench.redis.lpush(bench.held, large(9))


async def recover(bench: Bench) -> None:
    await bench.redis.set(bench.keys.tombstone(IDENTITY), 1)


async def forget_owner(bench: Bench) -> None:
    await bench.redis.hdel(bench.keys.owners, IDENTITY)


CHANGES = [add_job, exchange_a_job, recover, forget_owner]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_transaction_does_nothing_once_list_or_owner_have_changed(
    bench: Bench, change: Callable[[Bench], Awaitable[None]]
) -> None:
    await bench.hold(large(1), large(2))
    await bench.redis.lpush(bench.queue, large(3))
    watched = await bench.watch(2)
    assert watched is not None
    await change(bench)
    before = await bench.holds()
    assert await bench.exchange(watched, [-1], 1, 2) is None
    assert await bench.holds() == before
    assert await bench.redis.llen(bench.queue) == 1


@pytest.mark.parametrize("change", [add_job, recover, forget_owner])
async def test_a_list_with_other_jobs_or_without_its_owner_is_not_watched(
    bench: Bench, change: Callable[[Bench], Awaitable[None]]
) -> None:
    await bench.hold(large(1), large(2))
    await change(bench)
    assert await bench.watch(2) is None
    # Also behind a transaction.
    await bench.redis.delete(bench.held, bench.keys.tombstone(IDENTITY))
    await bench.redis.hset(bench.keys.owners, IDENTITY, '["q"]')
    await bench.hold(large(1), large(2))
    watched = await bench.watch(2)
    assert watched is not None
    result = await bench.exchange(watched, [-1], 0, 3)
    assert result is not None
    assert result.watched is None


async def test_a_watch_that_has_failed_does_not_hinder_the_next(bench: Bench) -> None:
    await bench.hold(large(1))
    assert await bench.watch(1) is not None
    await bench.redis.lpush(bench.held, large(2))
    watched = await bench.watch(2)
    assert watched is not None
    assert await bench.exchange(watched, [-1, -2], 0, 2) is not None
    assert await bench.holds() == []


async def test_a_transaction_is_never_sent_over_another_connection(bench: Bench) -> None:
    await bench.hold(large(1))
    watched = await bench.watch(1)
    assert watched is not None
    bench.link.drop_connection()
    assert await bench.exchange(watched, [-1], 0, 1) is None
    again = await bench.watch(1)
    assert again is not None
    assert again.wire is not watched.wire
    assert await bench.exchange(watched, [-1], 0, 1) is None
    assert await bench.holds() == [large(1)]


async def test_a_transaction_that_redis_refuses_does_nothing(
    one_binary: str, tmp_path: Path, namespace: str
) -> None:
    with OwnRedis(one_binary, tmp_path / "redis").start() as server:
        bench = Bench(server.url, namespace)
        try:
            await bench.prepare()
            await bench.hold(large(1))
            await bench.redis.lpush(bench.queue, large(2))
            watched = await bench.watch(1)
            assert watched is not None
            await bench.redis.config_set("maxmemory", 1)
            assert await bench.exchange(watched, [-1], 1, 1) is None
            assert await bench.holds() == [large(1)]
        finally:
            await bench.close()


async def test_a_queue_that_is_no_list_is_refused_and_its_outcomes_are_settled(bench: Bench) -> None:
    await bench.hold(large(1))
    await bench.redis.set(bench.queue, "no list")
    watched = await bench.watch(1)
    assert watched is not None
    result = await bench.exchange(watched, [-1], 1, 1)
    assert result is not None
    assert list(result.found.refused) == ["q"]
    assert isinstance(result.found.refused["q"], PyworkersError)
    assert await bench.holds() == []
