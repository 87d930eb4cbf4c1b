"""Cron in the master: each slot once, also if masters, clocks and Redis fail meanwhile."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from redis.typing import EncodableT, FieldT

from pyworkers import logs
from pyworkers.api import CronSet
from pyworkers.app import Worker
from pyworkers.client import Client
from pyworkers.config.fields import Config, CronConfig
from pyworkers.errors import ConfigError, RedisUnavailableError, StoreError
from pyworkers.ipc.control import Manifest
from pyworkers.protocol import envelope
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.draft import PushedJob, draft
from pyworkers.protocol.flow.slots import Made, SlotAnswer, SlotRequest
from pyworkers.protocol.flow.track import status_key
from pyworkers.server.health import Health
from pyworkers.server.slots import cron as cron_module
from pyworkers.server.slots import questions
from pyworkers.server.slots.cron import Cron, entries_of
from pyworkers.store import cron as store_cron
from pyworkers.store.calls import Operation, Request
from pyworkers.store.store import Store
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.support import async_wait_for, by_load, stretched

NOON = 1_793_534_400
NOTHING: Manifest = {"queues": {}, "groups": {}, "jobs": {}, "handlers": [], "cron": [], "hooks": {}}
T = TypeVar("T")


def entry(schedule: str = "*/5 * * * *", name: str = "sweep", **fields: Any) -> CronEntry:
    return CronEntry(name, schedule, **{"queue": "mail", "job_class": "Sweep", **fields})


class Sleepy(Store):
    """A store whose Redis can be away."""

    away = False

    async def arun(self, operation: Operation[T]) -> T:
        if self.away:
            raise RedisUnavailableError("away")
        return await super().arun(operation)


def fires(operation: Operation[Any]) -> bool:
    """Whether this call fires a slot: it is the one script."""
    return isinstance(operation, Request) and operation.commands[0].parts[0] == "EVALSHA"


class Bench(RedisBench):
    """The crons of several masters on one store."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.crons: list[Cron] = []
        self.requests: list[tuple[str, SlotRequest, asyncio.Future[bytes]]] = []
        self.store = Sleepy(self.redis, self.keys)
        self.health = Health(time.monotonic, random.Random())

    def cron(self, *entries: CronEntry) -> Cron:
        cron = self.master("host:1:x")
        cron.use(entries)
        self.crons.append(cron)
        return cron

    def master(self, identity: str) -> Cron:
        """A cron without entries."""
        return Cron(self.store, lambda: identity, self.health, random.Random(), self.make_slots)

    def make_slots(self, queue: str, request: bytes) -> asyncio.Future[bytes]:
        """Note a request for jobs of slots; the test is the worker."""
        answer = asyncio.get_running_loop().create_future()
        self.requests.append((queue, SlotRequest.unpack(request), answer))
        return answer

    def answer(self, *made: Made) -> None:
        """Answer the last request."""
        self.requests[-1][2].set_result(SlotAnswer(made).pack())

    def running(self, *entries: CronEntry) -> Cron:
        cron = self.cron(*entries)
        self.start(cron.run())
        return cron

    async def last_slots(self) -> dict[str, int]:
        """The last slot of each entry, as Redis holds it."""
        return await self.store.arun(store_cron.last_slots(self.keys))

    async def slots(self, queue: str = "mail") -> list[int]:
        """The slots of the jobs in a queue, as they were enqueued."""
        return [envelope.decode(raw)["cron"]["slot"] for raw in await self.waiting(queue)]


bench = bench_fixture(Bench)


# Running


async def test_two_masters_fire_every_slot_once_and_on_time(bench: Bench) -> None:
    for _ in range(2):
        bench.running(entry("every 1s"))

    async def lateness() -> list[float]:
        jobs = [envelope.decode(raw) for raw in await bench.waiting("mail")]
        return [job["enqueued_at"] - job["cron"]["slot"] for job in jobs]

    async def three_and_one_on_time() -> bool:
        late = await lateness()
        # The others, too, but a busy machine is no fault of ours.
        return len(late) >= 3 and min(late) < by_load(0.1)

    await async_wait_for(three_and_one_on_time)
    assert min(await lateness()) >= 0
    slots = await bench.slots()
    assert slots == list(range(slots[0], slots[0] + len(slots)))


async def test_an_entry_that_is_added_while_nothing_is_near_is_fired_in_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyworkers.server.slots.cron._LOOK_S", 60.0)
    cron = bench.running(entry("every 9000d"))
    await async_wait_for(bench.last_slots, message="the first look")
    cron.use([entry("every 9000d"), entry("every 1s", name="second", queue="other")])
    await async_wait_for(lambda: bench.slots("other"), timeout=stretched(5))


async def test_a_clock_that_was_set_is_noticed_within_seconds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shift = 0.0
    now = time.time
    monkeypatch.setattr("time.time", lambda: now() + shift)

    bench.running(entry("every 1d"))
    await async_wait_for(bench.last_slots, message="the first look")
    tomorrow = (now() // 86_400 + 1) * 86_400
    shift = tomorrow + 100 - now()
    await async_wait_for(bench.slots, timeout=stretched(cron_module._LOOK_S))
    assert await bench.slots() == [tomorrow]


async def test_a_redis_that_is_away_is_asked_again_until_it_is_back(bench: Bench) -> None:
    bench.store.away = True
    bench.running(entry("every 1s"))
    await async_wait_for(lambda: bench.health.is_down)
    bench.store.away = False
    await async_wait_for(lambda: not bench.health.is_down)
    await async_wait_for(bench.slots, message="a slot was fired")

    bench.store.away = True
    await async_wait_for(lambda: bench.health.is_down)
    bench.store.away = False
    await async_wait_for(lambda: not bench.health.is_down)
    slots = await bench.slots()
    assert slots == list(range(slots[0], slots[0] + len(slots)))


async def test_without_anything_due_redis_is_left_alone(bench: Bench) -> None:
    cron = bench.cron(entry("every 1h"))
    assert await cron.fire_due(NOON + 1.0)
    bench.store.away = True
    assert not any([await cron.fire_due(NOON + second) for second in range(2, 3600, 3)])
    with pytest.raises(RedisUnavailableError):
        await cron.fire_due(NOON + 3600.0)


# Looking, with the time as an argument


async def test_a_new_entry_fires_nothing_for_the_past(bench: Bench) -> None:
    cron = bench.cron(entry(misfire="all"))
    await cron.fire_due(NOON + 2.5)
    assert await bench.slots() == []
    assert await bench.last_slots() == {"sweep": NOON + 2}
    await cron.fire_due(NOON + 299.9)
    assert await bench.slots() == []
    await cron.fire_due(NOON + 300.0)
    await cron.fire_due(NOON + 300.1)
    assert await bench.slots() == [NOON + 300]


@pytest.mark.parametrize(
    ("misfire", "expected"),
    [("skip", []), ("once", [NOON + 1200]), ("all", [NOON + 600, NOON + 900, NOON + 1200])],
)
async def test_after_a_downtime_missed_slots_are_caught_up_by_policy(
    bench: Bench, misfire: str, expected: list[int]
) -> None:
    one = entry(misfire=misfire, grace_s=900.0)
    before = bench.cron(one)
    await before.fire_due(NOON - 1.0)
    await before.fire_due(NOON + 0.5)
    assert await bench.slots() == [NOON]

    after = bench.cron(one)
    await after.fire_due(NOON + 1400.0)
    assert await bench.slots() == [NOON, *expected]
    await after.fire_due(NOON + 1500.0)
    assert await bench.slots() == [NOON, *expected, NOON + 1500]


async def test_an_entry_seen_before_its_first_slot_is_caught_up_too(bench: Bench) -> None:
    await bench.cron(entry()).fire_due(NOON + 1.0)
    await bench.cron(entry()).fire_due(NOON + 400.0)
    assert await bench.slots() == [NOON + 300]


async def test_a_slot_that_could_not_be_fired_is_tried_again(bench: Bench) -> None:
    cron = bench.cron(entry(misfire="all"))
    await cron.fire_due(NOON - 1.0)
    bench.store.away = True
    for second in (0.0, 1.0, 290.0, 301.0):
        with pytest.raises(RedisUnavailableError):
            await cron.fire_due(NOON + second)
    bench.store.away = False
    assert await cron.fire_due(NOON + 302.0)
    assert await bench.slots() == [NOON + 300]  # NOON itself is out of its grace of 300 s
    bench.store.away = True
    with pytest.raises(RedisUnavailableError):
        await cron.fire_due(NOON + 600.0)
    bench.store.away = False
    await cron.fire_due(NOON + 890.0)
    assert await bench.slots() == [NOON + 300, NOON + 600]


async def test_an_outage_in_the_middle_of_a_catch_up_loses_and_doubles_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.cron(entry()).fire_due(NOON + 1.0)
    original, calls = bench.store.arun, 0

    async def arun(operation: Operation[Any]) -> Any:
        nonlocal calls
        calls += fires(operation)
        found = await original(operation)
        if fires(operation) and calls == 2:
            raise RedisUnavailableError("the reply was lost")
        return found

    monkeypatch.setattr(bench.store, "arun", arun)
    cron = bench.cron(entry(misfire="all", grace_s=3600.0))
    with pytest.raises(RedisUnavailableError):
        await cron.fire_due(NOON + 1000.0)
    await cron.fire_due(NOON + 1001.0)
    assert await bench.slots() == [NOON + 300, NOON + 600, NOON + 900]
    assert calls == 4


async def test_an_entry_that_redis_refuses_does_not_stop_the_others(bench: Bench) -> None:
    cron = bench.cron(entry(name="bad", queue="bad"), entry(name="good"))
    await cron.fire_due(NOON - 1.0)
    await bench.redis.set(bench.keys.queue("bad"), "no list")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await cron.fire_due(NOON + 1.0)
    assert await bench.slots() == [NOON]


async def test_a_clock_that_is_set_back_doubles_nothing_and_loses_nothing(bench: Bench) -> None:
    cron = bench.cron(entry())
    # The clock is an hour ahead when the master starts, and is then put right.
    await cron.fire_due(NOON + 3599.0)
    await cron.fire_due(NOON + 3600.0)
    assert not await cron.fire_due(NOON + 299.0)
    await cron.fire_due(NOON + 300.0)
    assert await bench.slots() == [NOON + 3600, NOON + 300]
    await cron.fire_due(NOON + 3600.0)
    assert await bench.slots() == [NOON + 3600, NOON + 300]

    # The next master starts by the right clock, and a slot in the future is remembered.
    other = bench.cron(entry())
    await other.fire_due(NOON + 599.0)
    await other.fire_due(NOON + 600.0)
    assert (await bench.slots())[-1] == NOON + 600


async def test_entries_are_replaced_and_those_that_stay_keep_their_place(bench: Bench) -> None:
    stays = entry(name="stays", misfire="once")
    cron = bench.cron(stays, entry(name="goes", queue="other"))
    await cron.fire_due(NOON + 1.0)
    cron.use([stays, entry("*/10 * * * *", name="comes", queue="new")])
    await cron.fire_due(NOON + 310.0)
    await cron.fire_due(NOON + 600.0)
    assert await bench.slots() == [NOON + 300, NOON + 600]
    assert await bench.slots("other") == []
    assert await bench.slots("new") == [NOON + 600]


async def test_an_entry_replaced_while_it_is_fired_goes_by_its_new_schedule(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cron = bench.cron(entry())
    await cron.fire_due(NOON - 1.0)
    original = bench.store.arun

    async def arun(operation: Operation[Any]) -> Any:
        if fires(operation):
            cron.use([entry("* * * * *")])
        return await original(operation)

    monkeypatch.setattr(bench.store, "arun", arun)
    await cron.fire_due(NOON + 0.5)
    monkeypatch.setattr(bench.store, "arun", original)
    await cron.fire_due(NOON + 1.0)
    await cron.fire_due(NOON + 60.0)
    assert await bench.slots() == [NOON, NOON + 60]


async def test_a_slots_key_outlives_the_grace(bench: Bench) -> None:
    cron = bench.cron(entry(grace_s=100_000.5))
    await cron.fire_due(NOON - 1.0)
    await cron.fire_due(NOON + 0.0)
    ttl = await bench.redis.ttl(bench.keys.cron_slot("sweep", NOON))
    assert 100_001 + 3500 < ttl <= 100_001 + 3600


async def test_a_fired_slot_is_logged_by_the_master_that_fired_it(bench: Bench) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)

    crons = [bench.cron(entry()), bench.cron(entry())]
    for now in (NOON - 1.0, NOON + 0.5):
        for cron in crons:
            await cron.fire_due(now)
    (job,) = await bench.waiting("mail")
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    del found["timestamp"]
    assert found == {
        "level": "info",
        "event": "cron.fired",
        "name": "sweep",
        "slot": NOON,
        "queue": "mail",
        "jid": envelope.decode(job)["jid"],
        "pid": os.getpid(),
    }


# Entries that people change while masters run


def added(bench: Bench) -> CronSet:
    """What people use; its connection is another one."""
    return CronSet(bench.config)


async def test_an_entry_that_is_added_fires_within_seconds_and_a_removed_one_no_more(bench: Bench) -> None:
    people = added(bench)
    for _ in range(2):
        bench.follow(bench.running(entry("every 9000d")))
    await async_wait_for(bench.last_slots, message="the first look")
    people.add("new", "every 1s", "New", queue="new")

    async def some() -> bool:
        return len(await bench.slots("new")) >= 2

    await async_wait_for(some, timeout=stretched(cron_module._LOOK_S + 2))
    people.remove("new")
    slots = await bench.slots("new")
    assert slots == list(range(slots[0], slots[0] + len(slots)))
    # From now on no master fires it, whether it has heard of that or not.
    for cron in bench.crons:
        await cron.fire_due(time.time() + 5)
    assert await bench.slots("new") == slots
    assert (await bench.last_slots()).keys() == {"sweep"}


async def test_a_run_time_entry_is_caught_up_like_any_other(bench: Bench) -> None:
    added(bench).add("new", "*/5 * * * *", "New", queue="mail", misfire="all")
    await bench.redis.hset(bench.keys.cron_last, "new", NOON - 900)
    cron = bench.cron()
    await cron.refresh()
    await cron.fire_due(NOON + 1.0)
    assert await bench.slots() == [NOON]
    await bench.redis.hset(bench.keys.cron_last, "new", NOON + 300)
    other = bench.cron()
    await other.refresh()
    await other.fire_due(NOON + 600.0)
    assert await bench.slots() == [NOON, NOON + 600]


async def test_an_entry_that_was_changed_fires_by_its_new_definition_only(bench: Bench) -> None:
    people = added(bench)
    people.add("new", "every 5m", "Old", queue="old")
    await bench.redis.hset(bench.keys.cron_last, "new", NOON)
    ignorant, cron = bench.cron(), bench.cron()
    for one in (ignorant, cron):
        await one.refresh()
        await one.fire_due(NOON + 1.0)
    people.change("new", schedule="every 10m", job_class="New", queue="new")
    await bench.redis.hset(bench.keys.cron_last, "new", NOON + 100)
    await cron.refresh()
    for one in (ignorant, cron):
        await one.fire_due(NOON + 300.0)
        await one.fire_due(NOON + 600.0)
    assert await bench.slots("old") == []
    assert await bench.slots("new") == [NOON + 600]


async def test_a_paused_entry_is_silent_at_once_and_what_came_meanwhile_is_not_made_up_for(
    bench: Bench,
) -> None:
    one = entry(misfire="all", grace_s=3600.0)
    ignorant, cron = bench.cron(one), bench.cron(one)
    for each in (ignorant, cron):
        await each.fire_due(NOON + 1.0)
    await bench.redis.sadd(bench.keys.cron_paused, "sweep")
    await bench.redis.set(bench.keys.cron_version, "1")
    await cron.refresh()
    for each in (ignorant, cron):
        await each.fire_due(NOON + 300.0)
    assert await bench.slots() == []

    # As `resume` does it, at NOON + 700.
    await bench.redis.srem(bench.keys.cron_paused, "sweep")
    await bench.redis.hset(bench.keys.cron_last, "sweep", NOON + 700)
    await bench.redis.set(bench.keys.cron_version, "2")
    await cron.refresh()
    await cron.fire_due(NOON + 800.0)
    assert await bench.slots() == []
    await cron.fire_due(NOON + 900.0)
    assert await bench.slots() == [NOON + 900]


async def test_a_change_elsewhere_does_not_disturb_an_entry(bench: Bench) -> None:
    cron = bench.cron(entry(misfire="all"))
    await cron.fire_due(NOON + 1.0)
    added(bench).add("new", "@daily", "New")
    await bench.redis.hdel(bench.keys.cron_last, "sweep")  # as if it had to ask
    await cron.refresh()
    await cron.fire_due(NOON + 300.0)
    assert await bench.slots() == [NOON + 300]


async def test_a_run_time_entry_with_the_name_of_a_declared_one_is_not_fired(bench: Bench) -> None:
    added(bench).add("sweep", "* * * * *", "Other", queue="other")
    await bench.redis.hset(bench.keys.cron_last, "sweep", NOON)
    cron = bench.cron(entry())
    await cron.refresh()
    for minute in range(1, 11):
        await cron.fire_due(NOON + 60.0 * minute)
    assert await bench.slots("other") == []
    assert await bench.slots() == [NOON + 300, NOON + 600]
    # The code has it no more: the run-time entry is as it was.
    cron.use([])
    await cron.fire_due(NOON + 660.0)
    assert await bench.slots("other") == [NOON + 660]


async def test_what_is_no_entry_is_logged_and_left_alone(bench: Bench) -> None:
    stream = io.StringIO()
    logs.configure("info", "json", stream)

    bad: dict[FieldT, EncodableT] = {
        "a": "no json",
        "b": "[]",
        "c": '{"name":"c"}',
        "d": '{"name":"d","schedule":5}',
        b"\xff": "{}",
    }
    await bench.redis.hset(bench.keys.cron_entries, mapping=bad)
    await bench.redis.set(bench.keys.cron_version, "1")
    cron = bench.cron(entry())
    await cron.refresh()
    await cron.fire_due(NOON - 1.0)
    await cron.fire_due(NOON + 0.0)
    assert await bench.slots() == [NOON]
    refused = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["name"] for line in refused if line["event"] == "cron.refused"] == [
        "a",
        "b",
        "c",
        "d",
        "\ufffd",
    ]


async def test_a_flushed_redis_has_no_run_time_entries_and_the_declared_ones_go_on(bench: Bench) -> None:
    people = added(bench)
    people.add("new", "*/5 * * * *", "New", queue="new")
    people.pause("new")
    cron = bench.cron(entry())
    await cron.refresh()
    await cron.fire_due(NOON - 1.0)
    keys = [key async for key in bench.redis.scan_iter(f"{bench.keys.namespace}*")]
    await bench.redis.delete(*keys)
    await cron.refresh()
    await cron.fire_due(NOON + 0.0)
    assert await bench.slots() == [NOON]
    assert await bench.slots("new") == []


async def test_people_see_what_a_master_has_declared(bench: Bench) -> None:
    await bench.redis.hset(bench.keys.owners, "host:1:x", "[]")
    one = entry(args=(1,), options={"tags": ["a"]}, retry=False, misfire="all", grace_s=60.0)
    cron = bench.running(one)

    async def seen() -> list[CronEntry]:
        return [job.entry for job in added(bench)]

    assert await async_wait_for(seen) == [one]
    assert 0 < await bench.redis.ttl(bench.keys.cron_declared("host:1:x")) <= 60
    cron.use([replace(one, queue="other")])

    async def moved() -> bool:
        return [found.queue for found in await seen()] == ["other"]

    await async_wait_for(moved)


# The entries of application and configuration


def configured(name: str = "sweep", **fields: Any) -> CronConfig:
    return CronConfig(**{"name": name, "schedule": "@daily", "job_class": "Sweep", **fields})


def application() -> Worker:
    worker = Worker()

    @worker.cron("*/5 * * * *", timezone="Europe/Paris", misfire="all", grace=60.0, args=[7])
    @worker.job(queue="mail", retry=3)
    def tidy(days: int) -> None: ...

    return worker


def test_the_entries_of_the_application_come_before_those_of_the_configuration() -> None:
    # The manifest reaches the master as JSON.
    manifest = json.loads(json.dumps(application().manifest()))
    config = Config(cron=(configured(queue="other", args=(1,), timezone="Asia/Tokyo", grace=5.0),))
    first, second = entries_of(manifest, config)
    assert first == CronEntry(
        "tidy",
        "*/5 * * * *",
        "mail",
        "tidy",
        (7,),
        "Europe/Paris",
        "all",
        60.0,
        retry=3,
        options=first.options,
    )
    assert "retry" not in first.options
    assert second == CronEntry("sweep", "@daily", "other", "Sweep", (1,), "Asia/Tokyo", "once", 5.0)


def test_what_a_job_declares_goes_with_an_entry_of_the_configuration() -> None:
    worker = Worker()
    worker.job(name="Sweep", retry=0, tags=["x"])(lambda: None)
    worker.process("owned")(lambda message: None)
    manifest = json.loads(json.dumps(worker.manifest()))
    sections = (
        configured("a"),
        configured("b", queue="other"),
        configured("c", queue="owned"),
        configured("d", job_class="Unknown"),
    )
    entries = entries_of(manifest, Config(cron=sections))
    assert [(one.retry, dict(one.options)) for one in entries] == [
        (0, {"tags": ["x"]}),
        (0, {"tags": ["x"]}),
        (None, {}),
        (None, {}),
    ]


def test_a_configured_period_is_a_schedule() -> None:
    (one,) = entries_of(NOTHING, Config(cron=(configured(schedule=None, every="2h"),)))
    assert (one.schedule, one.origin) == ("every 2h", "configuration")


def test_an_application_without_cron_entries_has_those_of_the_configuration() -> None:
    found = entries_of(NOTHING, Config(cron=(configured("a"), configured("b"))))
    assert [one.name for one in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ([configured("tidy")], "cron 'tidy': two cron entries have this name"),
        ([configured(schedule="61 * * * *")], "cron 'sweep': '61 * * * *' is not a cron line"),
        ([configured(timezone="Mars/Base")], "cron 'sweep': 'Mars/Base' is not a time zone"),
    ],
)
def test_entries_that_cannot_be_are_a_configuration_error(
    sections: Sequence[CronConfig], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        entries_of(application().manifest(), Config(cron=tuple(sections)))
    assert message in str(caught.value)
    assert caught.value.exit_code == 2


# The conditions of its job


def logged() -> io.StringIO:
    """The log from now on."""
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    return stream


async def test_a_slot_whose_job_is_there_already_enqueues_no_second_one(bench: Bench) -> None:
    stream = logged()
    cron = bench.cron(entry(options={"unique_for": 3600}))
    await cron.fire_due(NOON - 1.0)
    await cron.fire_due(NOON + 1.0)
    await cron.fire_due(NOON + 301.0)
    assert await bench.slots() == [NOON]
    [lock] = await bench.redis.keys(bench.keys.own("unique:*"))
    [raw] = await bench.waiting("mail")
    assert await bench.redis.get(lock) == envelope.decode(raw)["jid"].encode()
    assert (await bench.last_slots())["sweep"] == NOON + 300

    await bench.redis.delete(lock)
    await cron.fire_due(NOON + 601.0)
    assert await bench.slots() == [NOON, NOON + 600]
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events == [
        "cron.fired",
        "cron.duplicate",
        "cron.fired",
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_waiting": 1}, "the queue 'mail' is full: max_waiting is 1"),
        ({"unique_for": 60, "on_duplicate": "raise"}, "the same job is enqueued already"),
    ],
)
async def test_a_slot_whose_job_is_refused_is_logged_and_the_next_one_fires(
    bench: Bench, options: dict[str, Any], error: str
) -> None:
    stream = logged()
    crons = [bench.cron(entry(options=options)) for _ in range(2)]
    for cron in crons:
        await cron.fire_due(NOON - 1.0)
        await cron.fire_due(NOON + 1.0)
    for cron in crons:
        await cron.fire_due(NOON + 301.0)
    assert await bench.slots() == [NOON]
    await bench.redis.delete(bench.keys.queue("mail"), *await bench.redis.keys(bench.keys.own("unique:*")))
    # The slot is dealt with: another server does not fire it later.
    await bench.cron(entry(options=options)).fire_due(NOON + 302.0)
    assert await bench.slots() == []
    for cron in crons:
        await cron.fire_due(NOON + 601.0)
    assert await bench.slots() == [NOON + 600]
    failed = [line for line in map(json.loads, stream.getvalue().splitlines()) if "error" in line]
    assert [(line["event"], line["slot"]) for line in failed] == [("cron.failed", NOON + 300)]
    assert failed[0]["error"].startswith(error)


async def test_a_tracked_job_of_a_slot_has_a_status(bench: Bench) -> None:
    cron = bench.cron(entry(options={"track": 60}))
    await cron.fire_due(NOON - 1.0)
    await cron.fire_due(NOON + 1.0)
    [raw] = await bench.waiting("mail")
    status = await bench.redis.hgetall(bench.keys.own(status_key(envelope.decode(raw)["jid"])))
    assert status[b"state"] == b"waiting"


async def test_a_scheduled_job_that_a_slot_replaces_leaves_no_traces(bench: Bench) -> None:
    options: dict[str, Any] = {"unique_for": 60, "on_duplicate": "replace", "track": 60}
    one = entry(options=options)
    with closing(Client(bench.config.url, namespace=bench.config.namespace)) as client:
        old = await asyncio.to_thread(client.enqueue_in, 3600, "mail", "Sweep", [], **options)
        cron = bench.cron(one)
        await cron.fire_due(NOON - 1.0)
        await cron.fire_due(NOON + 1.0)
        assert await bench.redis.zcard(bench.keys.schedule) == 0
        assert await bench.slots() == [NOON]
        assert (await asyncio.to_thread(client.status, old)).state == "cancelled"


# Jobs that a worker makes


def made(**options: Any) -> Made:
    return Made([draft("mail", "Sweep", 3, options).job([7], NOON)])


def linked(bench: Bench, identity: str, **fields: Any) -> Cron:
    """A master whose application has client middleware, and whose entry is registered."""
    cron = bench.master(identity)
    cron.use([entry(**fields)], client_middleware=True)
    return cron


async def test_of_several_masters_one_has_a_worker_make_the_job_of_a_slot(bench: Bench) -> None:
    crons = [linked(bench, f"host:{number}:x") for number in range(3)]
    for second in (-1.0, 1.0, 2.5, 4.0):
        for cron in crons:
            await cron.fire_due(NOON + second)
    [(queue, request, _)] = bench.requests
    assert (queue, request.job_class, request.slots, request.declared) == ("mail", "Sweep", 1, True)
    assert await bench.slots() == []
    bench.answer(made(track=60))
    for second in (5.0, 6.5, 8.0):
        for cron in crons:
            await cron.fire_due(NOON + second)
    assert await bench.slots() == [NOON]
    assert len(bench.requests) == 1
    [raw] = await bench.waiting("mail")
    job = envelope.decode(raw)
    assert (job["args"], job["retry"], job["cron"]) == ([7], 3, {"name": "sweep", "slot": NOON})
    assert await bench.redis.exists(bench.keys.own(status_key(job["jid"])))
    await crons[1].fire_due(NOON + 301.0)
    assert len(bench.requests) == 2


async def test_a_worker_that_does_not_answer_is_asked_again_later_and_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = logged()
    monkeypatch.setattr(questions, "_ANSWER_S", 0.0)
    cron = linked(bench, "host:1:x")
    await cron.fire_due(NOON - 1.0)
    asked = []
    for tenth in range(10, 60):
        await cron.fire_due(NOON + tenth / 10)
        asked.append(len(bench.requests))
    # At 1.0, and 0.5, 1, and 2 s after each look that found no answer.
    assert [asked.count(number) for number in (1, 2, 3)] == [6, 11, 21]
    monkeypatch.setattr(questions, "_ANSWER_S", 60.0)
    await cron.fire_due(NOON + 400.0)
    bench.requests[-1][2].cancel()
    await cron.fire_due(NOON + 401.0)
    await cron.fire_due(NOON + 500.0)
    bench.answer(made())
    await cron.fire_due(NOON + 501.0)
    assert await bench.slots() == [NOON + 300]
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert {line["error"] for line in lines if line["event"] == "cron.failed"} == {
        "no worker made its job within 0 s",
        "the worker that made its job died",
    }


async def test_a_slot_without_a_job_is_dealt_with_and_one_with_several_has_them_all(bench: Bench) -> None:
    cron = linked(bench, "host:1:x")
    await cron.fire_due(NOON - 1.0)
    await cron.fire_due(NOON + 1.0)
    bench.answer(Made())
    await cron.fire_due(NOON + 2.0)
    assert await bench.redis.get(bench.keys.cron_slot("sweep", NOON)) == b"1"
    await cron.fire_due(NOON + 301.0)
    later = PushedJob("other", b'{"jid":"j"}', "j", NOON + 9000.0)
    bench.answer(Made([*made().jobs, later]))
    await cron.fire_due(NOON + 302.0)
    assert await bench.slots() == [NOON + 300]
    assert await bench.redis.zscore(bench.keys.schedule, envelope_with_slot(later)) == NOON + 9000.0


def envelope_with_slot(job: PushedJob) -> bytes:
    return job.payload[:-1] + f',"cron":{{"name":"sweep","slot":{NOON + 300}}}}}'.encode()


@pytest.mark.fault("T5")
async def test_a_claim_of_a_dead_master_expires(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyworkers.server.slots.firing.CLAIM_S", 0.05)
    dead, living = linked(bench, "host:1:x"), linked(bench, "host:2:x")
    for cron in (dead, living):
        await cron.fire_due(NOON - 1.0)
    await dead.fire_due(NOON + 1.0)
    seconds = 1.0

    async def asked() -> bool:
        nonlocal seconds
        seconds += 0.01
        await living.fire_due(NOON + seconds)
        return len(bench.requests) == 2

    await async_wait_for(asked)
    bench.answer(made())
    await living.fire_due(NOON + seconds)
    assert await bench.slots() == [NOON]


async def test_a_last_slot_that_no_calendar_has_counts_as_now(bench: Bench) -> None:
    await bench.redis.hset(bench.keys.cron_last, "sweep", 999_999_999_999)
    cron = bench.cron(entry())
    await cron.fire_due(NOON - 1.0)
    await cron.fire_due(NOON + 1.0)
    assert await bench.slots() == [NOON]
