"""When a marked job may start: one suspect at a time, noted before it starts."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TypeVar

import pytest

from pyworkers.errors import RedisUnavailableError, WorkerLost
from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Report
from pyworkers.protocol.retry import Failure
from pyworkers.protocol.suspects import field_of
from pyworkers.server.health import ServerHealth
from pyworkers.server.pool.delivery import Delivery, Events
from pyworkers.server.pool.gates import HOLD, NO_ROOM, START, Decided, Decision, Settle, Suspects
from pyworkers.server.pool.settling import Lost
from pyworkers.store.calls import Operation
from pyworkers.store.store import Store
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.support import async_wait_for

IDENTITY = "host:1:aaa"
T = TypeVar("T")


class FakeJobs:
    """The jobs of one group, and what was decided on them."""

    def __init__(self) -> None:
        self.events: Events = asyncio.Queue()
        self._decided: list[Decided] = []

    def decided(self, decision: Decision) -> list[Delivery]:
        while not self.events.empty():
            event = self.events.get_nowait()
            assert isinstance(event, Decided)
            self._decided.append(event)
        return [event.job for event in self._decided if event.decision == decision]

    @property
    def begun(self) -> list[Delivery]:
        return self.decided(START)

    @property
    def held(self) -> list[Delivery]:
        return self.decided(NO_ROOM)


class FlakyStore(Store):
    """A store whose Redis can be unreachable."""

    away_after: int | None = None
    """The number of calls that still succeed; None: all."""
    refused = 0

    async def arun(self, operation: Operation[T]) -> T:
        if self.away_after == 0:
            self.refused += 1
            raise RedisUnavailableError("away")
        if self.away_after is not None:
            self.away_after -= 1
        return await super().arun(operation)


class Bench(RedisBench):
    """The suspects of a server, and the jobs of two of its queues."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.health = ServerHealth(time.monotonic, random.Random())
        self.identity = IDENTITY
        self.store = FlakyStore(self.connection(), self.keys)
        self.suspects = Suspects(self.store, lambda: self.identity, self.health.of("suspects"))
        self.jobs, self.others = FakeJobs(), FakeJobs()

    async def add(self, name: str, entry: str | None, jobs: FakeJobs | None = None) -> Delivery:
        """A fetched job with this entry."""
        jobs = jobs or self.jobs
        job = Delivery(0, "q", b'{"jid":"%s"}\t' % name.encode())
        if entry is not None:
            await self.redis.hset(self.keys.suspects, field_of(job.raw), entry)
        assert self.suspects.admit(job) is HOLD
        job.keep(room=True, alone=False)
        self.suspects.keep(job, jobs.events)
        return job

    def end(self, job: Delivery, report: Report) -> Report:
        if not job.has_ended:
            job.settled()
        return self.suspects.settled(job, report)

    async def noted(self) -> object:
        """The field of the suspect that the server runs."""
        return await self.redis.hget(self.keys.suspects, self.identity)


bench = bench_fixture(Bench)


async def test_a_job_of_one_dead_server_starts_at_once_and_so_does_one_without_an_entry(bench: Bench) -> None:
    entries = [None, "1 0", "1 0", "no entry", ""]
    jobs = [await bench.add(f"j{number}", entry) for number, entry in enumerate(entries)]
    await bench.suspects.look()
    assert bench.jobs.begun == jobs
    assert await bench.noted() is None


async def test_suspects_of_all_queues_run_one_at_a_time_and_each_is_noted_before_it_starts(
    bench: Bench,
) -> None:
    first = await bench.add("a", "2 0")
    second = await bench.add("b", "4 2", bench.others)
    third = await bench.add("c", "2 0")
    await bench.suspects.look()
    assert (bench.jobs.begun, bench.others.begun) == ([first], [])
    assert (bench.jobs.held, bench.others.held) == ([first, third], [second])
    assert await bench.noted() == field_of(first.raw).encode()
    await bench.suspects.look()
    assert (bench.jobs.begun, bench.others.begun) == ([first], [])
    bench.end(first, Report(DONE))
    await bench.suspects.look()
    assert (bench.jobs.begun, bench.others.begun) == ([first], [second])
    assert await bench.noted() == field_of(second.raw).encode()
    bench.end(second, Report(REQUEUE))
    await bench.suspects.look()
    assert bench.jobs.begun == [first, third]
    bench.end(third, Report(DONE))
    await bench.suspects.look()
    assert await bench.noted() is None


async def test_the_next_suspect_starts_by_itself_when_one_ends(bench: Bench) -> None:
    bench.start(bench.suspects.run())
    first, second = await bench.add("a", "2 0"), await bench.add("b", "2 0")
    await async_wait_for(lambda: bench.jobs.begun == [first])
    bench.end(first, Report(DONE))
    await async_wait_for(lambda: bench.jobs.begun == [first, second])
    # Without an outcome: its server gives it back, or has lost its lease.
    third = await bench.add("c", "2 0")
    await async_wait_for(lambda: bench.jobs.held == [first, second, third])
    second.settled()
    await async_wait_for(lambda: bench.jobs.begun == [first, second, third])


async def test_a_job_that_is_responsible_for_three_deaths_does_not_start(bench: Bench) -> None:
    poison = await bench.add("a", "5 3")
    innocent = await bench.add("b", "9 2")
    await bench.suspects.look()
    message = "its server died while it ran; dead after 3 such servers"
    failure = Failure(WorkerLost.__name__, message, crashed=True, fate=Fate.DEAD)
    assert bench.jobs.decided(Settle(Lost(failure))) == [poison]
    assert bench.jobs.begun == [innocent]


async def test_a_job_that_is_taken_back_does_not_start(bench: Bench) -> None:
    unread = await bench.add("a", "1 0")
    bench.suspects.drop(unread)
    first, second, third = [await bench.add(name, "2 0") for name in "bcd"]
    await bench.suspects.look()
    bench.suspects.drop(second)
    bench.end(first, Report(DONE))
    await bench.suspects.look()
    assert bench.jobs.begun == [first, third]


async def test_under_a_new_identity_the_note_is_made_again(bench: Bench) -> None:
    first, second = await bench.add("a", "2 0"), await bench.add("b", "2 0")
    await bench.suspects.look()
    # The lease is lost: a peer has all jobs.
    first.settled()
    bench.suspects.drop(second)
    bench.identity = "host:1:bbb"
    third = await bench.add("c", "2 0")
    await bench.suspects.look()
    assert bench.jobs.begun == [first, third]
    assert await bench.noted() == field_of(third.raw).encode()


@pytest.mark.parametrize("noting", [False, True], ids=["reading", "noting"])
async def test_while_redis_is_unreachable_the_jobs_wait(bench: Bench, noting: bool) -> None:
    bench.store.away_after = 1 if noting else 0
    job = await bench.add("a", "2 0")
    bench.start(bench.suspects.run())
    await async_wait_for(lambda: bench.store.refused >= 3)
    assert bench.health.is_down
    assert (bench.jobs.held, bench.jobs.begun) == ([job] if noting else [], [])
    bench.store.away_after = None
    await async_wait_for(lambda: bench.jobs.begun == [job])
    assert await bench.noted() == field_of(job.raw).encode()
    assert not bench.health.is_down


async def test_only_while_a_suspect_runs_the_entries_live_longer(bench: Bench) -> None:
    job = await bench.add("a", "2 0")
    await bench.add("b", "1 0")
    for running in (True, False):
        await bench.redis.expire(bench.keys.suspects, 100)
        await bench.suspects.look()
        assert (await bench.redis.ttl(bench.keys.suspects) > 100) is running
        bench.end(job, Report(DONE))


async def test_a_note_that_redis_lost_is_made_again_at_the_next_check(bench: Bench) -> None:
    job = await bench.add("a", "2 0")
    await bench.suspects.look()
    await bench.redis.delete(bench.keys.suspects)
    await bench.suspects.look()
    assert await bench.noted() == field_of(job.raw).encode()
    assert await bench.redis.ttl(bench.keys.suspects) > 0
