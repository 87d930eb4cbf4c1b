"""The jobs of all places for programs: pages, searches, one by its id, actions."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
import redis

from pyworkers.api.browse import DEAD, RETRIES, SCHEDULED, Acted, Action, Filter, Jobs, Place, Row
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState
from tests.helpers.records import raw_job

QUEUE = Place.of_queue("q")


@pytest.fixture
def jobs(redis_url: str, namespace: str) -> Jobs:
    return Jobs(redis_url, namespace=namespace)


def jids(rows: Iterable[Row]) -> list[str]:
    return [row.job.jid for row in rows]


def test_a_page_of_any_place(jobs: Jobs, db: redis.Redis, keys: Keys) -> None:
    for number in range(5):
        db.lpush(keys.queue("q"), raw_job(f"w{number}"))
        db.zadd(keys.dead, {raw_job(f"d{number}"): 1e9 + number})
    page = jobs.page(QUEUE, 1, 2)
    assert (page.first, page.total, jids(page.rows)) == (1, 5, ["w1", "w2"])
    assert jids(jobs.page(DEAD).rows) == ["d4", "d3", "d2", "d1", "d0"]
    assert jobs.page(SCHEDULED).rows == ()


def test_a_search_looks_at_all_jobs(jobs: Jobs, db: redis.Redis, keys: Keys) -> None:
    # More than one round trip looks at.
    raws = [raw_job(str(number), args=[number]) for number in range(12_000)]
    db.zadd(keys.retry, {raw: 1e9 + number for number, raw in enumerate(raws)})
    assert jids(jobs.search(RETRIES, Filter(jid="11999"))) == ["11999"]
    assert len(list(jobs.search(RETRIES, Filter()))) == 12_000


def test_one_job_in_any_place(jobs: Jobs, db: redis.Redis, keys: Keys) -> None:
    db.sadd(keys.queues, "q")
    db.lpush(keys.queue("q"), *(raw_job(str(number)) for number in range(7000)))
    view = jobs.find("6999")
    assert (view.state, view.place) == (JobState.WAITING, QUEUE)
    assert view.job is not None and view.job.jid == "6999"
    gone = jobs.find("7000")
    assert (gone.job, gone.state, gone.searched) == (None, JobState.UNKNOWN, True)


def test_found_jobs_are_acted_on_and_those_that_are_gone_are_left_out(
    jobs: Jobs, db: redis.Redis, keys: Keys
) -> None:
    raws = [raw_job(str(number)) for number in range(120)]
    db.zadd(keys.retry, dict.fromkeys(raws, 1e9))
    rows = list(jobs.search(RETRIES, Filter()))
    db.zrem(keys.retry, rows[7].job.raw)
    assert jobs.act(RETRIES, Action.KILL, rows[:60]) == Acted(59)
    assert jobs.act(RETRIES, Action.DELETE, rows[60:]) == Acted(60)
    assert (db.zcard(keys.retry), db.zcard(keys.dead)) == (0, 59)


def test_jobs_get_another_time(jobs: Jobs, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.schedule, {raw_job("1"): 1e9})
    at = time.time() + 3600
    assert jobs.act(SCHEDULED, Action.RESCHEDULE, jobs.page(SCHEDULED).rows, at=at).done == 1
    [row] = jobs.page(SCHEDULED).rows
    assert row.score == pytest.approx(at)


def test_an_action_that_a_place_does_not_have_is_refused(jobs: Jobs) -> None:
    with pytest.raises(BadArgumentError, match="cannot be moved by this action"):
        jobs.act(DEAD, Action.FIRST, [])
    with pytest.raises(BadArgumentError, match="only reschedule takes a time"):
        jobs.act(SCHEDULED, Action.RESCHEDULE, [])
