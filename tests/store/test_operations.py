"""What the API, the commands and the dashboard read and change: what test_api.py does not see."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any, TypeVar

import pytest
import redis

from pyworkers.errors import BadArgumentError
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import Cancelled
from pyworkers.store import calls, queues, sets, stats
from pyworkers.store.browse import tracks
from pyworkers.store.calls import Pages, Request
from pyworkers.store.cancel import cancel
from pyworkers.store.heartbeat import clock
from pyworkers.store.measures import runs
from pyworkers.store.processes import reading, signals
from pyworkers.store.processes.reading import Processes, Works
from pyworkers.store.queues import Entries
from pyworkers.store.sets import Matches
from pyworkers.store.views.servers import read_servers
from tests.helpers.records import hold_order, raw_job, register
from tests.store.conftest import Run

T = TypeVar("T")
INFO = {"hostname": "web", "pid": 7, "concurrency": 5, "queues": ["q"], "version": "7.3.0"}
ODD = b"\xff".decode(errors="surrogateescape")


def each(run_work: Run, pages: Pages[T]) -> Iterator[T]:
    """The items, page by page."""
    while not pages.ended:
        yield from run_work(pages.next_page())


def test_the_rates_are_those_of_this_minute_and_the_last(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    for owner in ("our:1:x", "gone:1:x"):
        db.hset(keys.owners, owner, '["q", "idle"]' if owner == "our:1:x" else '["left"]')
    db.set(keys.lease("our:1:x"), "x")
    db.sadd(keys.queues, "ruby")
    now = run_work(clock())
    for ago, jobs in ((0, 10), (1, 20), (2, 40)):
        run_work(runs.add(keys, {"q|p": jobs, "q|f": 2}, now - 60 * ago))
    assert db.ttl(keys.runs(int(now // 60))) > 7000
    minutes = 1 + now % 60 / 60
    rates = run_work(runs.read_rates(keys, now))
    assert rates == {"q|p": pytest.approx(30 / minutes), "q|f": pytest.approx(4 / minutes)}
    found = {queue.name: queue for queue in run_work(stats.overview(keys)).queues}
    assert {name: found[name].failed_per_min is None for name in found} == {
        "q": False,
        "idle": False,
        "left": True,
        "ruby": True,
    }
    assert (found["idle"].rate_per_min, found["ruby"].rate_per_min) == (0.0, None)


@pytest.mark.parametrize(
    ("leased", "busy", "active"), [(True, False, "a:1:x"), (False, True, "a:1:x"), (False, False, "")]
)
@pytest.mark.parametrize("owner", [True, False])
def test_an_ordered_queue_names_its_server_while_that_has_a_lease_or_a_job_of_it(
    run_work: Run, keys: Keys, db: redis.Redis, leased: bool, busy: bool, active: str, owner: bool
) -> None:
    groups = {"g": {"queues": {"q": 1}, "ordered": True}}
    register(db, keys, "a:1:x", INFO, beat=time.time(), look=0, groups=json.dumps(groups))
    hold_order(db, keys, "q", "a:1:x")
    if owner:
        db.hset(keys.owners, "a:1:x", '["q"]')
    if not leased:
        db.delete(keys.lease("a:1:x"))
    db.lpush(keys.queue("q"), raw_job("1"))
    if busy:
        db.lpush(keys.inprogress("q", "a:1:x"), raw_job("0"))
    db.sadd(keys.queues, "q", "plain")
    seen = {queue.name: queue.active for queue in run_work(stats.overview(keys)).queues}
    assert (seen["q"], seen["plain"]) == (active, "")
    assert run_work(stats.one_queue(keys, "q")).active == active
    order = run_work(tracks.read_order(keys, "q"))
    assert (order.active if order else "") == active
    [server] = run_work(read_servers(keys, ["a:1:x"]))
    assert server.active == (("q",) if active else ())


def test_keys_of_other_types_and_bytes_count_as_empty(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    now = run_work(clock())
    for key in (keys.stat("processed"), keys.schedule, keys.queue("q"), keys.paused):
        db.hset(key, "a", "b")
    db.sadd(keys.queues, "q")
    db.set(keys.ordered("q"), "x")
    db.hset(keys.runs(int(now // 60)), mapping={"q|p": "many", b"\xff": "1", "x": "-1"})
    seen = run_work(stats.overview(keys))
    assert (seen.counted["processed"], seen.scheduled) == (0, 0)
    [queue] = seen.queues
    assert (queue.size, queue.next_enqueued_at, queue.active, queue.paused) == (0, None, "", False)


def test_counters_and_times_of_any_bytes_count_as_0_or_unknown(
    run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    db.mset({keys.stat("processed"): "9" * 5000, keys.stat("failed"): "-1", keys.stat("expired"): b"\xff"})
    db.lpush(keys.queue("q"), b'{"enqueued_at":' + b"[" * 4000 + b"}")
    db.sadd(keys.queues, "q")
    seen = run_work(stats.overview(keys))
    assert not any(seen.counted.values())
    assert [(queue.size, queue.next_enqueued_at) for queue in seen.queues] == [(1, None)]


def test_a_waiting_job_is_cancelled_wherever_it_waits(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job("later"): 9e9})
    db.sadd(keys.queues, b"\xff", "empty", "wrong")
    db.set(keys.queue("wrong"), "no list")
    db.zadd(keys.retry, {b"no job with 444": 9e9})
    db.rpush(b"%squeue:\xff" % keys.namespace.encode(), *(raw_job(f"{n:03}") for n in range(500)))
    assert run_work(cancel(keys, "later")) is Cancelled.REMOVED
    assert run_work(cancel(keys, "444")) is Cancelled.REMOVED
    assert (db.zcard(keys.schedule), run_work(queues.size(keys, ODD))) == (0, 499)
    assert db.get(keys.stat("cancelled")) == b"2"
    assert db.zcard(keys.cancelled) == 0
    # A part of an id is none.
    assert run_work(cancel(keys, "44")) is Cancelled.UNKNOWN
    assert db.zrange(keys.cancelled, 0, -1) == [b"44"]
    with pytest.raises(BadArgumentError):
        run_work(cancel(keys, ""))


def test_a_running_job_is_cancelled_here_and_elsewhere(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.hset(keys.owners, "our:1:x", '["q"]')
    db.lpush(keys.inprogress("q", "our:1:x"), raw_job("ours"))
    register(db, keys, "web:7:abc", INFO)
    db.hset(keys.work("web:7:abc"), "t", json.dumps({"queue": "q", "payload": raw_job("theirs").decode()}))
    assert run_work(cancel(keys, "ours")) is Cancelled.RUNNING
    assert run_work(cancel(keys, "theirs")) is Cancelled.ELSEWHERE
    assert db.hexists(keys.iteration("theirs"), "cancelled")


def test_processes_and_their_work_are_read_in_pages(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    for number in range(250):
        register(db, keys, f"web:{number}:x", INFO)
    db.hset(keys.work("web:7:x"), "t", json.dumps({"queue": "q", "payload": "{}", "run_at": 5}))
    db.set(keys.workers("web:8:x"), "of another type")
    pages = Processes(keys)
    assert 0 < len(run_work(pages.next_page())) < 250
    assert not pages.ended
    identities = {view.identity for view in run_work(Processes(keys).rest())}
    assert identities == {f"web:{number}:x" for number in range(250)}
    [work] = each(run_work, Works(keys, sorted(identities)))
    assert (work.identity, work.thread, work.run_at) == ("web:7:x", "t", 5.0)
    assert run_work(Works(keys, []).rest()) == []
    assert run_work(reading.registered(keys)) == 250


def test_servers_are_asked_for_their_numbers(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    look = run_work(signals.watch(keys))
    assert abs(look / 1e6 - time.time()) < 60
    assert run_work(signals.answered(keys, look))
    register(db, keys, "our:1:x", INFO, beat=time.time(), look=look - 1)
    assert not run_work(signals.answered(keys, look))
    db.hset(keys.process("our:1:x"), "look", look)
    assert run_work(signals.answered(keys, look))
    db.set(keys.leader, "web:7:abc")
    assert run_work(reading.leader(keys)) == "web:7:abc"


def test_members_are_found_by_their_text(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {b"a [b]*": 1.5, b"a [b] c": 2.5, b"\xff": float("inf")})
    assert run_work(Matches(keys.dead, "[b]*").rest()) == [(b"a [b]*", 1.5)]
    assert run_work(Matches(keys.dead, ODD).rest()) == [(b"\xff", float("inf"))]
    assert len(run_work(Matches(keys.dead, "").rest())) == 3
    assert run_work(sets.with_score(keys.dead, 2.5)) == [b"a [b] c"]


@pytest.mark.parametrize("pushed", [3, 50])
def test_a_queue_of_large_jobs_is_read_while_jobs_come(keys: Keys, db: redis.Redis, pushed: int) -> None:
    """A page has one job by then, and more than a page comes before each request."""
    key, requests = keys.queue("q"), count()
    old = [b"%04d" % number + b"x" * 600_000 for number in range(20)]
    db.rpush(key, *old)

    def perform(request: Request[Any]) -> Any:
        request_number = next(requests)
        assert request_number < 500, "the listing does not end"
        db.lpush(key, *(b"new%d-%d" % (request_number, number) for number in range(pushed)))
        return calls.run(db, request)

    seen: list[bytes] = []
    pages = Entries(key)
    while not pages.ended:
        seen += (waiting.raw for waiting in calls.drive(iter(pages.next_page()), perform))
    assert [raw for raw in seen if not raw.startswith(b"new")] == old
