"""``processes = "auto"``: workers start with the first job and end without one; no job is lost."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.records import raw_job
from tests.helpers.redises import OwnRedis
from tests.helpers.server_process import serving
from tests.helpers.support import wait_for

IDLE_S = 0.3
APP = """
for number in range(200):
    worker.process(f"q{number}", concurrency=2, processes="auto")(print)
worker.process("kept", concurrency=2, processes="1-2")(print)
"""


@pytest.fixture
def own(tmp_path: Path, valkey_binary: str) -> Iterator[OwnRedis]:
    """A Redis that nothing else uses."""
    with OwnRedis(valkey_binary, tmp_path / "redis", "--save", "") as server:
        yield server.start()


def test_workers_come_with_jobs_and_go_without(tmp_path: Path, own: OwnRedis) -> None:
    own_setting = {"PYWORKERS_SERVER__IDLE_TIMEOUT": str(IDLE_S)}
    with serving(tmp_path, own.url, "", APP, **own_setting) as server:
        # The fork server, and the worker of the group that keeps one.
        wait_for(lambda: len(server.tree()) == 2, message="idle queues have no worker")
        wait_for(lambda: server.redis.info("clients")["connected_clients"] <= 20, message="few connections")
        server.wait_until_listed()
        [identity] = server.redis.smembers(server.keys.processes)
        groups = json.loads(server.redis.hget(identity, "groups") or "{}")
        assert groups["q77"]["processes"] == 0
        server.push("q77", raw_job("a", queue="q77"))
        server.wait_for_event("job.done", queue="q77")
        wait_for(lambda: len(server.tree()) == 2, message="its worker has ended")
        # At the moment of its end, again and again.
        for number in range(30):
            server.push("q5", raw_job(f"b{number}", queue="q5"))
            time.sleep(random.uniform(0.9 * IDLE_S, 1.2 * IDLE_S))
        wait_for(lambda: len(server.events("job.done", queue="q5")) == 30)
        assert len({event["pid"] for event in server.events("job.done", queue="q5")}) > 1
        assert server.events("worker.lost") == []
        assert server.stop() == 0
    assert own.client().keys("queue:*") == []
