"""Effects of an outcome against real servers: with the settlement, once, and never in its way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.protocol.effects import (
    AppendLog,
    CountOut,
    DeleteField,
    DeleteKey,
    Effect,
    EndLog,
    FreeSlot,
    StoreValue,
    Unlock,
)
from pyworkers.protocol.outcome import DONE, REQUEUE, Fate, Outcome
from pyworkers.store.acl import Role
from tests.helpers.acl import url_of
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.owner import Exchanged, Owner

NOW = 1_795_225_197.5
COUNT = CountOut("batch:7", "pending", "callbacks", b"callback")


class Bench(RedisBench):
    """A store whose jobs are taken already."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.config = RedisConfig(url=url_of(url, Role.WORKER, namespace), namespace=namespace)

    async def prepare(self) -> None:
        await self.redis.hset(self.keys.owners, "host:1:aaa", '["q"]')
        self.store = Owner(self.connection(), self.keys, "host:1:aaa")

    async def take(self, *jobs: bytes) -> None:
        await self.redis.lpush(self.keys.queue("q"), *jobs)
        assert (await self.store.exchange("q", [], len(jobs), NOW)).jobs == list(jobs)

    async def settle(self, *settlements: tuple[bytes, Outcome], wanted: int = 0) -> Exchanged:
        return await self.store.exchange("q", settlements, wanted, NOW)

    async def done(self, job: bytes, *effects: Effect) -> Exchanged:
        """Take a job and settle it with effects."""
        await self.take(job)
        found = await self.settle((job, DONE.with_effects(*effects)))
        assert found.stale == []
        assert await self.store.inprogress("q") == []
        return found

    def key(self, name: str) -> str:
        return self.keys.own(name)


bench = bench_fixture(Bench)


async def test_a_lock_is_released_by_its_holder_alone(bench: Bench) -> None:
    for token, left in (("other", b"me"), ("me", None), ("me", None)):
        await bench.redis.set(bench.key("lock:a"), "me") if token == "other" else None
        assert (await bench.done(b"job", Unlock("lock:a", token))).failed == ()
        assert await bench.redis.get(bench.key("lock:a")) == left


async def test_a_slot_is_freed_in_a_sorted_set_and_in_a_set(bench: Bench) -> None:
    await bench.redis.zadd(bench.key("z"), {"mine": 1, "other": 2})
    await bench.redis.sadd(bench.key("s"), "mine", "other")
    await bench.done(b"job", FreeSlot("z", "mine"), FreeSlot("s", "mine"), FreeSlot("missing", "mine"))
    assert await bench.redis.zrange(bench.key("z"), 0, -1) == [b"other"]
    assert await bench.redis.smembers(bench.key("s")) == {b"other"}
    assert await bench.redis.exists(bench.key("missing")) == 0


async def test_the_last_member_that_is_counted_out_pushes_what_waits(bench: Bench) -> None:
    await bench.redis.hset(bench.key("batch:7"), mapping={"pending": 2, "total": 2})
    for left, pushed in ((b"1", []), (b"0", [b"callback"]), (b"-1", [b"callback"])):
        assert (await bench.done(b"job", COUNT)).failed == ()
        assert await bench.redis.hget(bench.key("batch:7"), "pending") == left
        assert await bench.waiting("callbacks") == pushed
    assert await bench.redis.smembers(bench.keys.queues) == {b"callbacks"}


async def test_a_counter_that_is_gone_is_not_made_again(bench: Bench) -> None:
    await bench.redis.hset(bench.key("batch:7"), "total", 2)
    await bench.done(b"job", COUNT, CountOut("batch:8", "pending", "callbacks", b"x"))
    assert await bench.redis.hgetall(bench.key("batch:7")) == {b"total": b"2"}
    assert await bench.redis.exists(bench.key("batch:8")) == 0
    assert await bench.waiting("callbacks") == []


async def test_a_value_is_stored_for_a_time_and_a_key_deleted(bench: Bench) -> None:
    await bench.redis.hset(bench.key("batch:7"), "pending", 2)
    await bench.done(b"job", StoreValue("result:7", b"\xff\0", 60), DeleteKey("batch:7"))
    assert await bench.redis.get(bench.key("result:7")) == b"\xff\0"
    assert 0 < await bench.redis.ttl(bench.key("result:7")) <= 60
    assert await bench.redis.exists(bench.key("batch:7")) == 0


async def test_a_field_is_deleted_and_the_others_stay(bench: Bench) -> None:
    await bench.redis.hset(bench.key("batch:7"), mapping={"pending": 2, "total": 2})
    for name in ("pending", "missing"):
        assert (await bench.done(b"job", DeleteField("batch:7", name))).failed == ()
    assert await bench.redis.hgetall(bench.key("batch:7")) == {b"total": b"2"}


@pytest.mark.parametrize(
    ("outcome", "place"),
    [
        (Outcome(Fate.RETRY, NOW + 1, b"again"), "retry"),
        (Outcome(Fate.SNOOZE, NOW + 1), "schedule"),
        (Outcome(Fate.DEAD), "dead"),
        (REQUEUE, "queue"),
        (Outcome(Fate.CANCELLED), None),
    ],
)
async def test_any_outcome_may_carry_effects(bench: Bench, outcome: Outcome, place: str | None) -> None:
    await bench.take(b"job")
    await bench.redis.set(bench.key("lock"), "me")
    await bench.settle((b"job", outcome.with_effects(Unlock("lock", "me"))))
    assert await bench.redis.exists(bench.key("lock")) == 0
    assert await bench.store.inprogress("q") == []
    if place is not None:
        key = bench.keys.queue("q") if place == "queue" else getattr(bench.keys, place)
        assert await bench.redis.exists(key) == 1


async def test_a_batch_that_is_sent_twice_does_its_effects_once(bench: Bench) -> None:
    await bench.take(b"a", b"b", b"c")
    await bench.redis.hset(bench.key("batch:7"), "pending", 5)
    batch: list[tuple[bytes, Outcome]] = [
        (b"a", DONE.with_effects(COUNT)),
        (b"b", DONE),
        (b"c", Outcome(Fate.RETRY, NOW + 1, b"c2").with_effects(COUNT, StoreValue("result", b"1", 60))),
    ]
    assert (await bench.settle(*batch)).stale == []
    await bench.redis.delete(bench.key("result"))
    assert (await bench.settle(*batch)).stale == [0, 1, 2]
    assert await bench.redis.hget(bench.key("batch:7"), "pending") == b"3"
    assert await bench.redis.exists(bench.key("result")) == 0


async def test_of_a_batch_only_the_jobs_that_are_still_ours_have_effects(bench: Bench) -> None:
    await bench.take(b"b")
    await bench.redis.hset(bench.key("batch:7"), "pending", 5)
    batch = [(b"a", DONE.with_effects(DeleteKey("batch:7"))), (b"b", DONE.with_effects(COUNT))]
    assert (await bench.settle(*batch)).stale == [0]
    assert await bench.redis.hget(bench.key("batch:7"), "pending") == b"4"


@pytest.mark.parametrize(
    ("effect", "prepare"),
    [
        (Unlock("k", "me"), ("LPUSH", "k", "x")),
        (FreeSlot("k", "me"), ("SET", "k", "x")),
        (CountOut("k", "f", "callbacks", b"x"), ("SET", "k", "x")),
        (CountOut("k", "f", "callbacks", b"x"), ("HSET", "k", "f", "no number")),
        (StoreValue("k", b"x", 60), ("LPUSH", "k", "x")),
        (DeleteField("k", "f"), ("SET", "k", "x")),
    ],
)
async def test_a_key_of_another_type_fails_its_effect_and_nothing_else(
    bench: Bench, effect: Effect, prepare: tuple[Any, ...]
) -> None:
    command, name, *values = prepare
    await bench.redis.execute_command(command, bench.key(name), *values)
    before = await bench.redis.dump(bench.key(name))
    await bench.take(b"job", b"other")
    await bench.redis.lpush(bench.keys.queue("q"), b"next")
    found = await bench.settle(
        (b"job", DONE.with_effects(StoreValue("a", b"1", 60), effect, StoreValue("b", b"1", 60))),
        (b"other", DONE.with_effects(StoreValue("c", b"1", 60))),
        wanted=1,
    )
    assert (found.jobs, found.stale, found.error) == ([b"next"], [], None)
    [(failed, reason)] = found.failed
    assert failed == effect
    assert "WRONGTYPE" in reason or "not an integer" in reason
    assert await bench.redis.dump(bench.key(name)) == before
    assert await bench.redis.exists(*map(bench.key, "abc")) == 3


async def test_no_member_is_counted_out_while_its_callback_has_no_queue(bench: Bench) -> None:
    await bench.redis.hset(bench.key("batch:7"), "pending", 1)
    await bench.redis.set(bench.keys.queue("callbacks"), "no list")
    [(failed, reason)] = (await bench.done(b"job", COUNT)).failed
    assert (failed, reason.startswith("WRONGTYPE")) == (COUNT, True)
    assert await bench.redis.hget(bench.key("batch:7"), "pending") == b"1"


async def test_effects_that_fail_are_reported_beside_an_error_of_the_taking(bench: Bench) -> None:
    await bench.take(b"job")
    await bench.redis.set(bench.key("k"), "x")
    await bench.redis.delete(bench.keys.owners)
    found = await bench.settle((b"job", DONE.with_effects(FreeSlot("k", "me"))), wanted=1)
    assert isinstance(found.error, StoreError)
    assert [effect for effect, _ in found.failed] == [FreeSlot("k", "me")]


async def test_effects_happen_while_memory_is_full(bench: Bench) -> None:
    await bench.take(b"job")
    await bench.redis.hset(bench.key("batch:7"), "pending", 1)
    outcome = DONE.with_effects(COUNT, StoreValue("result", b"1", 60))
    await bench.redis.config_set("maxmemory", 1)
    try:
        found = await bench.settle((b"job", outcome))
    finally:
        await bench.redis.config_set("maxmemory", 0)
    assert (found.stale, found.failed) == ([], ())
    assert await bench.waiting("callbacks") == [b"callback"]
    assert await bench.redis.get(bench.key("result")) == b"1"


# --- notes of running jobs --------------------------------------------------------------------------------


def note(*effects: Effect) -> Outcome:
    return Outcome(Fate.NOTE, effects=effects)


async def test_a_note_is_applied_while_its_job_is_in_progress_and_the_job_stays(bench: Bench) -> None:
    await bench.take(b"job", b"other")
    for value in (b"1", b"2"):
        assert (await bench.settle((b"job", note(StoreValue("v", value, 60))))).stale == []
        assert await bench.redis.get(bench.key("v")) == value
    assert sorted(await bench.store.inprogress("q")) == [b"job", b"other"]
    assert (await bench.settle((b"job", DONE))).stale == []
    assert (await bench.settle((b"job", note(StoreValue("v", b"late", 60))))).stale == [0]
    assert await bench.redis.get(bench.key("v")) == b"2"


async def test_a_note_and_the_outcome_of_its_job_in_one_batch_are_applied_once(bench: Bench) -> None:
    await bench.take(b"job")
    await bench.redis.hset(bench.key("batch:7"), "pending", 5)
    batch = [(b"job", note(StoreValue("v", b"1", 60))), (b"job", DONE.with_effects(COUNT))]
    assert (await bench.settle(*batch)).stale == []
    await bench.redis.delete(bench.key("v"))
    assert (await bench.settle(*batch)).stale == [0, 1]
    assert await bench.redis.exists(bench.key("v")) == 0
    assert await bench.redis.hget(bench.key("batch:7"), "pending") == b"4"


async def test_a_note_is_applied_while_memory_is_full(bench: Bench) -> None:
    await bench.take(b"job")
    await bench.redis.config_set("maxmemory", 1)
    try:
        found = await bench.settle((b"job", note(StoreValue("v", b"1", 60))))
    finally:
        await bench.redis.config_set("maxmemory", 0)
    assert (found.stale, found.failed) == ([], ())
    assert await bench.redis.get(bench.key("v")) == b"1"


async def test_a_note_is_sent_again_if_redis_refuses_all_writes(bench: Bench) -> None:
    await bench.take(b"job")
    await bench.redis.config_set("min-replicas-to-write", 1)
    try:
        with pytest.raises(PyworkersError, match="NOREPLICAS"):
            await bench.settle((b"job", note(StoreValue("v", b"1", 60))))
    finally:
        await bench.redis.config_set("min-replicas-to-write", 0)


async def test_a_note_for_a_list_of_another_type_is_left(bench: Bench) -> None:
    await bench.redis.set(bench.keys.inprogress("q", "host:1:aaa"), "no list")
    found = await bench.settle((b"job", note(StoreValue("v", b"1", 60))))
    assert (list(found.left), list(found.refused)) == ([0], ["q"])
    assert await bench.redis.exists(bench.key("v")) == 0


async def test_a_line_of_a_log_is_added_once_and_the_oldest_are_removed(bench: Bench) -> None:
    def lines(first: int, count: int, run: str = "a") -> AppendLog:
        texts = (b'{"text":"%d %s"}' % (first + number, b"x" * 1000) for number in range(count))
        return AppendLog("log:j", run, first, b"\n".join(texts), 60)

    async def kept() -> list[int]:
        stored: Any = await bench.redis.xrange(bench.keys.log("j"))
        return [int(json.loads(fields[b"v"])["text"].split()[0]) for _, fields in stored if fields[b"run"]]

    await bench.done(b"job", EndLog("log:j", b"{}", 60))
    assert await bench.redis.exists(bench.keys.log("j")) == 0
    await bench.done(b"job", lines(0, 3))
    # Sent again, with one more.
    await bench.done(b"job", lines(0, 4))
    assert await kept() == [0, 1, 2, 3]
    await bench.done(b"job", EndLog("log:j", b"{}", 60))
    # The next run.
    await bench.done(b"job", lines(0, 2, "b"))
    assert await kept() == [0, 1, 2, 3, 0, 1]
    await bench.done(b"job", lines(2, 200, "b"))
    numbers = await kept()
    assert numbers == list(range(numbers[0], 202))
    assert 55 < len(numbers) < 64
    assert 0 < await bench.redis.ttl(bench.keys.log("j")) <= 60
