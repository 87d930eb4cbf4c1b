"""Other arguments and times of stored jobs, with an administrator's rights: nothing is lost or doubled."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha1
from typing import Any

import pytest
import redis

from pyworkers import Client
from pyworkers.api import DeadSet, JobRecord, JobSet, Queue, QueuedJob, RetrySet, ScheduledSet, SortedEntry
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import (
    BadArgumentError,
    BadMessageError,
    DuplicateJobError,
    EncryptionKeyError,
    StoreError,
)
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.sealing import Keyring
from pyworkers.store.acl import Role
from tests.helpers.acl import url_of
from tests.helpers.replies import as_bytes, as_scores

NOW = time.time()
# Days: the suite may have begun long before this test.
SOON, LATER = NOW + 86_400.0, NOW + 172_800.0
OLD_KEY, NEW_KEY = b"o" * 32, b"n" * 32
SETS: dict[str, Callable[[RedisConfig], JobSet]] = {
    "scheduled": ScheduledSet,
    "retries": RetrySet,
    "dead": DeadSet,
}
Stored = QueuedJob | SortedEntry


@pytest.fixture
def where(redis_url: str, namespace: str) -> RedisConfig:
    return RedisConfig(url=url_of(redis_url, Role.ADMIN, namespace), namespace=namespace)


@pytest.fixture
def client(redis_url: str, namespace: str) -> Iterator[Client]:
    with Client(redis_url, namespace=namespace, encryption=[NEW_KEY, OLD_KEY]) as made:
        yield made


@pytest.fixture
def stored(where: RedisConfig, keys: Keys, db: redis.Redis) -> Callable[..., Stored]:
    """Stores one job in a place, and reads it from there."""

    def store(place: str, **fields: Any) -> Stored:
        job = {"class": "Mail", "args": ["old"], "jid": "j", "queue": "q", "retry": True, **fields}
        raw = json.dumps(job).encode()
        if place == "queue":
            db.lpush(keys.queue("q"), raw)
            return next(iter(Queue("q", where)))
        jobs = SETS[place](where)
        db.zadd({"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}[place], {raw: SOON})
        return next(iter(jobs))

    return store


def lock_of(db: redis.Redis, keys: Keys, job: JobRecord) -> bytes | None:
    value = db.get(keys.unique(job.data["unique_key"]))
    return None if value is None else as_bytes(value)


@pytest.mark.parametrize("place", ["queue", "scheduled", "retries", "dead"])
def test_a_job_with_other_arguments_is_where_it_was(
    stored: Callable[..., Stored], place: str, where: RedisConfig
) -> None:
    job = stored(place, number=1.50)
    twin = next(iter(Queue("q", where) if place == "queue" else SETS[place](where)))
    assert job.edit(["new", {"a": 1}])
    assert (job.args, job.jid, job.data["number"]) == (["new", {"a": 1}], "j", 1.5)
    # Read before the edit: it would overwrite what was written.
    assert not twin.edit(["other"])
    listed = list(Queue("q", where)) if place == "queue" else list(SETS[place](where))
    assert [(other.raw, getattr(other, "score", SOON)) for other in listed] == [(job.raw, SOON)]
    assert job.edit(["again"])
    assert job.delete()


@pytest.mark.parametrize("place", ["queue", "scheduled", "retries", "dead"])
def test_a_job_gets_another_time(
    stored: Callable[..., Stored], place: str, where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    job = stored(place, retry_count=3, expiry=SOON + 60, track=60)
    db.hset(keys.job("j"), "state", "any")
    db.xadd(keys.result("j"), {"v": "{}"})
    assert job.edit(at=LATER)
    target = keys.retry if place == "retries" else keys.schedule
    [(raw, score)] = as_scores(db.zrange(target, 0, -1, withscores=True))
    found = json.loads(raw)
    assert (score, found["args"]) == (LATER, ["old"])
    assert db.exists(keys.queue("q"), keys.dead) == 0
    state = {"queue": b"scheduled", "dead": b"scheduled", "scheduled": b"scheduled", "retries": b"retrying"}
    assert db.hget(keys.job("j"), "state") == state[place]
    assert db.ttl(keys.job("j")) > 30 * 86_400
    # A dead job had a result: whoever waits for it waits again.
    assert db.exists(keys.result("j")) == (0 if place == "dead" else 1)
    assert found["retry_count"] == (2 if place == "dead" else 3)
    # It expires so long after the time at which it is due.
    assert found["expiry"] == pytest.approx(LATER + 60 if place == "scheduled" else SOON + 60)


@pytest.mark.parametrize("place", ["queue", "scheduled", "retries"])
def test_a_job_that_has_started_is_not_edited(
    stored: Callable[..., Stored], place: str, keys: Keys, db: redis.Redis
) -> None:
    job = stored(place)
    db.delete(keys.queue("q"), keys.schedule, keys.retry)
    assert not job.edit(["new"], at=LATER)
    assert db.exists(keys.queue("q"), keys.schedule, keys.retry) == 0


@pytest.mark.fault("Q5")
def test_jobs_are_edited_while_servers_take_them(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), *(json.dumps({"args": ["old"], "jid": f"j{n}"}) for n in range(300)))
    waiting = list(Queue("q", where))

    def take() -> None:
        while db.rpoplpush(keys.queue("q"), keys.queue("taken")):
            pass

    taker = threading.Thread(target=take)
    taker.start()
    # The last ones are taken first: some edits are too late, and some are not.
    answers = {job.jid: job.edit(["new"]) for job in waiting}
    taker.join()
    taken = list(map(json.loads, db.lrange(keys.queue("taken"), 0, -1)))
    assert len(taken) == 300
    assert {job["jid"]: job["args"] == ["new"] for job in taken} == answers


def test_a_waiting_job_keeps_its_place_among_many(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    raws = [json.dumps({"class": "C", "args": [n], "jid": f"j{n}"}).encode() for n in range(1000)]
    db.lpush(keys.queue("q"), *raws)
    job = Queue("q", where).find_job("j500")
    assert job is not None
    # It moves further than a look around its place reaches.
    db.lpush(keys.queue("q"), *[b"{}"] * 400)
    assert job.edit(["new"])
    listed = [record.jid for record in Queue("q", where) if record.jid]
    assert listed == [f"j{n}" for n in reversed(range(1000))]
    assert job.edit(at=LATER)
    assert [entry.args for entry in ScheduledSet(where)] == [["new"]]
    assert db.llen(keys.queue("q")) == 1399


def test_a_failed_head_of_an_ordered_queue_still_waits(
    stored: Callable[..., Stored], keys: Keys, db: redis.Redis
) -> None:
    job = stored("queue")
    db.hset(keys.ordered("q"), mapping={"fence": 7, "until": 99, "head": sha1(job.raw).hexdigest()})
    assert job.edit(["new"])
    assert db.hget(keys.ordered("q"), "head") == sha1(job.raw).hexdigest().encode()
    with pytest.raises(BadArgumentError, match="q is an ordered queue: its jobs run in turn"):
        job.edit(at=LATER)
    assert db.lrange(keys.queue("q"), 0, -1) == [job.raw]


def test_a_unique_job_takes_the_lock_of_its_new_arguments(
    client: Client, where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    jid = client.enqueue("q", "Mail", ["old"], unique_for=600)
    other = client.enqueue("q", "Mail", ["other"], unique_for=600)
    job = Queue("q", where).find_job(jid)
    assert job is not None
    before = job.data["unique_key"]
    with pytest.raises(DuplicateJobError) as caught:
        job.edit(["other"])
    assert (caught.value.jid, job.args, lock_of(db, keys, job)) == (other, ["old"], jid.encode())
    assert job.edit(["new"])
    assert db.get(keys.unique(before)) is None
    assert lock_of(db, keys, job) == jid.encode()
    assert client.enqueue("q", "Mail", ["new"], unique_for=600) == jid
    assert client.enqueue("q", "Mail", ["old"], unique_for=600) != jid
    # Due later, it keeps its lock until then.
    assert job.edit(at=LATER)
    assert db.pttl(keys.unique(job.data["unique_key"])) > 100_000_000


def test_a_job_that_is_put_off_keeps_its_lock_and_expires_later(
    client: Client, where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    client.enqueue_in(60, "q", "Mail", ["a"], unique_for=600, expires_in=30, track=5)
    [job] = ScheduledSet(where)
    expiry = job.data["expiry"]
    assert job.reschedule(job.score + 7000)
    assert db.pttl(keys.unique(job.data["unique_key"])) > 7_500_000
    assert job.data["expiry"] == pytest.approx(expiry + 7000)
    [found] = ScheduledSet(where)
    assert (found.raw, found.score) == (job.raw, job.score)
    assert db.ttl(keys.job(job.jid)) > 30 * 86_400 + 7000


def test_a_scheduled_job_that_is_replaced_is_found_at_its_new_time(
    client: Client, where: RedisConfig
) -> None:
    options = {"unique_for": 600, "on_duplicate": "replace"}
    client.enqueue_at(SOON, "q", "Mail", ["a"], **options)  # type: ignore[arg-type]
    [job] = ScheduledSet(where)
    assert job.edit(["b"], at=LATER)
    newer = client.enqueue_at(LATER + 9, "q", "Mail", ["b"], **options)  # type: ignore[arg-type]
    assert [job.jid for job in ScheduledSet(where)] == [newer]


def test_a_lock_that_is_not_made_of_the_arguments_needs_unique_by(
    client: Client, where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    client.enqueue("q", "Mail", ["a@b", 1], unique_for=600, unique_by=lambda mail, n: mail)
    [job] = Queue("q", where)
    with pytest.raises(BadArgumentError, match="not made of all its arguments") as caught:
        job.edit(["c@d", 1])
    assert caught.value.field == "unique_by"
    assert job.edit(["c@d", 2], unique_by=lambda mail, n: mail)
    jid = client.enqueue("q", "Mail", ["c@d", 3], unique_for=600, unique_by=lambda mail, n: mail)
    assert jid == job.jid


def test_a_dead_job_takes_its_lock_when_it_runs_again(
    stored: Callable[..., Stored], client: Client, where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    holder = client.enqueue("q", "Mail", ["old"], unique_for=600)
    [held] = Queue("q", where)
    job = stored("dead", unique_key=held.data["unique_key"], unique_for=600)
    assert job.edit(["new"])
    assert lock_of(db, keys, job) is None
    assert job.edit(["old"])
    with pytest.raises(DuplicateJobError) as caught:
        job.edit(at=LATER)
    assert caught.value.jid == holder
    assert held.delete()
    assert job.edit(at=LATER)
    assert lock_of(db, keys, job) == b"j"


def test_a_sealed_job_is_sealed_anew(
    client: Client, where: RedisConfig, redis_url: str, namespace: str
) -> None:
    old = Client(redis_url, namespace=namespace, encryption=[OLD_KEY])
    old.enqueue("q", "Pay", ["4111"], encrypt=True)
    [job] = Queue("q", where)
    with pytest.raises(EncryptionKeyError, match="no keys"):
        job.edit(["4222"])
    assert job.edit(["4222"], encryption=[NEW_KEY, OLD_KEY])
    assert b"4222" not in job.raw
    assert job.args == ["(encrypted)"]
    assert Keyring([NEW_KEY]).open(job.data["args"], job.jid, "Pay") == ["4222"]
    copy = job.enqueue_copy(encryption=[NEW_KEY])
    [found] = Queue("q", where).find_jobs(copy)
    assert Keyring([NEW_KEY]).open(found.data["args"], copy, "Pay") == ["4222"]


def test_a_sealed_unique_job(client: Client, where: RedisConfig) -> None:
    jid = client.enqueue("q", "Pay", ["4111"], encrypt=True, unique_for=600)
    [job] = Queue("q", where)
    assert job.edit(["4222"], encryption=[NEW_KEY])
    assert client.enqueue("q", "Pay", ["4222"], encrypt=True, unique_for=600) == jid


def test_a_tracked_job_with_a_history_and_a_checkpoint(
    client: Client, where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    jid = client.enqueue("q", "Mail", ["old"], track=60, history=True)
    db.hset(keys.iteration(jid), "c", "7")
    [job] = Queue("q", where)
    assert job.edit(["new"])
    history = client.history(jid)
    assert history is not None
    assert (history.job["args"], client.status(jid).state) == (["new"], "waiting")
    # What a long job has saved is about its earlier arguments.
    assert db.exists(keys.iteration(jid)) == 0


def test_an_active_job_has_its_arguments_inside(stored: Callable[..., Stored]) -> None:
    inner = {"job_class": "MailJob", "job_id": "x", "arguments": ["old"]}
    name = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper"
    job = stored("queue", **{"class": name, "args": [inner], "wrapped": "MailJob"})
    assert job.edit(["new"])
    assert (job.args, job.data["args"][0]["job_id"]) == (["new"], "x")


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([float("nan")], r"args\[0\] is nan"),
        ("text", "args is of type str, not a list"),
        ([{1: 2}], r"args\[0\] has the key 1"),
        (None, "an edit needs args, at, or both"),
    ],
)
def test_arguments_are_checked_as_at_an_enqueue(
    stored: Callable[..., Stored], args: Any, reason: str
) -> None:
    with pytest.raises(BadArgumentError, match=reason):
        stored("queue").edit(args)


def test_what_cannot_be_edited(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("q"), b"no job", json.dumps({"args": [1, "x"], "jid": "j", "encrypt": True}))
    [sealed, invalid] = Queue("q", where)
    with pytest.raises(BadMessageError, match="not JSON"):
        invalid.edit([1])
    with pytest.raises(BadArgumentError, match="encrypted by Sidekiq Enterprise"):
        sealed.edit([1])
    db.set(keys.schedule, "text")
    with pytest.raises(StoreError, match="is a key of another type"):
        sealed.edit(at=LATER)
    assert db.llen(keys.queue("q")) == 2


def test_a_copy_is_a_job_of_its_own(
    stored: Callable[..., Stored], where: RedisConfig, keys: Keys, db: redis.Redis
) -> None:
    job = stored("dead", batch="b", error_class="E", retry_count=9, track=60, tags=["t"], tenant=7)
    jid = job.enqueue_copy(["new"])
    [copy] = Queue("q", where)
    assert (copy.jid, copy.args, copy.data["tenant"], copy.tags) == (jid, ["new"], 7, ["t"])
    assert not {"batch", "error_class", "retry_count", "at"} & copy.data.keys()
    assert db.hget(keys.job(jid), "state") == b"waiting"
    assert db.sismember(keys.queues, "q")
    later = job.enqueue_copy(at=LATER)
    [scheduled] = ScheduledSet(where)
    assert (scheduled.jid, scheduled.score, scheduled.args) == (later, LATER, ["old"])
    assert DeadSet(where).size == 1


def test_a_copy_of_a_unique_job_is_a_duplicate_unless_its_arguments_differ(
    client: Client, where: RedisConfig
) -> None:
    jid = client.enqueue("q", "Mail", ["a"], unique_for=600)
    [job] = Queue("q", where)
    with pytest.raises(DuplicateJobError) as caught:
        job.enqueue_copy()
    assert caught.value.jid == jid
    copy = job.enqueue_copy(["b"])
    assert client.enqueue("q", "Mail", ["b"], unique_for=600) == copy
