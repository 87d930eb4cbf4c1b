"""Changes against real servers: passed on at once where Redis announces them, else within the interval."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pyworkers.errors import RedisUnavailableError, StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.server.changes import Changes, Follow
from pyworkers.server.health import Health
from pyworkers.server.waiting import cancel
from pyworkers.store.calls import one
from pyworkers.store.changes import ChangesStore
from pyworkers.store.jobs import hold_any
from pyworkers.store.transport.replies import integer
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.redises import OwnRedis
from tests.helpers.support import async_wait_for

EVERY_S = 0.2


class Part:
    """Follows one key of each kind, and notes the replies."""

    def __init__(self) -> None:
        self.told: dict[str, list[Any]] = {}

    def follows(self, keys: Keys, identity: str) -> Mapping[str, Follow]:
        kinds = {
            keys.schedule: "first",
            keys.paused: "members",
            keys.cancelled: "notes",
            keys.cron_version: "text",
            keys.signals(identity): "length",
        }
        return {
            name: Follow(kind, self.told.setdefault(name, []).append, EVERY_S) for name, kind in kinds.items()
        }


class Bench(RedisBench):
    """Changes that a part follows."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.part = Part()
        self.returns: list[float] = []
        self.left = 0

    def make(self) -> Changes:
        health = Health(time.monotonic, random.Random())
        changes = Changes(
            self.config,
            self.keys,
            health,
            lambda: self.returns.append(time.time()),
            [self.part],
            self.leave,
        )
        self.ends.push_async_callback(changes.close)
        changes.follow("host:1:x")
        return changes

    async def leave(self) -> None:
        self.left += 1

    def changes(self) -> ChangesStore:
        changes = self.make()
        self.start(changes.run())
        return changes._store

    async def told(self, key: str, expected: Any) -> None:
        told = self.part.told[key]
        await async_wait_for(lambda: told and told[-1] == expected, message=f"{key}: {told}")

    async def change_all(self) -> None:
        keys = self.keys
        await self.told(keys.schedule, [])
        await self.redis.zadd(keys.schedule, {b"job": 1.5})
        await self.redis.sadd(keys.paused, "q")
        await self.redis.zadd(keys.cancelled, {b"jid": 7})
        await self.redis.set(keys.cron_version, "v")
        await self.redis.lpush(keys.signals("host:1:x"), "TSTP")
        await self.told(keys.schedule, [b"job", b"1.5"])
        await self.told(keys.paused, [b"q"])
        await self.told(keys.cancelled, [1, [b"jid", b"7"]])
        await self.told(keys.cron_version, b"v")
        await self.told(keys.signals("host:1:x"), 1)
        await self.redis.delete(keys.schedule, keys.paused)
        await self.told(keys.schedule, [])
        await self.told(keys.paused, [])


bench = bench_fixture(Bench)


async def test_each_change_is_passed_on_and_nothing_is_asked_in_between(bench: Bench) -> None:
    store = bench.changes()
    await bench.change_all()
    assert store.announced
    told = {key: len(replies) for key, replies in bench.part.told.items()}
    began = time.monotonic()
    # A key without a follower is not read, however long that takes.
    await async_wait_for(lambda: time.monotonic() - began > 5 * EVERY_S)
    assert {key: len(replies) for key, replies in bench.part.told.items()} == told


async def test_where_the_acl_forbids_announcements_all_is_read_again_and_again(bench: Bench) -> None:
    user = f"mute-{bench.keys.namespace.rstrip(':')}"
    await bench.redis.execute_command(
        "ACL", "SETUSER", user, "reset", "on", ">pw", "~*", "+@all", "-client|tracking"
    )
    parts = urlsplit(bench.config.url)
    bench.config = replace(bench.config, url=parts._replace(netloc=f"{user}:pw@{parts.netloc}").geturl())
    store = bench.changes()
    await bench.change_all()
    assert not store.announced


async def test_with_an_older_protocol_in_the_url_all_is_read_again_and_again(bench: Bench) -> None:
    bench.config = replace(bench.config, url=bench.config.url + "?protocol=2")
    store = bench.changes()
    await bench.change_all()
    assert not store.announced


async def test_where_the_server_lacks_the_newer_protocol_all_is_read_again_and_again(
    tmp_path: Path, one_binary: str, one_redis_url: str, namespace: str
) -> None:
    # As with a proxy: "ERR unknown command 'HELLO'".
    options = ("--save", "", "--rename-command", "HELLO", "")
    with OwnRedis(one_binary, tmp_path / "redis", *options).start() as server:
        bench = Bench(server.url, "old:")
        try:
            store = bench.changes()
            await bench.change_all()
            assert not store.announced
            # The next Redis is asked again.
            await store.connect_to(replace(bench.config, url=one_redis_url, namespace=namespace))
            await async_wait_for(lambda: store.announced)
        finally:
            await bench.close()


async def test_after_a_lost_connection_everything_is_read_again(bench: Bench) -> None:
    store = bench.changes()
    await bench.told(bench.keys.paused, [])
    number = store._link.client_id or await store._link.execute_command("CLIENT", "ID")
    async with bench.redis.pipeline(transaction=True) as pipe:
        pipe.execute_command("CLIENT", "KILL", "ID", number)
        pipe.sadd(bench.keys.paused, "q")
        await pipe.execute()
    await bench.told(bench.keys.paused, [b"q"])
    assert store.announced


async def test_a_primary_that_answers_after_a_replica_and_an_outage_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, codes = ChangesStore.ask, ["READONLY", "UNREACHABLE"]

    async def ask_in_vain(store: ChangesStore) -> None:
        if codes:
            raise RedisUnavailableError("it is not the primary", code=codes.pop(0))
        await ask(store)

    monkeypatch.setattr(ChangesStore, "ask", ask_in_vain)
    bench.changes()
    await bench.change_all()
    assert bench.left == 1


async def test_a_flushed_database_changes_everything(bench: Bench) -> None:
    bench.config = replace(bench.config, url=bench.config.url.removesuffix("/0") + "/11")
    database = bench.connection()
    await database.sadd(bench.keys.paused, "q")
    bench.changes()
    await bench.told(bench.keys.paused, [b"q"])
    await database.flushdb()
    await bench.told(bench.keys.paused, [])


async def test_a_key_that_cannot_be_read_is_an_error_for_its_part_alone(bench: Bench) -> None:
    await bench.redis.set(bench.keys.paused, "no set")
    await bench.redis.set(bench.keys.cancelled, "no set")
    bench.changes()
    await bench.told(bench.keys.schedule, [])
    for key in (bench.keys.paused, bench.keys.cancelled):
        error = bench.part.told[key][-1]
        assert isinstance(error, StoreError) and error.code == "WRONGTYPE"
    await bench.redis.delete(bench.keys.paused)
    await bench.told(bench.keys.paused, [])


async def test_many_changes_are_read_together(bench: Bench) -> None:
    bench.changes()
    await bench.told(bench.keys.schedule, [])
    began, told = time.monotonic(), bench.part.told[bench.keys.schedule]
    before = len(told)
    for number in range(1000):
        await bench.redis.zadd(bench.keys.schedule, {f"job{number}": number})
    await bench.told(bench.keys.schedule, [b"job0", b"0"])
    took = time.monotonic() - began
    assert len(told) - before <= 20 * took + 2


@pytest.mark.parametrize("answered", [True, False])
async def test_a_key_that_is_dropped_while_it_is_read_is_forgotten(bench: Bench, answered: bool) -> None:
    changes = bench.make()
    signals = [bench.keys.signals(identity) for identity in ("host:1:x", "host:1:y")]
    reading = asyncio.create_task(changes.read_due(0.0))
    # Until it waits for the reply, which no turn of the loop has read yet.
    await asyncio.sleep(0)
    changes.follow("host:1:y")
    if answered:
        await reading
    else:
        await cancel([reading])
    assert bench.part.told.get(signals[0], []) == []
    await changes.read_due(0.0)
    assert bench.part.told[signals[1]] == [0]
    # None of the old keys is left: it would be read again and again.
    assert changes._store.stale == set()
    assert math.isfinite(changes._next())


class Reader:
    """Reads whether queues exist, as a part does that looks often."""

    def __init__(self, bench: Bench, life_s: float = 600.0) -> None:
        changes = bench.make()
        self.store = changes._store
        self.unchanged = changes.unchanged(life_s)
        self._keys = bench.keys

    async def read(self, *queues: str) -> bool:
        names = [self._keys.queue(queue) for queue in queues]
        return await self.unchanged.read(hold_any(names), *names)

    def has(self, *queues: str) -> bool:
        return self.unchanged.has(*map(self._keys.queue, queues))


async def test_a_key_is_unchanged_from_its_read_to_its_next_change(bench: Bench) -> None:
    reader = Reader(bench)
    await reader.store.ask()
    assert not reader.has("a")
    assert not await reader.read("a", "b")
    assert reader.has("a", "b") and not reader.has("a", "c")
    await bench.redis.rpush(bench.keys.queue("a"), "job")
    await async_wait_for(lambda: not reader.has("a"))
    assert reader.has("b")
    assert await reader.read("a")
    assert reader.has("a", "b")
    reader.unchanged.forget()
    assert not reader.has("b")


async def test_a_job_that_a_blocking_move_takes_changes_its_list(bench: Bench) -> None:
    reader, queue, target = Reader(bench), bench.keys.queue("a"), bench.keys.queue("b")
    await reader.store.ask()
    move = asyncio.ensure_future(bench.connection().brpoplpush(queue, target, 30))
    assert not await reader.read("b")
    await bench.redis.lpush(queue, "job")
    assert await move == b"job"
    await async_wait_for(lambda: not reader.has("b"))


async def test_no_key_is_unchanged_for_longer_than_its_life_and_its_connection(bench: Bench) -> None:
    brief, reader = Reader(bench, 0.0), Reader(bench)
    await brief.store.ask()
    assert not await brief.read("a") and not brief.has("a")
    # A read that opens the connection may be older than the agreement to announce changes.
    assert not await reader.read("a") and not reader.has("a")
    assert not await reader.read("a") and reader.has("a")
    number = await reader.store.send(one("CLIENT", "ID", read=integer))
    await bench.redis.execute_command("CLIENT", "KILL", "ID", number)
    await async_wait_for(lambda: not reader.has("a"))
    await reader.store.ask()
    assert not reader.has("a")


async def test_where_redis_announces_nothing_no_key_is_unchanged(bench: Bench) -> None:
    bench.config = replace(bench.config, url=bench.config.url + "?protocol=2")
    reader = Reader(bench)
    for _ in range(2):
        assert not await reader.read("a") and not reader.has("a")
