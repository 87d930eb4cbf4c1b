"""The fetcher of an ordered queue against a real server."""

from __future__ import annotations

from typing import Any

import pytest

from pyworkers.server.fetching import ordered as fetching
from pyworkers.server.fetching.ordered import OrderedFetcher
from pyworkers.store.calls import arun_one
from pyworkers.store.flow import ordered
from tests.helpers.bench import bench_fixture
from tests.helpers.support import async_wait_for
from tests.server import test_fetcher
from tests.server.test_fetcher import FakeJobs


class FencedJobs(FakeJobs):
    """As ``FakeJobs``, with the fencing token."""

    fence = 0

    def set_fence(self, _queue: str, fence: int) -> None:
        self.fence = fence


class Bench(test_fetcher.Bench):
    """The fetcher of one ordered queue."""

    make = OrderedFetcher

    def jobs_of(self) -> FakeJobs:
        return FencedJobs()


bench = bench_fixture(Bench)


async def test_a_pause_that_ends_before_the_server_reads_it_delays_no_job(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes: list[str] = []
    take = ordered.take

    def counted(*args: Any) -> Any:
        takes.append("take")
        return take(*args)

    monkeypatch.setattr(ordered, "take", counted)
    monkeypatch.setattr(fetching, "_LONGEST_S", 0.05)
    await bench.redis.sadd(bench.keys.paused, "q")
    await bench.redis.lpush(bench.keys.queue("q"), b"job")
    bench.start(bench.fetcher.run())
    bench.outbox.changed.set()
    await async_wait_for(lambda: len(takes) >= 3, message="it asks again while the queue is paused")
    assert bench.jobs.delivered == []
    await bench.redis.srem(bench.keys.paused, "q")
    await async_wait_for(lambda: bench.jobs.delivered == [b"job"])


async def test_a_job_that_comes_while_a_server_becomes_active_is_not_missed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the take has found the queue empty, and before its reply is here."""
    _, see = bench.fetcher.follows(bench.keys)[bench.keys.queue("q")]
    came: list[int] = []

    async def slow(*args: Any) -> Any:
        found = await arun_one(*args)
        if not came:
            came.append(await bench.redis.lpush(bench.keys.queue("q"), b"job"))
            see(1)
        return found

    monkeypatch.setattr("pyworkers.server.fetching.ordered.arun_one", slow)
    bench.start(bench.fetcher.run())
    bench.outbox.changed.set()
    await async_wait_for(lambda: bench.jobs.delivered == [b"job"], timeout=20)


async def test_a_server_that_stands_by_says_how_long_the_lease_of_the_active_one_lasts(bench: Bench) -> None:
    other = "host:2:y"
    await bench.redis.hset(bench.keys.owners, other, '["q"]')
    await bench.redis.hset(bench.keys.ordered("q"), "identity", other)
    await bench.redis.lpush(bench.keys.inprogress("q", other), b"job")
    await bench.redis.set(bench.keys.lease(other), "1", px=1000)
    bench.start(bench.fetcher.run())
    bench.outbox.changed.set()
    await async_wait_for(lambda: bench.leases[-1:] == [(other, 0)], message="it has expired")
    left = [left_s for _, left_s in bench.leases if left_s]
    assert left == sorted(left, reverse=True) and 0 < left[0] <= 1
    await bench.redis.delete(bench.keys.inprogress("q", other))
    await bench.redis.lpush(bench.keys.queue("q"), b"job")
    await async_wait_for(lambda: bench.jobs.delivered == [b"job"], message="this server is active")


async def test_a_new_identity_asks_for_nothing_until_it_is_registered(bench: Bench) -> None:
    await test_fetcher.check_that_it_asks_once_registered(bench)
