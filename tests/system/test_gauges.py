"""The gauges of real servers: each minute once for all of them, with the wait of an unserved queue."""

from __future__ import annotations

import time
from pathlib import Path

from pyworkers.api import Gauges
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import run
from pyworkers.store.measures import gauges
from tests.helpers.records import raw_job
from tests.helpers.server_process import serving
from tests.helpers.support import wait_for

APP = """
@worker.job(queue="q", concurrency=3)
def hold():
    note("held", 0)
    time.sleep(600)
"""


def test_several_servers_note_each_minute_once(tmp_path: Path, redis_url: str, namespace: str) -> None:
    keys = Keys(namespace)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with (
        serving(tmp_path / "one", redis_url, namespace, APP) as server,
        serving(tmp_path / "two", redis_url, namespace, APP),
    ):
        server.push("lonely", raw_job("late", queue="lonely", enqueued_at=time.time() - 100))
        server.redis.sadd(keys.queues, "lonely")
        server.push(
            "q", *(raw_job(f"j{number}", queue="q", **{"class": "hold", "args": []}) for number in range(2))
        )
        # The first entry is as old as the servers; the next one has the jobs.
        wait_for(lambda: latest(redis_url, namespace).busy == 2, 130, message="a minute has both jobs")
        found = latest(redis_url, namespace)
        assert found.concurrency == 6
        wait = found.latency_s("lonely")
        assert wait is not None and wait > 100
        assert found.latency_s("q") == 0.0
        noted = run(server.redis, gauges.read(keys, 0.0, gauges.MINUTE))
        assert len(noted) == len({entry.at for entry in noted}) <= 4


def latest(url: str, namespace: str) -> Gauges:
    """Those of the last minute that has some; a minute without entries is unknown."""
    found = Gauges.fetch("2h", url, namespace=namespace)
    return next((one for one in reversed(found) if one.busy is not None), found[-1])
