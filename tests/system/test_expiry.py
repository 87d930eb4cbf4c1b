"""Jobs that expire, through the real server: dropped by Redis' clock, counted, logged, and never run."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers.api import Stats
from tests.helpers.endpoint import Endpoint
from tests.helpers.records import job
from tests.helpers.server_process import Serve
from tests.helpers.support import wait_for

CODE = """
@worker.job(queue="q")
def run(name):
    note("run", name)

@worker.job(queue="async")
async def arun(name):
    note("run", name)

@worker.job(queue="threads", mode="thread", concurrency=2)
def trun(name):
    note("run", name)

@worker.process("owned")
def handle(message):
    note("run", *message.args)
"""
LYING_CLOCK = """
import time
true_time = time.time
time.time = lambda: true_time() + {offset}
"""


def redis_time(db: redis.Redis) -> float:
    found: Any = db.time()
    return float(found[0] + found[1] / 1e6)


def test_only_a_job_that_has_not_started_in_time_is_dropped(
    serve_either: Serve, redis_url: str, namespace: str
) -> None:
    endpoint = Endpoint()
    kinds = {"q": "run", "async": "arun", "threads": "trun", "owned": "Any"}
    with serve_either(CODE, **endpoint.environment) as server:
        past, later = redis_time(server.redis) - 1, redis_time(server.redis) + 3600
        for queue, kind in kinds.items():
            server.push(
                queue,
                job(f"{queue}-late", kind, f"{queue}-late", expiry=past),
                job(f"{queue}-due", kind, f"{queue}-due", expiry=later),
                job(f"{queue}-again", kind, f"{queue}-again", expiry=past, retry_count=0, failed_at=past),
                job(f"{queue}-text", kind, f"{queue}-text", expiry="yesterday"),
            )
        server.wait_for_notes(3 * len(kinds), "run")
        for queue in kinds:
            event = server.wait_for_event("job.expired", jid=f"{queue}-late", queue=queue)
            assert event["level"] == "info"
        wait_for(lambda: server.settled(*kinds))
        assert sorted(name for _, _, name in server.ledger()) == sorted(
            f"{queue}-{rest}" for queue in kinds for rest in ("due", "again", "text")
        )
        wait_for(lambda: endpoint.number('pyworkers_jobs_expired_total{job_class="run"}') == 1)
        assert server.stop() == 0
        stats = Stats.fetch(redis_url, namespace=namespace)
        assert (stats.expired, stats.processed, stats.failed, stats.dead) == (len(kinds), 12, 0, 0)
        days = [datetime.now(UTC) - timedelta(days=back) for back in (0, 1)]
        counts: Any = server.redis.mget(server.keys.stat("expired", f"{day:%Y-%m-%d}") for day in days)
        assert sum(int(count or 0) for count in counts) == len(kinds)
        assert server.redis.zcard(server.keys.retry) == 0


def test_a_job_for_later_expires_from_its_time_on(serve_either: Serve) -> None:
    with serve_either(CODE) as server:
        now = redis_time(server.redis)
        late = job("late", "run", "late", queue="q", expiry=now - 1)
        due = job("due", "run", "due", queue="q", expiry=now + 3600)
        members: dict[Any, float] = {json.dumps(late): now - 2, json.dumps(due): now - 1}
        server.redis.zadd(server.keys.schedule, members)
        server.wait_for_event("job.expired", jid="late")
        server.wait_for_notes(1, "run", "due")


@pytest.mark.parametrize("offset", [-10_000, 10_000])
def test_a_server_with_a_wrong_clock_drops_what_has_expired_by_redis_clock(
    serve_either: Serve, tmp_path: Path, offset: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LYING_CLOCK.format(offset=offset))
    with serve_either(CODE, PYTHONPATH=str(tmp_path)) as server:
        now = redis_time(server.redis)
        late, due = job("late", "run", "late", expiry=now - 1), job("due", "run", "due", expiry=now + 3600)
        server.push("q", late, due)
        server.wait_for_notes(1, "run", "due")
        server.wait_for_event("job.expired", jid="late")
        wait_for(lambda: server.settled("q"))
        assert [note[2] for note in server.ledger()] == ["due"]
