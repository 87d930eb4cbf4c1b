"""Batches in real servers: portions, holds, deletion, keys of the wrong type or gone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Literal

import pytest
import redis

from pyworkers import RESULTS, Worker, chain, parallel
from pyworkers.api import Queue
from pyworkers.config.fields import RedisConfig
from pyworkers.enqueueing import clock
from pyworkers.errors import BatchError, DuplicateJobError, StoreError
from pyworkers.plugins.batches import Batch
from pyworkers.protocol.conditions import Conditions, UniqueLock
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.effects import CountMember
from pyworkers.protocol.flow.ending import Ending
from pyworkers.protocol.flow.plans import BatchPlan
from pyworkers.protocol.flow.rules import effects_of_stored, member_at
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome, done_member
from pyworkers.store.admin import Admin
from pyworkers.store.calls import script
from pyworkers.store.flow import batches, batchviews
from pyworkers.store.flow.removal import written
from pyworkers.store.flow.sweep import begin, sweep
from pyworkers.store.transport.connections import connect_async
from tests.helpers.owner import Exchanged, Owner
from tests.helpers.replies import as_list
from tests.helpers.support import stretched


class App:
    """An application and its Redis; ``count`` settles a member as a server does."""

    def __init__(self, url: str, namespace: str) -> None:
        self.config = RedisConfig(url, namespace)
        self.admin = Admin(self.config)
        self.redis: redis.Redis = self.admin.redis
        self.keys: Keys = self.admin.keys
        self.worker = worker = Worker(url, namespace=namespace)
        self.client = worker.client

        @worker.job(queue="q")
        def member(number: int) -> None: ...

        @worker.job(queue="after")
        def after(what: str, batch_id: str = "") -> None: ...

        @worker.job(queue="after")
        def anything(*args: object) -> None: ...

        self.member, self.after, self.anything = member, after, anything

    def close(self) -> None:
        self.client.close()
        self.redis.close()

    def batch(self, missing: Literal["fail", "ignore"] = "fail") -> Batch:
        """A batch with all callbacks."""
        after = self.after
        return self.worker.batch(
            "all",
            on_success=after.call("success"),
            on_complete=after.call("complete"),
            on_death=after.call("death"),
            missing=missing,
        )

    def sweep(self) -> None:
        """Sweep as a server that has the turn."""
        self.admin.run(begin(self.keys, "aa"))
        self.admin.run(sweep(self.keys, "aa"))

    def waiting(self, queue: str) -> list[dict[str, Any]]:
        """The jobs of a queue, the oldest first."""
        return [
            json.loads(raw) for raw in reversed(as_list(self.redis.lrange(self.keys.queue(queue), 0, -1)))
        ]

    def count(self, batch: Batch, jid: str, state: str) -> None:
        names, args = written(self.keys, [(1, CountMember(batch.id, jid, state))])
        self.admin.run(script("removal/apply", names, args, lambda _: None, self.keys.namespace))

    def exchange(self, settled: list[tuple[bytes, Outcome]], wanted: int = 0) -> Exchanged:
        """Settle and take jobs of the queue ``q``, in one exchange of one server."""

        async def exchange() -> Exchanged:
            async with connect_async(self.config) as redis:
                owner = Owner(redis, self.keys, "host:1:aaa")
                await owner.renew(30, ["q"])
                return await owner.exchange("q", settled, wanted, 1.0)

        return asyncio.run(exchange())

    def done(self, number: int) -> list[tuple[bytes, Outcome]]:
        """Take this many members; the outcomes with which they are done."""
        found = []
        for raw in self.exchange([], number).jobs:
            message = Message.parse(raw, "q", str)
            at = member_at(message.data, message.jid, raw)
            assert at is not None
            found.append((raw, done_member(*at)))
        assert len(found) == number
        return found

    def fired(self) -> list[list[str]]:
        """The arguments of the callbacks, the first one first."""
        return [job.args for job in Queue("after", self.config)][::-1]


@pytest.fixture
def app(redis_url: str, namespace: str) -> Iterator[App]:
    with closing(App(redis_url, namespace)) as app:
        yield app


def test_each_change_of_a_member_counts_once(app: App) -> None:
    with app.batch() as batch:
        first, second = app.member.enqueue(1), app.member.enqueue(2)
    for jid, state, numbers, fired in (
        (first, "failed", (2, 2, 0, 1, 0), 0),
        (first, "failed", (2, 2, 0, 1, 0), 0),
        (second, "dead", (2, 1, 0, 1, 1), 2),
        (second, "dead", (2, 1, 0, 1, 1), 2),
        (first, "done", (2, 0, 1, 0, 1), 2),
        (first, "done", (2, 0, 1, 0, 1), 2),
        ("stranger", "done", (2, 0, 1, 0, 1), 2),
        (second, "done", (2, 0, 2, 0, 0), 3),
        (second, "done", (2, 0, 2, 0, 0), 3),
    ):
        app.count(batch, jid, state)
        status = batch.status()
        assert (status.total, status.pending, status.done, status.failed, status.dead) == numbers
        assert len(app.fired()) == fired
    assert app.fired() == [[what, batch.id] for what in ("death", "complete", "success")]


@pytest.mark.parametrize(
    "states", [("expired", "done"), ("done", "deleted"), ("failed", "done", "missing"), ("cancelled",) * 2]
)
def test_a_member_that_is_left_out_is_no_longer_waited_for(app: App, states: tuple[str, ...]) -> None:
    with app.batch("ignore") as batch:
        jids = [app.member.enqueue(1), app.member.enqueue(2)]
    for state in states[:-1]:
        app.count(batch, jids[0], state)
        assert batch.status().success_at is None
    app.count(batch, jids[1], states[-1])
    assert [what for what, _ in app.fired()] == ["complete", "success"]
    assert batch.status().total == states.count("done")


def test_thousands_of_members_are_pushed_in_portions(app: App) -> None:
    with app.batch() as batch:
        jids = app.member.enqueue_bulk([(number,) for number in range(2500)])
    status = batch.status()
    assert (status.total, status.pending, status.open) == (2500, 2500, False)
    waiting = [(job.jid, job.args) for job in Queue("q", app.config)][::-1]
    assert waiting == [(jid, [number]) for number, jid in enumerate(jids)]
    for jid in jids:
        app.count(batch, jid, "done")
    assert [what for what, _ in app.fired()] == ["complete", "success"]
    assert app.redis.zcard(app.keys.batches) == 1
    names = {key.decode() for key in app.redis.scan_iter(app.keys.batch("*"))}
    assert names == {app.keys.batch(batch.id)}
    assert 86_000 < app.redis.ttl(app.keys.batch(batch.id)) <= 86_400


def test_the_members_of_an_exchange_count_together(app: App) -> None:
    with app.batch() as one:
        first = [app.member.enqueue(number) for number in range(4)]
    with app.batch() as other:
        app.member.enqueue(4)
        app.member.enqueue(5)
    app.count(one, first[0], "failed")
    app.count(one, first[1], "dead")
    settled = app.done(5)
    assert app.exchange([*settled, (b"strange", settled[0][1])]).stale == [5]
    assert (one.status().done, one.status().pending, one.status().dead) == (4, 0, 0)
    assert (other.status().done, other.status().pending) == (1, 1)
    assert app.fired() == [[what, one.id] for what in ("death", "complete", "success")]
    # The reply was lost.
    assert app.exchange(settled).stale == [0, 1, 2, 3, 4]
    assert (one.status().done, other.status().done) == (4, 1)


def test_members_release_their_holds_when_they_are_done(app: App) -> None:
    with app.batch() as batch:
        jids = [app.member.enqueue(1), app.member.enqueue(2)]
    key = app.keys.batch(batch.id)
    app.redis.sadd(f"{key}:members", *(f"hold:{jid}" for jid in jids))
    app.redis.hincrby(key, "open", 2)
    assert app.exchange(app.done(2)).failed == ()
    assert (batch.status().done, batch.status().open) == (2, False)
    assert [what for what, _ in app.fired()] == ["complete", "success"]


def test_a_chain_that_ends_early_keeps_the_hold_of_another_program(app: App) -> None:
    after = app.after.call("complete")
    run = chain(app.member.call(1), app.member.call(2), on_complete=after).enqueue()
    [raw] = app.exchange([], 1).jobs
    step = Message.parse(raw, "q", str).jid
    key = app.keys.batch(run.id)
    app.redis.sadd(f"{key}:members", f"hold:{step}", "hold:other")
    app.redis.hincrby(key, "open", 2)
    dropped = Outcome(Fate.DISCARD).with_effects(*effects_of_stored(raw, Ending.DROPPED, 1.0))
    app.exchange([(raw, dropped)])
    assert (run.status().total, run.status().open, app.fired()) == (2, True, [])
    app.client.enlist(BatchPlan(run.id, "other", exists=True))
    assert (run.status().dropped, run.status().skipped, run.status().open) == (1, 1, False)
    assert app.fired() == [["complete", run.id]]


def test_thousands_of_members_that_end_at_once_are_all_counted(app: App) -> None:
    with app.batch() as batch:
        app.member.enqueue_bulk([(number,) for number in range(8100)])
    assert app.exchange(app.done(8100)).failed == ()
    assert (batch.status().total, batch.status().done) == (8100, 8100)
    assert [what for what, _ in app.fired()] == ["complete", "success"]


def test_a_batch_that_cannot_be_counted_is_reported_and_delays_no_other(app: App) -> None:
    with app.batch() as broken:
        jid = app.member.enqueue(1)
    with app.batch() as other:
        app.member.enqueue(2)
    app.redis.delete(f"{app.keys.batch(broken.id)}:members")
    app.redis.set(f"{app.keys.batch(broken.id)}:members", "no set")
    found = app.exchange(app.done(2))
    assert found.stale == []
    [(effect, reason)] = found.failed
    assert effect == CountMember(broken.id, jid, "done")
    assert "WRONGTYPE" in reason
    assert other.status().success_at is not None
    assert [what for what, _ in app.fired()] == ["complete", "success"]


def test_a_set_of_another_type_hides_no_member_of_another_set(app: App) -> None:
    with app.batch() as batch:
        jids = [app.member.enqueue(1), app.member.enqueue(2)]
    app.count(batch, jids[1], "failed")
    key = app.keys.batch(batch.id)
    app.redis.rename(f"{key}:failed", f"{key}:kept")
    app.redis.set(f"{key}:failed", "no set")
    [(effect, reason)] = app.exchange(app.done(2)).failed
    assert (effect, "WRONGTYPE" in reason) == (CountMember(batch.id, jids[0], "done"), True)
    app.redis.rename(f"{key}:kept", f"{key}:failed")
    assert (batch.status().done, batch.status().failed, batch.status().lost) == (1, 1, 0)


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A program that dies when it has sent the first portion, of two members."""
    portions = batches._portions

    def dies(*args: Any) -> Iterator[Any]:
        yield next(portions(*args))
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(batches, "PORTION", 2)
        patch.setattr(batches, "_AT_ONCE_BYTES", 1)
        patch.setattr(batches, "_portions", dies)
        yield


def test_a_program_that_dies_while_it_adds_members_leaves_the_batch_open(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dying(monkeypatch), app.batch() as batch:
        jids = [app.member.enqueue(number) for number in range(5)]
    for jid in jids[:2]:
        app.count(batch, jid, "done")
    status = batch.status()
    assert (status.open, status.total, status.done, status.success_at) == (True, 2, 2, None)
    assert app.fired() == []


def test_no_job_is_pushed_before_it_is_a_member(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [PushedJob("q", b'{"jid":"j%d"}' % number, f"j{number}") for number in range(4)]
    with dying(monkeypatch):
        app.client.enlist(BatchPlan("b", "hold", members=["later", "last"], jobs=jobs))
    pushed = [job.jid for job in Queue("q", app.config)]
    assert sorted(pushed) == ["j0", "j1"]
    assert all(app.redis.smismember(app.keys.batch("b") + ":members", pushed))


@pytest.mark.parametrize("at_once", [1, 4_000_000])
def test_portions_are_sent_again_if_redis_has_forgotten_the_script(
    app: App, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    portions = batches._portions

    def forgotten(*args: Any) -> Iterator[Any]:
        for number, portion in enumerate(portions(*args)):
            if number == 1:
                app.redis.script_flush()
            yield portion

    monkeypatch.setattr(batches, "PORTION", 2)
    monkeypatch.setattr(batches, "_AT_ONCE_BYTES", at_once)
    monkeypatch.setattr(batches, "_portions", forgotten)
    with app.batch() as batch:
        jids = [app.member.enqueue(number) for number in range(5)]
    assert [job.jid for job in Queue("q", app.config)][::-1] == jids
    assert (batch.status().total, batch.status().pending, batch.status().open) == (5, 5, False)


def test_members_live_in_the_schedule_as_well(app: App) -> None:
    with app.batch() as batch:
        app.member.enqueue_in(60, 1)
        app.member.enqueue(2)
    assert app.redis.zcard(app.keys.schedule) == 1
    assert batch.status().pending == 2


def test_a_job_that_follows_expires_from_the_time_when_it_is_due(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = app.after.options(expires_in=60)
    monkeypatch.setattr(clock, "time", lambda: time.time() - 3600)
    with app.worker.batch(
        "late", on_success=soon.call("success"), on_complete=app.after.call("complete")
    ) as late:
        app.member.enqueue(1)
    then = parallel(app.member.call(2)).then(soon.call('"created_at":1.0,"expiry":2.0}')).enqueue()
    for data in app.waiting("q"):
        app.count(Batch(app.client, data["batch"]), data["jid"], "done")
    found = app.waiting("after")
    assert {data["args"][1] for data in found} == {late.id, then.id}
    for data in found:
        wanted = {} if data["args"][0] == "complete" else {"expiry": pytest.approx(time.time() + 60, abs=20)}
        assert {name: data[name] for name in ("expiry",) if name in data} == wanted
        assert data["created_at"] < time.time() - 3500


def test_a_queue_of_another_type_refuses_the_batch(app: App) -> None:
    app.redis.set(app.keys.queue("q"), "no list")
    with pytest.raises(StoreError, match="WRONGTYPE"), app.batch() as batch:
        app.member.enqueue(1)
    with pytest.raises(BatchError, match="unknown"):
        batch.status()


def test_a_callback_whose_queue_has_another_type_is_due_until_it_is_repaired(app: App) -> None:
    app.redis.set(app.keys.queue("after"), "no list")
    with app.batch() as batch:
        first, second = app.member.enqueue(1), app.member.enqueue(2)
    app.count(batch, first, "done")
    app.count(batch, second, "done")
    assert (batch.status().done, batch.status().success_at) == (2, None)
    app.redis.delete(app.keys.queue("after"))
    app.sweep()
    assert [what for what, _ in app.fired()] == ["complete", "success"]
    app.sweep()
    assert len(app.fired()) == 2


@pytest.mark.parametrize("part", ["", ":members"])
def test_what_redis_has_evicted_fires_nothing(app: App, part: str) -> None:
    with app.batch() as batch:
        first, second = app.member.enqueue(1), app.member.enqueue(2)
    app.count(batch, first, "done")
    app.redis.delete(app.keys.batch(batch.id) + part)
    app.count(batch, second, "done")
    app.sweep()
    assert app.fired() == []
    if part:
        assert (batch.status().total, batch.status().done, batch.status().lost) == (2, 1, 1)
    else:
        with pytest.raises(BatchError, match="unknown"):
            batch.status()


@pytest.mark.parametrize(("missing", "last"), [("fail", "complete"), ("ignore", "success")])
def test_a_batch_that_is_deleted_is_a_deleted_member_of_the_one_around_it(
    app: App, missing: Literal["fail", "ignore"], last: str
) -> None:
    with app.batch(missing) as outer:
        jid = app.member.enqueue(1)
        with app.batch() as inner, app.batch() as innermost:
            app.member.enqueue(2)
    app.count(outer, jid, "done")
    assert app.admin.run(batches.delete(app.keys, inner.id))
    assert not app.admin.run(batches.delete(app.keys, inner.id))
    for gone in (inner, innermost):
        with pytest.raises(BatchError, match="unknown"):
            gone.status()
    assert app.fired()[-1] == [last, outer.id]
    assert outer.status().deleted == (missing == "fail")
    assert app.admin.run(batchviews.known(app.keys)) == [outer.status()]


def test_a_death_is_told_to_all_batches_around(app: App) -> None:
    with app.batch() as outer:
        app.member.enqueue(1)
        with app.batch() as inner:
            jid = app.member.enqueue(2)
            app.member.enqueue(3)
    app.count(inner, jid, "dead")
    assert app.fired() == [["death", inner.id], ["death", outer.id]]
    assert (outer.status().pending, outer.status().dead) == (2, 0)


def test_members_cannot_be_added_to_a_batch_that_is_unknown_or_has_ended(app: App) -> None:
    with pytest.raises(BatchError, match="unknown"):
        app.client.enlist(BatchPlan("none", "hold", exists=True))
    with app.batch() as batch:
        pass
    with pytest.raises(BatchError, match="ended"):
        app.client.enlist(BatchPlan(batch.id, "hold", exists=True, jobs=[PushedJob("q", b"{}", "j")]))
    assert app.redis.llen(app.keys.queue("q")) == 0


def test_a_duplicate_is_no_member_and_a_refused_push_makes_no_batch(app: App) -> None:
    app.redis.set(app.keys.own("unique:k"), "other")

    def under(mode: str) -> PushedJob:
        return PushedJob("q", b'{"jid":"j"}', "j", None, Conditions(UniqueLock("unique:k", 60, mode)))  # type: ignore[arg-type]

    plan = BatchPlan("b", "hold", jobs=[under("skip"), PushedJob("q", b'{"jid":"k"}', "k")])
    app.client.enlist(plan)
    assert Batch(app.client, "b").status().total == 1
    with pytest.raises(DuplicateJobError):
        app.client.enlist(BatchPlan("c", "hold", jobs=[under("raise"), PushedJob("q", b"{}", "l")]))
    with pytest.raises(BatchError, match="unknown"):
        Batch(app.client, "c").status()
    assert app.redis.llen(app.keys.queue("q")) == 1


def test_a_refusal_is_raised_though_its_batch_cannot_be_deleted(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.redis.set(app.keys.own("unique:k"), "other")
    job = PushedJob("q", b'{"jid":"j"}', "j", None, Conditions(UniqueLock("unique:k", 60, "raise")))
    call_of = batches.call_of

    def until_lost(keys: Keys, plan: BatchPlan, mode: str, *args: Any, **about: Any) -> Any:
        if mode in ("delete", "add"):
            raise redis.ConnectionError("lost")
        return call_of(keys, plan, mode, *args, **about)

    app.client.enlist(BatchPlan("old", "first", closes=False))
    monkeypatch.setattr(batches, "call_of", until_lost)
    for plan in (BatchPlan("new", "hold", jobs=[job]), BatchPlan("old", "hold", jobs=[job], exists=True)):
        with pytest.raises(DuplicateJobError):
            app.client.enlist(plan)


def test_old_batches_leave_the_list(app: App) -> None:
    now = time.time()
    app.redis.zadd(app.keys.batches, {f"gone{number}": now - number for number in range(5)})
    with app.batch():
        app.member.enqueue(1)
    assert app.redis.zcard(app.keys.batches) == 1


def test_the_ttl_is_90_days_after_the_last_change_and_short_after_success(app: App) -> None:
    with app.batch() as batch:
        first, second = app.member.enqueue(1), app.member.enqueue(2)
    key = app.keys.batch(batch.id)
    for name in (key, f"{key}:members"):
        assert 90 * 86_400 < app.redis.ttl(name) <= 91 * 86_400
        app.redis.expire(name, 1000)
    app.redis.hset(key, "day", "0")
    app.count(batch, first, "failed")
    for name in (key, f"{key}:members", f"{key}:failed"):
        assert 90 * 86_400 < app.redis.ttl(name) <= 91 * 86_400
    app.count(batch, second, "done")
    app.count(batch, first, "done")
    assert 86_000 < app.redis.ttl(key) <= 86_400


def test_a_member_takes_less_than_200_bytes(app: App) -> None:
    with app.batch() as batch:
        app.member.enqueue_bulk([(number,) for number in range(3000)])
    key = app.keys.batch(batch.id)
    used = sum(app.redis.memory_usage(name, samples=0) or 0 for name in (key, f"{key}:members"))
    assert used / 3000 < 200


LOOKALIKE = [{"pyworkers": "RESULTS"}, {"pyworkers": "RESULT"}]


@pytest.mark.parametrize("kept", ["new", "old"])
def test_results_go_to_their_places_alone(app: App, kept: str) -> None:
    follows = app.anything.options(expires_in=60)
    args = [LOOKALIKE, {"ü": [RESULTS]}, RESULTS] if kept == "new" else [RESULTS]
    parallel(app.member.call(1), app.member.call(2)).then(follows.call(*args)).enqueue()
    if kept == "old":
        # Without a value that looks like a placeholder, an earlier server fills it as well.
        [key] = list(app.redis.scan_iter(app.keys.batch("*:then")))
        [ready] = as_list(app.redis.lrange(key, 0, -1))
        assert ready.startswith(b"after {") and b'"args":[{"pyworkers":"RESULTS"}]' in ready
    for number, data in enumerate(app.waiting("q")):
        names, values = written(
            app.keys, [(1, CountMember(data["batch"], data["jid"], "done", number, b'["\xc3\xa9"]'))]
        )
        app.admin.run(script("removal/apply", names, values, lambda _: None, app.keys.namespace))
    results = [["é"], ["é"]]
    [found] = app.waiting("after")
    assert found["args"] == ([LOOKALIKE, {"ü": [results]}, results] if kept == "new" else [results])


def test_results_that_are_too_large_for_what_follows_end_the_group(app: App) -> None:
    follows = app.anything.call([RESULTS] * 400)
    run = parallel(app.member.call(1)).then(follows).enqueue()
    [data] = app.waiting("q")
    large = b'"' + b"x" * 100_000 + b'"'
    names, args = written(app.keys, [(1, CountMember(data["batch"], data["jid"], "done", 0, large))])
    app.admin.run(script("removal/apply", names, args, lambda _: None, app.keys.namespace))
    assert (run.status().state, run.status().reason, app.waiting("after")) == ("dead", "too large", [])


@pytest.mark.parametrize(
    "facts", [{"kind": "chain", "total": 9}, {"kind": "batch", "total": 2}], ids=["stopped", "concluded"]
)
def test_a_batch_that_a_client_has_put_into_itself_is_told_once(app: App, facts: Any) -> None:
    # Two that are members of each other.
    for one, other in (("x", "y"), ("y", "x")):
        key = app.keys.batch(one)
        app.redis.hset(key, mapping=facts | {"open": 1, "done": 0, "parent": f" {other}"})
        app.redis.sadd(f"{key}:dead", other)
    if facts["kind"] == "chain":
        for one in ("x", "y"):
            app.redis.sadd(f"{app.keys.batch(one)}:members", "later")
    else:
        app.redis.hset(app.keys.batch("y"), "total", 1)
    app.redis.sadd(f"{app.keys.batch('x')}:members", "m")
    names, args = written(app.keys, [(1, CountMember("x", "m", "dead"))])
    app.admin.run(script("removal/apply", names, args, lambda _: None, app.keys.namespace))
    assert app.redis.sismember(f"{app.keys.batch('x')}:dead", "m")


@pytest.mark.parametrize("missing", ["fail", "ignore"])
def test_the_size_that_a_client_gave_a_group_bounds_no_loop(app: App, missing: str) -> None:
    key = app.keys.batch("x")
    facts: Any = {
        "open": 0,
        "done": 0,
        "total": 1,
        "kind": "group",
        "size": 10**15,
        "if_missing": missing,
    }
    app.redis.hset(key, mapping=facts)
    app.redis.sadd(f"{key}:members", "m")
    names, args = written(app.keys, [(1, CountMember("x", "m", "done", 0, b"7"))])
    began = time.monotonic()
    app.admin.run(script("removal/apply", names, args, lambda _: None, app.keys.namespace))
    assert app.redis.hget(key, "done") == b"1"
    assert time.monotonic() - began < stretched(1)


@pytest.mark.parametrize(
    ("queue", "items"),
    [
        ("", ["1e-999", "{}"]),
        ("", ["5", "{}", " 6", "{}"]),
        ("", ["5"]),
        ("q", []),
    ],
)
def test_jobs_that_redis_would_refuse_leave_no_batch(app: App, queue: str, items: list[str]) -> None:
    keys = [app.keys.queues, app.keys.schedule, app.keys.batches]
    args = ["b", "create", "", "", 0, 0, 1, "jid", queue, 2, len(items), *items]
    with pytest.raises(StoreError, match="pyworkers batch"):
        app.admin.run(script("batches/enlist", keys, args, str, app.keys.namespace))
    assert not app.redis.keys(f"{app.keys.namespace}*")
