"""Effects of jobs that are removed on request: with the removal, once, and not if a server was faster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
import redis

from pyworkers.protocol.effects import CountOut, Effect
from pyworkers.protocol.flow import rules as flow_rules
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import Cancelled
from pyworkers.store import queues, sets
from pyworkers.store.cancel import cancel
from pyworkers.store.flow import removal
from pyworkers.store.flow.removal import Clearing
from pyworkers.store.queues import WaitingJob, Withdrawal
from pyworkers.store.sets import Move
from tests.helpers.replies import as_texts
from tests.store.conftest import Run

NOW = 1e9
"""Epoch seconds."""
MANY = 1_000_000


def counted(ended: Ended) -> Iterable[Effect]:
    """A rule for these tests: count each ending, by queue."""
    yield CountOut("endings", f"{ended.ending}@{ended.queue}", "never", b"job")


@pytest.fixture(autouse=True)
def rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    rules = {"counted": counted}
    monkeypatch.setattr(flow_rules, "RULES", rules)
    monkeypatch.setattr(flow_rules, "FIELDS", frozenset(rules))
    monkeypatch.setattr(flow_rules, "MARKS", (b'"counted"',))
    monkeypatch.setattr(removal, "MARKS", (b'"counted"',))
    yield


def job(jid: str, queue: str = "q") -> bytes:
    return b'{"jid":"%s","class":"Add","args":[],"queue":"%s","counted":1}' % (jid.encode(), queue.encode())


def endings(db: redis.Redis, keys: Keys) -> dict[str, int]:
    """How often each ending was counted."""
    found = as_texts(db.hgetall(keys.own("endings")))
    return {name: MANY - int(left) for name, left in found.items() if int(left) < MANY}


@pytest.fixture(autouse=True)
def counters(db: redis.Redis, keys: Keys) -> None:
    names = [f"{ending}@q" for ending in Ending]
    db.hset(keys.own("endings"), mapping=dict.fromkeys(names, MANY))


def test_members_of_a_set_that_are_deleted(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {job("a"): 1.0, job("b"): 2.0, b"plain": 3.0})
    assert run_work(removal.remove(keys, keys.retry, [job("a"), job("gone"), b"plain"], NOW)) == 2
    assert endings(db, keys) == {"deleted@q": 1}
    assert run_work(removal.remove(keys, keys.retry, [job("a")], NOW)) == 0
    assert endings(db, keys) == {"deleted@q": 1}


def test_members_of_a_set_that_are_killed_or_retried(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {job("a"): 1.0, job("b"): 2.0})
    moves = [Move(job("b"), job("b"), "q"), Move(job("gone")), Move(job("a"))]
    assert run_work(sets.move(keys, keys.retry, moves, NOW)) == 2
    assert endings(db, keys) == {"dead@q": 1}
    assert db.lrange(keys.queue("q"), 0, -1) == [job("b")]


def test_waiting_jobs_that_are_deleted_or_killed(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.rpush(keys.queue("q"), job("a"), job("b"), b"plain")
    gone = WaitingJob(job("gone"), 0)
    assert run_work(queues.withdraw(keys, "q", [gone, WaitingJob(job("b"), 1)], NOW, Withdrawal.DEAD)) == 1
    assert run_work(queues.withdraw(keys, "q", [WaitingJob(job("a"), 0), gone], NOW, Withdrawal.DELETED)) == 1
    assert endings(db, keys) == {"dead@q": 1, "deleted@q": 1}
    assert db.lrange(keys.queue("q"), 0, -1) == [b"plain"]


def test_waiting_jobs_that_run_first_have_not_ended(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.rpush(keys.queue("q"), job("a"), job("b"), job("c"), b"plain")
    chosen = [WaitingJob(job("b"), 1), WaitingJob(job("gone"), 0), WaitingJob(job("a"), 0)]
    assert run_work(queues.withdraw(keys, "q", chosen, NOW, Withdrawal.FIRST)) == 2
    assert db.lrange(keys.queue("q"), 0, -1) == [job("c"), b"plain", job("b"), job("a")]
    assert endings(db, keys) == {}


def test_all_jobs_of_a_queue_and_of_a_set(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    number = 2500
    db.rpush(keys.queue("q"), *(job(str(n)) if n % 2 else b"plain%d" % n for n in range(number)))
    assert run_work(Clearing(keys, keys.queue("q"), NOW, "q").rest()) == [number]
    assert endings(db, keys) == {"deleted@q": number // 2}
    db.zadd(keys.dead, {job("a"): 1.0})
    assert run_work(Clearing(keys, keys.dead, NOW).rest()) == [1]
    assert not db.exists(keys.queue("q"), keys.dead)
    assert not list(db.scan_iter(f"{keys.own('cleared')}*"))
    assert run_work(Clearing(keys, keys.dead, NOW).rest()) == [0]


def test_a_waiting_job_that_is_cancelled(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {job("a"): 1.0})
    assert run_work(cancel(keys, "a")) is Cancelled.REMOVED
    assert run_work(cancel(keys, "a")) is Cancelled.UNKNOWN
    assert endings(db, keys) == {"cancelled@q": 1}
