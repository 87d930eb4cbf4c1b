"""The sweep, step by step: what is gone is released at the second sweep, and what is anywhere stays."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
import redis

from pyworkers import RESULT, RESULTS, Client, JobFailedError, ResultTimeout, Worker, chain, parallel
from pyworkers.config.fields import RedisConfig
from pyworkers.plugins.batches import Batch, new_batch
from pyworkers.protocol.flow.plans import CALLBACKS
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import run
from pyworkers.store.flow import sweep as sweeping
from pyworkers.store.flow.sweep import Swept, begin, end, sweep
from pyworkers.store.transport.connections import connect
from tests.helpers.records import raw_job, register

GHOST = "web:1:aaaaaaaaaaaa"


class Sweeper:
    """Sweeps at once, whoever had the turn last."""

    def __init__(self, where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
        self.keys, self.db = keys, db
        self.connection = connect(where)

    def begin(self) -> str:
        self.db.delete(self.keys.sweep("turn"))
        token = uuid.uuid4().hex[:16]
        assert run(self.connection, begin(self.keys, token)) is None
        return token

    def __call__(self, shares: int = 1, before: Callable[[int], None] = lambda _: None) -> Swept:
        """One sweep; ``before`` is called before each call, with its number."""
        steps = sweep(self.keys, self.begin(), shares)
        try:
            call = next(steps)
            number = 0
            while True:
                before(number)
                call = steps.send(run(self.connection, call))
                number += 1
        except StopIteration as stop:
            found: Swept = stop.value
            return found


class Jobs:
    """Jobs of an application: any member of a batch, and a callback."""

    def __init__(self, where: RedisConfig) -> None:
        self.worker = worker = Worker(where.url, namespace=where.namespace)

        @worker.job(queue="q")
        def member(*args: object) -> None: ...

        @worker.job(queue="after")
        def after() -> None: ...

        self.member, self.after = member, after

    def batch(self, members: int = 1) -> Batch:
        """A new batch with this many members, and the callback ``after``."""
        with self.worker.batch(on_complete=self.after.call()) as batch:
            for _ in range(members):
                self.member.enqueue()
        return batch


@pytest.fixture
def jobs(where: RedisConfig) -> Jobs:
    return Jobs(where)


@pytest.fixture
def sweeper(where: RedisConfig, keys: Keys, db: redis.Redis) -> Iterator[Sweeper]:
    made = Sweeper(where, keys, db)
    yield made
    made.connection.close()


@pytest.fixture
def client(where: RedisConfig) -> Iterator[Client]:
    with Client(where.url, namespace=where.namespace) as made:
        yield made


def lock_of(db: redis.Redis, keys: Keys, jid: str) -> Any:
    """The name of the lock that a job holds, None if it holds none."""
    return next((name for name in db.scan_iter(keys.unique("*")) if db.get(name) == jid.encode()), None)


def locked(client: Client, number: int = 1, queue: str = "q", **options: Any) -> list[str]:
    rows = [[n] for n in range(number)]
    return list(client.enqueue_bulk(queue, "Add", rows, unique_for=3600, **options))


def test_a_lock_of_a_deleted_job_is_released_by_the_second_sweep(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis
) -> None:
    gone, stays = locked(client, 2)
    waiting: Any = db.lrange(keys.queue("q"), 0, -1)
    db.lrem(keys.queue("q"), 1, next(raw for raw in waiting if gone.encode() in raw))
    assert sweeper() == Swept(2)
    assert lock_of(db, keys, gone)
    assert sweeper() == Swept(2, locks=1)
    assert lock_of(db, keys, gone) is None and lock_of(db, keys, stays)
    assert sweeper() == Swept(1)


def test_a_batch_whose_last_member_an_old_server_has_counted_is_concluded(
    sweeper: Sweeper, keys: Keys, db: redis.Redis
) -> None:
    # A server of this version and one with flow 1 have counted one member each: for that one, they never add
    # up.
    db.zadd(keys.batches, {"b": 5.0, "other": 5.0})
    db.hset(keys.batch("b"), mapping={"open": 0, "total": 2, "done": 1, "dropped": 1})
    db.set(keys.batch("other"), "of the wrong type")
    sweeper()
    assert db.hget(keys.batch("b"), "complete_at")
    assert not db.hget(keys.batch("b"), "success_at")


def put(db: redis.Redis, keys: Keys, place: str, raw: bytes) -> None:
    match place:
        case "schedule" | "retry" | "goretry":
            db.zadd(getattr(keys, place), {raw: 5.0})
        case "queue":
            db.sadd(keys.queues, "q")
            db.lpush(keys.queue("q"), raw)
        case "a queue that only its server knows":
            db.hset(keys.owners, GHOST, '["bare"]')
            db.lpush(keys.queue("bare"), raw)
        case "in progress":
            db.hset(keys.owners, GHOST, '["q"]')
            db.lpush(keys.inprogress("q", GHOST), raw)
        case "go-workers":
            db.lpush(keys.queue("q:worker1:inprogress"), raw)
        case "sidekiq" | "sidekiq 6":
            register(db, keys, "ruby:1:a", {"queues": ["q"]})
            name = keys.work("ruby:1:a") if place == "sidekiq" else keys.workers("ruby:1:a")
            db.hset(name, "t1", json.dumps({"queue": "q", "payload": raw.decode(), "run_at": 5}))
        case "sidekiq 5":
            register(db, keys, "ruby:1:a", {"queues": ["q"]})
            db.hset(keys.workers("ruby:1:a"), "t1", json.dumps({"payload": json.loads(raw)}))
        case "after a group":
            db.zadd(keys.batches, {"b": 5.0})
            db.rpush(keys.batch("b") + ":then", b"q " + raw)
        case "on_success" | "on_complete" | "on_death" | "on_cancel":
            db.zadd(keys.batches, {"b": 5.0})
            db.hset(keys.batch("b"), place, b"q " + raw)
        case "parked by a move":
            db.hset(keys.moves, "q", "0123 1 archive")
            db.rpush(keys.moving("q"), b"queue 0 " + raw)
        case "in the step before":
            put(db, keys, "queue", raw_job("first", then=[[json.loads(raw)]]))


@pytest.mark.parametrize(
    "place",
    [
        "schedule", "retry", "goretry", "queue", "a queue that only its server knows",
        "in progress", "go-workers", "sidekiq", "sidekiq 6", "sidekiq 5", "after a group",
        "parked by a move", "in the step before", *CALLBACKS,
    ],
)  # fmt: skip
def test_a_job_that_is_somewhere_keeps_its_lock(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis, place: str
) -> None:
    [jid] = locked(client)
    waiting: Any = db.lrange(keys.queue("q"), 0, -1)
    db.delete(keys.queue("q"), keys.queues)
    put(db, keys, place, waiting[0])
    assert [sweeper(), sweeper(), sweeper()] == [Swept(1)] * 3
    assert lock_of(db, keys, jid)


@pytest.mark.parametrize(
    "text",
    [
        '{{"jid" : "{jid}"}}',
        '{{\n"jid"\t:\n"{jid}", "args": []}}',
        '{{"\\u006aid":"{jid}"}}',
        '{{"jid":"\\u{code:04x}{rest}","args":["\\\\"]}}',
        '{{"args":[{{"jid":"other"}}],"jid":"{jid}"}}',
        '{{"jid":"{jid}","args":["é",1e3]}} \t',
        '{{"args":[{{"a":"\\u00e9"}}], "jid":"{jid}", "broken"',
    ],
)
def test_the_id_is_found_however_another_program_writes_it(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis, text: str
) -> None:
    [jid] = locked(client)
    db.delete(keys.queue("q"))
    db.lpush(keys.queue("q"), text.format(jid=jid, code=ord(jid[0]), rest=jid[1:]))
    assert [sweeper(), sweeper()] == [Swept(1)] * 2


def test_an_odd_id_is_found(sweeper: Sweeper, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "q")
    for number, jid in enumerate(['a"b', "a\\b", "a/b", "é", "\x00", "x" * 5000]):
        db.set(keys.unique(str(number)), jid)
        db.sadd(keys.locks, f"unique:{number}")
        db.lpush(keys.queue("q"), raw_job(jid), json.dumps({"jid": jid}, ensure_ascii=False))
    assert [sweeper(), sweeper()] == [Swept(6)] * 2


def test_nothing_held_costs_one_call_and_reads_no_job(
    where: RedisConfig, client: Client, keys: Keys, db: redis.Redis
) -> None:
    client.enqueue("q", "Add")
    with connect(where) as connection:
        assert run(connection, begin(keys, "1")) == 0.0
    assert not db.exists(keys.sweep("turn"))


def test_only_what_may_be_checked_is_noted(client: Client, keys: Keys, db: redis.Redis) -> None:
    locked(client, unique_until="expiry")
    client.enqueue("q", "Add")
    assert not db.exists(keys.locks)
    locked(client)
    locked(client)
    assert db.scard(keys.locks) == 1


def test_a_released_lock_is_forgotten(sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis) -> None:
    [jid] = locked(client)
    db.delete(lock_of(db, keys, jid), keys.queue("q"))
    assert sweeper() == Swept(0)
    assert not db.exists(keys.locks)


def test_one_sweep_at_a_time(where: RedisConfig, client: Client, keys: Keys, db: redis.Redis) -> None:
    locked(client)
    with connect(where) as connection:
        assert run(connection, begin(keys, "1")) is None
        left = run(connection, begin(keys, "2"))
        assert left is not None and 0 < left <= sweeping.LIFE_S
        run(connection, end(keys, "2", 1000.0))
        assert db.get(keys.sweep("turn")) == b"1"
        run(connection, end(keys, "1", 1000.0))
        assert db.pttl(keys.sweep("turn")) > 100_000


def test_a_sweep_that_lost_its_turn_changes_nothing(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis
) -> None:
    """It was stopped for so long that another one has begun."""
    [jid] = locked(client)
    db.delete(keys.queue("q"))
    sweeper()
    for number in range(60):

        def steal(at: int, number: int = number) -> None:
            if at == number:
                db.set(keys.sweep("turn"), "another")

        before = db.hgetall(keys.sweep("missing"))
        found = sweeper(before=steal)
        if db.get(keys.sweep("turn")) != b"another":
            break
        assert found == Swept(0) and lock_of(db, keys, jid)
        assert db.hgetall(keys.sweep("missing")) == before
    assert number > 5 and lock_of(db, keys, jid) is None


@pytest.mark.fault("D3")
def test_jobs_that_move_while_a_long_queue_is_read_keep_their_locks(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis
) -> None:
    """Jobs before the reader are deleted, others are pushed and taken: no page misses the next job."""
    live = set(locked(client, 6000))
    plain: list[Any] = [raw_job(f"plain{n}") for n in range(3000)]
    db.lpush(keys.queue("q"), *plain)

    def disturb(number: int) -> None:
        if number % 3 == 0:
            for _ in range(40):
                db.lrem(keys.queue("q"), 1, plain.pop())
        if number % 3 == 1:
            db.lpush(keys.queue("q"), *(raw_job(f"new{number}-{n}") for n in range(250)))
        if number % 3 == 2:
            taken: Any = db.rpop(keys.queue("q"), 20)
            for raw in taken:
                live.discard(json.loads(raw)["jid"])
                db.delete(lock(raw))

    def lock(raw: Any) -> str:
        return keys.unique(json.loads(raw).get("unique_key", "none"))

    for _ in range(2):
        held = len(live)
        found = sweeper(before=disturb)
        assert found.locks == 0 and found.held <= held
        assert db.hlen(keys.sweep("missing")) <= 20 * 20
    waiting: Any = db.lrange(keys.queue("q"), 0, -1)
    assert all(db.exists(lock(raw)) for raw in waiting if b"unique_key" in raw)
    assert {json.loads(raw)["jid"] for raw in waiting if b"unique_key" in raw} == live


def test_a_job_that_appears_before_the_release_is_kept(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis
) -> None:
    """Two sweeps missed it, each time between two places."""
    [jid] = locked(client)
    db.delete(keys.queue("q"))
    sweeper()
    seen: list[int] = []
    sweeper(before=seen.append)
    # Once more, with the job back before the last call, which releases.
    [again] = locked(client)
    [raw] = db.lrange(keys.queue("q"), 0, -1)
    db.delete(keys.queue("q"))
    sweeper()

    def push_again(number: int) -> None:
        if number == seen[-1]:
            db.lpush(keys.queue("q"), raw)

    sweeper(before=push_again)
    assert lock_of(db, keys, again)
    assert lock_of(db, keys, jid) is None


def test_of_many_jobs_each_sweep_looks_for_a_share(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "MOST", 100)
    locked(client, 300)
    db.delete(keys.queue("q"))
    assert sweeper() == Swept(300)
    assert db.hlen(keys.sweep("missing")) == 100
    while (held := db.scard(keys.locks)) > 0:
        sweeper(shares=1 + held // 100)
        assert db.hlen(keys.sweep("missing")) <= 200


def test_many_members_are_counted_out(sweeper: Sweeper, jobs: Jobs, keys: Keys, db: redis.Redis) -> None:
    batch = jobs.batch(2500)
    last: Any = db.rpop(keys.queue("q"))
    db.delete(keys.queue("q"))
    db.hset(keys.owners, GHOST, '["q"]')
    db.lpush(keys.inprogress("q", GHOST), last)
    assert sweeper() == Swept(2500)
    assert sweeper() == Swept(2500, members=2499)
    assert (batch.status().total, batch.status().pending, batch.status().missing) == (2500, 1, 2499)
    assert not db.exists(keys.queue("after"))
    db.delete(keys.inprogress("q", GHOST))
    sweeper()
    assert sweeper() == Swept(1, members=1)
    assert (batch.status().missing, batch.status().state) == (2500, "dead")
    assert db.llen(keys.queue("after")) == 1
    assert sweeper() == Swept(0)


def kill(db: redis.Redis, keys: Keys, source: str, age_s: float = 0.0, **fields: Any) -> list[dict[str, Any]]:
    """Move all jobs to ``dead`` as Sidekiq does: its Kill, or with more fields the end of a job in Ruby."""
    kind = db.type(source)
    stored: Any = db.lrange(source, 0, -1) if kind == b"list" else db.zrange(source, 0, -1)
    db.delete(source)
    jobs = [json.loads(raw) | fields for raw in stored]
    db.zadd(keys.dead, {json.dumps(job): time.time() - age_s for job in jobs})
    return jobs


@pytest.mark.fault("D4")
def test_what_another_program_moves_to_dead_ends_as_dead(
    sweeper: Sweeper, where: RedisConfig, client: Client, keys: Keys, db: redis.Redis
) -> None:
    worker = Worker(where.url, namespace=where.namespace)

    @worker.job(queue="q", unique_for=3600, track=60, history=True)
    def member(number: int) -> None: ...

    @worker.job(queue="after")
    def after() -> None: ...

    with worker.batch(on_death=after.call(), on_success=after.call()) as batch:
        member.enqueue(1)
        member.enqueue_in(600, 2)
    failed: dict[str, Any] = {"error_class": "ArgumentError", "error_message": "é", "retry_count": 2}
    jobs = [
        *kill(db, keys, keys.queue("q"), **failed, checkpoint=1, cron={"name": "c", "slot": 60}),
        *kill(db, keys, keys.schedule),
    ]
    db.hset(keys.iteration(jobs[0]["jid"]), "c", "5")
    db.hset(keys.cron_runs("c"), f"60 {jobs[0]['jid']}", '{"state":"waiting"}')
    assert sweeper().dead == 2
    assert not any(lock_of(db, keys, job["jid"]) for job in jobs)
    status = batch.status()
    assert (status.state, status.dead, status.pending) == ("dead", 2, 0)
    assert db.llen(keys.queue("after")) == 1
    first = worker.status(jobs[0]["jid"])
    assert (first.state.value, first.attempt, first.error) == ("dead", 3, "ArgumentError: é")
    assert first.finished_at == pytest.approx(time.time(), abs=60)
    with pytest.raises(JobFailedError, match="ArgumentError"):
        worker.result(jobs[0]["jid"])
    with pytest.raises(JobFailedError):
        worker.result(jobs[1]["jid"])
    assert not db.exists(keys.iteration(jobs[0]["jid"]))
    run: Any = db.hget(keys.cron_runs("c"), f"60 {jobs[0]['jid']}")
    assert json.loads(run)["state"] == "dead"
    # Nothing is written again.
    db.expire(keys.job(jobs[0]["jid"]), 5)
    assert sweeper().dead == 0
    assert db.ttl(keys.job(jobs[0]["jid"])) <= 5


@pytest.mark.parametrize(
    ("fields", "settled"),
    [
        ({"track": 60}, 1),
        ({"track": "odd"}, 1),
        # Its status has expired.
        ({"track": 5}, 0),
        ({"track": None}, 0),
        ({"track": [], "batch": "none", "unique_key": {}, "cron": "x", "checkpoint": []}, 0),
        ({"unique_key": "k", "unique_until": "expiry"}, 0),
        ({"unique_key": "k"}, 1),
        ({"unique_key": "of another"}, 0),
        ({"batch": "wrong", "unique_key": "k", "history": "\ud800"}, 0),
    ],
)
def test_a_dead_job_of_another_program_is_settled_if_something_waits_for_it(
    sweeper: Sweeper, keys: Keys, db: redis.Redis, fields: dict[str, Any], settled: int
) -> None:
    db.set(keys.unique("k"), "a")
    db.set(keys.unique("of another"), "b")
    db.set(keys.batch("wrong"), "text")
    db.lpush(keys.queue("q"), raw_job("a", **fields))
    kill(db, keys, keys.queue("q"), age_s=30)
    db.zadd(keys.dead, {"no json": 5, '{"jid":5,"track":1}': 6, "[]": 7})
    swept = sweeper()
    assert (swept.dead, swept.errors) == (settled, ())
    assert sweeper().dead == 0


@pytest.mark.parametrize(
    "args", [b"[" * 700 + b"]" * 700, b"[" + b"9" * 4301 + b"]", b'["\xff"]'], ids=["deep", "digits", "bytes"]
)
def test_a_dead_job_whose_arguments_no_server_reads_is_settled(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis, args: bytes
) -> None:
    with new_batch(client, "") as batch:
        client.enqueue("q", "Add", ["here"], unique_for=3600, track=60)
    [raw] = cast(list[bytes], db.lrange(keys.queue("q"), 0, -1))
    db.delete(keys.queue("q"))
    db.zadd(keys.dead, {raw.replace(b'["here"]', args): time.time()})
    assert sweeper().dead == 1
    assert (batch.status().state, batch.status().dead) == ("dead", 1)
    jid = json.loads(raw)["jid"]
    assert client.status(jid).state.value == "dead"
    assert not lock_of(db, keys, jid)


def test_a_job_that_is_retried_by_hand_meanwhile_stays_as_it_is(
    sweeper: Sweeper, client: Client, keys: Keys, db: redis.Redis
) -> None:
    [jid] = locked(client)
    [job] = kill(db, keys, keys.queue("q"))

    def retry(number: int) -> None:
        if number == 1:
            db.delete(keys.dead)
            db.lpush(keys.queue("q"), json.dumps(job))

    assert sweeper(before=retry) == Swept(1)
    assert lock_of(db, keys, jid)


@pytest.mark.parametrize("clock", [1.0, 1e11], ids=["behind", "ahead"])
def test_a_wait_for_a_job_that_is_nowhere_ends(
    sweeper: Sweeper,
    where: RedisConfig,
    keys: Keys,
    db: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    clock: float,
) -> None:
    """Another program has run it, or deleted it; whatever the clock of the program says that waits."""
    worker = Worker(where.url, namespace=where.namespace)

    @worker.job(queue="q", track=60)
    def job() -> None: ...

    with worker.batch() as batch:
        job.enqueue()
    gone, stays, ended = job.enqueue(), job.enqueue(), job.enqueue()
    foreign = "f" * 24
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: clock)
        for jid in (gone, stays, ended, batch.id):
            with pytest.raises(ResultTimeout):
                worker.result(jid, timeout=0)
    assert db.zcard(keys.awaited) == 4
    db.zadd(keys.awaited, {foreign: time.time(), "asked long ago": time.time() - 3600})
    db.hset(keys.job(ended), "state", "done")
    waiting: Any = db.lrange(keys.queue("q"), 0, -1)
    db.delete(keys.queue("q"))
    db.lpush(keys.queue("q"), *(raw for raw in waiting if gone.encode() not in raw))
    assert sweeper().tracked == 0
    assert sweeper().tracked == 2
    for jid in (gone, foreign):
        with pytest.raises(JobFailedError, match="another program has run or deleted it") as caught:
            worker.result(jid, timeout=0)
        assert caught.value.state == "unknown"
    assert (worker.status(gone).state.value, worker.status(stays).state.value) == ("unknown", "waiting")
    assert sweeper().tracked == 0
    assert set(db.zrange(keys.awaited, 0, -1)) == {stays.encode()}


@pytest.mark.parametrize("kinds", ["chain chain", "chain group", "group chain", "group group"])
@pytest.mark.parametrize("missing", ["fail", "ignore"])
def test_the_jobs_of_the_first_batch_of_a_chain_are_missed(
    sweeper: Sweeper, jobs: Jobs, keys: Keys, db: redis.Redis, kinds: str, missing: Any
) -> None:
    """What the sweep must not take for a step before that batch: a job that is in a batch after it."""
    step = jobs.member
    first, second = (
        parallel([step.call(), step.call()], missing=missing) if kind == "group" else chain(step.call())
        for kind in kinds.split()
    )
    of_second = RESULTS if kinds.endswith("group") else RESULT
    chain(first, second, step.call(of_second), on_complete=jobs.after.call()).enqueue()
    first_jobs = db.llen(keys.queue("q"))
    db.delete(keys.queue("q"))
    sweeper()
    assert sweeper().members == first_jobs
    goes_on = missing == "ignore" and kinds.startswith("group")
    assert (db.llen(keys.queue("q")) > 0) == goes_on, "the second batch begins"
    assert db.llen(keys.queue("after")) == (not goes_on), "or all has ended"


def test_a_chain_to_which_members_are_added_goes_on_after_a_deleted_job(
    sweeper: Sweeper, jobs: Jobs, keys: Keys, db: redis.Redis
) -> None:
    step = jobs.member
    both = parallel([step.call(), step.call()], missing="ignore")
    run = chain(both, step.call(RESULTS)).enqueue()
    db.sadd(keys.batch(run.id) + ":members", "hold:other")
    db.hincrby(keys.batch(run.id), "open", 1)
    db.delete(keys.queue("q"))
    sweeper()
    assert sweeper().members == 2
    assert db.llen(keys.queue("q")) == 1, "the next step begins"


def test_batches_around_each_other_end_the_sweep(
    sweeper: Sweeper, jobs: Jobs, keys: Keys, db: redis.Redis
) -> None:
    made = [jobs.batch() for _ in range(2)]
    for inner, outer in (made, made[::-1]):
        db.hset(keys.batch(inner.id), "parent", f" {outer.id}")
    db.delete(keys.queue("q"))
    sweeper()
    assert sweeper().members == 2
    assert [batch.status().state for batch in made] == ["dead", "dead"]


def test_keys_of_the_wrong_type_disturb_no_other_batch(
    sweeper: Sweeper, jobs: Jobs, keys: Keys, db: redis.Redis
) -> None:
    made = [jobs.batch() for _ in range(3)]
    db.zadd(keys.batches, {"odd": 5.0})
    db.zadd(keys.batches, {b"\xff": 5.0})
    db.set(keys.batch("odd"), "text")
    db.delete(keys.batch(made[0].id) + ":failed", keys.queue("q"))
    db.set(keys.batch(made[0].id) + ":failed", "text")
    db.set(keys.retry, "text")
    db.sadd(keys.locks, "unique:set")
    db.sadd(keys.unique("set"), "x")
    db.hset(keys.owners, "odd", "no json")
    db.hset(keys.owners, "odd2", '{"a": 5}')
    sweeper()
    assert sweeper().members == 2
    assert db.llen(keys.queue("after")) == 2
