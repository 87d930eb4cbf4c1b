"""Many queues of one server, which wait on one connection: no job is missed, and none is late."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from pyworkers.errors import PyworkersError
from pyworkers.server.changes import UnchangedKeys
from pyworkers.server.health import Health
from pyworkers.server.plan import Group
from pyworkers.server.queues import Strays
from tests.helpers.bench import bench_fixture
from tests.helpers.redises import OwnRedis
from tests.helpers.support import async_wait_for
from tests.server import test_fetcher

QUEUES = [f"q{number}" for number in range(6)]


class Bench(test_fetcher.Bench):
    """A fetcher with more queues than a server waits for with a connection each, and many workers."""

    queues = dict.fromkeys(QUEUES, 1)

    async def run(self) -> None:
        """Run the fetcher until it waits."""
        self.jobs.free = 50
        self.start(self.fetcher.run())
        await self.waits()

    async def waits(self) -> None:
        """Wait until all queues wait, and Redis announces their next change.

        A job that comes before that is announced twice, when the queue is read and when it is fetched.
        """
        await async_wait_for(lambda: not any(source.ready for source in self.fetcher._sources))
        await async_wait_for(lambda: self.idle._reading is None)

    async def push(self, queue: str, raw: bytes) -> None:
        """Push a job, and wait until a worker has it."""
        await self.redis.lpush(self.keys.queue(queue), raw)
        await async_wait_for(lambda: raw in self.jobs.delivered, message=f"{raw!r} is delivered")
        await self.waits()

    @property
    def connected(self) -> list[str]:
        """The queues that have their own connection."""
        return [name for name, waiter in self.waiters.items() if waiter._link.client_id is not None]


class OldBench(Bench):
    """As ``Bench``, by a protocol in which Redis announces nothing."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(f"{url}?protocol=2", namespace)


class MuteBench(Bench):
    """As ``Bench``, for a user whom Redis does not allow to have changes announced."""

    def __init__(self, url: str, namespace: str) -> None:
        self.user = f"mute-{namespace.rstrip(':')}"
        parts = urlsplit(url)
        super().__init__(parts._replace(netloc=f"{self.user}:pw@{parts.netloc}").geturl(), namespace)
        self.redis = Redis.from_url(url)
        self.ends.push_async_callback(self.redis.aclose)

    async def prepare(self) -> None:
        await self.redis.execute_command(
            "ACL", "SETUSER", self.user, "reset", "on", ">pw", "~*", "&*", "+@all", "-client|tracking"
        )
        self.ends.push_async_callback(self.redis.acl_deluser, self.user)
        await super().prepare()


class CrowdedBench(Bench):
    """As ``Bench``, with more queues than Redis tracks keys."""

    queues = dict.fromkeys([f"q{number}" for number in range(500)], 1)


bench, old_bench, mute_bench = bench_fixture(Bench), bench_fixture(OldBench), bench_fixture(MuteBench)


async def test_jobs_come_from_idle_queues_without_a_connection_for_each(bench: Bench) -> None:
    bench.waiter._block_s = 0.2
    await bench.redis.lpush(bench.keys.queue("q3"), b"before")
    await bench.run()
    await async_wait_for(lambda: bench.jobs.delivered == [b"before"])
    for queue in ("q0", "q2", "q5"):
        await bench.push(queue, queue.encode())
    # The announcement of a fetch may arrive after it, and counts as another job: the queue is busy for once.
    await async_wait_for(lambda: bench.connected == [], message="no queue is busy")
    # A key that gets another name is a change as well.
    await bench.redis.lpush("elsewhere", b"moved")
    await bench.redis.rename("elsewhere", bench.keys.queue("q1"))
    await async_wait_for(lambda: b"moved" in bench.jobs.delivered)


async def test_a_queue_has_its_own_connection_while_it_is_busy(bench: Bench) -> None:
    await bench.run()
    for number in range(3):
        await bench.push("q0", b"%d" % number)
    assert bench.connected == ["q0"]
    bench.waiter._block_s = 0.2
    await bench.push("q0", b"last")
    await async_wait_for(lambda: bench.connected == [], message="the queue is no longer busy")
    await bench.waits()
    await bench.push("q0", b"later")


async def test_after_a_lost_connection_the_queues_are_read_again(bench: Bench) -> None:
    await bench.run()
    await bench.push("q5", b"first")
    tracking = [row["id"] for row in await bench.redis.client_list() if "t" in row["flags"]]
    async with bench.redis.pipeline(transaction=True) as pipe:
        for number in tracking:
            pipe.client_kill_filter(_id=number)
        pipe.lpush(bench.keys.queue("q4"), b"unannounced")
        await pipe.execute()
    await async_wait_for(lambda: b"unannounced" in bench.jobs.delivered)
    await bench.push("q2", b"announced")


async def test_without_announcements_each_queue_waits_for_itself(old_bench: OldBench) -> None:
    await old_bench.run()
    await async_wait_for(lambda: old_bench.connected == QUEUES)
    await old_bench.push("q4", b"job")


async def test_a_refusal_is_taken_back_by_the_next_connection(mute_bench: MuteBench) -> None:
    await mute_bench.run()
    await async_wait_for(lambda: mute_bench.connected == QUEUES)
    assert not mute_bench.idle.able
    await mute_bench.redis.execute_command("ACL", "SETUSER", mute_bench.user, "+client|tracking")
    for waiter in mute_bench.waiters.values():
        waiter._block_s = 0.2
    for client in await mute_bench.redis.client_list():
        if client["user"] == mute_bench.user:
            await mute_bench.redis.client_kill_filter(_id=client["id"])
    # As the changes of other keys are read.
    await ask(mute_bench)
    assert mute_bench.idle.able
    await async_wait_for(lambda: mute_bench.connected == [], message="no queue has a connection")
    await mute_bench.waits()
    await mute_bench.push("q4", b"job")


async def ask(bench: Bench) -> None:
    """Send a command by the connection that has the announcements, once it is there again."""
    with suppress(PyworkersError):
        await bench.idle._store.ask()
        return
    await bench.idle._store.ask()


async def test_a_full_table_of_tracked_keys_costs_two_reads_a_second(tmp_path: Path, one_binary: str) -> None:
    options = ("--save", "", "--tracking-table-max-keys", "50")
    with OwnRedis(one_binary, tmp_path / "redis", *options).start() as server:
        bench = CrowdedBench(server.url, "crowded:")
        try:
            await bench.prepare()
            bench.jobs.free = 50
            bench.start(bench.fetcher.run())
            await async_wait_for(lambda: bench.idle._doubt.confirmed, message="announcements are in doubt")
            await async_wait_for(lambda: not any(source.ready for source in bench.fetcher._sources))
            began, before = time.monotonic(), await commands(bench)
            await async_wait_for(lambda: time.monotonic() - began > 2)
            rate = (await commands(bench) - before) / (time.monotonic() - began)
            assert rate < 50
            for name in ("q0", "q499"):
                await bench.redis.lpush(bench.keys.queue(name), name.encode())
            await async_wait_for(lambda: sorted(bench.jobs.delivered) == [b"q0", b"q499"])
        finally:
            await bench.close()


async def commands(bench: Bench) -> int:
    """How many commands Redis has executed."""
    found = await bench.redis.info("commandstats")
    return sum(row["calls"] for row in found.values())


async def test_a_group_without_jobs_lets_its_connection_go(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows that its lists are empty, so a stop needs none either."""
    health = Health(time.monotonic, random.Random())
    queues: Any = SimpleNamespace(serving={"g": SimpleNamespace(fetcher=bench.fetcher)})
    changes: Any = bench.idle._store
    strays = Strays(queues, UnchangedKeys(changes, 60), health, pause_s=1)
    await bench.run()
    await bench.push("q0", b"job")
    assert bench.fetcher.may_hold
    # The job ends. A moment later, the lists are empty, and the connection may be needed again.
    await bench.redis.delete(*bench.fetcher.lists)
    await strays.look()
    assert not bench.fetcher.may_hold and bench.link.client_id is not None
    monkeypatch.setattr("pyworkers.server.fetching.fetcher._REST_S", 0.01)

    async def is_closed() -> bool:
        await strays.look()
        return bench.link.client_id is None

    await async_wait_for(is_closed)
    assert not bench.fetcher.may_hold
    assert await bench.fetcher.give_back() == 0
    assert bench.link.client_id is None
    await bench.push("q1", b"another")
    assert bench.fetcher.may_hold


async def test_a_group_grows_while_more_jobs_wait_than_its_workers_have_taken(bench: Bench) -> None:
    bench.jobs.free = 0
    bench.fetcher.use(Group("g", bench.queues, True, concurrency=2, processes=2, mode="process", least=0))
    await bench.redis.lpush(bench.keys.queue("q0"), b"first", b"second")
    bench.start(bench.fetcher.run())
    await async_wait_for(lambda: bench.grown == [False])
    # Its worker is ready.
    bench.jobs.free = 1
    bench.outbox.changed.set()
    await async_wait_for(lambda: bench.grown == [False, False], message="another one is asked for")
    assert bench.jobs.delivered == [b"first"]
