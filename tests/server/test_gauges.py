"""Who notes the gauges, and how often."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

from pyworkers.config.fields import LogConfig
from pyworkers.server import gauges
from pyworkers.server.gauges import GaugeWriter
from pyworkers.server.health import Health
from pyworkers.server.incarnation import Incarnations
from pyworkers.server.turn import Turn
from pyworkers.store.calls import arun
from pyworkers.store.measures.gauges import MINUTE, TEN_MINUTES, read
from pyworkers.store.store import Store
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.redises import OwnRedis

LEASE_S = 600.0


class Bench(RedisBench):
    """Several servers of one Redis."""

    def server(self, number: int) -> GaugeWriter:
        store = Store(self.redis, self.keys)
        incarnations = Incarnations(f"host:{number}:x", LogConfig(), lambda _: None)
        turn = Turn(store, incarnations, LEASE_S)
        part = GaugeWriter(store, turn, Health(time.monotonic, random.Random()), lambda: ["q"])
        part._first_at = 0.0
        return part

    async def minutes(self) -> int:
        found: int = await self.redis.xlen(self.keys.gauges(MINUTE))
        return found

    async def commands(self) -> int:
        """How many commands Redis has executed."""
        return sum(row["calls"] for row in (await self.redis.info("commandstats")).values())


bench = bench_fixture(Bench)


async def test_one_of_several_servers_notes_a_minute(bench: Bench) -> None:
    servers = [bench.server(number) for number in range(5)]
    pauses = await asyncio.gather(*(server.look() for server in servers))
    # A minute may end meanwhile; those without the turn look again after one.
    assert await bench.minutes() in (1, 2)
    assert sorted(pauses)[1:] == [60.0] * 4 or 60.0 < max(pauses) <= 60.5


async def test_another_server_that_takes_over_in_the_same_minute_writes_no_second_entry(bench: Bench) -> None:
    first, second = bench.server(1), bench.server(2)
    before = int((await bench.redis.time())[0]) // 60
    await first.look()
    await bench.redis.delete(bench.keys.turn(bench.keys.owners))
    await second.look()
    after = int((await bench.redis.time())[0]) // 60
    assert await bench.minutes() == 1 or after > before
    last = (await arun(bench.redis, read(bench.keys, 0.0, MINUTE)))[-1]
    assert last.at in (before * 60, after * 60)


async def test_the_first_entry_waits_for_the_heartbeat_and_the_next_for_the_minute(bench: Bench) -> None:
    part = bench.server(1)
    part._first_at = asyncio.get_running_loop().time() + gauges._FIRST_S
    assert 0 < await part.look() <= gauges._FIRST_S
    assert await bench.minutes() == 0
    part._first_at = 0.0
    pause_s = await part.look()
    assert 0.5 <= pause_s <= 60.5
    ttl_s = await bench.redis.ttl(bench.keys.gauges(MINUTE))
    assert 7000 < ttl_s <= 7200
    assert await bench.redis.exists(bench.keys.gauges(TEN_MINUTES)) == 0


async def test_an_idle_minute_costs_few_commands(tmp_path: Path, one_binary: str) -> None:
    """Hundreds of queues and a few servers: within the bound of what one server does for all."""
    with OwnRedis(one_binary, tmp_path / "redis", "--save", "").start() as redis:
        bench = Bench(redis.url, "")
        try:
            # One page of SSCAN: of a thousand, the place of the last one in Redis' table makes two or three.
            await bench.redis.sadd(bench.keys.queues, *(f"q{number}" for number in range(900)))
            for number in range(5):
                await bench.redis.sadd(bench.keys.processes, f"host:{number}:x")
                await bench.redis.set(bench.keys.busy(f"host:{number}:x"), "0 5")
            part = bench.server(1)
            await part.look()
            await bench.redis.delete(bench.keys.gauges(MINUTE))
            before = await bench.commands()
            await part.look()
            assert await bench.commands() - before <= 8
        finally:
            await bench.close()
