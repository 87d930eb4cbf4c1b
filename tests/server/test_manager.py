"""The manager of one group, with real forks and a real server: the end of its fetcher."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pyworkers.config.fields import Config
from pyworkers.errors import RedisUnavailableError
from pyworkers.ipc.control import Load, Loaded
from pyworkers.protocol.outcome import DONE, Report
from pyworkers.server import manager as manager_module
from pyworkers.server.cancellations import Cancellations
from pyworkers.server.fetching.fetcher import Fetcher, GroupCallbacks
from pyworkers.server.fetching.idle import IdleQueues
from pyworkers.server.generations.reaper import Reaper
from pyworkers.server.generations.spawner import Spawner
from pyworkers.server.health import Health, ServerHealth
from pyworkers.server.manager import Manager, Shared
from pyworkers.server.parts import Tasks
from pyworkers.server.plan import Group
from pyworkers.server.pool.cpus import ReservedCpu
from pyworkers.server.pool.gates import CancelledJobs, Gates
from pyworkers.server.pool.jobs import LookDue
from pyworkers.server.pool.pool import Pool
from pyworkers.server.pool.settling import Rules
from pyworkers.server.queues import Queues
from pyworkers.server.waiting import now
from pyworkers.store.changes import ChangesStore
from pyworkers.store.jobs import Exchange, InProgress
from tests.helpers.asks import FakeAsks
from tests.helpers.bench import RedisBench, bench_fixture
from tests.helpers.launching import launched_warm
from tests.helpers.records import job
from tests.helpers.support import PATIENCE_S, async_wait_for
from tests.helpers.suspects import FakeSuspects

IDENTITY = "host:1:aaa"
CODE = """
import time
from pathlib import Path
from pyworkers import Worker
worker = Worker()

@worker.process("q")
def handle(message):
    Path(__file__).with_name("began").touch()
    while not Path(__file__).with_name("go").exists():
        time.sleep(0.005)
"""


class Bench(RedisBench):
    """A manager of one worker, and the reports that it counts."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self.counted: list[Report] = []
        self.interrupted: list[int] = []

    async def prepare(self) -> None:
        await self.redis.hset(self.keys.owners, IDENTITY, '["q"]')

    @asynccontextmanager
    async def manager(self, folder: Path, code: str) -> AsyncIterator[Manager]:
        """A manager that serves this code; its fork server ends after the block."""
        (folder / "tasks.py").write_text(code)
        load = Load("tasks:worker", [str(folder)], "info", "json", "me", {})
        launched = launched_warm(load)
        spawner = Spawner(launched, Reaper(), lambda _: None)
        try:
            loaded = await spawner.loaded()
            assert isinstance(loaded, Loaded), loaded
            yield self._manager(spawner, Rules(loaded.manifest, 25, time.time, random.Random()))
        finally:
            spawner.kill()
            spawner.process.wait()

    def _manager(self, spawner: Spawner, rules: Rules) -> Manager:
        group = Group("q", {"q": 1}, strict=True, concurrency=1, processes=1, mode="process")
        shared = Shared(
            Config(redis=self.config),
            ServerHealth(time.monotonic, random.Random()).of_queue,
            Gates(CancelledJobs(Cancellations()), FakeSuspects(), FakeAsks()),
            ReservedCpu((), float),
            IdleQueues(ChangesStore(self.config, lambda: None), Health(time.monotonic, random.Random())),
            GroupCallbacks(
                lambda _, report, jobs: self.counted.extend([report] * jobs),
                self.interrupted.append,
                lambda _: None,
                lambda _, __: None,
                lambda _: True,
            ),
            random.Random(),
        )
        return Manager(group, InProgress(self.keys, ["q"], IDENTITY), spawner, rules, shared)


bench = bench_fixture(Bench)


async def test_a_hurried_stop_counts_the_outcomes_of_the_exchange_under_way(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = InProgress.exchange
    executed, reply = asyncio.Event(), asyncio.Event()

    async def slow(inprogress: InProgress, link: Any, batch: Any, *args: Any) -> Exchange:
        found = await exchange(inprogress, link, batch, *args)
        if batch:
            executed.set()
            await reply.wait()
        return found

    monkeypatch.setattr(InProgress, "exchange", slow)
    # A machine that stalls must not end the wait.
    monkeypatch.setattr(manager_module, "_REPLY_S", PATIENCE_S)
    monkeypatch.setattr(manager_module, "_ANSWER_S", PATIENCE_S)
    async with bench.manager(tmp_path, CODE) as manager:
        _, fetching = manager.start()
        await bench.redis.lpush(bench.keys.queue("q"), json.dumps(job("j", "Any")))
        await async_wait_for((tmp_path / "began").exists, message="the job runs")
        # From now on, only its outcome is exchanged.
        await manager.quiet()
        (tmp_path / "go").touch()
        await async_wait_for(executed.is_set, message="Redis has the outcome")
        manager.stop_at_once()
        stop = asyncio.create_task(manager.stop(now() + PATIENCE_S))
        # Cut off, the exchange would end at once.
        await asyncio.wait([fetching], timeout=0.5)
        assert bench.counted == []
        reply.set()
        await stop
        assert [report.outcome for report in bench.counted] == [DONE]
        assert await bench.redis.llen(bench.keys.queue("q")) == 0
        assert bench.interrupted == []


async def test_a_stop_after_a_defect_in_an_event_still_sees_the_workers_end(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pool: Pool) -> None:
        # Once: a look that comes due during the stop would end the events of the stop as well.
        monkeypatch.undo()
        raise RuntimeError("a fault of ours")

    async with bench.manager(tmp_path, CODE) as manager:
        pooling, _ = manager.start()
        await async_wait_for(lambda: manager.pool.all_started, message="its worker has started")
        monkeypatch.setattr(Pool, "look", fail)
        manager.jobs.workers.events.put_nowait(LookDue())
        await asyncio.wait([pooling])
        assert isinstance(pooling.exception(), RuntimeError)
        await manager.stop(now() + PATIENCE_S)
        assert manager.pool.empty


@pytest.mark.parametrize("has_manager", [False, True])
async def test_a_queue_that_has_another_manager_is_not_given_up(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_manager: bool
) -> None:
    released: list[Fetcher] = []

    async def release(fetcher: Fetcher) -> None:
        released.append(fetcher)

    monkeypatch.setattr(manager_module, "_AGAIN_S", 0.0)
    async with bench.manager(tmp_path, CODE) as manager:
        manager.start()
        await manager.stop(now())
        monkeypatch.setattr(Fetcher, "release", release)
        await manager.empty(lambda _: has_manager)
        assert released == ([] if has_manager else [manager.fetcher])


class Hung:
    """A manager whose Redis does not answer until ``answers`` is set."""

    name = "q"
    queues = frozenset({"q"})

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def stop(self, _deadline: float) -> None:
        raise RedisUnavailableError("it hangs")

    async def empty(self, _has_manager: object) -> None:
        await self.answers.wait()


async def test_a_queue_that_comes_back_while_its_lists_are_emptied_keeps_its_health() -> None:
    health, hung = ServerHealth(time.monotonic, random.Random()), Hung()
    tasks = Tasks(lambda name, error: pytest.fail(f"{name}: {error!r}"))
    queues: Any = Queues(lambda *_: pytest.fail("no group"), tasks, 1.0, lambda _: health.forget_queue("q"))
    health.of_queue("q")
    queues.serving["q"] = hung
    queues.stop_dropped({})
    await queues.stopped()
    health.of_queue("q").failed(RedisUnavailableError("away"))
    [emptying] = [task for task in asyncio.all_tasks() if task.get_name() == "empty q"]
    hung.answers.set()
    await emptying
    assert health.is_down
