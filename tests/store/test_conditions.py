"""Conditions of a push against real servers: what is pushed, what is refused, and the locks that stay."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyworkers import AsyncClient, Client
from pyworkers.errors import BatchError, DuplicateJobError, QueueFullError, StoreError
from pyworkers.protocol.conditions import Conditions, OnDuplicate, Others, UniqueLock
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import Unlock
from pyworkers.protocol.flow.admission import Admission
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.keys import Keys
from pyworkers.store import scripts
from pyworkers.store.acl import Role
from pyworkers.store.flow.conditions import pushing
from pyworkers.store.flow.removal import ends as removal_ends
from pyworkers.store.flow.removal import written
from pyworkers.store.wiresteps import Sent
from tests.helpers.acl import url_of
from tests.helpers.support import PATIENCE_S, wait_for

Push = Callable[..., Others]
SOON = time.time() + 86_400
in_both_forms = pytest.mark.parametrize("push", ["blocking", "asyncio"], indirect=True)
"""The steps of a push are the same in both clients, and what drives them is not."""


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as connection:
        yield connection


@pytest.fixture
def push(request: pytest.FixtureRequest, redis_url: str, namespace: str) -> Push:
    """Push jobs with the rights of a client, over a new connection each time."""
    url = url_of(redis_url, Role.CLIENT, namespace)

    def blocking(*jobs: PushedJob) -> Others:
        with Client(url, namespace=namespace) as client:
            return client.push(list(jobs))

    async def in_loop(jobs: list[PushedJob]) -> Others:
        async with AsyncClient(url, namespace=namespace) as client:
            return await client.push(jobs)

    form = getattr(request, "param", "blocking")
    return blocking if form == "blocking" else lambda *jobs: asyncio.run(in_loop(list(jobs)))


def job(
    jid: str, conditions: Conditions | None = None, at: float | None = None, queue: str = "q"
) -> PushedJob:
    return PushedJob(queue, json.dumps({"class": "C", "args": [], "jid": jid}).encode(), jid, at, conditions)


def locked(
    jid: str, name: str = "k", on_duplicate: OnDuplicate = "skip", at: float | None = None, **conditions: Any
) -> PushedJob:
    return job(jid, Conditions(UniqueLock(f"unique:{name}", 60, on_duplicate), **conditions), at)


def waiting(server: Any, keys: Keys, queue: str = "q") -> list[str]:
    """The jids in the order in which they are popped."""
    return [json.loads(raw)["jid"] for raw in reversed(server.lrange(keys.queue(queue), 0, -1))]


def scheduled(server: Any, keys: Keys) -> dict[str, float]:
    found = server.zrange(keys.schedule, 0, -1, withscores=True)
    return {json.loads(raw)["jid"]: score for raw, score in found}


@in_both_forms
def test_a_lock_is_held_by_the_first_job(push: Push, server: redis.Redis, keys: Keys) -> None:
    assert push(locked("a")) == {}
    assert push(locked("b")) == {"b": "a"}
    assert push(locked("c", "other")) == {}
    assert waiting(server, keys) == ["a", "c"]
    assert server.get(keys.unique("k")) == b"a"
    assert 50_000 < server.pttl(keys.unique("k")) <= 60_000
    assert server.smembers(keys.queues) == {b"q"}


def test_jobs_of_one_push_keep_their_order_and_may_be_duplicates(
    push: Push, server: redis.Redis, keys: Keys
) -> None:
    jobs = [locked("a"), job("b"), locked("c"), job("d", queue="r"), locked("e", "z", at=SOON), job("f")]
    assert push(*jobs) == {"c": "a"}
    assert (waiting(server, keys), waiting(server, keys, "r")) == (["a", "b", "f"], ["d"])
    assert scheduled(server, keys) == {"e": SOON}
    assert server.smembers(keys.queues) == {b"q", b"r"}


@in_both_forms
@pytest.mark.parametrize("held_before", [True, False])
def test_a_duplicate_that_raises_refuses_the_whole_push(
    push: Push, server: redis.Redis, keys: Keys, held_before: bool
) -> None:
    first = locked("a")
    if held_before:
        push(first)
    jobs = [job("x"), *([] if held_before else [first]), locked("b", on_duplicate="raise"), job("y")]
    with pytest.raises(DuplicateJobError, match="the same job is enqueued already, with the id a") as caught:
        push(*jobs)
    assert caught.value.jid == "a"
    assert waiting(server, keys) == (["a"] if held_before else [])
    assert bool(server.exists(keys.unique("k"))) == held_before


def test_the_same_job_pushed_again_is_there_already(push: Push, server: redis.Redis, keys: Keys) -> None:
    """As after a lost reply, when its caller gives its jid again."""
    modes: tuple[OnDuplicate, ...] = ("skip", "raise", "replace")
    for mode in modes:
        assert push(locked("a", on_duplicate=mode)) == ({} if mode == "skip" else {"a": "a"})
    assert waiting(server, keys) == ["a"]


def test_a_scheduled_job_is_replaced_and_hands_its_lock_over(
    push: Push, server: redis.Redis, keys: Keys
) -> None:
    push(locked("a", on_duplicate="replace", at=SOON), job("other", at=SOON))
    assert push(locked("b", on_duplicate="replace", at=SOON + 5)) == {}
    assert scheduled(server, keys) == {"other": SOON, "b": SOON + 5}
    assert server.get(keys.unique("k")) == b"b"
    assert push(locked("c", on_duplicate="replace")) == {}
    assert (scheduled(server, keys), waiting(server, keys)) == ({"other": SOON}, ["c"])
    assert push(locked("d", on_duplicate="replace", at=SOON)) == {"d": "c"}
    assert server.get(keys.unique("k")) == b"c"


def test_of_replacements_in_one_push_the_last_stays(push: Push, server: redis.Redis, keys: Keys) -> None:
    push(locked("old", on_duplicate="replace", at=SOON))
    several = [locked(jid, on_duplicate="replace", at=SOON + 1) for jid in "abc"]
    assert push(*several, locked("d", on_duplicate="skip", at=SOON)) == {"d": "c"}
    assert scheduled(server, keys) == {"c": SOON + 1}
    assert server.get(keys.unique("k")) == b"c"


@pytest.mark.parametrize("score", [None, b"soon", b"17"])
def test_a_scheduled_job_that_is_not_found_stays(
    push: Push, server: redis.Redis, keys: Keys, score: bytes | None
) -> None:
    push(locked("a", on_duplicate="replace", at=SOON))
    at_key = keys.unique("k:at")
    assert float(server.get(at_key) or 0) == SOON
    server.set(at_key, score) if score else server.delete(at_key)
    assert push(locked("b", on_duplicate="replace", at=SOON)) == {"b": "a"}
    assert scheduled(server, keys) == {"a": SOON}


def test_a_job_that_only_names_the_holder_is_not_replaced(
    push: Push, server: redis.Redis, keys: Keys
) -> None:
    push(locked("a", on_duplicate="replace", at=SOON))
    server.delete(keys.schedule)
    nested = json.dumps({"class": "C", "args": [{"jid": "a"}], "jid": "n"})
    server.zadd(keys.schedule, {nested: SOON, "no job, but a": SOON})
    assert push(locked("b", on_duplicate="replace", at=SOON)) == {"b": "a"}
    assert server.zcard(keys.schedule) == 2


def test_a_full_queue_refuses_the_whole_push(push: Push, server: redis.Redis, keys: Keys) -> None:
    two = Conditions(max_waiting=2)
    push(job("a", two))
    with pytest.raises(QueueFullError, match="the queue 'q' is full: max_waiting is 2") as caught:
        push(job("x", queue="r"), job("b", two), job("c", two))
    assert (caught.value.queue, caught.value.limit) == ("q", 2)
    assert waiting(server, keys) == ["a"]
    # Neither a job for later nor a duplicate waits in the queue.
    push(locked("b", max_waiting=2), job("later", two, SOON), locked("c", max_waiting=2))
    assert waiting(server, keys) == ["a", "b"]
    assert push(locked("d", max_waiting=2)) == {"d": "b"}
    push(job("without a limit"), job("a large limit", Conditions(max_waiting=10**20)))
    assert len(waiting(server, keys)) == 4


@in_both_forms
def test_a_push_waits_for_room(push: Push, server: redis.Redis, keys: Keys) -> None:
    push(job("a"))
    popped = threading.Timer(0.2, lambda: server.rpop(keys.queue("q")))
    popped.start()
    push(job("b", Conditions(max_waiting=1, wait_s=PATIENCE_S)))
    assert waiting(server, keys) == ["b"]
    began = time.monotonic()
    with pytest.raises(QueueFullError):
        push(job("c", Conditions(max_waiting=1, wait_s=0.3)))
    assert time.monotonic() - began >= 0.3


def test_a_push_that_waits_sends_its_jobs_again_when_there_is_room(keys: Keys) -> None:
    jobs = [job(name, Conditions(max_waiting=3, wait_s=60)) for name in "abc"]
    steps = pushing(keys, jobs)
    calls: list[str] = []
    replies: list[Any] = [[b"full", 2, 1], None, 5, None, 2, None, 1, [b"full", 1, 2], None, 2]
    with pytest.raises(StopIteration) as end:
        step = next(steps)
        for reply in [*replies, [b"pushed", b"", b"", b""]]:
            is_sent = isinstance(step, Sent)
            calls.append(
                ("LLEN" if b"LLEN" in step.packed else "push") if isinstance(step, Sent) else "pause"
            )
            step = steps.send([reply] if is_sent else reply)
    assert end.value.value == {}
    assert calls == ["push", *["pause", "LLEN"] * 3, "push", "pause", "LLEN", "push"]


def test_a_push_that_needs_more_room_than_the_limit_does_not_wait(
    push: Push, server: redis.Redis, keys: Keys
) -> None:
    push(job("first"))
    began = time.monotonic()
    with pytest.raises(QueueFullError):
        push(*(job(name, Conditions(max_waiting=2, wait_s=PATIENCE_S)) for name in "abc"))
    assert time.monotonic() - began < PATIENCE_S / 2
    assert waiting(server, keys) == ["first"]


def test_a_status_is_written_with_the_jobs_that_are_pushed(
    push: Push, server: redis.Redis, keys: Keys
) -> None:
    assert push(locked("a", status_s=60, history=True), locked("b", status_s=60)) == {"b": "a"}
    entered = {b"state": b"waiting", b"queue": b"q", b"attempt": b"0", b"job": locked("a").payload}
    assert (server.hgetall(keys.job("a")), server.hgetall(keys.job("b"))) == (entered, {})
    assert 0 < server.ttl(keys.job("a")) <= 60
    push(job("c", Conditions(status_s=60), SOON))
    assert server.hget(keys.job("c"), "state") == b"scheduled"
    server.set(keys.job("e"), "x")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        push(job("d"), job("e", Conditions(status_s=60)))
    assert waiting(server, keys) == ["a"]


def test_a_member_is_counted_with_its_push(push: Push, server: redis.Redis, keys: Keys) -> None:
    for batch in ("b", "ended"):
        server.hset(keys.batch(batch), mapping={"open": 0, "total": 0, "done": 0})
    server.hset(keys.batch("ended"), "success_at", 1)
    push(locked("a", batch="b"), job("c", Conditions(batch="b")), locked("d", batch="b"))
    assert server.smembers(keys.batch("b") + ":members") == {b"a", b"c"}
    assert server.hget(keys.batch("b"), "total") == b"2"
    for batch in ("ended", "unknown"):
        with pytest.raises(BatchError, match=f"the batch {batch} (is unknown|has ended)"):
            push(job("x"), job("y", Conditions(batch=batch)))
    assert waiting(server, keys) == ["a", "c"]


def test_jobs_that_may_be_replaced_are_spread_over_a_millisecond(
    push: Push, server: redis.Redis, keys: Keys
) -> None:
    names = [f"C|q|{hashlib.sha256(b'%d' % n).hexdigest()[:32]}{'|expiry' * (n % 2)}" for n in range(100)]
    push(*(locked(f"j{n}", name, "replace", SOON) for n, name in enumerate(names)))
    scores = scheduled(server, keys)
    assert all(SOON <= score < SOON + 0.001 for score in scores.values())
    assert len(set(scores.values())) > 80
    assert push(locked("new", names[0], "replace", SOON)) == {}
    assert scheduled(server, keys)["new"] == scores["j0"]


@pytest.mark.parametrize("ending", [Ending.REPLACED, Ending.CANCELLED])
@pytest.mark.parametrize(
    "fields",
    [
        {"track": 60},
        {"track": True, "retry_count": 2, "queue": "q"},
        {"track": "soon", "checkpoint": True},
        {"track": 0, "batch": "b"},
        {"track": 1.5, "batch": "b", "batch_index": 0, "queue": "q"},
        {"cron": {"name": "nightly", "slot": 60}},
        {"track": [], "cron": {"name": 7}, "batch": 7, "checkpoint": None},
        {"unique_key": "held"},
        {"unique_key": "held", "unique_until": "expiry"},
        {"unique_key": "of another", "unique_until": "start"},
    ],
)
def test_the_end_of_a_waiting_job_in_a_script_is_that_of_the_rules(
    one_redis_url: str, namespace: str, fields: dict[str, Any], ending: Ending
) -> None:
    """The scripts end the job by themselves, so that each producer needs one round trip."""
    ends = []
    with redis.Redis.from_url(one_redis_url) as server:
        for by_script in (True, False):
            keys = Keys(f"{namespace}{by_script}:")
            raw = json.dumps({"class": "C", "args": [], "jid": "old", **fields}).encode()
            server.hset(keys.batch("b"), mapping={"open": 0, "total": 2, "done": 0})
            server.sadd(keys.batch("b") + ":members", "old", "other")
            server.hset(keys.iteration("old"), "c", "1")
            server.mset({keys.unique("held"): "old", keys.unique("of another"): "other"})
            if not by_script:
                names, args = written(keys, removal_ends([raw], ending, time.time()))
                text = scripts.load("removal/apply").text
                server.eval(text, len(names), *names, *args, keys.namespace)
            elif ending is Ending.REPLACED:
                with Client(one_redis_url, namespace=keys.namespace) as client:
                    old = PushedJob("q", raw, "old", SOON, Conditions(UniqueLock("unique:k", 60, "replace")))
                    client.push([old])
                    client.push([locked("new", on_duplicate="replace")])
            else:
                server.zadd(keys.schedule, {raw: SOON})
                assert cancelled(server, keys, "old") == b"removed"
            ends.append(contents(server, keys))
    assert ends[0] == ends[1]


def cancelled(server: Any, keys: Keys, jid: str) -> bytes:
    """The answer of the script that cancels a job, after all of its calls."""
    place = b""
    while True:
        names = (keys.cancelled, keys.schedule, keys.retry, keys.queues)
        text = scripts.load("cancel").text
        word, *rest = server.eval(text, 4, *names, jid, place, "2026-11-28", keys.namespace)
        if word != b"searching":
            return bytes(word)
        [place] = rest


def contents(server: Any, keys: Keys) -> dict[str, Any]:
    """What ends of jobs change, without the times."""
    found: dict[str, Any] = {"members": server.smembers(keys.batch("b") + ":members")}
    batch = server.hgetall(keys.batch("b"))
    found["batch"] = {name: value for name, value in batch.items() if not name.endswith(b"_at")}
    found["status"] = server.hgetall(keys.job("old"))
    found["status"].pop(b"finished_at", None)
    found["ttls"] = [server.ttl(keys.job("old")), server.ttl(keys.result("old"))]
    found["answers"] = [fields for _, fields in server.xrange(keys.result("old"))]
    found["saved"] = server.exists(keys.iteration("old"))
    found["locks"] = server.mget(keys.unique("held"), keys.unique("of another"))
    runs = server.hgetall(keys.cron_runs("nightly"))
    found["runs"] = {name: {**json.loads(facts), "finished_at": ""} for name, facts in runs.items()}
    return found


@pytest.mark.parametrize("wrong", ["queue", "queues", "schedule", "lock"])
def test_a_key_of_another_type_refuses_the_whole_push(
    push: Push, server: redis.Redis, keys: Keys, wrong: str
) -> None:
    key = {
        "queue": keys.queue("q"),
        "queues": keys.queues,
        "schedule": keys.schedule,
        "lock": keys.unique("k"),
    }[wrong]
    server.hset(key, "f", 1)
    with pytest.raises(StoreError, match="WRONGTYPE"):
        push(job("x", queue="r"), locked("a"), job("b", at=SOON))
    assert server.keys(f"{keys.namespace}*") == [key.encode()]


def test_a_thousand_jobs_are_one_round_trip(push: Push, server: redis.Redis, keys: Keys) -> None:
    jobs = [locked(f"j{n}", f"k{n % 900}", max_waiting=900) for n in range(1000)]
    assert push(*jobs) == {f"j{n}": f"j{n - 900}" for n in range(900, 1000)}
    assert waiting(server, keys) == [f"j{n}" for n in range(900)]


class Sut:
    """One Redis and the model, which get the same pushes."""

    def __init__(self, client: Client, server: Any, keys: Keys) -> None:
        self.client, self.server, self.keys = client, server, keys
        self.model = Admission()
        self.jobs: list[PushedJob] = []
        self.number = 0

    def push(self, rows: list[tuple[str, OnDuplicate, bool, int]]) -> None:
        """Jobs by the name of their lock, the mode of it, whether they are for later, and their limit."""
        jobs = []
        for name, mode, is_later, limit in rows:
            self.number += 1
            lock = UniqueLock(f"unique:{name}", 600, mode) if name else None
            at = SOON + self.number % 2 if is_later else None
            jobs.append(job(f"j{self.number}", Conditions(lock, limit), at))
        outcomes = []
        for push in (self.client.push, self.admit):
            try:
                outcomes.append(push(jobs))
            except (QueueFullError, DuplicateJobError) as error:
                outcomes.append({type(error).__name__: str(error)})
        assert outcomes[0] == outcomes[1]
        assert waiting(self.server, self.keys) == [job.jid for job in self.jobs if job.at is None]
        later = {job.jid: job.at for job in self.jobs if job.at is not None}
        assert scheduled(self.server, self.keys) == later

    def admit(self, jobs: list[PushedJob]) -> Others:
        def size(_: str) -> int:
            return sum(job.at is None for job in self.jobs)

        def is_scheduled(jid: str) -> bool:
            return any(job.jid == jid and job.at is not None for job in self.jobs)

        admitted = self.model.admit(jobs, time.time(), size, is_scheduled)
        self.jobs = [job for job in self.jobs if job.jid not in admitted.replaced] + admitted.jobs
        return admitted.others

    def end(self, place: int) -> None:
        """A job is done: its lock is released."""
        if self.jobs:
            ended = self.jobs.pop(place % len(self.jobs))
            lock = ended.conditions.lock if ended.conditions else None
            key = self.keys.schedule if ended.at is not None else self.keys.queue("q")
            self.server.zrem(key, ended.payload) if ended.at else self.server.lrem(key, 0, ended.payload)
            if lock:
                self.model.apply([Unlock(lock.key, ended.jid)])
                if self.server.get(self.keys.own(lock.key)) == ended.jid.encode():
                    self.server.delete(self.keys.own(lock.key))


ROWS = st.tuples(
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["skip", "raise", "replace"]),
    st.booleans(),
    st.sampled_from([0, 0, 2, 4]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.lists(ROWS, min_size=1, max_size=4) | st.integers(0, 3), max_size=8))
def test_the_model_of_the_test_support_decides_as_the_script(
    one_redis_url: str, namespace: str, steps: list[Any]
) -> None:
    keys = Keys(namespace)
    with redis.Redis.from_url(one_redis_url) as server, Client(one_redis_url, namespace=namespace) as client:
        if found := server.keys(f"{namespace}*"):
            server.delete(*found)
        sut = Sut(client, server, keys)
        for step in steps:
            sut.push(step) if isinstance(step, list) else sut.end(step)


@in_both_forms
def test_the_script_survives_a_restart_of_redis(push: Push, server: redis.Redis, keys: Keys) -> None:
    push(locked("a"))
    server.script_flush()
    assert push(locked("b")) == {"b": "a"}
    wait_for(lambda: server.exists(keys.unique("k")))
