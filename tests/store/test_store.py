"""The store's operations against real servers: each change of state is one script, and happens once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import RedisUnavailableError, StoreError
from pyworkers.protocol.effects import FreeSlot
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Outcome, Report
from pyworkers.store import counters
from pyworkers.store.acl import Role
from pyworkers.store.calls import arun
from pyworkers.store.jobs import InProgress, LeaseLostError, Settlement, Waiter
from pyworkers.store.leases import LeaseState
from pyworkers.store.sets import DEAD_MAX_JOBS
from pyworkers.store.transport.connections import connect_async
from tests.helpers.acl import url_of
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.owner import Owner
from tests.helpers.replies import as_scores
from tests.helpers.support import async_wait_for, stretched

NOW = 1_795_225_197.5


class Bench(RedisBench):
    """Stores of several incarnations."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        # The stores do all their work with the rights of a worker.
        self.config = RedisConfig(url=url_of(url, Role.WORKER, namespace), namespace=namespace)

    async def prepare(self) -> None:
        await self.redis.hset(self.keys.owners, "host:1:aaaaaa", '["q"]')

    def store(self, identity: str = "host:1:aaaaaa") -> Owner:
        return Owner(self.connection(), self.keys, identity)

    def waiter(self) -> Waiter:
        waiter = Waiter(self.config)
        self.ends.push_async_callback(waiter.close)
        return waiter

    async def wait(self, waiter: Waiter, taken: Callable[[bytes], None]) -> None:
        """Wait for a job of the queue ``q``."""
        inprogress = InProgress(self.keys, ["q"], "host:1:aaaaaa")
        await waiter.wait(inprogress.source("q"), inprogress.key("q"), taken)

    async def push(self, queue: str, *jobs: bytes) -> None:
        await self.redis.lpush(self.keys.queue(queue), *jobs)

    async def members(self, zset: str) -> list[tuple[bytes, float]]:
        return as_scores(await self.redis.zrange(zset, 0, -1, withscores=True))


bench = bench_fixture(Bench)


async def test_jobs_are_taken_first_in_first_out_and_never_more_than_wanted(bench: Bench) -> None:
    store = bench.store()
    await bench.push("q", b"1", b"2", b"3")
    assert (await store.exchange("q", [], 2, NOW)).jobs == [b"1", b"2"]
    assert await store.inprogress("q") == [b"2", b"1"]
    assert await bench.waiting("q") == [b"3"]


@pytest.mark.parametrize(
    ("outcome", "zset", "expected"),
    [
        (DONE, None, []),
        (Outcome(Fate.DISCARD, failed=True), None, []),
        (Outcome(Fate.RETRY, at=NOW + 15, payload=b"again"), "retry", [(b"again", NOW + 15)]),
        (Outcome(Fate.SNOOZE, at=NOW + 60), "schedule", [(b"job", NOW + 60)]),
        (Outcome(Fate.DEAD, payload=b"corpse"), "dead", [(b"corpse", NOW)]),
        (Outcome(Fate.DEAD), "dead", [(b"job", NOW)]),
    ],
)
async def test_an_outcome_moves_the_job_to_its_place(
    bench: Bench, outcome: Outcome, zset: str | None, expected: list[tuple[bytes, float]]
) -> None:
    store = bench.store()
    await bench.push("q", b"job")
    await store.exchange("q", [], 1, NOW)
    assert (await store.exchange("q", [(b"job", outcome)], 0, NOW)).stale == []
    assert await store.inprogress("q") == []
    found = {name: await bench.members(getattr(bench.keys, name)) for name in ("retry", "schedule", "dead")}
    assert found == {name: expected if name == zset else [] for name in found}


async def test_a_requeued_job_is_next_in_line(bench: Bench) -> None:
    store = bench.store()
    await bench.push("q", b"1", b"2")
    await store.exchange("q", [], 1, NOW)
    await store.exchange("q", [(b"1", REQUEUE)], 0, NOW)
    assert await bench.waiting("q") == [b"1", b"2"]


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("retry", Outcome(Fate.RETRY, NOW)),
        ("schedule", Outcome(Fate.SNOOZE, NOW)),
        ("dead", Outcome(Fate.DEAD)),
    ],
)
async def test_an_outcome_that_has_nowhere_to_go_leaves_the_job_where_it_is(
    bench: Bench, name: str, outcome: Outcome
) -> None:
    store = bench.store()
    await bench.push("q", b"1", b"2")
    await store.exchange("q", [], 2, NOW)
    key = getattr(bench.keys, name)
    await bench.redis.set(key, "neither list nor set")
    with pytest.raises(StoreError, match=f"{key} is no"):
        await store.exchange("q", [(b"1", DONE), (b"2", outcome)], 1, NOW)
    assert await store.inprogress("q") == [b"2", b"1"]
    await bench.redis.delete(key)
    assert (await store.exchange("q", [(b"1", DONE), (b"2", outcome)], 0, NOW)).stale == []
    assert await store.inprogress("q") == []


async def test_a_requeued_job_whose_queue_is_no_list_is_left_and_the_others_are_settled(bench: Bench) -> None:
    store = bench.store()
    await bench.push("q", b"1", b"2", b"3")
    await store.exchange("q", [], 3, NOW)
    key = bench.keys.queue("q")
    await bench.redis.set(key, "no list")
    slot = FreeSlot("slots", "me")
    await bench.redis.sadd(bench.keys.own("slots"), "me")
    batch = [(b"1", DONE), (b"2", REQUEUE.with_effects(slot)), (b"3", Outcome(Fate.RETRY, NOW))]
    found = await store.exchange("q", batch, 0, NOW)
    assert (found.stale, found.left) == ([], [1])
    assert found.refused["q"].message.endswith(f"WRONGTYPE {key} is not a list")
    assert await store.inprogress("q") == [b"2"]
    assert await bench.members(bench.keys.retry) == [(b"3", NOW)]
    assert await bench.redis.scard(bench.keys.own("slots")) == 1
    await bench.redis.delete(key)
    assert (await store.exchange("q", batch[1:2], 0, NOW)).left == ()
    assert await bench.waiting("q") == [b"2"]
    assert await bench.redis.scard(bench.keys.own("slots")) == 0


async def test_the_queues_of_a_group_are_emptied_in_the_order_asked_for(bench: Bench) -> None:
    store = bench.store()
    await bench.push("a", b"a1", b"a2")
    await bench.push("c", b"c1", b"c2", b"c3")
    taken = []
    for order in (["c", "b", "a"], ["a", "b", "c"], ["a", "b"], ["b"]):
        taken.append((await store.exchange_all(["a", "b", "c"], [], 2, order, NOW)).jobs)
    assert taken == [
        [("c", [b"c1", b"c2"])],
        [("a", [b"a1", b"a2"])],
        [("a", []), ("b", [])],
        [("b", [])],
    ]
    found = await store.exchange_all(["a", "b", "c"], [], 2, ["a", "b", "c"], NOW)
    assert found.jobs == [("a", []), ("b", []), ("c", [b"c3"])]
    assert [await store.inprogress(queue) for queue in "abc"] == [[b"a2", b"a1"], [], [b"c3", b"c2", b"c1"]]


async def test_equal_jobs_of_two_queues_are_settled_each_in_its_own_list(bench: Bench) -> None:
    store = bench.store()
    queues = ["a", "b"]
    await bench.push("a", b"{}", b"a")
    await bench.push("b", b"{}")
    await store.exchange_all(queues, [], 3, queues, NOW)
    batch = [
        Settlement("b", b"{}", Report(REQUEUE)),
        Settlement("a", b"a", Report(Outcome(Fate.SNOOZE, NOW))),
        Settlement("b", b"a", Report(DONE)),
    ]
    found = await store.exchange_all(queues, batch, 0, (), NOW)
    assert (found.jobs, found.stale) == ([], [2])
    assert [await store.inprogress(queue) for queue in queues] == [[b"{}"], []]
    assert [await bench.waiting(queue) for queue in queues] == [[], [b"{}"]]
    assert await bench.members(bench.keys.schedule) == [(b"a", NOW)]


async def test_a_queue_of_the_wrong_type_stops_no_other_queue_of_its_group(bench: Bench) -> None:
    store = bench.store()
    queues = ["a", "broken", "stolen", "z"]
    await bench.push("a", b"a")
    await bench.push("stolen", b"s")
    await store.exchange_all(queues, [], 2, ["a", "stolen"], NOW)
    await bench.push("z", b"z")
    await bench.redis.set(bench.keys.queue("broken"), "no list")
    await bench.redis.set(bench.keys.inprogress("stolen", store.identity), "no list")
    ended = (("a", b"a"), ("stolen", b"s"), ("a", b"late"))
    batch = [Settlement(queue, raw, Report(DONE)) for queue, raw in ended]
    found = await store.exchange_all(queues, batch, 3, queues, NOW)
    assert found.jobs == [("a", []), ("broken", []), ("stolen", []), ("z", [b"z"])]
    assert (found.stale, found.left, found.error) == ([2], [1], None)
    assert {queue: error.code for queue, error in found.refused.items()} == {
        "broken": "WRONGTYPE",
        "stolen": "WRONGTYPE",
    }
    assert await store.inprogress("a") == []


async def test_a_batch_that_is_sent_twice_is_applied_once(bench: Bench) -> None:
    store = bench.store()
    await bench.push("q", b"a", b"b")
    await store.exchange("q", [], 2, NOW)
    batch = [(b"a", Outcome(Fate.RETRY, NOW + 1, b"a2")), (b"b", Outcome(Fate.DEAD, payload=b"b2"))]
    assert (await store.exchange("q", batch, 0, NOW)).stale == []
    await bench.redis.delete(bench.keys.retry, bench.keys.dead)
    assert (await store.exchange("q", batch, 0, NOW)).stale == [0, 1]
    assert await bench.members(bench.keys.retry) == []
    assert await bench.members(bench.keys.dead) == []


async def test_equal_jobs_are_settled_one_by_one_and_never_merge(bench: Bench) -> None:
    store = bench.store()
    await bench.push("q", b"{}", b"{}")
    await store.exchange("q", [], 2, NOW)
    retried = Outcome(Fate.RETRY, NOW + 1, b'{"x":1}')
    await store.exchange("q", [(b"{}", retried)], 0, NOW)
    assert await store.inprogress("q") == [b"{}"]
    await store.exchange("q", [(b"{}", retried)], 0, NOW)
    assert await bench.members(bench.keys.retry) == [(b'{"x":1}', NOW + 1), (b'{"x":1} ', NOW + 1)]


async def test_dead_is_trimmed_by_age_and_size(bench: Bench) -> None:
    store = bench.store()
    day = 86_400
    await bench.redis.zadd(bench.keys.dead, {"old": NOW - 181 * day, "young": NOW - 179 * day})
    await bench.redis.zadd(bench.keys.dead, {f"d{n}": NOW - 10 + n / 1e6 for n in range(DEAD_MAX_JOBS - 1)})
    await bench.push("q", b"job")
    await store.exchange("q", [], 1, NOW)
    await store.exchange("q", [(b"job", Outcome(Fate.DEAD))], 0, NOW)
    assert await bench.redis.zcard(bench.keys.dead) == DEAD_MAX_JOBS
    assert await bench.redis.zscore(bench.keys.dead, "old") is None
    assert await bench.redis.zscore(bench.keys.dead, "young") is None
    assert await bench.redis.zscore(bench.keys.dead, "job") == NOW


async def test_a_dead_set_of_another_program_is_trimmed_by_a_thousand_a_call(bench: Bench) -> None:
    store = bench.store()
    foreign = {f"d{n:04}": NOW - 181 * 86_400 + n for n in range(2500)}
    await bench.redis.zadd(
        bench.keys.dead, {f"e{n}": NOW - 10 + n / 1e6 for n in range(DEAD_MAX_JOBS)} | foreign
    )
    left = []
    for job in (b"1", b"2", b"3"):
        await bench.push("q", job)
        await store.exchange("q", [], 1, NOW)
        await store.exchange("q", [(job, Outcome(Fate.DEAD))], 0, NOW)
        left.append(await bench.redis.zcard(bench.keys.dead) - DEAD_MAX_JOBS)
    assert left == [1501, 502, 0]
    assert await bench.redis.zscore(bench.keys.dead, "3") == NOW
    assert await bench.redis.zscore(bench.keys.dead, "d2499") is None
    # Several that die together, too.
    await bench.redis.zadd(bench.keys.dead, foreign)
    await bench.push("q", b"4", b"5", b"6")
    await store.exchange("q", [], 3, NOW)
    await store.exchange("q", [(job, Outcome(Fate.DEAD)) for job in (b"4", b"5", b"6")], 0, NOW)
    assert await bench.redis.zcard(bench.keys.dead) - DEAD_MAX_JOBS == 2500 + 3 - 1000


async def test_an_owner_whose_lists_were_recovered_takes_nothing(bench: Bench) -> None:
    store, peer = bench.store("host:1:aaaaaa"), bench.store("host:2:bbbbbb")
    await bench.push("q", b"1", b"2", b"3")
    await store.renew(0.05, ["q"])
    await store.exchange("q", [], 2, NOW)
    await async_wait_for(peer.silent_owners, message="the lease has expired")
    assert await peer.recover("host:1:aaaaaa", ["q"], 100) == 2
    with pytest.raises(LeaseLostError):
        await store.exchange("q", [], 1, NOW)
    assert (await store.exchange("q", [(b"1", DONE)], 0, NOW)).stale == [0]
    assert await store.renew(30, ["q"]) is LeaseState.LOST
    assert await bench.waiting("q") == [b"1", b"2", b"3"]


async def test_a_lease_is_held_and_made_again_when_it_was_deleted(bench: Bench) -> None:
    store = bench.store()
    assert await store.renew(30, ["q"]) is LeaseState.RESTORED
    assert await store.renew(30, ["q"]) is LeaseState.HELD
    await bench.redis.delete(bench.keys.lease(store.identity))
    assert await store.renew(30, ["q"]) is LeaseState.RESTORED
    assert 29_000 < await bench.redis.pttl(bench.keys.lease(store.identity)) <= 30_000


async def test_no_peer_recovers_from_a_live_owner(bench: Bench) -> None:
    store, peer = bench.store("host:1:aaaaaa"), bench.store("host:2:bbbbbb")
    await bench.push("q", b"1")
    await store.renew(30, ["q"])
    await store.exchange("q", [], 1, NOW)
    assert await peer.silent_owners() == {}
    assert await peer.recover("host:1:aaaaaa", ["q"], 100) == -1
    assert await store.inprogress("q") == [b"1"]


async def test_owners_that_another_program_has_written_hide_no_other(bench: Bench) -> None:
    written = {
        b"host:2:bbbbbb": b'["q"]',
        b"\xff:1:aaaaaa": b'["q"]',
        b"nested:1:aaaaaa": b"[" * 100_000,
        b"object:1:aaaaaa": b"{}",
        b"names:1:aaaaaa": b'["q", 1, "\\ud800", ""]',
    }
    for name, stored in written.items():
        await bench.redis.hset(bench.keys.owners, name, stored)
    peer = bench.store("host:1:aaaaaa")
    silent = await peer.silent_owners()
    assert silent == {
        "host:2:bbbbbb": ["q"],
        "\udcff:1:aaaaaa": ["q"],
        "nested:1:aaaaaa": [],
        "object:1:aaaaaa": [],
        "names:1:aaaaaa": ["q"],
    }
    for identity, queues in silent.items():
        assert await peer.recover(identity, queues or [], 100) == 0
    assert await peer.silent_owners() == {}


@pytest.mark.fault("R11")
async def test_twenty_peers_recover_each_job_once_and_in_order(bench: Bench) -> None:
    store = bench.store()
    jobs = [b"%d" % number for number in range(100)]
    await bench.push("q", *jobs)
    await store.renew(0.02, ["q", "empty"])
    await store.exchange("q", [], 70, NOW)
    peers = [bench.store(f"host:{number}:abcdef") for number in range(20)]
    await async_wait_for(peers[0].silent_owners, message="the lease has expired")
    assert await peers[0].silent_owners() == {"host:1:aaaaaa": ["q", "empty"]}

    async def sweep(peer: Owner) -> int:
        return await peer.recover("host:1:aaaaaa", ["q", "empty"], 16)

    moved = 0
    while recovered := sum(await asyncio.gather(*map(sweep, peers))):
        moved += recovered
    assert moved == 70
    assert await bench.waiting("q") == jobs
    assert await peers[0].silent_owners() == {}


async def test_large_jobs_return_to_their_queue_in_several_calls(bench: Bench) -> None:
    """A call with hundreds of megabytes blocks Redis for seconds."""

    store, peer = bench.store(), bench.store("host:2:bbbbbb")
    jobs = [b'{"args":["%s"],"n":%d}' % (b"x" * 1_500_000, number) for number in range(4)]
    await bench.push("q", *jobs)
    await store.renew(30, ["q"])
    await store.exchange("q", [], 4, NOW)
    held = InProgress(bench.keys, ["q"], store.identity)
    assert [await arun(bench.redis, held.give_back("q")) for _ in range(3)] == [3, 1, 0]
    assert await bench.waiting("q") == jobs
    await store.exchange("q", [], 4, NOW)
    await bench.redis.delete(bench.keys.lease(store.identity))
    assert await peer.recover(store.identity, ["q"], 100) == 3
    assert list(await peer.silent_owners()) == [store.identity]
    assert await peer.recover(store.identity, ["q"], 100) == 1
    assert await bench.waiting("q") == [job + b"\t" for job in jobs]
    assert await peer.silent_owners() == {}


async def test_jobs_are_taken_while_memory_is_full(bench: Bench) -> None:
    """Only they make room."""

    store = bench.store()
    await bench.push("q", b"1", b"2")
    await store.renew(30, ["q"])
    await bench.redis.config_set("maxmemory", 1)
    try:
        assert (await store.exchange("q", [], 1, NOW)).jobs == [b"1"]
        assert (await store.exchange("q", [(b"1", DONE)], 1, NOW)).jobs == [b"2"]
    finally:
        await bench.redis.config_set("maxmemory", 0)


@pytest.mark.parametrize("jobs", [0, 5])
async def test_the_dead_are_listed_no_more_from_the_first_step_on(bench: Bench, jobs: int) -> None:
    store, peer, keys = bench.store(), bench.store("host:2:bbbbbb"), bench.keys
    for number in range(jobs):
        await bench.push("q", b"%d" % number)
    await store.renew(30, ["q"])
    await store.exchange("q", [], jobs, NOW)
    await bench.redis.sadd(keys.processes, store.identity, "sidekiq:1:abc")
    await bench.redis.hset(keys.process(store.identity), "worker_heartbeats", "[]")
    await bench.redis.hset(keys.work(store.identity), "1.1", "{}")
    await bench.redis.lpush(keys.signals(store.identity), "TERM")
    assert await peer.recover(store.identity, ["q"], 2) == -1
    assert await bench.redis.scard(keys.processes) == 2
    await bench.redis.delete(keys.lease(store.identity))
    assert await peer.recover(store.identity, ["q"], 2) == min(jobs, 2)
    assert await bench.redis.smembers(keys.processes) == {b"sidekiq:1:abc"}
    assert not await bench.redis.exists(keys.work(store.identity), keys.signals(store.identity))
    assert await bench.redis.exists(keys.process(store.identity))


async def test_a_list_of_processes_that_is_no_set_keeps_no_job(bench: Bench) -> None:
    store, peer = bench.store(), bench.store("host:2:bbbbbb")
    await bench.push("q", b"1")
    await store.renew(30, ["q"])
    await store.exchange("q", [], 1, NOW)
    await bench.redis.set(bench.keys.processes, "no set")
    await bench.redis.delete(bench.keys.lease(store.identity))
    assert await peer.recover(store.identity, ["q"], 100) == 1
    assert await bench.waiting("q") == [b"1"]


async def test_jobs_whose_queue_is_no_list_stay_until_it_is(bench: Bench) -> None:
    """An error after the removal would lose them: a script is not undone."""

    store, peer = bench.store(), bench.store("host:2:bbbbbb")
    await bench.push("q", b"1", b"2")
    await bench.push("good", b"3")
    await store.renew(30, ["q", "good"])
    for queue in ("q", "good"):
        await store.exchange(queue, [], 2, NOW)
    await bench.redis.set(bench.keys.queue("q"), "no list")
    assert await store.give_back("q") == 0
    await bench.redis.delete(bench.keys.lease(store.identity))
    assert await peer.recover(store.identity, ["q", "good"], 100) == 1
    assert await bench.waiting("good") == [b"3"]
    assert await store.inprogress("q") == [b"2", b"1"]
    assert list(await peer.silent_owners()) == [store.identity], "a peer will look again"
    await bench.redis.delete(bench.keys.queue("q"))
    assert await peer.recover(store.identity, ["q", "good"], 100) == 2
    assert await bench.waiting("q") == [b"1", b"2"]
    assert await peer.silent_owners() == {}


async def test_giving_back_restores_the_order(bench: Bench) -> None:
    store = bench.store()
    jobs = [b"%d" % number for number in range(7)]
    await bench.push("q", *jobs)
    await store.exchange("q", [], 5, NOW)
    assert await store.give_back("q", most=2) == 5
    assert await bench.waiting("q") == jobs
    assert await bench.redis.smembers(bench.keys.queues) == {b"q"}


async def test_a_forgotten_script_is_sent_again(bench: Bench) -> None:
    store = bench.store()
    await store.exchange("q", [], 1, NOW)
    await bench.redis.script_flush()
    await bench.push("q", b"1")
    assert (await store.exchange("q", [], 1, NOW)).jobs == [b"1"]


async def test_a_wrong_type_is_a_named_error_and_what_was_settled_stays_settled(bench: Bench) -> None:
    await bench.redis.set(bench.keys.queue("q"), "a string")
    store = bench.store()
    held = bench.keys.inprogress("q", store.identity)
    await bench.redis.lpush(held, "job")
    exchange = await store.exchange("q", [(b"job", DONE), (b"no", DONE)], 1, NOW)
    assert exchange.error is None
    assert [(queue, error.code) for queue, error in exchange.refused.items()] == [("q", "WRONGTYPE")]
    assert exchange.stale == [1]
    assert await store.inprogress("q") == []
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await bench.wait(bench.waiter(), never)


async def test_counters_are_sidekiqs(bench: Bench) -> None:
    for added in ({"processed": 3, "failed": 1}, {"processed": 2}):
        await arun(bench.redis, counters.add(bench.keys, added, "2026-11-21"))
    assert await bench.redis.get(bench.keys.stat("processed")) == b"5"
    assert await bench.redis.get(bench.keys.stat("failed", "2026-11-21")) == b"1"
    assert await bench.redis.ttl(bench.keys.stat("processed", "2026-11-21")) > 4 * 365 * 86_400


def never(raw: bytes) -> None:
    pytest.fail(f"{raw!r} was taken")


async def test_the_waiter_gets_a_job_as_soon_as_it_is_pushed(bench: Bench) -> None:
    waiter = bench.waiter()
    taken = list[bytes]()
    waiting = asyncio.create_task(bench.wait(waiter, taken.append))
    await bench.push("q", b"1")
    await asyncio.wait_for(waiting, stretched(2))
    assert taken == [b"1"]
    assert await bench.store().inprogress("q") == [b"1"]


async def test_unblocking_the_waiter_takes_no_job(bench: Bench) -> None:
    waiter = bench.waiter()
    waiting = asyncio.create_task(bench.wait(waiter, never))
    while not waiting.done():
        await waiter.unblock(bench.redis)
        await asyncio.sleep(0.01)
    await waiting
    await bench.push("q", b"1")
    assert await bench.waiting("q") == [b"1"]


async def test_a_killed_connection_is_an_outage_and_the_next_wait_works(bench: Bench) -> None:
    waiter = bench.waiter()
    waiting = asyncio.create_task(bench.wait(waiter, never))
    while not (waiter.blocked and waiter._link.client_id):
        await asyncio.sleep(0.01)
    await bench.redis.client_kill_filter(_id=str(waiter._link.client_id), skipme=True)
    with pytest.raises(RedisUnavailableError):
        await waiting
    await bench.push("q", b"1")
    taken = list[bytes]()
    await bench.wait(waiter, taken.append)
    assert taken == [b"1"]


async def test_an_absent_server_is_an_outage() -> None:
    config = RedisConfig(url="redis://127.0.0.1:1/0")
    async with connect_async(config) as redis:
        with pytest.raises(RedisUnavailableError):
            await Owner(redis, Keys(), "host:1:aaaaaa").renew(30, ["q"])


async def test_a_server_that_peers_do_not_know_of_takes_nothing(bench: Bench) -> None:
    await bench.push("q", b"1")
    exchange = await bench.store("host:2:bbbbbb").exchange("q", [], 1, NOW)
    assert exchange.jobs == []
    assert exchange.error is not None and exchange.error.code == "UNREGISTERED"
    assert await bench.waiting("q") == [b"1"]


async def test_an_owner_is_forgotten_only_when_its_lists_are_empty(bench: Bench) -> None:
    store = bench.store()
    await store.renew(30, ["q"])
    await bench.push("q", b"1")
    await store.exchange("q", [], 1, NOW)
    assert await store.deregister(["other", "q"]) is False
    assert await bench.store("host:2:bbbbbb").silent_owners() == {"host:1:aaaaaa": ["q"]}
    await store.exchange("q", [(b"1", DONE)], 0, NOW)
    assert await store.deregister(["other", "q"]) is True
    assert await bench.redis.exists(bench.keys.owners) == 0
