"""Enqueueing for people and programs: batches, receipts, and what a refused request leaves."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers import Client
from pyworkers.api.enqueueing import Enqueued, Receipt, enqueue, enqueue_all, read, writing_with
from pyworkers.errors import BadArgumentError, BatchError, DuplicateJobError, QueueFullError
from pyworkers.plugins.batches import Batch
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.keys import Keys
from pyworkers.store.admin import Admin
from pyworkers.store.flow.enqueueing import BatchedJob
from tests.store.conftest import Cli, Run

WRITING = writing_with(None)


def job(*args: Any, **options: Any) -> BatchedJob:
    return read({"queue": "q", "class": "C", "args": list(args), **options}, time.time(), WRITING)


@pytest.fixture
def receipt(keys: Keys) -> Receipt:
    return Receipt(keys.own("web:request:r"), "digest", 86_400)


def test_a_second_request_is_answered_by_the_receipt_of_the_first(
    run_work: Run, db: redis.Redis, keys: Keys, receipt: Receipt
) -> None:
    held = run_work(enqueue(keys, [job(1, unique_for=60)])).jobs[0]
    first = run_work(enqueue(keys, [job(1, unique_for=60), job(2, jid='a "quoted" jid')], receipt))
    assert not first.replayed
    assert first.jobs == [Enqueued(held.jid, False), Enqueued('a "quoted" jid', True)]
    again = run_work(enqueue(keys, [job(3), job(4)], receipt))
    assert (again.replayed, again.jobs) == (True, first.jobs)
    assert db.llen(keys.queue("q")) == 2
    assert 86_000 < db.ttl(receipt.key) <= 86_400


def test_a_receipt_of_one_thousand_refuses_each_thousand_of_another_request(
    run_work: Run, db: redis.Redis, keys: Keys, receipt: Receipt
) -> None:
    run_work(enqueue(keys, [job(1, unique_for=60)]))
    assert not db.exists(receipt.key)
    # All of its first thousand are duplicates, which leave nothing to repeat.
    run_work(enqueue(keys, [job(1, unique_for=60)], receipt))
    run_work(enqueue(keys, [job(2)], receipt._replace(part=1)))
    db.expire(receipt.key, 5)
    assert not run_work(enqueue(keys, [job(3)], receipt)).replayed
    assert db.ttl(receipt.key) > 86_000
    for part in range(3):
        other = run_work(enqueue(keys, [job(4)], receipt._replace(digest="other", part=part)))
        assert (other.is_taken, other.jobs) == (True, ())
    assert db.llen(keys.queue("q")) == 3


def test_of_requests_at_the_same_time_one_enqueues(
    redis_url: str, namespace: str, db: redis.Redis, keys: Keys, receipt: Receipt
) -> None:
    answers: list[Any] = []

    def ask() -> None:
        answers.append(
            Admin(Client(redis_url, namespace=namespace).config).run(enqueue(keys, [job(1)], receipt))
        )

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({answer.jobs[0].jid for answer in answers}) == 1
    assert [answer.replayed for answer in answers].count(False) == 1
    assert db.llen(keys.queue("q")) == 1


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_waiting": 2}, QueueFullError),
        ({"unique_for": 60, "on_duplicate": "raise"}, DuplicateJobError),
        ({"batch": "nowhere"}, BatchError),
        ({"batch": "over"}, BatchError),
        ({"batch": 'b","x":"'}, BatchError),
    ],
)
def test_a_refused_request_enqueues_none_of_its_jobs_and_leaves_no_receipt(
    options: dict[str, Any],
    error: type[Exception],
    run_work: Run,
    db: redis.Redis,
    keys: Keys,
    receipt: Receipt,
) -> None:
    run_work(enqueue(keys, [job(1, unique_for=60)]))
    db.hset(keys.batch("over"), mapping={"open": 0, "success_at": 1})
    answered = run_work(enqueue(keys, [job(2), job(3), job(1, **options)], receipt))
    assert (answered.refusal.place, type(answered.refusal.error), answered.jobs) == (2, error, ())
    assert (db.llen(keys.queue("q")), db.exists(receipt.key)) == (1, 0)


def test_a_job_becomes_a_member_of_a_batch_in_the_step_that_pushes_it(
    cli: Cli, redis_url: str, namespace: str, db: redis.Redis, keys: Keys
) -> None:
    with Client(redis_url, namespace=namespace) as client:
        client.enlist(BatchPlan("b", "hold", members=["j1"]))
        jid = cli("enqueue", "q", "C", "[7]", "--batch", "b").output.strip()
        assert (Batch(client, "b").status().total, Batch(client, "b").status().pending) == (2, 2)
    [payload] = db.lrange(keys.queue("q"), 0, -1)
    assert b'"batch":"b"' in payload
    assert db.smembers(f"{keys.batch('b')}:members") == {b"j1", jid.encode()}
    unknown = cli("enqueue", "q", "C", "[7]", "--batch", "nowhere")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == "Error: the batch nowhere is unknown: it has expired, or was deleted\n"


def test_a_push_waits_for_room_in_its_queue(
    redis_url: str, namespace: str, db: redis.Redis, keys: Keys
) -> None:
    admin = Admin(Client(redis_url, namespace=namespace).config)
    enqueue_all(admin, [job(1)])
    timer = threading.Timer(0.2, lambda: db.delete(keys.queue("q")))
    timer.start()
    assert len(enqueue_all(admin, [job(2, max_waiting=1, wait=10)])) == 1
    timer.join()


def test_a_request_is_not_sent_again_before_there_is_room(run_work: Run, db: redis.Redis, keys: Keys) -> None:
    run_work(enqueue(keys, [job(1), job(2)]))
    jobs = [job(3, max_waiting=2), job(4, max_waiting=2)]
    refusal = run_work(enqueue(keys, jobs)).refusal
    assert (refusal.place, refusal.room) == (0, ("q", 0))
    db.rpop(keys.queue("q"))
    assert run_work(enqueue(keys, jobs, after=refusal)).refusal is refusal
    steps = enqueue(keys, jobs, after=refusal)
    assert [each.parts[0] for each in next(steps).commands] == ["LLEN"]
    db.delete(keys.queue("q"))
    assert len(run_work(enqueue(keys, jobs, after=refusal)).jobs) == 2


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"class": "C"}, "queue", "queue is missing"),
        ({"queue": "q"}, "class", "class is missing"),
        ({"queue": 7, "class": "C"}, "queue", "cannot be a queue"),
        ({"queue": "q", "class": "A|B"}, "class", "cannot be a job class"),
        ({"queue": "q", "class": 7}, "class", "cannot be a job class"),
        ({"queue": "q", "class": "C", "args": {}}, "args", "not a list"),
        ({"queue": "q", "class": "C", "args": [1, ["\ud800"]]}, "args", "lone surrogate"),
        ({"queue": "q", "class": "C", "in": -1}, "in", "is not a delay"),
        ({"queue": "q", "class": "C", "at": "soon"}, "at", "is not a time"),
        ({"queue": "q", "class": "C", "at": 1, "in": 1}, "at", "exclude each other"),
        ({"queue": "q", "class": "C", "batch": 7}, "batch", "must be the id of a batch"),
        ({"queue": "q", "class": "C", "batch": ""}, "batch", "must be the id of a batch, not ''"),
        ({"queue": "q", "class": "C", "retry": "x"}, "retry", "True, False or a number of retries"),
        ({"queue": "q", "class": "C", "tags": "x"}, "tags", "a list of strings"),
        ({"queue": "q", "class": "C", "unique_until": "start"}, "unique_until", "without unique_for"),
        ({"queue": "q", "class": "C", "timeot": 7}, "timeot", "did you mean timeout"),
        ({"queue": "q", "class": "C", "extra": {"jid": 7}}, "extra", "is the option jid"),
        ({"queue": "q", "class": "C", "encrypt": True}, "encrypt", "there are no keys"),
    ],
)
def test_an_invalid_value_is_refused_with_its_field(
    given: dict[str, Any], field: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadArgumentError, match=message) as refused:
        read(given, time.time(), WRITING)
    assert refused.value.field == field
