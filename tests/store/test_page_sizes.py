"""Who reads many jobs reads few at a time if they are large: a thousand of a megabyte would block Redis."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from pyworkers.api import Queue, QueueMove, RetrySet
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.limits import running_key
from pyworkers.protocol.moving import MoveState
from pyworkers.protocol.portions import PageSize
from pyworkers.store import calls, draining, foreign, moving, queues, sets
from pyworkers.store.admin import Admin
from pyworkers.store.calls import Request
from pyworkers.store.cancel import cancel, cancel_running
from pyworkers.store.flow import cancelling, limituses, removal
from pyworkers.store.flow.cancelling import cancel_jobs
from pyworkers.store.flow.removal import KeptFor
from pyworkers.store.flow.servers import fields_of_others
from pyworkers.store.flow.sweep import begin, sweep
from pyworkers.store.queues import Entries, WaitingJob, Withdrawal
from pyworkers.store.scripts import load
from pyworkers.store.sets import Matches, MembersByScore
from pyworkers.store.views.running import read_held
from tests.helpers.records import raw_job, register

# Behind small ones, at both ends.
NUMBER, SIZE, SMALL = 40, 400_000, 10
# Before their size is known, or on both sides of a place.
MOST = 30
ME = "our:1:aaaaaaaaaaaa"
LIMIT = running_key("q")


def test_a_page_has_few_jobs_until_their_size_is_known_and_few_large_ones() -> None:
    size, found = PageSize(200, 1000), []
    for raws in ([b"x" * 4] * 10, [b"x" * 100, b"x"], [], [b"x" * 5000], [b""]):
        found.append(size.jobs)
        size.note(raws)
    assert [*found, size.jobs] == [10, 20, 10, 10, 1, 2]
    assert PageSize(3).jobs == 3


def ranges_in(words: list[str]) -> Iterator[int]:
    """How many jobs a command reads."""
    match words[0].upper():
        case "ZRANGE" | "ZRANGEBYSCORE" if "LIMIT" in words:
            yield int(words[words.index("LIMIT") + 2])
        case "LRANGE" | "ZRANGE" | "ZREVRANGE":
            first, last = int(words[2]), int(words[3])
            yield last - first + 1 if (first < 0) == (last < 0) else NUMBER
        case "LINDEX":
            yield 1
        case "ZSCAN":
            yield int(words[words.index("COUNT") + 1])


class Bench:
    """A Redis with large jobs, and what reads them."""

    def __init__(self, where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
        self.where, self.keys, self.db = where, keys, db
        self.admin = Admin(where)
        large, last = range(SMALL, SMALL + NUMBER), 2 * SMALL + NUMBER
        raws = [
            raw_job(f"j{n}", args=["x" * SIZE * (n in large)], enqueued_at=n, track=5) for n in range(last)
        ]
        for key in (keys.queue("q"), keys.inprogress("q", ME)):
            db.rpush(key, *raws)
        db.zadd(keys.retry, {raw: n for n, raw in enumerate(raws)})
        db.sadd(keys.queues, "q")
        db.hset(keys.limits, LIMIT, "2 0")
        db.hset(keys.owners, ME, '["q"]')
        register(db, keys, ME, {"queues": ["q"]}, beat=time.time(), look=1)

    def run(self, work: Any) -> Any:
        return self.admin.run(work)

    def move(self) -> MoveState:
        return self.run(moving.begin(self.keys, MoveState("q", "0123", 0, "")))  # type: ignore[no-any-return]

    def sweep(self) -> None:
        """A lock whose job is gone: the second sweep reads all ends of all lists again."""
        self.db.sadd(self.keys.locks, "unique:x")
        self.db.set(self.keys.unique("x"), "gone")
        for token in ("a" * 16, "b" * 16):
            self.db.delete(self.keys.sweep("turn"))
            assert self.run(begin(self.keys, token)) is None
            swept = self.run(sweep(self.keys, token))
        assert swept.locks == 1


WORK: dict[str, Callable[[Bench], Any]] = {
    "list a queue": lambda on: on.run(Entries(on.keys.queue("q")).rest()),
    "list a set": lambda on: on.run(MembersByScore(on.keys.retry).rest()),
    "search a set": lambda on: on.run(Matches(on.keys.retry, "j1").rest()),
    "cancel a job": lambda on: on.run(cancel(on.keys, "none")),
    "cancel a running job": lambda on: on.run(cancel_running(on.keys, "none", ME, "q")),
    "cancel a class": lambda on: on.run(cancel_jobs(on.keys, cancelling.Wanted("class", "None"))),
    "withdraw jobs that are gone": lambda on: on.run(
        queues.withdraw(on.keys, "q", [WaitingJob(b"gone", 30)], 1e9, Withdrawal.DELETED)
    ),
    "clear a queue": lambda on: Queue("q", on.where).clear(deletion="d"),
    "clear a set": lambda on: RetrySet(on.where).clear(deletion="d"),
    "promote": lambda on: on.run(sets.promote(on.keys, on.keys.retry, [], 1e9, ME, 500)),
    "drain": lambda on: on.run(draining.see(on.keys, ME, ["q"], [on.keys.retry], 1e9)),
    "look at a move": lambda on: list(QueueMove("q", on.where, on.where).look()),
    "park the first job": lambda on: on.run(
        moving.park(on.keys, on.move(), moving.ReadJobs("queue", [b"gone"], 1, 0), 0)
    ),
    "read the jobs of another program": lambda on: on.run(
        foreign.jobs_in([foreign.ForeignList(on.keys.queue("q"), "q", foreign.GO, "p")])
    ),
    "look for fields of others": lambda on: on.run(fields_of_others(on.keys)),
    "look at a server that is gone": lambda on: on.run(read_held(on.keys, ME, NUMBER)),
    "look at the holders of a limit": lambda on: on.run(limituses.read_limit(on.keys, LIMIT, NUMBER)),
    "sweep": Bench.sweep,
}


@pytest.fixture
def bench(redis_url: str, namespace: str, keys: Keys, db: redis.Redis) -> Iterator[Bench]:
    yield Bench(RedisConfig(redis_url, namespace), keys, db)


@pytest.mark.parametrize("name", list(WORK))
def test_no_command_reads_many_large_jobs(bench: Bench, name: str) -> None:
    large = {bench.keys.queue("q"), bench.keys.inprogress("q", ME), bench.keys.retry}
    found: list[int] = []
    with bench.db.monitor() as monitor:
        WORK[name](bench)
        bench.db.echo("end")
        for about in monitor.listen():
            words = about["command"].split(" ")
            if words[0] == "ECHO":
                break
            if len(words) > 2 and (words[1] in large or "cleared:" in words[1]):
                found += ranges_in(words)
    assert found, "nothing was read"
    assert max(found) <= MOST, found


def test_a_cleared_key_that_is_gone_ends_the_walk(keys: Keys, db: redis.Redis) -> None:
    db.rpush(keys.queue("q"), *(raw_job(f"j{n}") for n in range(50)))
    sent: Counter[str] = Counter()

    def perform(request: Request[Any]) -> Any:
        sent["requests"] += 1
        reply = calls.run(db, request)
        for name in db.keys(keys.own("cleared:*")):
            db.delete(name)
        return reply

    kept = KeptFor("d", "queue:q")
    clearing = removal.Clearing(keys, keys.queue("q"), 1e9, "q", kept)
    assert calls.drive(iter(clearing.rest()), perform) == [50]
    # It removes the name, moves the key, keeps, searches, and deletes the key.
    assert sent["requests"] == 5


def test_the_ends_of_cleared_jobs_are_applied_by_the_hundred(keys: Keys, db: redis.Redis) -> None:
    db.rpush(keys.queue("q"), *(raw_job(f"j{n}", unique_key=f"l{n}", unique_for=600) for n in range(250)))
    apply = load("removal/apply").sha
    locks = []

    def perform(request: Request[Any]) -> Any:
        _, name, *rest = request.commands[0].parts
        if name == apply:
            locks.append(int(rest[0]))
        return calls.run(db, request)

    clearing = removal.Clearing(keys, keys.queue("q"), 1e9, "q")
    assert calls.drive(iter(clearing.rest()), perform) == [250]
    assert locks == [100, 100, 50]
