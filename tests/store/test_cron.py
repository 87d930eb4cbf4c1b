"""The cron store against real servers: of all who fire a slot, one does."""

from __future__ import annotations

import asyncio

from pyworkers.protocol.draft import PushedJob
from pyworkers.store import cron
from pyworkers.store.cron import Firing
from pyworkers.store.store import Store
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.support import async_wait_for, stretched

SLOT = 1_793_534_400


class Slots(Store):
    """What one server does with the slots of cron."""

    async def fire(self, name: str, slot: int, payload: bytes, queue: str, life_s: int) -> bool:
        jobs = [PushedJob(queue, payload, payload.decode())]
        return await self.arun(cron.fire(self.keys, Firing(name, slot, jobs, life_s))) is not None

    async def last_slots(self) -> dict[str, int]:
        return await self.arun(cron.last_slots(self.keys))

    async def register(self, names: list[str], now: int) -> None:
        await self.arun(cron.register(self.keys, names, now))


class Bench(RedisBench):
    """Stores with their own connections."""

    def store(self) -> Slots:
        return Slots(self.connection(), self.keys)


bench = bench_fixture(Bench)


async def test_a_slot_is_enqueued_and_remembered(bench: Bench) -> None:
    assert await bench.store().fire("sweep", SLOT, b"job", "mail", 600)
    assert await bench.waiting("mail") == [b"job"]
    assert await bench.redis.smembers(bench.keys.queues) == {b"mail"}
    assert await bench.store().last_slots() == {"sweep": SLOT}
    assert 590 < await bench.redis.ttl(bench.keys.cron_slot("sweep", SLOT)) <= 600


async def test_a_job_of_cron_is_popped_after_those_that_wait(bench: Bench) -> None:
    await bench.redis.lpush(bench.keys.queue("mail"), b"first")
    await bench.store().fire("sweep", SLOT, b"second", "mail", 600)
    assert await bench.redis.rpop(bench.keys.queue("mail")) == b"first"


async def test_of_many_who_fire_one_slot_at_once_one_does(bench: Bench) -> None:
    stores = [bench.store() for _ in range(8)]
    for slot in range(SLOT, SLOT + 20):
        fired = await asyncio.gather(
            *(
                store.fire("sweep", slot, f"{slot} {place}".encode(), "mail", 600)
                for place, store in enumerate(stores)
            )
        )
        assert sum(fired) == 1
        assert (await bench.waiting("mail"))[-1] == f"{slot} {fired.index(True)}".encode()
    assert len(await bench.waiting("mail")) == 20


async def test_a_slot_that_was_fired_changes_nothing(bench: Bench) -> None:
    store = bench.store()
    await store.fire("sweep", SLOT, b"job", "mail", 600)
    await bench.redis.delete(bench.keys.queue("mail"), bench.keys.queues, bench.keys.cron_last)
    assert not await store.fire("sweep", SLOT, b"job", "mail", 9000)
    found = await bench.redis.keys(f"{bench.keys.namespace}*")
    assert found == [bench.keys.cron_slot("sweep", SLOT).encode()]
    assert await bench.redis.ttl(found[0]) <= 600


async def test_slots_and_entries_do_not_stand_in_each_others_way(bench: Bench) -> None:
    store = bench.store()
    fired = [
        await store.fire("a", 7, b"1", "mail", 600),
        await store.fire("a", 8, b"2", "mail", 600),
        await store.fire("ä b", 7, b"3", "mail", 600),
        await store.fire("a", 7, b"4", "mail", 600),
    ]
    assert fired == [True, True, True, False]
    assert await bench.waiting("mail") == [b"1", b"2", b"3"]
    assert await store.last_slots() == {"a": 8, "ä b": 7}


async def test_the_last_slot_never_goes_back(bench: Bench) -> None:
    store = bench.store()
    # As numbers: as text, 9 would be later than 10.
    for slot, last in ((9, 9), (10, 10), (8, 10), (1_793_534_400, 1_793_534_400)):
        assert await store.fire("sweep", slot, b"job", "mail", 600)
        assert await store.last_slots() == {"sweep": last}


async def test_a_slot_is_forgotten_after_its_life(bench: Bench) -> None:
    store = bench.store()
    assert await store.fire("sweep", SLOT, b"job", "mail", 600)
    assert not await store.fire("sweep", SLOT, b"job", "mail", 600)
    assert await store.fire("sweep", SLOT + 1, b"job", "mail", 1)
    await async_wait_for(lambda: store.fire("sweep", SLOT + 1, b"again", "mail", 1), timeout=stretched(1))


async def test_an_entry_is_new_once(bench: Bench) -> None:
    store = bench.store()
    assert await store.last_slots() == {}
    await store.fire("fired", SLOT, b"job", "mail", 600)
    await store.register(["fired", "new", "ä b"], SLOT + 50)
    await store.register(["new"], SLOT + 70)
    assert await store.last_slots() == {"fired": SLOT, "new": SLOT + 50, "ä b": SLOT + 50}
