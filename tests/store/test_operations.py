"""What people look at and change, over a blocking client and in an event loop: the same calls in both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar

import pytest
import redis

from pyworkers.config.cron_entries import dump
from pyworkers.errors import BadArgumentError, StoreError
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import Cancelled
from pyworkers.store import calls, cron, queues, sets, stats
from pyworkers.store.browse import tracks
from pyworkers.store.calls import Operation, Pages, Request
from pyworkers.store.cancel import cancel
from pyworkers.store.flow import removal
from pyworkers.store.heartbeat import clock
from pyworkers.store.measures import runs
from pyworkers.store.processes import cleanup, reading, signals
from pyworkers.store.processes.reading import Processes, Works
from pyworkers.store.queues import Entries, Withdrawal
from pyworkers.store.search import Search
from pyworkers.store.sets import Matches, MembersByScore, Move
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


def test_the_overview_counts_queues_sets_and_servers(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.set(keys.stat("processed"), 10)
    db.sadd(keys.queues, "q", b"\xff")
    db.sadd(keys.paused, b"\xff")
    db.lpush(keys.queue("q"), raw_job("next", enqueued_at=1e9), raw_job("newest"))
    db.zadd(keys.retry, {raw_job("a"): 1.0})
    db.hset(keys.owners, "our:1:x", '["q"]')
    db.set(keys.lease("our:1:x"), "x")
    db.lpush(keys.inprogress("q", "our:1:x"), raw_job("c"))
    db.lpush(keys.inprogress("q", "go"), raw_job("d"), raw_job("e"))
    db.set(keys.inprogress("q", "odd"), "not a list")
    register(db, keys, "web:7:abc", INFO, busy=4, beat=time.time())
    seen = run_work(stats.overview(keys, Search(keys, budget_s=60)))
    assert (seen.counted["processed"], seen.counted["failed"], seen.retries, seen.dead) == (10, 0, 1, 0)
    assert (seen.busy, seen.processes) == (4 + 1 + 2, 2)
    assert [server.identity for server in seen.servers] == ["web:7:abc"]
    q, odd = seen.queues
    assert (q.name, q.size, q.next_enqueued_at, q.in_progress_by) == (
        "q",
        2,
        1e9,
        {"our:1:x": 1, "go": 2},
    )
    assert (odd.name, odd.paused, odd.served) == (ODD, True, False)
    [without] = [queue for queue in run_work(stats.overview(keys)).queues if queue.name == "q"]
    assert without.in_progress_by == {"our:1:x": 1}


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


def test_the_counters_of_days_are_read_and_set(run_work: Run, keys: Keys) -> None:
    assert run_work(stats.set_counters(keys, {"processed": 7}))
    assert run_work(stats.counters(keys, ["", "2026-11-21"])) == [(7, 0), (0, 0)]
    assert run_work(stats.counters(keys, [])) == []


def test_a_waiting_job_is_cancelled_wherever_it_waits(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job("later"): 9e9})
    db.sadd(keys.queues, b"\xff")
    db.rpush(b"%squeue:\xff" % keys.namespace.encode(), *(raw_job(f"{n:03}") for n in range(500)))
    assert run_work(cancel(keys, "later")) is Cancelled.REMOVED
    assert run_work(cancel(keys, "444")) is Cancelled.REMOVED
    assert (db.zcard(keys.schedule), run_work(queues.size(keys, ODD))) == (0, 499)
    assert db.get(keys.stat("cancelled")) == b"2"
    assert db.zcard(keys.cancelled) == 0
    assert run_work(cancel(keys, "none")) is Cancelled.UNKNOWN
    assert db.zrange(keys.cancelled, 0, -1) == [b"none"]
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


def test_expired_processes_are_removed_once_a_minute(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    register(db, keys, "web:7:abc", INFO)
    gone = {b"gone%d" % number for number in range(250)} | {b"\xff"}
    db.sadd(keys.processes, "odd", *gone)
    db.set(keys.process("odd"), "of another type")
    removed = run_work(cleanup.cleanup(keys))
    assert (len(removed), set(removed)) == (251, gone)
    assert db.smembers(keys.processes) == {b"web:7:abc", b"odd"}
    assert 0 < db.ttl(keys.process_cleanup) <= 60
    db.sadd(keys.processes, "gone")
    assert run_work(cleanup.cleanup(keys)) == []
    assert db.sismember(keys.processes, "gone")


def test_servers_are_signalled_and_asked_for_their_numbers(
    run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    run_work(signals.signal(keys, "web:7:abc", signals.Signal.QUIET))
    assert db.lrange(keys.signals("web:7:abc"), 0, -1) == [b"TSTP"]
    assert 0 < db.ttl(keys.signals("web:7:abc")) <= 60
    look = run_work(signals.watch(keys))
    assert abs(look / 1e6 - time.time()) < 60
    assert run_work(signals.answered(keys, look))
    register(db, keys, "our:1:x", INFO, beat=time.time(), look=look - 1)
    assert not run_work(signals.answered(keys, look))
    db.hset(keys.process("our:1:x"), "look", look)
    assert run_work(signals.answered(keys, look))
    db.set(keys.leader, "web:7:abc")
    assert run_work(reading.leader(keys)) == "web:7:abc"


@pytest.mark.parametrize("descending", [False, True])
def test_a_sorted_set_is_read_in_pages_while_members_go(
    run_work: Run, keys: Keys, db: redis.Redis, descending: bool
) -> None:
    db.zadd(keys.retry, {b"%04d" % number: float(number) for number in range(500)})
    seen: list[tuple[bytes, float]] = []
    pages = MembersByScore(keys.retry, descending=descending, page=100)
    while not pages.ended:
        page = run_work(pages.next_page())
        seen += page
        run_work(removal.remove(keys, keys.retry, [member for member, _ in page[::2]] or [b"none"], 1e9))
    expected = [(b"%04d" % number, float(number)) for number in range(500)]
    assert seen == (expected[::-1] if descending else expected)
    assert run_work(sets.size(keys.retry)) == 250


def test_members_are_found_by_their_text(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {b"a [b]*": 1.5, b"a [b] c": 2.5, b"\xff": float("inf")})
    assert run_work(Matches(keys.dead, "[b]*").rest()) == [(b"a [b]*", 1.5)]
    assert run_work(Matches(keys.dead, ODD).rest()) == [(b"\xff", float("inf"))]
    assert len(run_work(Matches(keys.dead, "").rest())) == 3
    assert run_work(sets.with_score(keys.dead, 2.5)) == [b"a [b] c"]


def test_members_are_moved_rescheduled_and_cleared(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {b"a": 1.0, b"b": 2.0, b"c": 3.0})
    moves = [Move(b"a", b"again", "q"), Move(b"b"), Move(b"gone", b"x", "q")]
    assert run_work(sets.move(keys, keys.retry, moves, 1e9)) == 2
    assert db.lrange(keys.queue("q"), 0, -1) == [b"again"]
    assert run_work(MembersByScore(keys.dead).rest()) == [(b"b", 1e9)]
    db.set(keys.queue("odd"), "of another type")
    with pytest.raises(StoreError, match="queue:odd is a key of another type"):
        run_work(sets.move(keys, keys.retry, [Move(b"c", b"c", "odd")], 1e9))
    assert run_work(sets.reschedule(keys, keys.retry, b"c", 7.25))
    assert not run_work(sets.reschedule(keys, keys.retry, b"a", 7.25))
    assert run_work(MembersByScore(keys.retry).rest()) == [(b"c", 7.25)]
    assert run_work(removal.clear(keys, keys.retry, 1e9)) == 1


def test_a_queue_is_read_in_pages_while_jobs_come_and_go(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    key = keys.queue("q")
    db.rpush(key, *(b"%04d" % number for number in range(1000)))
    seen: list[bytes] = []
    pages, reads = Entries(keys.queue("q"), page=50), 0
    while not pages.ended:
        seen += (waiting.raw for waiting in run_work(pages.next_page()))
        reads += 1
        db.lpush(key, *(b"new%d" % number for number in range(500 if reads == 6 else 7)))
    assert [raw for raw in seen if raw.isdigit()] == [b"%04d" % number for number in range(1000)]


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


def test_waiting_jobs_are_withdrawn(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.rpush(keys.queue(ODD).encode(errors="surrogateescape"), *(b"%04d" % number for number in range(3000)))
    found = run_work(Entries(keys.queue(ODD)).rest())
    assert [place for _, place in found] == list(range(3000))
    chosen = [
        *found[:200:2],
        queues.WaitingJob(b"2999", 0),
        queues.WaitingJob(b"1500", 0),
        queues.WaitingJob(b"gone", 0),
    ]
    assert run_work(queues.withdraw(keys, ODD, chosen, 1e9, Withdrawal.DEAD)) == 102
    assert run_work(sets.size(keys.dead)) == 102
    assert run_work(queues.next_job(keys, ODD)) == b"2998"
    db.set(keys.dead, "of another type")
    with pytest.raises(StoreError, match="dead is a key of another type"):
        run_work(queues.withdraw(keys, ODD, found[1:2], 1e9, Withdrawal.DEAD))
    assert run_work(queues.clear(keys, ODD, 1e9)) == 2898


def test_queues_are_known_paused_and_resumed(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "b", "a", b"\xff")
    assert run_work(queues.known(keys)) == ["a", "b", ODD]
    changes: list[Callable[[Keys, str], Operation[bool]]]
    changes = [queues.pause, queues.pause, queues.is_paused, queues.resume, queues.resume, queues.is_paused]
    assert [run_work(change(keys, ODD)) for change in changes] == [True, False, True, True, False, False]


def test_cron_entries_are_changed(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    definition = dump(CronEntry("poll", "@daily", "q", "Poll"))
    db.hset(keys.owners, "our:1:x", "[]")
    db.set(keys.cron_declared("our:1:x"), "[]")
    assert run_work(cron.put(keys, "poll", definition, 5.0, exists=False))
    assert not run_work(cron.put(keys, "poll", definition, 5.0, exists=False))
    assert [run_work(cron.pause(keys, "poll")) for _ in range(2)] == [True, False]
    stored: Any = run_work(cron.read(keys))
    assert (stored.added, stored.declared) == ({b"poll": definition}, [b"[]"])
    assert (stored.paused, stored.last) == ({b"poll"}, {b"poll": b"5"})
    assert [run_work(cron.resume(keys, "poll", 6.0)) for _ in range(2)] == [True, False]
    assert [run_work(cron.remove(keys, "poll")) for _ in range(2)] == [True, False]
    assert db.get(keys.cron_version) is not None
