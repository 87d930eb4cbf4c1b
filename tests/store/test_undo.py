"""Deleted jobs that are put back, with an administrator's rights: once, or not, with the reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers import Client, Worker
from pyworkers.api import DeadSet, Deletion, JobSet, Queue, RetrySet, ScheduledSet
from pyworkers.api.browse import DEAD, Acted, Jobs
from pyworkers.api.browse.actions import JobAction, Order, act_on
from pyworkers.api.browse.pages import read_page
from pyworkers.api.queue import CLEAR
from pyworkers.api.target import admin_of
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts, undo
from pyworkers.store.acl import Role
from pyworkers.store.calls import one
from tests.helpers.acl import url_of
from tests.helpers.records import raw_job
from tests.helpers.replies import as_bytes, as_scores
from tests.helpers.support import free_port, running_server

# A day: the suite may have begun long before this test.
SOON = time.time() + 86_400.0
SETS: dict[str, Callable[[RedisConfig], JobSet]] = {
    "schedule": ScheduledSet,
    "retry": RetrySet,
    "dead": DeadSet,
}


@pytest.fixture
def where(redis_url: str, namespace: str) -> RedisConfig:
    return RedisConfig(url=url_of(redis_url, Role.ADMIN, namespace), namespace=namespace)


@pytest.fixture
def client(redis_url: str, namespace: str) -> Iterator[Client]:
    with Client(redis_url, namespace=namespace) as made:
        yield made


def test_waiting_jobs_return_to_run_next_in_their_order(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    raws = [raw_job(f"j{n}", enqueued_at=SOON + n) for n in range(500)]
    db.lpush(keys.queue("q"), *raws)
    deletion = Deletion(where=where)
    jobs = Queue("q", where)
    assert jobs.delete_jobs((job for job in jobs if job.jid != "j0"), deletion=deletion.id) == 499
    assert deletion.numbers is not None
    assert deletion.numbers[1:] == (499, 0)
    restored = deletion.undo()
    assert (restored, str(restored)) == (499, "499 jobs put back")
    assert db.lrange(keys.queue("q"), 0, -1) == [raws[0], *reversed(raws[1:])]
    assert deletion.undo() == 0
    assert deletion.numbers is None


@pytest.mark.parametrize("name", list(SETS))
def test_jobs_of_a_set_return_with_their_scores(
    where: RedisConfig, keys: Keys, db: redis.Redis, name: str
) -> None:
    key = {"schedule": keys.schedule, "retry": keys.retry, "dead": keys.dead}[name]
    db.zadd(key, {raw_job("a"): SOON, b"no job": 1.5, raw_job("b", queue="r"): SOON})
    before = as_scores(db.zrange(key, 0, -1, withscores=True))
    one, all_of_it = Deletion(where=where), Deletion(where=where)
    jobs = SETS[name](where)
    assert jobs.delete_jobs([jobs.fetch(1.5)[0]], deletion=one.id) == 1
    assert jobs.clear(deletion=all_of_it.id) == 2
    assert set(Deletion.all(where)) == {one.id, all_of_it.id}
    assert (one.undo(), all_of_it.undo()) == (1, 2)
    assert as_scores(db.zrange(key, 0, -1, withscores=True)) == before


def test_a_queue_that_was_cleared(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), *(b"%d" % n for n in range(2500)))
    deletion = Deletion(where=where)
    assert Queue("q", where).clear(deletion=deletion.id) == 2500
    assert deletion.undo() == 2500
    assert db.lrange(keys.queue("q"), 0, -1) == [b"%d" % n for n in reversed(range(2500))]
    assert db.sismember(keys.queues, "q")


def test_large_jobs_that_were_cleared(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    raws = [raw_job(f"j{n}", track=5, args=["x" * 300_000]) for n in range(40)]
    db.lpush(keys.queue("q"), *raws)
    db.zadd(keys.dead, {raw: n for n, raw in enumerate(raws)})
    for jobs in Queue("q", where), DeadSet(where):
        deletion = Deletion(where=where)
        assert (jobs.clear(deletion=deletion.id), deletion.undo()) == (40, 40)
    assert db.lrange(keys.queue("q"), 0, -1) == raws[::-1]
    assert [score for _, score in as_scores(db.zrange(keys.dead, 0, -1, withscores=True))] == [*range(40)]


@pytest.mark.parametrize("name", list(SETS))
def test_jobs_that_a_stranger_wrote_return_with_all_others(
    where: RedisConfig, keys: Keys, db: redis.Redis, name: str
) -> None:
    key = {"schedule": keys.schedule, "retry": keys.retry, "dead": keys.dead}[name]
    strangers: list[dict[str, Any]] = [
        {"batch": "\ud800"},
        {"unique_key": "\ud800"},
        {"queue": "\ud800", "track": 5, "error_class": "\ud800"},
        {"track": 5, "unique_key": "l", "unique_for": 1e300},
        {"track": 10**400, "unique_key": "n", "unique_for": 10**400},
    ]
    raws = [raw_job(f"j{n}", **fields) for n, fields in enumerate(strangers)]
    raws += [raw_job("\ud800", track=5, unique_key="m"), b"no job"]
    db.zadd(key, {raw: float("inf") for raw in raws})
    before = as_scores(db.zrange(key, 0, -1, withscores=True))
    deletion = Deletion(where=where)
    assert SETS[name](where).clear(deletion=deletion.id) == len(raws)
    assert deletion.undo() == len(raws)
    assert as_scores(db.zrange(key, 0, -1, withscores=True)) == before


def test_keys_of_another_type_lose_no_job(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), raw_job("a"), raw_job("b", unique_key="key", unique_for=60))
    deletion, jobs = Deletion(where=where), Queue("q", where)
    assert jobs.delete_jobs(list(jobs), deletion=deletion.id) == 2
    reason = "was in a key that has another type now"
    db.set(keys.queues, "x")
    assert deletion.undo().refused == {reason: 2}
    db.delete(keys.queues)
    db.lpush(keys.unique("key"), "x")
    restored = deletion.undo()
    assert (restored, restored.refused) == (1, {reason: 1})
    db.delete(keys.unique("key"))
    assert deletion.undo() == 1
    db.set(keys.deletions, "x")
    assert (jobs.delete_jobs(list(jobs), deletion=Deletion(where=where).id), jobs.size) == (2, 0)


@pytest.mark.parametrize(
    "odd",
    ["9" * 5_000 + " 1 dead{}", "4 nan dead{}", "4 x dead{}", "4 1e400 dead{}", "4 \xff dead{}", "", "0  "],
)
def test_an_entry_of_another_program_keeps_no_job_deleted(
    where: RedisConfig, keys: Keys, db: redis.Redis, odd: str
) -> None:
    db.zadd(keys.dead, {raw_job("a"): SOON})
    deletion = Deletion(where=where)
    DeadSet(where).clear(deletion=deletion.id)
    db.hset(keys.deletion(deletion.id), mapping={"9" * 5_000: "4 1 dead{}", "x": "4 1 dead{}", "7": odd})
    assert deletion.undo() >= 1
    assert db.zscore(keys.dead, raw_job("a")) == SOON


@pytest.mark.parametrize("numbers", ["{now}.1.2 1 1 1", "... 1 1 1", "{now} {huge} 1 1", "{now} 1 1 {huge}"])
def test_numbers_of_another_program_hide_no_deletion(
    where: RedisConfig, keys: Keys, db: redis.Redis, numbers: str
) -> None:
    db.zadd(keys.dead, {raw_job("a"): SOON})
    deletion = Deletion(where=where)
    DeadSet(where).clear(deletion=deletion.id)
    db.hset(keys.deletions, "odd", numbers.format(now=int(time.time()), huge="9" * 5_000))
    assert set(Deletion.all(where)) == {deletion.id}


def test_sizes_of_another_program_stop_no_deletion(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("a"): SOON})
    # As floats, the sum of these minus each of them is not 0.
    for name, back_s, size in (("a", 9, 10**25), ("b", 5, 1_200_000_000), ("c", 5, 1_200_000_000)):
        db.hset(keys.deletions, name, f"{time.time() - back_s:.3f} 1 {size} 0")
    assert DeadSet(where).clear(deletion=Deletion(where=where).id) == 1


def test_a_full_server_deletes_what_it_cannot_keep(tmp_path: Path, one_binary: str) -> None:
    with running_server(one_binary, tmp_path, free_port()) as url, redis.Redis.from_url(url) as server:
        server.lpush("queue:q", *(b"%d" % n for n in range(1500)))
        server.zadd("dead", {b"%d" % n: n for n in range(3)})
        dead, jobs, deletion = DeadSet(url), Queue("q", url), Deletion(where=url)
        server.lpush("queue:other", *(b"%d" % n for n in range(2500)))
        assert Queue("other", url).clear(deletion=Deletion(where=url).id) == 2500
        # To ask whether the memory is full is no error.
        assert "errorstat_WRONGTYPE" not in server.info("errorstats")
        server.config_set("maxmemory", 1)
        waiting, [one, *_] = list(jobs), dead
        assert jobs.delete_jobs(waiting[:200], deletion=deletion.id) == 200
        assert dead.delete_jobs([one], deletion=deletion.id) == 1
        assert deletion.numbers is not None
        assert deletion.numbers[1:] == (0, 201)
        [row, *_] = Jobs(url).page(DEAD).rows
        assert act_on(admin_of(url), Order(DEAD, JobAction.DELETE), [row.at]) == Acted(1), (
            "no undo is offered"
        )
        assert (jobs.clear(deletion=deletion.id), dead.clear(deletion=deletion.id)) == (1300, 1)
        assert deletion.numbers[1:] == (0, 1502)
        server.config_set("maxmemory", 0)
        assert (server.keys("*cleared*"), deletion.undo()) == ([], 0)


def test_a_job_without_the_id_of_a_deletion_is_not_kept(
    where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.dead, {raw_job("a"): 1, raw_job("b"): 2})
    db.lpush(keys.queue("q"), raw_job("c"), raw_job("d"))
    [first, _] = DeadSet(where)
    assert first.delete()
    [waiting, _] = Queue("q", where)
    assert waiting.delete()
    assert (DeadSet(where).clear(), Queue("q", where).clear()) == (1, 1)
    assert db.keys(keys.own("deletion*")) == []


def test_a_unique_job_takes_its_lock_back_or_says_whose_it_is(
    client: Client, where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    jid = client.enqueue("q", "Mail", [1], unique_for=600)
    deletion, later = Deletion(where=where), Deletion(where=where)
    jobs = Queue("q", where)
    [job] = jobs
    lock = keys.unique(job.data["unique_key"])
    assert jobs.delete_jobs([job], deletion=deletion.id) == 1
    assert db.get(lock) is None
    assert deletion.undo() == 1
    assert (db.get(lock), client.enqueue("q", "Mail", [1], unique_for=600)) == (jid.encode(), jid)
    assert jobs.delete_jobs(list(jobs), deletion=later.id) == 1
    other = client.enqueue("q", "Mail", [1], unique_for=600)
    refused = later.undo()
    assert str(refused) == f"0 jobs put back; 1 not, because it needs a lock that the job {other} holds"
    assert [waiting.jid for waiting in jobs] == [other]
    # It can be tried again.
    assert next(iter(jobs)).delete()
    assert later.undo() == 1
    assert [waiting.jid for waiting in jobs] == [jid]


def test_a_member_that_its_batch_has_counted_stays_deleted(
    client: Client, where: RedisConfig, redis_url: str, namespace: str
) -> None:
    worker = Worker(redis_url, namespace=namespace)

    @worker.job(queue="q")
    def mail(number: int) -> None: ...

    with worker.batch() as batch:
        mail.enqueue(1)
        mail.enqueue(2)
    jobs, deletion = Queue("q", where), Deletion(where=where)
    client.enqueue("q", "Mail", [3])
    assert jobs.delete_jobs([job for job in jobs if job.args != [2]], deletion=deletion.id) == 2
    restored = deletion.undo()
    reason = "is a member of a batch that has counted it as not done"
    assert (restored, restored.refused) == (1, {reason: 1})
    assert sorted(job.args for job in jobs) == [[2], [3]]
    assert batch.status().deleted == 1


@pytest.mark.parametrize(("place", "state"), [("queue", "waiting"), ("retry", "retrying"), ("dead", "dead")])
def test_the_status_of_a_tracked_job(
    client: Client, where: RedisConfig, keys: Keys, db: redis.Redis, place: str, state: str
) -> None:
    jid = client.enqueue("q", "Mail", [1], track=60)
    jobs: Any = Queue("q", where)
    if place != "queue":
        raw = as_bytes(db.rpop(keys.queue("q")))
        jobs = SETS[place](where)
        db.zadd({"retry": keys.retry, "dead": keys.dead}[place], {raw: SOON})
    deletion = Deletion(where=where)
    assert jobs.delete_jobs(list(jobs), deletion=deletion.id) == 1
    assert client.status(jid).state == "cancelled"
    assert deletion.undo() == 1
    assert client.status(jid).state == state
    assert db.exists(keys.result(jid)) == (1 if place == "dead" else 0)


@pytest.mark.fault("Q6")
def test_two_people_undo_the_same_deletion(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job(f"j{n}"): n for n in range(600)})
    deletion = Deletion(where=where)
    assert DeadSet(where).clear(deletion=deletion.id) == 600
    found: list[int] = []
    people = [threading.Thread(target=lambda: found.append(deletion.undo())) for _ in range(2)]
    for person in people:
        person.start()
    for person in people:
        person.join()
    assert (sum(found), db.zcard(keys.dead)) == (600, 600)


def test_the_memory_of_deletions_is_bounded(
    where: RedisConfig, keys: Keys, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = scripts.load("removal/remove").text
    limits = f"{undo.LIFE_S}, {undo.MOST_JOBS}, {undo.MOST_BYTES}, 1000"
    assert limits in text
    small = text.replace(limits, f"{undo.LIFE_S}, 3, 600, 2")
    db.zadd(keys.dead, {b"x" * 100 + b"%d" % n: n for n in range(10)})
    first, second, third = (Deletion(where=where) for _ in range(3))

    def delete(deletion: Deletion, *numbers: int) -> None:
        members = [b"x" * 100 + b"%d" % n for n in numbers]
        names = [keys.dead, keys.deletions, keys.deletion(deletion.id)]
        db.eval(small, 3, *names, 3 + len(members), deletion.id, "dead", *members, keys.namespace)

    delete(first, 0, 1, 2, 3)
    assert first.numbers is not None
    assert first.numbers[1:] == (3, 1)
    delete(second, 4, 5, 6)
    assert set(Deletion.all(where)) == {second.id}
    delete(third, 7)
    assert set(Deletion.all(where)) == {second.id, third.id}
    assert 0 < db.ttl(keys.deletions) <= undo.LIFE_S
    assert 0 < db.ttl(keys.deletion(third.id)) <= undo.LIFE_S
    assert (first.undo(), second.undo(), third.undo()) == (0, 3, 1)


def test_a_deletion_is_done_also_if_redis_does_not_say_what_it_has_kept(
    where: RedisConfig, keys: Keys, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = admin_of(where)
    db.zadd(keys.dead, {raw_job("a"): 1.0})
    db.lpush(keys.queue("q"), raw_job("b"))
    [row] = admin.run(read_page(keys, DEAD)).rows
    with monkeypatch.context() as patch:
        patch.setattr(undo, "deletions", lambda _keys: one("NO.SUCH.COMMAND", read=dict))
        acted = act_on(admin, Order(DEAD, JobAction.DELETE), [row.at])
        cleared = CLEAR.perform(admin, {"name": "q"}).result
    assert (acted.done, cleared.done) == (1, 1)
    assert (Deletion(acted.undo, where).undo(), Deletion(cleared.undo, where).undo()) == (1, 1)
    assert (db.zcard(keys.dead), db.llen(keys.queue("q"))) == (1, 1)


def test_an_undo_reads_a_page_at_a_time(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job(f"j{n}", args=["x" * 10_000]): n for n in range(300)})
    deletion = Deletion(where=where)
    assert DeadSet(where).clear(deletion=deletion.id) == 300
    read = []
    with db.monitor() as monitor:
        assert deletion.undo() == 300
        db.echo("end")
        for about in monitor.listen():
            name, *words = about["command"].split()
            if name == "ECHO":
                break
            if name in ("HGETALL", "HMGET", "HVALS") and words[0] == keys.deletion(deletion.id):
                read.append(len(words) - 1)
    # Each job twice: first for the order.
    assert sum(read) == 600
    assert max(read) <= 105
    assert db.zcard(keys.dead) == 300


@pytest.mark.parametrize(("jobs", "size"), [(3, 600_000), (9, 65_536 + 300)])
def test_a_cleared_queue_is_read_until_there_is_no_room(
    where: RedisConfig, keys: Keys, db: redis.Redis, jobs: int, size: int
) -> None:
    text = scripts.load("removal/keep").text
    limits = f"{undo.LIFE_S}, {undo.MOST_JOBS}, {undo.MOST_BYTES}"
    small = text.replace(limits, f"{undo.LIFE_S}, {jobs}, {size}")
    assert small != text
    db.rpush(keys.queue("q"), *(b"x" * 100 + b"%d" % n for n in range(10)))
    deletion = Deletion(where=where)
    names = [keys.queue("q"), keys.deletions, keys.deletion(deletion.id)]

    def read(first: int) -> int:
        found: int = db.eval(small, 3, *names, deletion.id, "queue:q", first, 4, keys.namespace)
        return found

    assert (read(0), read(4)) == (4, 0)
    assert deletion.numbers is not None
    assert sum(deletion.numbers[1:]) == 10
