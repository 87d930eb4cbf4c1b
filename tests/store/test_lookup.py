"""One job by its id, wherever it is, in parts of a bounded time."""

from __future__ import annotations

import json
import time
from hashlib import sha1

import pytest
import redis

from pyworkers import Client
from pyworkers.api.browse.lookup import Further, Hint, JobView, read_job
from pyworkers.api.browse.pages import read_page
from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED, Place
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import JobState
from tests.helpers.records import hold_order, raw_job, register
from tests.store.conftest import Run

QUEUE = Place.of_queue("q")
OWNER = "host:1:abcdef"


def seen(run_work: Run, keys: Keys, jid: str) -> JobView:
    view: JobView = run_work(read_job(keys, jid, budget_s=60))
    json.dumps(view.as_dict())
    return view


@pytest.mark.parametrize(
    ("place", "state"),
    [
        (SCHEDULED, JobState.SCHEDULED),
        (RETRIES, JobState.RETRYING),
        (DEAD, JobState.DEAD),
        (QUEUE, JobState.WAITING),
    ],
)
@pytest.mark.parametrize("size", [1, 100_000])
def test_a_job_is_found_in_its_place(
    run_work: Run, keys: Keys, db: redis.Redis, place: Place, state: JobState, size: int
) -> None:
    raw = raw_job("wanted", args=["x" * size])
    others = [raw_job(str(number)) for number in range(10)]
    if place.queue:
        db.sadd(keys.queues, "a", "q", "z")
        db.lpush(place.key(keys), *others, raw)
    else:
        db.zadd(place.key(keys), dict.fromkeys([*others, raw], 1e9))
    view = seen(run_work, keys, "wanted")
    assert (view.place, view.state, view.further) == (place, state, None)
    assert view.job is not None
    assert view.job.raw == raw


def test_a_running_job_is_found_with_its_server(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.hset(keys.owners, OWNER, '["q"]')
    db.lpush(keys.inprogress("q", OWNER), raw_job("1"))
    work = {"queue": "q", "payload": raw_job("1").decode(), "run_at": 1.5}
    db.hset(keys.work(OWNER), "t", json.dumps(work))
    view = seen(run_work, keys, "1")
    assert view.state is JobState.RUNNING
    assert view.held is not None
    assert (view.held.identity, view.held.queue, view.held.run_at) == (OWNER, "q", 1.5)


def test_a_job_that_sidekiq_runs(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    register(db, keys, "ruby:1:abcdef", {"queues": ["q"]}, beat=time.time())
    work = {"queue": "q", "payload": raw_job("1").decode(), "run_at": 1}
    db.hset(keys.work("ruby:1:abcdef"), "t", json.dumps(work))
    view = seen(run_work, keys, "1")
    assert view.held is not None
    assert view.held.identity == "ruby:1:abcdef"


def test_a_tracked_job_that_is_nowhere(
    run_work: Run, keys: Keys, redis_url: str, namespace: str, db: redis.Redis
) -> None:
    with Client(redis_url, namespace=namespace) as client:
        jid = client.enqueue("q", "Add", [1], track=60)
    assert seen(run_work, keys, jid).tracked.status.state is JobState.WAITING
    db.delete(keys.queue("q"))
    db.hset(keys.job(jid), mapping={"state": "done"})
    db.xadd(keys.result(jid), {"answer": '{"state":"done","result":{"sum":3}}'})
    view = seen(run_work, keys, jid)
    assert (view.state, view.job) == (JobState.DONE, None)
    assert view.as_dict()["result"] == {"sum": 3}


def test_an_answer_that_is_nested_too_deep(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.hset(keys.job("1"), mapping={"state": "done"})
    db.xadd(keys.result("1"), {"answer": b"[" * 100_000})
    assert seen(run_work, keys, "1").tracked.answer is None


def test_an_unknown_job(run_work: Run, keys: Keys) -> None:
    view = seen(run_work, keys, "none")
    assert (view.state, view.job, view.further) == (JobState.UNKNOWN, None, None)


def test_a_search_goes_on_from_where_it_was(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "empty", "p", "q")
    db.zadd(keys.retry, {raw_job(f"r{number}"): number for number in range(12_000)})
    db.lpush(keys.queue("p"), raw_job("another"))
    db.lpush(keys.queue("q"), *(raw_job(str(number)) for number in range(12_000)))
    places: list[str] = []
    further: Further | None = None
    while True:
        view = run_work(read_job(keys, "11999", None, further, budget_s=0))
        further = view.further
        if further is None:
            break
        places.append(further.place.word)
    assert view.job is not None
    assert places == ["retries"] * 3 + ["dead", "queue:p", "queue:q", "queue:q", "queue:q"]


def test_a_hint_leads_to_jobs_without_an_id(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), b"\xff")
    [row] = run_work(read_page(keys, QUEUE)).rows
    view = run_work(read_job(keys, "", Hint(QUEUE, row.at)))
    assert view.job is not None
    assert view.job.raw == b"\xff"
    assert run_work(read_job(keys, "other", Hint(QUEUE, row.at))).job is None
    assert run_work(read_job(keys, "\udcff")).job is None


def test_keys_of_other_types_hide_no_job(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    for key in (keys.schedule, keys.retry, keys.dead, keys.job("1"), keys.result("1"), keys.cancelled):
        db.set(key, "text")
    db.sadd(keys.queues, "q")
    db.lpush(keys.queue("q"), raw_job("1"))
    assert seen(run_work, keys, "1").place == QUEUE


def test_a_job_that_a_limit_has_put_off(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.hset(keys.limits, mapping={"mails": "5 0", "other": "1 0"})
    db.zadd(keys.limit_waiting("mails"), {"q 1": 9e9})
    db.zadd(keys.schedule, {raw_job("1"): 9e9, raw_job("2"): 9e9})
    assert seen(run_work, keys, "1").as_dict()["limits"] == ["mails"]
    assert seen(run_work, keys, "2").limits == ()


def test_a_job_that_waits_in_an_ordered_queue(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "q")
    db.lpush(keys.queue("q"), raw_job("1"))
    assert seen(run_work, keys, "1").order is None
    hold_order(db, keys, "q", OWNER, until="1500", head=sha1(raw_job("1")).hexdigest())
    ordered = {"active": OWNER, "running": False, "retry_at": 1.5}
    assert seen(run_work, keys, "1").as_dict()["ordered"] == ordered
    # The failed job is gone, and no server has taken the next one: the queue may be paused.
    db.hset(keys.ordered("q"), "head", sha1(raw_job("0")).hexdigest())
    assert seen(run_work, keys, "1").order == (OWNER, False, None)
    db.hset(keys.ordered("q"), "head", sha1(raw_job("1")).hexdigest())
    db.lpush(keys.inprogress("q", OWNER), raw_job("0"))
    db.hset(keys.ordered("q"), "until", "x")
    assert seen(run_work, keys, "1").order == (OWNER, True, None)
    db.delete(keys.inprogress("q", OWNER), keys.lease(OWNER))
    assert seen(run_work, keys, "1").order == ("", False, None)
    db.hdel(keys.ordered("q"), "identity")
    assert seen(run_work, keys, "1").order == ("", False, None)
    # A server that takes its jobs becomes active when it is resumed; or it is no longer ordered.
    db.hset(keys.owners, OWNER, '["q"]')
    db.set(keys.lease(OWNER), "x")
    assert seen(run_work, keys, "1").order is None
    db.delete(keys.ordered("q"))
    db.set(keys.ordered("q"), "text")
    assert seen(run_work, keys, "1").order is None
