"""What people look at and change, against real servers: seen once, moved once, no byte touched in vain."""

from __future__ import annotations

import base64
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pytest
import redis

from pyworkers.api import (
    DeadSet,
    JobRecord,
    JobSet,
    ProcessSet,
    Queue,
    RetrySet,
    ScheduledSet,
    Signal,
    Stats,
    WorkSet,
)
from pyworkers.api.target import admin_of
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BadArgumentError, BadMessageError, PyworkersError, StoreError
from pyworkers.protocol.flow.counted import INCIDENTS
from pyworkers.protocol.keys import Keys
from pyworkers.store.search import REST_S, Search
from pyworkers.store.sets import PAGE
from tests.helpers.records import hold_order, raw_job, register
from tests.helpers.replies import as_bytes, as_scores
from tests.helpers.support import ROOT

SETS: list[type[JobSet]] = [ScheduledSet, RetrySet, DeadSet]


# Queues


def test_a_queue_is_listed_from_the_newest_job_with_its_size_and_latency(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    for age in (30, 20, 10):
        db.lpush(keys.queue("q"), raw_job(f"j{age}", enqueued_at=time.time() - age))
    queue = Queue("q", where)
    assert [waiting.jid for waiting in queue] == ["j10", "j20", "j30"]
    assert (queue.size, len(queue)) == (3, 3)
    assert 30 <= queue.latency < 90
    assert Queue("none", where).latency == 0.0
    assert list(Queue("none", where)) == []


def test_all_queues_are_those_ever_pushed_to(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "b", "a", b"\xff")
    assert [queue.name for queue in Queue.all(where)] == ["a", "b", "\udcff"]


def test_a_url_and_a_namespace_are_enough(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    db.lpush(keys.queue("q"), raw_job("j"))
    assert Queue("q", redis_url, namespace=namespace).size == 1


def test_a_waiting_job_is_found_by_its_id_and_deleted_once(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.lpush(keys.queue("q"), *(raw_job(f"j{n}") for n in range(500)), b"no job")
    found = Queue("q", where).find_job("j250")
    assert found is not None
    assert (found.delete(), found.delete()) == (True, False)
    assert Queue("q", where).find_job("j250") is None
    assert Queue("q", where).size == 500


def test_a_waiting_job_is_killed_once_and_keeps_its_bytes(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    raw = b'{ "class" : "Add", "args":[1.50, 1e3], "jid":"j", "x": "\\u00e9" }'
    db.lpush(keys.queue("q"), raw)
    [waiting] = Queue("q", where)
    assert (waiting.kill(), waiting.kill()) == (True, False)
    assert db.zrange(keys.dead, 0, -1) == [raw]
    assert db.llen(keys.queue("q")) == 0


def test_a_dead_key_of_another_type_stops_the_kill_and_no_job_is_lost(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.set(keys.dead, "x")
    db.lpush(keys.queue("q"), raw_job("j"))
    [waiting] = Queue("q", where)
    with pytest.raises(StoreError, match="another type"):
        waiting.kill()
    assert db.lrange(keys.queue("q"), 0, -1) == [raw_job("j")]


def test_jobs_are_deleted_wherever_they_stand_by_then(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    key = keys.queue("q")
    db.rpush(key, *(raw_job(f"{n:04}") for n in range(3000)), *[b"twin"] * 4)
    queue = Queue("q", where)
    chosen = [waiting for n, waiting in enumerate(queue) if n % 3 == 0]
    db.lpush(key, *(raw_job(f"new{n}") for n in range(1000)))
    for n in range(0, 3000, 6):
        db.lrem(key, 1, raw_job(f"{n:04}").decode())
    db.rpop(key, 2)
    # Twins stood at 3000 and 3003; two of four are left, and each is taken once.
    before = _calls(db)
    assert queue.delete_jobs(chosen) == 500 + 2
    # Those that are gone are looked for everywhere; for the others, one search tells how far all have moved.
    assert _calls(db)["lpos"] - before["lpos"] <= 500 + 6
    left = [raw_job(f"new{n}") for n in reversed(range(1000))]
    left += [raw_job(f"{n:04}") for n in range(3000) if n % 3]
    assert db.lrange(key, 0, -1) == left


def test_a_job_that_was_read_elsewhere_is_deleted_as_well(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.rpush(keys.queue("q"), *(raw_job(f"{n:04}") for n in range(3000)))
    records = [JobRecord(raw_job(jid)) for jid in ("0000", "1500", "none", "2999", "gone")]
    assert Queue("q", where).delete_jobs(records) == 3
    assert Queue("q", where).size == 2997


def test_deleting_many_jobs_does_not_look_through_the_queue_for_each(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.rpush(keys.queue("q"), *(raw_job(f"{n:05}") for n in range(20_000)))
    before = _calls(db)
    queue = Queue("q", where)
    assert queue.delete_jobs(waiting for n, waiting in enumerate(queue) if n % 2) == 10_000
    after = _calls(db)
    assert after["lrem"] - before["lrem"] == 50
    assert after["lpos"] - before["lpos"] == 0


def _calls(db: redis.Redis) -> dict[str, int]:
    stats = db.info("commandstats")
    return {name: stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("lrem", "lpos")}


def test_a_queue_is_cleared_and_forgotten(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "q", "other")
    db.lpush(keys.queue("q"), "a", "b")
    assert Queue("q", where).clear() == 2
    assert db.smembers(keys.queues) == {b"other"}
    assert not db.exists(keys.queue("q"))


def test_a_queue_is_paused_and_resumed(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    queue = Queue("q", where)
    assert (queue.paused, queue.pause(), queue.paused, queue.pause()) == (False, True, True, False)
    assert db.smembers(keys.paused) == {b"q"}
    assert (queue.resume(), queue.resume(), queue.paused) == (True, False, False)


# Sorted sets


@pytest.mark.parametrize("kind", SETS)
def test_a_set_is_listed_from_the_latest_and_backwards(kind: type[JobSet], where: RedisConfig) -> None:
    jobs = kind(where)
    fill(jobs, {raw_job("a"): 1.5, raw_job("b"): 2.5, raw_job("c"): 3.5})
    assert [(entry.jid, entry.score) for entry in jobs] == [("c", 3.5), ("b", 2.5), ("a", 1.5)]
    assert [entry.jid for entry in reversed(jobs)] == ["a", "b", "c"]
    assert jobs.size == 3


def fill(jobs: JobSet, scores: dict[bytes, float]) -> None:
    jobs._admin.redis.zadd(jobs._key, scores)


@pytest.mark.parametrize("jid", ["plain", "a*b", "é", 'q"uote', "back\\slash"])
def test_a_job_is_found_by_an_id_of_any_kind(jid: str, where: RedisConfig) -> None:
    jobs = RetrySet(where)
    fill(jobs, {raw_job(jid): 1.0, raw_job("other"): 2.0, b"no job " + jid.encode(): 3.0})
    found = jobs.find_job(jid)
    assert found is not None
    assert (found.jid, found.score) == (jid, 1.0)
    assert jobs.find_job("oth") is None


def test_a_text_is_looked_for_as_it_is_written(where: RedisConfig) -> None:
    jobs = RetrySet(where)
    fill(jobs, {raw_job("a", error_message="100% [lost]*"): 1.0, raw_job("b", error_message="100% l"): 2.0})
    assert {entry.jid for entry in jobs.scan("% [lost]*")} == {"a"}


def test_jobs_are_fetched_by_their_score_and_id(where: RedisConfig) -> None:
    jobs = RetrySet(where)
    fill(jobs, {raw_job("a"): 1.25, raw_job("b"): 1.25, raw_job("c"): 2.0})
    assert {entry.jid for entry in jobs.fetch(1.25)} == {"a", "b"}
    assert [entry.jid for entry in jobs.fetch(1.25, "b")] == ["b"]


def test_a_retried_job_changes_only_what_sidekiqs_api_changes(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    raw = b'{"class":"Add","args":[1.50,1e3,"\\u00e9"],"queue":"q","jid":"j","retry_count":2,"at":5,"x":[ ]}'
    fill(DeadSet(where), {raw: 1.0})
    before = time.time()
    [dead] = DeadSet(where)
    assert (dead.retry(), dead.retry()) == (True, False)
    [moved] = db.lrange(keys.queue("q"), 0, -1)
    enqueued_at = json.loads(moved)["enqueued_at"]
    assert before <= enqueued_at <= time.time()
    expected = b'{"class":"Add","args":[1.50,1e3,"\\u00e9"],"queue":"q","jid":"j","retry_count":1,"x":[ ]'
    assert moved == expected + b',"enqueued_at":' + repr(enqueued_at).encode() + b"}"
    assert db.smembers(keys.queues) == {b"q"}
    assert db.zcard(keys.dead) == 0


def test_a_job_that_is_put_into_its_queue_again_has_no_crashes(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    """It may have been killed by hand, or have died under another version."""
    fill(DeadSet(where), {raw_job("j", crash_count=2): 1.0, raw_job("k", crash_count=3): 1.0})
    one, other = DeadSet(where)
    assert one.retry()
    assert other.add_to_queue()
    assert [b"crash_count" in raw for raw in db.lrange(keys.queue("q"), 0, -1)] == [False, False]


def test_a_scheduled_job_is_added_to_its_queue_and_keeps_its_count(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    fill(ScheduledSet(where), {raw_job("j", retry_count=2): time.time() + 900})
    [scheduled] = ScheduledSet(where)
    assert scheduled.add_to_queue()
    [moved] = db.lrange(keys.queue("q"), 0, -1)
    assert json.loads(moved)["retry_count"] == 2


@pytest.mark.parametrize(("stored", "queue"), [("NS:q", "q"), (None, "default")])
def test_a_job_goes_where_its_queue_is_meant(
    stored: str | None, queue: str, where: RedisConfig, keys: Keys, db: redis.Redis, namespace: str
) -> None:
    name = stored.replace("NS:", namespace) if stored else stored
    fill(RetrySet(where), {raw_job("j", queue=name): 1.0})
    [entry] = RetrySet(where)
    assert entry.retry()
    assert json.loads(as_bytes(db.lindex(keys.queue(queue), 0)))["queue"] == queue


@pytest.mark.parametrize("raw", [b"no job", b"\xff", b"[]", raw_job("j", queue="a b"), raw_job("j", queue=5)])
def test_what_can_go_to_no_queue_is_refused_and_stays(
    raw: bytes, where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    jobs = DeadSet(where)
    fill(jobs, {raw: 1.0, raw_job("good"): 2.0})
    broken = next(reversed(jobs))
    assert jobs.refusal(broken)
    with pytest.raises(BadMessageError):
        broken.retry()
    assert jobs.retry_all() == 1
    assert db.zrange(keys.dead, 0, -1) == [raw]
    assert broken.delete()


def test_a_queue_of_another_type_stops_the_move_and_no_job_is_lost(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.set(keys.queue("q"), "x")
    fill(RetrySet(where), {raw_job("j"): 1.0, raw_job("k", queue="good"): 2.0})
    with pytest.raises(StoreError, match="queue:q is a key of another type; 1 jobs stay"):
        RetrySet(where).retry_all()
    assert db.zrange(keys.retry, 0, -1) == [raw_job("j")]
    assert db.llen(keys.queue("good")) == 1


def test_a_killed_job_goes_to_dead_as_it_is(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    fill(RetrySet(where), {raw_job("j"): 1.0})
    [entry] = RetrySet(where)
    before = time.time()
    assert (entry.kill(), entry.kill()) == (True, False)
    [(raw, died)] = as_scores(db.zrange(keys.dead, 0, -1, withscores=True))
    assert raw == raw_job("j")
    assert before <= died <= time.time()


def test_dead_jobs_beyond_sidekiqs_limits_go_with_the_next_one(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    fill(DeadSet(where), {raw_job("old"): time.time() - 181 * 86_400, raw_job("young"): time.time() - 60})
    fill(RetrySet(where), {raw_job("j"): 1.0})
    assert RetrySet(where).kill_all() == 1
    assert [entry.jid for entry in DeadSet(where)] == ["j", "young"]


def test_a_job_is_rescheduled_only_if_it_is_still_there(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    jobs = ScheduledSet(where)
    fill(jobs, {raw_job("j"): 1000.0})
    [entry] = jobs
    assert entry.reschedule(2000.25)
    assert (entry.score, db.zscore(keys.schedule, raw_job("j"))) == (2000.25, 2000.25)
    assert entry.reschedule(2000.25), "also to the time that it has"
    assert entry.delete()
    assert not entry.reschedule(3000.0)
    assert db.zcard(keys.schedule) == 0
    with pytest.raises(BadArgumentError):
        entry.reschedule(-1.0)


def test_a_walk_ends_though_another_object_moves_its_jobs(where: RedisConfig) -> None:
    ours, theirs = ScheduledSet(where), ScheduledSet(where)
    fill(ours, {raw_job(f"j{number}"): 1000.0 + number for number in range(500)} | {raw_job("last"): 1e9})
    seen = 0
    for entry in reversed(ours):
        seen += 1
        theirs.reschedule_job(entry, min(entry.score + 600, 1e9 - 1))
    assert 500 < seen <= 2 * 501 + 2 * PAGE


def test_a_walk_along_a_queue_ends_though_another_object_moves_its_jobs(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.rpush(keys.queue("q"), *(raw_job(f"j{number}") for number in range(500)))
    other = Queue("q", where)
    assert [job.jid for job in Queue("q", where) if other.run_first([job])] == [f"j{n}" for n in range(500)]


@pytest.mark.parametrize("kind", SETS)
def test_a_set_is_cleared(kind: type[JobSet], where: RedisConfig) -> None:
    fill(kind(where), {raw_job("a"): 1.0, raw_job("b"): 2.0})
    assert (kind(where).clear(), kind(where).clear(), kind(where).size) == (2, 0, 0)


def test_what_fails_again_during_retry_all_is_not_retried_again(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    fill(RetrySet(where), {raw_job(f"j{n}", failed_at=1.0): float(n) for n in range(300)})
    fill(RetrySet(where), {raw_job("again", failed_at=time.time() + 3600): -1.0})
    assert RetrySet(where).retry_all() == 300
    assert [entry.jid for entry in RetrySet(where)] == ["again"]


# Seen once, while others come and go


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("score", [lambda n: float(n), lambda n: 7.0], ids=["rising", "all equal"])
def test_each_member_that_stays_is_seen_once(
    where: RedisConfig, score: Callable[[int], float], descending: bool
) -> None:
    jobs = RetrySet(where)
    fill(jobs, {raw_job(f"stays{n:04}"): score(n) for n in range(1000)})
    fill(jobs, {raw_job(f"goes{n:04}"): score(n) for n in range(1000)})
    seen: list[str] = []
    for place, entry in enumerate(jobs if descending else reversed(jobs)):
        seen.append(entry.jid)
        if entry.jid.startswith("goes"):
            entry.delete()
        if place % 50 == 0:
            jobs.delete_jobs(JobRecord(raw_job(f"goes{n:04}")) for n in range(place))
            fill(jobs, {raw_job(f"new{place}-{n}"): score(n * 40) for n in range(25)})
    assert sorted(jid for jid in seen if jid.startswith("stays")) == [f"stays{n:04}" for n in range(1000)]


def test_members_with_infinite_scores_are_seen(where: RedisConfig) -> None:
    jobs = RetrySet(where)
    fill(jobs, {raw_job(f"{n:04}"): float("inf") if n % 2 else float("-inf") for n in range(900)})
    assert len({entry.jid for entry in jobs}) == len({entry.jid for entry in reversed(jobs)}) == 900


def test_members_of_any_bytes_are_seen_in_the_order_of_redis(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    members = {bytes([a, b]): 1.0 for a in range(0, 256, 3) for b in (0, 10, 65, 97, 200, 255)}
    fill(RetrySet(where), members)
    seen = []
    for entry in reversed(RetrySet(where)):
        seen.append(entry.raw)
        entry.delete()
    assert seen == sorted(members)


def test_each_waiting_job_that_stays_is_seen_once_while_all_else_moves(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    key = keys.queue("q")
    db.rpush(key, *(raw_job(f"{'goes' if n % 3 else 'stays'}{n:04}") for n in range(3000)))
    seen: list[str] = []
    for place, entry in enumerate(Queue("q", where)):
        seen.append(entry.jid)
        if entry.jid.startswith("goes"):
            entry.delete()
        if place % 7 == 0:
            db.lpush(key, raw_job(f"new{place}"), raw_job(f"newer{place}"))
        if place % 11 == 0 and place < 900:
            db.rpush(key, raw_job(f"goes-go{place}"))
        if place % 501 == 0:
            db.lpush(key, *(raw_job(f"flood{place}-{n}") for n in range(700)))
    stays = [jid for jid in seen if jid.startswith("stays")]
    assert sorted(stays) == [f"stays{n:04}" for n in range(0, 3000, 3)]


def test_a_queue_that_two_people_empty_from_both_sides_is_seen_to_its_end(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    """All around the place where the first one reads vanishes: nothing tells where to go on."""
    key = keys.queue("q")
    db.rpush(key, *(raw_job(f"{n:04}") for n in range(2000)))
    seen: list[str] = []
    for place, entry in enumerate(Queue("q", where)):
        seen.append(entry.jid)
        if place == 250:
            for n in range(100, 900):
                db.lrem(key, 1, raw_job(f"{n:04}").decode())
    assert len(seen) == len(set(seen))
    assert {f"{n:04}" for n in (*range(100), *range(900, 2000))} <= set(seen)


def test_equal_jobs_are_all_seen(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.rpush(keys.queue("q"), *[b'{"class":"Add","args":[]}'] * 1000)
    assert sum(1 for _ in Queue("q", where)) == 1000


def test_a_queue_that_is_consumed_faster_than_it_is_read_comes_to_an_end(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    key = keys.queue("q")
    pushed = 0
    db.lpush(key, *(raw_job(f"{n}") for n in range(500)))
    seen: list[str] = []
    for entry in Queue("q", where):
        seen.append(entry.jid)
        db.lpush(key, *(raw_job(f"n{pushed + n}") for n in range(10)))
        db.rpop(key, 12)
        pushed += 10
    assert len(seen) == len(set(seen))


# Two at once


def at_once(count: int, body: Callable[[], int]) -> list[int]:
    """Run it in this many threads that start together; their results."""
    gate = threading.Barrier(count)
    results: list[int] = []

    def run() -> None:
        gate.wait()
        results.append(body())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == count
    return results


def test_two_administrators_retry_everything_and_each_job_moves_once(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    fill(DeadSet(where), {raw_job(f"{n:04}"): float(n) for n in range(2000)})
    moved = at_once(2, lambda: DeadSet(where).retry_all())
    assert sum(moved) == 2000
    waiting = [json.loads(raw)["jid"] for raw in db.lrange(keys.queue("q"), 0, -1)]
    assert sorted(waiting) == [f"{n:04}" for n in range(2000)]
    assert db.zcard(keys.dead) == 0


def test_one_retries_one_kills_one_deletes_and_each_job_ends_in_one_place(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    fill(RetrySet(where), {raw_job(f"{n:04}"): float(n) for n in range(2000)})
    work: Iterator[Callable[[], int]] = iter(
        [
            lambda: RetrySet(where).retry_all(),
            lambda: RetrySet(where).kill_all(),
            lambda: RetrySet(where).delete_jobs(RetrySet(where)),
        ]
    )
    done = at_once(3, lambda: next(work)())
    assert sum(done) == 2000
    waiting = {json.loads(raw)["jid"] for raw in db.lrange(keys.queue("q"), 0, -1)}
    dead = {entry.jid for entry in DeadSet(where)}
    assert waiting & dead == set()
    assert db.llen(keys.queue("q")) + db.zcard(keys.dead) + min(done) <= 2000
    assert db.zcard(keys.retry) == 0


def test_two_administrators_empty_a_queue_and_each_job_is_deleted_once(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.lpush(keys.queue("q"), *(raw_job(f"{n:04}") for n in range(1500)))
    deleted = at_once(2, lambda: Queue("q", where).delete_jobs(Queue("q", where)))
    assert sum(deleted) == 1500
    assert db.llen(keys.queue("q")) == 0


# Processes and what they run


def ruby(identity: str, **changes: Any) -> dict[str, Any]:
    return {
        "hostname": "web", "started_at": 1795225197.5, "pid": 7, "tag": "app", "concurrency": 5,
        "queues": ["q", "mail"], "labels": ["reliable"], "identity": identity, **changes,
    }  # fmt: skip


def test_a_sidekiq_process_is_shown(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    register(db, keys, "web:7:abc", ruby("web:7:abc"), busy=2, beat=f"{time.time()}", quiet="false", rss=1024)
    [process] = ProcessSet(where)
    assert (process.identity, process.busy, process.concurrency) == ("web:7:abc", 2, 5)
    assert (process.queues, process.stopping, process.silent(time.time())) == (("q", "mail"), False, False)
    assert (process.about.rss_kb, process.about.labels, process.about.pid) == (1024, ("reliable",), 7)
    assert ProcessSet(where).size == 1


def test_sidekiq_8_and_go_processes_are_shown_and_what_cannot_be_read_is_not(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    weights = {"q": 0, "low": 0, "\ud800": 0}
    eight = ruby("web:8:abc", capsules={"default": {"concurrency": 3, "weights": weights}})
    del eight["concurrency"], eight["queues"]
    register(db, keys, "web:8:abc", eight, concurrency=3, beat=time.time(), quiet="true")
    go = {"hostname": "go:", "started_at": 1795225197, "Pid": 9, "concurrency": 4, "queues": ["g"]}
    register(db, keys, "go:9:abc", go, beat=1, quiet=0)
    for number, info in enumerate(["{", "[]", "5", '{"queues":5,"started_at":"x","labels":{}}']):
        register(db, keys, f"odd{number}", info, busy="x", beat="nan")
    db.sadd(keys.processes, "gone", b"\xff\xfe", "wrong")
    db.set(keys.process("wrong"), "type")
    found = {process.identity: process for process in ProcessSet(where)}
    assert set(found) == {"web:8:abc", "go:9:abc", "odd3"}
    assert (found["web:8:abc"].queues, found["web:8:abc"].concurrency) == (("q", "low"), 3)
    assert (found["web:8:abc"].stopping, found["go:9:abc"].stopping) == (True, False)
    assert (found["go:9:abc"].about.pid, found["go:9:abc"].silent(time.time())) == (9, True)
    assert list(WorkSet(where)) == []


def test_quiet_stop_and_dump_leave_their_signal_as_sidekiq_does(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    register(db, keys, "a:1:x", ruby("a:1:x"))
    [process] = ProcessSet(where)
    process.quiet()
    process.stop()
    process.dump_threads()
    assert db.lrange(keys.signals("a:1:x"), 0, -1) == [b"TTIN", b"TERM", b"TSTP"]
    assert 0 < db.ttl(keys.signals("a:1:x")) <= 60


def test_only_a_server_that_knows_the_word_is_reloaded(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    register(db, keys, "our:1:x", ruby("our:1:x", reloads=True), look=0)
    register(db, keys, "old:1:x", ruby("old:1:x"), look=0)
    # Sidekiq would send HUP to itself, and end.
    register(db, keys, "ruby:1:x", ruby("ruby:1:x", reloads=True))
    found = {process.identity: process for process in ProcessSet(where)}
    found["our:1:x"].reload()
    assert db.lrange(keys.signals("our:1:x"), 0, -1) == [b"HUP"]
    with pytest.raises(PyworkersError, match="old:1:x is a server of an earlier version of pyworkers"):
        found["old:1:x"].reload()
    with pytest.raises(PyworkersError, match="ruby:1:x is a server of another program"):
        found["ruby:1:x"].reload()
    assert not db.exists(keys.signals("old:1:x"), keys.signals("ruby:1:x"))


def test_an_embedded_process_is_not_stopped(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    register(db, keys, "a:1:x", ruby("a:1:x", embedded=True))
    [process] = ProcessSet(where)
    with pytest.raises(PyworkersError, match="embedded"):
        process.stop()
    assert not db.exists(keys.signals("a:1:x"))


def test_a_signal_to_all_servers_leaves_out_those_that_refuse_it(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    register(db, keys, "our:2:x", ruby("our:2:x", reloads=True), look=0)
    register(db, keys, "our:1:x", ruby("our:1:x", reloads=True), look=0)
    register(db, keys, "ruby:1:x", ruby("ruby:1:x"))
    register(db, keys, "puma:1:x", ruby("puma:1:x", embedded=True))
    servers = ProcessSet(where)
    chosen = [[process.identity for process in half] for half in servers.accepting(Signal.RELOAD)]
    assert chosen == [["our:1:x", "our:2:x"], ["puma:1:x", "ruby:1:x"]]
    assert (servers.send(Signal.RELOAD), servers.send(Signal.QUIET)) == (2, 3)
    assert db.lrange(keys.signals("our:1:x"), 0, -1) == [b"TSTP", b"HUP"]
    assert db.lrange(keys.signals("ruby:1:x"), 0, -1) == [b"TSTP"]
    assert not db.exists(keys.signals("puma:1:x"))


def test_dead_processes_are_forgotten_once_a_minute(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    register(db, keys, "a:1:x", ruby("a:1:x"))
    db.sadd(keys.processes, "odd", b"\xff", *(f"gone{n}" for n in range(250)))
    db.set(keys.process("odd"), "of another type")
    assert ProcessSet(where).cleanup() == 251
    assert db.smembers(keys.processes) == {b"a:1:x", b"odd"}
    db.sadd(keys.processes, "gone")
    assert ProcessSet(where).cleanup() == 0
    assert 0 < db.ttl(keys.process_cleanup) <= 60


def test_running_jobs_are_shown_in_either_form_each_once(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    register(db, keys, "a:1:x", ruby("a:1:x"), busy=2)
    about = {"queue": "q", "payload": raw_job("j1").decode(), "run_at": 1795225197}
    older = {"queue": "q", "payload": json.loads(raw_job("j2")), "run_at": 1795225198}
    db.hset(keys.work("a:1:x"), mapping={"t1": json.dumps(about), "bad": "no json"})
    db.hset(keys.workers("a:1:x"), mapping={"t1": json.dumps(about), "t2": json.dumps(older)})
    works = {work.jid: work for work in WorkSet(where)}
    assert set(works) == {"j1", "j2"}
    first = works["j1"]
    assert (first.identity, first.thread, first.queue, first.run_at) == ("a:1:x", "t1", "q", 1795225197.0)
    assert (first.job_class, first.args) == ("Add", [1])
    assert WorkSet(where).size == 2
    assert WorkSet(where).find_work("j2") is not None


def test_work_is_read_from_any_bytes(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    register(db, keys, "a:1:x", ruby("a:1:x"))
    about = {"queue": None, "payload": "no job", "run_at": "soon"}
    db.hset(keys.work("a:1:x"), mapping={b"\xff": json.dumps(about)})
    [work] = WorkSet(where)
    assert (work.queue, work.run_at, work.unreadable != "") == ("", 0.0, True)


# Counts


def test_counts_cover_sidekiqs_processes_as_well_as_our_own(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.mset({keys.stat("processed"): 10, keys.stat("failed"): 3, keys.stat("expired"): 7})
    db.mset({keys.stat(name): number for number, name in enumerate(INCIDENTS, 11)})
    db.sadd(keys.queues, "q", "mail", "lost")
    db.lpush(keys.queue("q"), raw_job("a"), raw_job("b"))
    db.sadd(keys.paused, "mail")
    db.hset(keys.owners, mapping={"our:1:x": '["q"]', "dead:2:y": '["lost"]'})
    hold_order(db, keys, "mail", "our:1:x")
    db.lpush(keys.inprogress("q", "our:1:x"), raw_job("c"))
    register(db, keys, "our:1:x", ruby("our:1:x", queues=["q"]), busy=1, beat=time.time())
    register(db, keys, "web:7:z", ruby("web:7:z", queues=["mail"]), busy=4, beat=time.time())
    stats = Stats.fetch(where)
    assert stats.counts() == {
        "processed": 10, "failed": 3, "expired": 7, "enqueued": 2, "busy": 5, "scheduled": 0, "retries": 0,
        "dead": 0, "processes": 2, "crashed": 11, "interrupted": 12, "recovered": 13, "cancelled": 14,
        "misfits": 15, "suspects": 16,
    }  # fmt: skip
    assert stats.incidents() == {name: number for number, name in enumerate(INCIDENTS, 11)}
    states = {
        queue.name: (queue.size, queue.in_progress, queue.paused, queue.served) for queue in stats.queues
    }
    assert states == {"q": (2, 1, False, True), "mail": (0, 0, True, True), "lost": (0, 0, False, False)}
    assert {queue.name: queue.active for queue in stats.queues} == {"q": "", "mail": "our:1:x", "lost": ""}
    described = {queue.name: queue.as_dict() for queue in stats.queues}
    assert (described["mail"]["active"], "active" in described["q"]) == ("our:1:x", False)


def test_jobs_in_the_lists_of_go_processes_are_in_progress(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    """go-workers2 (main) tells of its lists with its heartbeat, twice encoded; others are found by name."""
    db.sadd(keys.queues, "g", "a:b")
    db.hset(keys.owners, mapping={"our:1:x": '["g"]'})
    db.lpush(keys.inprogress("g", "our:1:x"), raw_job("ours"))
    go = {"hostname": "go:", "started_at": 1795225197, "Pid": 9, "concurrency": 4, "queues": ["g"]}
    lists = [("g", "g:told:inprogress")] * 2 + [("g", "no list"), ("\ud800", "x:inprogress")]
    beats: list[Any] = [
        {"pid": "1", "tid": '"t"', "queue": json.dumps(queue), "in_progress_queue": json.dumps(name)}
        for queue, name in lists
    ]
    beats += [None, {"queue": 5}]
    register(db, keys, "go:9:abc", go, beat=int(time.time()), busy=2, worker_heartbeats=json.dumps(beats))
    db.lpush(keys.inprogress("g", "told"), raw_job("a"), raw_job("b"))
    db.lpush(keys.inprogress("g", "1"), raw_job("c"))
    db.lpush(keys.inprogress("a:b", "web-1:7"), raw_job("d"))
    db.lpush(keys.inprogress("only:here", "1"), raw_job("e"))
    db.set(keys.inprogress("g", "odd"), "no list")
    stats = Stats.fetch(where)
    told = {"our:1:x": 1, "go:9:abc": 2}
    assert {queue.name: queue.in_progress_by for queue in stats.queues} == {"g": told, "a:b": {}}
    # What go:9:abc says of itself counts once.
    assert stats.busy == 3
    stats = Stats.fetch(where, search=Search(admin_of(where).keys))
    assert {queue.name: queue.in_progress_by for queue in stats.queues} == {
        "g": told | {"1": 1}, "a:b": {"web-1:7": 1}, "only:here": {"1": 1},
    }  # fmt: skip
    assert {queue.name: queue.in_progress for queue in stats.queues} == {"g": 4, "a:b": 1, "only:here": 1}
    assert stats.busy == 6


def test_a_search_serves_for_a_while_and_goes_on_where_it_stopped(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.mset({f"{keys.namespace}filler{number}": 1 for number in range(5000)})
    db.lpush(keys.inprogress("q", "1"), raw_job("a"))
    time_is = [0.0]

    def scans() -> int:
        return int(db.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"])

    admin = admin_of(where)
    search, before = Search(admin.keys, budget_s=0, clock=lambda: time_is[0]), scans()
    for _ in range(3):
        admin.run(search.lists())
    assert scans() - before == 1 and "too many keys" in search.shortfall
    while search.shortfall:
        time_is[0] += REST_S
        admin.run(search.lists())
    assert admin.run(search.lists()) == [keys.inprogress("q", "1")]
    assert 5 <= scans() - before == 1 + time_is[0] / REST_S
    # Without a limit of time to speak of, all lists are found at once.
    search, before = Search(admin.keys, budget_s=60), scans()
    assert [admin.run(search.lists()) for _ in range(2)] == [[keys.inprogress("q", "1")]] * 2
    assert not search.shortfall
    assert scans() - before >= 5


def test_the_queues_of_quiet_and_of_silent_servers_are_not_served(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.sadd(keys.queues, "q", "g")
    db.hset(keys.owners, mapping={"our:1:x": '["q"]'})
    db.set(keys.lease("our:1:x"), "x")
    register(db, keys, "our:1:x", ruby("our:1:x", queues=["q"]), beat=time.time(), quiet="true")
    register(db, keys, "go:1:x", ruby("go:1:x", queues=["g"]), beat=int(time.time()) - 61)
    assert [queue.served for queue in Stats.fetch(where).queues] == [False, False]


def test_the_history_goes_back_from_the_latest_day(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.mset({keys.stat("processed", "2026-11-21"): 5, keys.stat("failed", "2026-11-20"): 2})
    history = Stats.history(3, where, until=date(2026, 11, 21))
    days = [(day.date.isoformat(), day.processed, day.failed) for day in history]
    assert days == [("2026-11-21", 5, 0), ("2026-11-20", 0, 2), ("2026-11-19", 0, 0)]
    with pytest.raises(ValueError, match="from 1 to 1825"):
        Stats.history(0, where)


def test_counters_are_reset(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.mset({keys.stat("processed"): 10, keys.stat("failed"): 3})
    Stats.reset("failed", where=where)
    assert (db.get(keys.stat("processed")), db.get(keys.stat("failed"))) == (b"10", b"0")
    Stats.reset(where=where)
    assert db.get(keys.stat("processed")) == b"0"
    with pytest.raises(ValueError, match="not dead"):
        Stats.reset("dead", where=where)


# What is stored


def test_a_backtrace_is_read_in_every_form(where: RedisConfig) -> None:
    lines = ["a.py:1:in f", "b.py:2:in g"]
    packed = base64.encodebytes(zlib.compress(json.dumps(lines).encode())).decode()
    forms = {"list": lines, "wrapped": packed, "strict": packed.replace("\n", "")}
    fill(DeadSet(where), {raw_job(jid, error_backtrace=form): 1.0 for jid, form in forms.items()})
    assert {entry.jid: entry.error_backtrace for entry in DeadSet(where)} == dict.fromkeys(forms, lines)


# The page about it


def test_the_example_of_the_documentation_runs(
    redis_url: str,
    namespace: str,
    keys: Keys,
    db: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_url)
    monkeypatch.setenv("PYWORKERS_REDIS__NAMESPACE", namespace)
    db.lpush(keys.queue("mail"), raw_job("a", **{"class": "SendMail", "args": [7]}), raw_job("b"))
    db.zadd(keys.retry, {raw_job("c", error_message="timeout"): 1.0, raw_job("d"): 2.0})
    db.zadd(keys.dead, {raw_job("e", **{"class": "SendMail"}): time.time(), raw_job("f"): time.time()})
    db.zadd(keys.schedule, {raw_job("g"): 1.0})
    register(db, keys, "web:7:abc", ruby("web:7:abc"))
    page = (ROOT / "contrib/docs/administration.md").read_text()
    exec(page.split("```python\n")[1].split("```")[0], {"when": 1.0})
    assert capsys.readouterr().out.splitlines()[0] == "2 0.0 False"
    assert [waiting.jid for waiting in Queue("mail")] == ["b"]
    assert {waiting.jid for waiting in Queue("q")} == {"c", "e"}
    assert ([left.jid for left in RetrySet()], [left.jid for left in DeadSet()]) == (["d"], ["f"])
    assert ScheduledSet().size == 0
    assert db.lrange(keys.signals("web:7:abc"), 0, -1) == [b"TSTP"]


@pytest.mark.parametrize("kind", [ScheduledSet, RetrySet, DeadSet])
@pytest.mark.parametrize("descending", [True, False])
def test_each_job_of_the_beginning_comes_once_whatever_the_loop_does(
    where: RedisConfig, db: redis.Redis, keys: Keys, kind: type[JobSet], descending: bool
) -> None:
    jobs = kind(where)
    db.zadd(jobs._key, {raw_job(f"j{n}"): 1000.0 + n for n in range(500)})
    seen = []
    for number, entry in enumerate(jobs if descending else reversed(jobs)):
        seen.append(entry.jid)
        assert number < 500, "no job comes twice"
        # Beyond all others, in front of the walk; and some among those that follow.
        ahead = -number if descending else 5000.0 + number
        assert jobs.reschedule_job(entry, ahead if number % 3 else 1250.0)
        db.zadd(jobs._key, {raw_job(f"new{number}"): -1.0 if descending else 9000.0})
    assert sorted(seen) == sorted(f"j{n}" for n in range(500))


def test_a_loop_that_runs_the_jobs_of_a_queue_first_ends(
    where: RedisConfig, db: redis.Redis, keys: Keys
) -> None:
    db.rpush(keys.queue("q"), *[raw_job(f"j{n}") for n in range(450)])
    assert [job.jid for job in Queue("q", where) if job.run_first()] == [f"j{n}" for n in range(450)]
