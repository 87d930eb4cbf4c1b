"""The fetcher against a real server: outages, large outcomes, and unforeseen errors."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.effects import Effect, StoreValue
from pyworkers.protocol.extract import Extract
from pyworkers.protocol.outcome import DONE, Fate, Outcome, Report
from pyworkers.server.fetching import fetcher as fetcher_module
from pyworkers.server.fetching import source as source_module
from pyworkers.server.fetching.fetcher import Fetcher, GroupCallbacks
from pyworkers.server.fetching.idle import IdleQueues
from pyworkers.server.fetching.source import CpuYield, Route, Source
from pyworkers.server.health import ServerHealth
from pyworkers.server.plan import Group
from pyworkers.server.pool import outbox as outbox_module
from pyworkers.server.pool.outbox import Outbox
from pyworkers.server.waiting import cancel
from pyworkers.store import jobs as waiter_module
from pyworkers.store.calls import Request
from pyworkers.store.changes import ChangesStore
from pyworkers.store.jobs import Exchange, InProgress, Settlement, Waiter, exchange_watched
from pyworkers.store.transport.link import Link
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.deliveries import delivery
from tests.helpers.proxy import Trap, proxied
from tests.helpers.support import PATIENCE_S, async_wait_for, stretched

IDENTITY = "host:1:aaa"


class FakeJobs:
    """Idle workers without processes, at first one."""

    def __init__(self) -> None:
        self.free = 1
        self.busy = 0
        self.delivered: list[bytes] = []
        self.by_queue: dict[str, list[bytes]] = {}

    def deliver(self, queue: str, raw: bytes, start: Effect | None = None) -> None:
        self.delivered.append(raw)
        self.by_queue.setdefault(queue, []).append(raw)
        self.free -= 1

    def deliver_all(self, queue: str, raws: Iterable[bytes]) -> None:
        for raw in raws:
            self.deliver(queue, raw)

    def raws(self, queue: str) -> list[bytes]:
        return self.by_queue.get(queue, [])

    def known(self, queue: str) -> Counter[bytes]:
        return Counter(self.by_queue.get(queue, ()))


class Bench(RedisBench):
    """A fetcher, and what it brings jobs to."""

    queues: Mapping[str, int] = {"q": 1}
    strict = True
    make: type[Fetcher] = Fetcher

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.health = ServerHealth(time.monotonic, random.Random())
        self.link = Link(self.config)
        self.waiters = {queue: Waiter(self.config) for queue in self.queues}
        self.waiter = next(iter(self.waiters.values()))
        self.jobs = self.jobs_of()
        self.outbox = Outbox()
        self.settled: list[Report] = []
        self.grown: list[bool] = []
        self.lost: list[str] = []
        self.leases: list[tuple[str, float]] = []
        self.registered = {IDENTITY}
        changes = ChangesStore(self.config, lambda: None)
        self.ends.push_async_callback(changes.close)
        self.idle = IdleQueues(changes, self.health.of("changes"))
        self.ends.push_async_callback(self.idle.close)
        self.idle.serve(len(self.queues))
        self.fetcher = self.make(
            Group("g", self.queues, strict=self.strict, concurrency=1, processes=1, mode="process"),
            InProgress(self.keys, list(self.queues), IDENTITY),
            Route(
                [
                    Source(queue, waiter, self.health.of_queue(queue), self.idle, self.outbox.changed.set)
                    for queue, waiter in self.waiters.items()
                ],
                self.idle,
                self.link,
                self.jobs,  # type: ignore[arg-type]
                self.outbox,
                self.grown.append,
                lambda: True,
            ),
            GroupCallbacks(
                lambda _queue, report, jobs: self.settled.extend([report] * jobs),
                lambda _: None,
                self.lost.append,
                self.saw_lease,
                lambda identity: identity in self.registered,
            ),
            random.Random(1),
        )
        self.ends.push_async_callback(self.fetcher.close)
        self.fetcher.fetch(self.queues)

    def saw_lease(self, identity: str, left_s: float) -> None:
        self.leases.append((identity, left_s))

    def jobs_of(self) -> FakeJobs:
        return FakeJobs()

    async def prepare(self) -> None:
        await self.redis.hset(self.keys.owners, IDENTITY, '["q"]')


bench = bench_fixture(Bench)


async def test_a_move_that_neither_returns_nor_fails_is_ended_and_its_connection_replaced(
    bench: Bench,
) -> None:
    bench.waiter._longest_s = 0.3
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.health.troubles == {"fetcher q": ["TIMEOUT"]})
    bench.waiter._longest_s = 30
    await async_wait_for(lambda: bench.waiter.blocked)
    await bench.redis.lpush(bench.keys.queue("q"), b"job")
    await async_wait_for(lambda: bench.jobs.delivered == [b"job"])
    await async_wait_for(lambda: bench.health.troubles == {})


async def test_a_flush_after_which_the_lease_is_lost_keeps_the_outcomes_of_newer_jobs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = InProgress.exchange

    async def exchange_and_lose_lease(*args: Any) -> Exchange:
        found = await exchange(*args)
        bench.fetcher.move_to("host:1:bbb")
        bench.outbox.settle(delivery(b"new"), Report(DONE))
        return found

    monkeypatch.setattr(InProgress, "exchange", exchange_and_lose_lease)
    bench.outbox.settle(delivery(b"old"), Report(DONE))
    await bench.fetcher.flush()
    assert bench.outbox.raws("q") == [b"new"]
    assert bench.settled == []


async def test_the_end_of_an_outage_is_noted_although_no_job_comes(bench: Bench) -> None:
    bench.waiter._longest_s = 0.3
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.health.is_down)
    bench.waiter._longest_s = 30
    # The next move that blocks for long begins after that, and lasts 20 seconds.
    await async_wait_for(lambda: not bench.health.is_down, stretched(1))


async def test_a_job_that_ends_a_wait_gets_a_head_start_and_one_that_stood_in_the_queue_does_not(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[bytes]] = []
    monkeypatch.setattr(CpuYield, "give", lambda _: given.append(bench.jobs.delivered.copy()))
    bench.jobs.free = 3
    await bench.redis.lpush(bench.keys.queue("q"), b"one", b"two")
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.waiter.blocked)
    assert (bench.jobs.delivered, given) == ([b"one", b"two"], [])
    await bench.redis.lpush(bench.keys.queue("q"), b"three")
    await async_wait_for(lambda: len(bench.jobs.delivered) == 3)
    # After the job was handed out.
    assert given == [[b"one", b"two", b"three"]]


async def test_the_limit_of_a_move_leaves_it_time_enough(bench: Bench) -> None:
    assert bench.waiter._longest_s > waiter_module.LONGEST_BLOCK_S + waiter_module.PATIENCE_S


async def test_what_the_wait_cannot_deal_with_ends_the_fetcher(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_args: object, **_options: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(bench.waiter, "wait", fail)
    with pytest.raises(RuntimeError, match="foreseen"):
        await asyncio.wait_for(bench.fetcher.run(), PATIENCE_S)


async def test_large_outcomes_are_settled_in_portions_and_nothing_is_fetched_before_the_last(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_BYTES", 1000)

    exchange = InProgress.exchange
    calls: list[tuple[int, int]] = []

    async def noted(
        inprogress: InProgress,
        link: Link,
        batch: list[Settlement],
        wanted: int,
        order: Sequence[str],
        now: float,
        extracts: Mapping[int, Extract],
    ) -> object:
        calls.append((len(batch), wanted))
        return await exchange(inprogress, link, batch, wanted, order, now, extracts)

    monkeypatch.setattr(InProgress, "exchange", noted)
    held = bench.keys.inprogress("q", IDENTITY)
    for number in range(5):
        raw = b"%d" % number
        await bench.redis.lpush(held, raw)
        bench.outbox.settle(delivery(raw), Report(Outcome(Fate.RETRY, at=1, payload=raw * 400)))
    await bench.redis.lpush(held, b"small")
    bench.outbox.settle(delivery(b"small"), Report(DONE))
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: not bench.outbox)
    await async_wait_for(lambda: bench.waiter.blocked)
    assert calls[:3] == [(2, 0), (2, 0), (2, 1)]
    assert await bench.redis.llen(held) == 0
    assert await bench.redis.zcard(bench.keys.retry) == 5


async def test_a_flush_settles_all_portions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MAX_BYTES", 1)

    held = bench.keys.inprogress("q", IDENTITY)
    for raw in (b"1", b"2", b"3"):
        await bench.redis.lpush(held, raw)
        bench.outbox.settle(delivery(raw), Report(DONE))
    await bench.fetcher.flush()
    assert not bench.outbox
    assert await bench.redis.llen(held) == 0


async def test_a_flush_that_redis_does_not_answer_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: Any) -> object:
        raise RedisUnavailableError("the connection is lost", code="UNREACHABLE")

    bench.outbox.settle(delivery(b"job"), Report(DONE))
    monkeypatch.setattr(InProgress, "exchange", lost)
    with pytest.raises(RedisUnavailableError):
        await bench.fetcher.flush()
    assert bench.outbox.raws("q") == [b"job"]


async def test_a_note_is_sent_after_a_while_for_its_own_sake(bench: Bench) -> None:
    raw, held = b"job", bench.keys.inprogress("q", IDENTITY)
    job = delivery(raw)
    await bench.redis.lpush(held, raw)
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.waiter.blocked)
    for value in (b"1", b"2"):
        bench.outbox.note(job, [StoreValue("v", value, 60)])
    await async_wait_for(lambda: not bench.outbox)
    assert await bench.redis.get(bench.keys.own("v")) == b"2"
    assert await bench.redis.lrange(held, 0, -1) == [raw]
    assert bench.settled == []


async def test_what_is_noted_while_the_reply_is_missing_or_lost_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, held = b"job", bench.keys.inprogress("q", IDENTITY)
    job = delivery(raw)
    await bench.redis.lpush(held, raw)
    exchange, later = InProgress.exchange, iter([b"2", b"3"])

    async def answered(*args: Any) -> object:
        found = await exchange(*args)
        if value := next(later, None):
            bench.outbox.note(job, [StoreValue("v", value, 60)])
            if value == b"2":
                raise RedisUnavailableError("the reply is lost")
        return found

    monkeypatch.setattr(InProgress, "exchange", answered)
    bench.outbox.note(job, [StoreValue("v", b"1", 60)])
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: not bench.outbox)
    assert await bench.redis.get(bench.keys.own("v")) == b"3"


async def test_an_outcome_takes_along_what_its_job_has_noted(bench: Bench) -> None:
    raw, held = b"job", bench.keys.inprogress("q", IDENTITY)
    job = delivery(raw)
    await bench.redis.lpush(held, raw)
    bench.outbox.note(job, [StoreValue("a", b"1", 60), StoreValue("b", b"1", 60)])
    # The note may be under way now, and its reply be lost.
    under_way = bench.outbox.portion()
    bench.outbox.settle(job, Report(DONE.with_effects(StoreValue("b", b"2", 60))))
    bench.outbox.taken(under_way)
    assert (len(bench.outbox), bench.outbox.outcomes) == (1, 1)
    await bench.fetcher.flush()
    assert await bench.redis.mget(*map(bench.keys.own, "ab")) == [b"1", b"2"]
    assert (await bench.redis.llen(held), len(bench.settled)) == (0, 1)


async def test_a_note_of_a_large_job_does_not_send_the_job(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, held = random.Random(1).randbytes(3_000_000), bench.keys.inprogress("q", IDENTITY)
    await bench.redis.lpush(bench.keys.queue("q"), raw)
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.jobs.delivered)
    [raw] = bench.jobs.delivered
    job = delivery(raw)
    exchange, extracts = InProgress.exchange, []

    async def noted(*args: Any) -> object:
        extracts.append(args[-1])
        return await exchange(*args)

    monkeypatch.setattr(InProgress, "exchange", noted)
    for value in (b"1", b"2"):
        bench.outbox.note(job, [StoreValue("v", value, 60)])
        await async_wait_for(lambda: not bench.outbox)
        assert await bench.redis.get(bench.keys.own("v")) == value
    bench.outbox.settle(job, Report(DONE))
    await async_wait_for(lambda: not bench.outbox)
    assert await bench.redis.llen(held) == 0
    assert [list(sent) for sent in extracts if sent] == [[0], [0], [0]]


class Ending(FakeJobs):
    """As many idle workers as wanted; a job that ends is known no more."""

    def end(self, raw: bytes) -> None:
        self.by_queue["q"] = [job for job in self.by_queue["q"] if job is not raw]
        self.free += 1


class LargeBench(Bench):
    """Large jobs, and one of another size at times."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.rng = random.Random(12)
        self.held = self.keys.inprogress("q", IDENTITY)

    def jobs_of(self) -> FakeJobs:
        return Ending()

    async def push(self, *sizes: int) -> list[bytes]:
        jobs = [self.rng.randbytes(size) for size in sizes]
        await self.redis.lpush(self.keys.queue("q"), *jobs)
        return jobs

    async def running(self, number: int) -> list[bytes]:
        """The jobs that run, once there are this many, and Redis has the outcomes of all others."""
        running = self.jobs.by_queue.setdefault("q", [])
        await async_wait_for(lambda: len(self.jobs.raws("q")) == number and not self.outbox)
        assert Counter(await self.redis.lrange(self.held, 0, -1)) == Counter(running)
        return self.jobs.raws("q")

    def end(self, raw: bytes, outcome: Outcome = DONE) -> None:
        assert isinstance(self.jobs, Ending)
        self.outbox.settle(delivery(raw), Report(outcome))
        self.jobs.end(raw)


large_bench = bench_fixture(LargeBench)


@pytest.mark.parametrize("meddle", [False, True])
async def test_large_jobs_are_settled_in_any_order_while_others_change_their_list(
    large_bench: LargeBench, monkeypatch: pytest.MonkeyPatch, meddle: bool
) -> None:
    bench, rng = large_bench, random.Random(7)
    monkeypatch.setattr(fetcher_module, "_PAUSE_S", 0)
    by_transaction = 0

    async def counted(*args: Any) -> Any:
        nonlocal by_transaction
        result = await exchange_watched(*args)
        by_transaction += result is not None
        return result

    monkeypatch.setattr(fetcher_module, "exchange_watched", counted)
    bench.jobs.free = 6
    await bench.push(*[40_000] * 60)
    bench.start(bench.fetcher.run())
    dead = 0
    for turn in range(50):
        running = await bench.running(6)
        if meddle and turn % 5 == 0:
            # A small job, or a job that goes elsewhere, among the large ones.
            await bench.push(*rng.choices([100, 40_000], k=2))
        ended = rng.sample(running, rng.randrange(1, 4))
        for raw in ended:
            died = meddle and rng.random() < 0.1
            dead += died
            bench.end(raw, Outcome(Fate.DEAD) if died else DONE)
        await bench.push(*[40_000] * len(ended))
    await bench.running(6)
    assert by_transaction > (5 if meddle else 40)
    assert await bench.redis.zcard(bench.keys.dead) == dead


async def test_no_large_job_is_taken_under_a_lost_identity(large_bench: LargeBench) -> None:
    bench = large_bench
    bench.jobs.free = 3
    await bench.push(*[40_000] * 9)
    bench.start(bench.fetcher.run())
    running = await bench.running(3)
    bench.end(running[0])
    await bench.running(3)
    await bench.redis.set(bench.keys.tombstone(IDENTITY), 1)
    bench.end(bench.jobs.raws("q")[0])
    await async_wait_for(lambda: bench.lost == [IDENTITY])
    # The script settles an outcome nevertheless, if the list has its job, but nothing is taken.
    assert await bench.redis.llen(bench.held) == 2
    assert await bench.redis.llen(bench.keys.queue("q")) == 5


async def test_an_exchange_takes_few_large_jobs_and_many_small_ones(
    large_bench: LargeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = large_bench
    fetches: list[int] = []
    start = Fetcher._start

    def counted(fetcher: Fetcher, found: Sequence[tuple[str, Sequence[bytes]]]) -> int:
        if number := start(fetcher, found):
            fetches.append(number)
        return number

    monkeypatch.setattr(Fetcher, "_start", counted)
    await bench.push(*[400_000] * 17, *[100] * 19)
    bench.jobs.free = 12
    bench.start(bench.fetcher.run())
    await bench.running(12)
    bench.jobs.free = 12
    bench.fetcher.wake()
    await bench.running(24)
    bench.jobs.free = 12
    bench.fetcher.wake()
    await bench.running(36)
    # 2 MB at most, if the next jobs are like the last ones.
    assert fetches == [12, 5, 5, 2, 12]


async def test_while_nothing_can_be_settled_nothing_is_fetched(bench: Bench) -> None:
    await bench.redis.hdel(bench.keys.owners, IDENTITY)
    await bench.redis.lpush(bench.keys.queue("q"), b"job")
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.health.troubles == {"fetcher q": ["UNREGISTERED"]})
    assert bench.jobs.delivered == []
    await bench.redis.hset(bench.keys.owners, IDENTITY, '["q"]')
    await async_wait_for(lambda: bench.jobs.delivered == [b"job"])


async def check_that_it_asks_once_registered(bench: Bench) -> None:
    """Continue under a new identity: before its registration, Redis would refuse."""
    new = "host:1:new"
    await bench.redis.lpush(bench.keys.queue("q"), b"job")
    bench.fetcher.move_to(new)
    await bench.fetcher._round()
    assert (bench.health.troubles, bench.jobs.delivered) == ({}, [])
    await bench.redis.hset(bench.keys.owners, new, '["q"]')
    bench.start(bench.fetcher.run())
    bench.registered.add(new)
    bench.fetcher.wake()
    await async_wait_for(lambda: bench.jobs.delivered == [b"job"])


async def test_a_new_identity_asks_for_nothing_until_it_is_registered(bench: Bench) -> None:
    await check_that_it_asks_once_registered(bench)


async def test_a_fetcher_that_is_made_before_the_registration_waits_for_it(bench: Bench) -> None:
    """A reload may make a manager between a lost lease and the next registration."""
    bench.registered.clear()
    await bench.redis.hdel(bench.keys.owners, IDENTITY)
    await bench.redis.lpush(bench.keys.queue("q"), b"job")
    await bench.fetcher._round()
    assert (bench.health.troubles, bench.jobs.delivered) == ({}, [])
    await bench.prepare()
    bench.registered.add(IDENTITY)
    await bench.fetcher._round()
    assert bench.jobs.delivered == [b"job"]


async def test_what_came_for_an_earlier_incarnation_is_given_back_once_redis_is_there_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_back = InProgress.give_back
    outages = iter([RedisUnavailableError("away"), RedisUnavailableError("away")])

    def given_back_in_the_end(inprogress: InProgress, queue: str) -> Request[int]:
        if outage := next(outages, None):
            raise outage
        return give_back(inprogress, queue)

    monkeypatch.setattr(InProgress, "give_back", given_back_in_the_end)

    earlier, queue = bench.keys.inprogress("q", "host:1:earlier"), bench.keys.queue("q")
    await bench.redis.lpush(earlier, b"job")
    await bench.fetcher.clear_out("host:1:earlier")
    assert await bench.redis.lrange(queue, 0, -1) == [b"job"]
    assert not await bench.redis.exists(earlier)


@pytest.mark.fault("R3")
async def test_a_job_whose_fetch_reply_is_only_late_is_not_adopted_as_well(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is, the reply does not count as lost.
    monkeypatch.setattr(source_module, "PATIENCE_S", PATIENCE_S)
    proxy = bench.ends.enter_context(proxied(bench.config.url))
    trap = proxy.trap(Trap(b"BRPOPLPUSH", b"late", "hold"))
    await bench.waiter.connect_to(replace(bench.config, url=proxy.url))
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.waiter.blocked)
    await bench.redis.lpush(bench.keys.queue("q"), b"late")
    await async_wait_for(lambda: trap.sprung)
    for _ in range(3):
        await bench.fetcher.adopt()
    assert bench.jobs.delivered == []
    trap.release()
    await async_wait_for(lambda: bench.jobs.delivered)
    await bench.fetcher.adopt()
    assert bench.jobs.delivered == [b"late"]


@pytest.mark.parametrize(("stops_after", "asked"), [(0, []), (1, ["held"]), (2, ["held", "inprogress"])])
async def test_a_fetcher_that_stops_looks_for_no_strays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, stops_after: int, asked: list[str]
) -> None:
    questions: list[str] = []

    names = {"LLEN": "held", "LRANGE": "inprogress"}
    send = bench.link.execute_command

    async def noted(*command: Any, **options: Any) -> object:
        reply = await send(*command, **options)
        if command[0] in names:
            questions.append(names[command[0]])
            bench.fetcher.fetch("q" if len(questions) < stops_after else ())
        return reply

    monkeypatch.setattr(bench.link, "execute_command", noted)
    await bench.redis.lpush(bench.keys.inprogress("q", IDENTITY), b"stray")
    bench.fetcher.fetch("q" if stops_after > 0 else ())
    await bench.fetcher.adopt()
    await bench.fetcher.adopt()
    assert (questions, bench.jobs.delivered) == (asked, [])


async def test_quiet_waits_for_an_exchange_that_may_still_take_jobs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = InProgress.exchange
    asked, sent = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any) -> object:
        asked.set()
        await sent.wait()
        return await exchange(*args)

    monkeypatch.setattr(InProgress, "exchange", slow)
    bench.start(bench.fetcher.run())
    await asked.wait()
    bench.fetcher.fetch(())
    quiet = asyncio.create_task(bench.fetcher.quiet())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not quiet.done()
    await bench.redis.lpush(bench.keys.queue("q"), b"early")
    sent.set()
    await quiet
    assert bench.jobs.delivered == [b"early"]
    bench.jobs.free = 1
    await bench.redis.lpush(bench.keys.queue("q"), b"late")
    bench.outbox.changed.set()
    await asyncio.sleep(0)
    assert await bench.waiting() == [b"late"]


async def test_its_end_waits_for_the_reply_and_no_other_exchange_begins(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = InProgress.exchange
    asked, sent = asyncio.Event(), asyncio.Event()
    batches = []

    async def slow(inprogress: InProgress, link: Link, batch: Any, *args: Any) -> Any:
        batches.append(batch)
        asked.set()
        await sent.wait()
        return await exchange(inprogress, link, batch, *args)

    monkeypatch.setattr(InProgress, "exchange", slow)
    bench.jobs.free = 0
    await bench.redis.lpush(bench.keys.inprogress("q", IDENTITY), b"earlier", b"later")
    bench.outbox.settle(delivery(b"earlier"), Report(DONE))
    run = bench.start(bench.fetcher.run())
    await asked.wait()
    end = asyncio.create_task(bench.fetcher.end())
    await asyncio.sleep(0)
    bench.outbox.settle(delivery(b"later"), Report(DONE))
    assert not end.done()
    sent.set()
    await end
    # The first outcome is settled and counted; the other one is left to ``flush``.
    assert (bench.settled, len(bench.outbox), run.done()) == ([Report(DONE)], 1, False)
    await cancel([run])
    await bench.fetcher.flush()
    assert [[job.raw for job in batch] for batch in batches] == [[b"earlier"], [b"later"]]
    assert len(bench.settled) == 2


@pytest.mark.fault("H5")
@pytest.mark.parametrize("executed", [False, True], ids=["request lost", "reply lost"])
async def test_a_job_is_given_back_once_although_its_exchange_is_sent_twice_and_a_move_waits_for_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, executed: bool
) -> None:
    exchange = InProgress.exchange
    lost: list[Any] = []

    async def lose_the_first(inprogress: InProgress, link: Link, batch: Any, *args: Any) -> Any:
        if not batch or lost:
            return await exchange(inprogress, link, batch, *args)
        lost.append(batch)
        if executed:
            await exchange(inprogress, link, batch, *args)
            # A move that waits gets the job now.
            await async_wait_for(lambda: not bench.waiter.blocked or bench.jobs.delivered)
        raise RedisUnavailableError("the reply is lost")

    monkeypatch.setattr(InProgress, "exchange", lose_the_first)
    held, queue = bench.keys.inprogress("q", IDENTITY), bench.keys.queue("q")
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.waiter.blocked)
    await bench.redis.lpush(held, b"job")
    bench.outbox.give_back([delivery(b"job")])
    await async_wait_for(lambda: lost and not bench.outbox)
    await async_wait_for(lambda: bench.jobs.delivered, message="it comes again, as no other server wants it")
    assert bench.jobs.delivered == [b"job"]
    assert await bench.redis.lrange(held, 0, -1) == [b"job"]
    assert await bench.redis.lrange(queue, 0, -1) == []


@pytest.mark.fault("P10")
@pytest.mark.parametrize("stops", [False, True], ids=["running", "at a stop"])
async def test_an_outcome_that_redis_cuts_off_is_dead_by_its_own_bytes_and_the_others_are_settled(
    bench: Bench, stops: bool
) -> None:
    large = b"x" * 1_044_701
    others = [b"job %d" % number for number in range(5)]
    await bench.redis.lpush(bench.fetcher._inprogress.key("q"), large, *others)
    await bench.redis.config_set("proto-max-bulk-len", 1 << 20)
    try:
        for raw in others[:2]:
            bench.outbox.settle(delivery(raw), Report(DONE))
        bench.outbox.settle(
            delivery(large), Report(Outcome(Fate.RETRY, 1.0, large + b"y" * 9000, failed=True))
        )
        for raw in others[2:]:
            bench.outbox.settle(delivery(raw), Report(DONE))
        if stops:
            await bench.fetcher.flush()
        else:
            bench.start(bench.fetcher.run())
        await async_wait_for(lambda: len(bench.settled) == 6)
    finally:
        await bench.redis.config_set("proto-max-bulk-len", 512 << 20)
    assert await bench.redis.zrange(bench.keys.dead, 0, -1) == [large]
    assert await bench.redis.llen(bench.fetcher._inprogress.key("q")) == 0
    assert await bench.redis.zcard(bench.keys.retry) == 0
    assert [report.outcome.fate for report in bench.settled].count(Fate.DEAD) == 1


async def test_a_job_that_a_wait_brings_after_a_check_is_given_back_at_the_end(bench: Bench) -> None:
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.waiter.blocked)
    bench.fetcher.is_empty(bench.fetcher.fetches)
    await bench.redis.lpush(bench.keys.queue("q"), b"job")
    await async_wait_for(lambda: bench.jobs.delivered == [b"job"])
    assert await bench.fetcher.give_back() == 1
    assert await bench.waiting() == [b"job"]
