"""Cancelled batches: members removed, refused and ended; callbacks; what an early end of it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyworkers import Cancelled, chain, parallel
from pyworkers.errors import BatchCancelledError, BatchError, JobFailedError
from pyworkers.plugins.batches import Batch, batch_of
from pyworkers.protocol.flow.plans import CancelledBatch, CancelledNumbers
from pyworkers.protocol.message import Message
from pyworkers.server.cancellations import Cancellations
from pyworkers.store.calls import Request, drive, script
from pyworkers.store.flow.cancelling import Wanted, cancel_batch, cancel_jobs
from pyworkers.store.flow.sweep import begin, sweep
from pyworkers.store.notes import notes
from pyworkers.store.transport.replies import integers
from tests.helpers.replies import as_bytes, as_list
from tests.helpers.support import free_port, running_server
from tests.store.test_batches import App


@pytest.fixture
def app(redis_url: str, namespace: str) -> Iterator[App]:
    with closing(App(redis_url, namespace)) as app:
        yield app


def opened(app: App, **options: Any) -> Batch:
    calls: Any = {
        f"on_{event}": app.after.call(event) for event in ("success", "complete", "death", "cancel")
    }
    return app.worker.batch("all", **calls, **options)


def events(app: App) -> list[str]:
    return [what for what, _ in app.fired()]


def noted(app: App) -> frozenset[str]:
    return app.admin.run(notes(app.keys))


def test_members_that_wait_are_removed_wherever_they_are(app: App) -> None:
    other = app.member.enqueue(0)
    with opened(app) as batch:
        app.member.enqueue(1)
        app.member.options(unique_for=60, track=60).enqueue(2)
        app.member.enqueue_in(60, 3)
    assert batch.cancel() == CancelledBatch(removed=3, left=0)
    assert [job["jid"] for job in app.waiting("q")] == [other]
    assert app.redis.zcard(app.keys.schedule) == 0
    assert not list(app.redis.scan_iter(app.keys.own("unique:*")))
    status = batch.status()
    assert (status.state, status.total, status.pending, status.cancelled) == ("cancelled", 3, 0, 3)
    assert events(app) == ["cancel", "complete"]
    assert not noted(app), "servers have nothing to refuse"
    with pytest.raises(JobFailedError, match="cancelled"):
        batch.result(timeout=0.1)


def test_a_thousand_members_are_removed_in_portions_among_other_jobs(app: App) -> None:
    others = app.member.enqueue_bulk([(number,) for number in range(700)])
    with opened(app) as batch:
        app.member.enqueue_bulk([(number,) for number in range(1500)])
    others += app.member.enqueue_bulk([(number,) for number in range(1300)])
    assert batch.cancel() == CancelledBatch(removed=1500, left=0)
    assert [job["jid"] for job in app.waiting("q")] == others


def test_servers_refuse_a_running_member_until_it_has_ended(app: App) -> None:
    with opened(app) as batch:
        jids = [app.member.enqueue(number) for number in range(3)]
    [first, *_] = app.done(1)
    assert batch.cancel() == CancelledBatch(removed=2, left=1)
    cancellations = Cancellations()
    cancellations.use(noted(app))
    assert cancellations.jid_of(first[0]) == jids[0]
    assert cancellations.jid_of(b'{"jid":"x","batch":"other"}') == ""
    assert events(app) == ["cancel"]
    app.count(batch, jids[0], "done")
    assert events(app) == ["cancel", "complete"]
    assert not noted(app)


def test_members_that_are_added_later_are_refused(app: App) -> None:
    with opened(app) as batch:
        app.member.enqueue(1)
        app.member.enqueue(2)
    [(raw, _), _] = app.done(2)
    batch.cancel()
    data = json.loads(raw)
    again = batch_of(Message.parse(raw, "q", str))
    assert again is not None and data["batch"] == batch.id
    every: list[Any] = [{}, {"unique_for": 60}]
    for options in every:
        again = Batch(app.client, batch.id, again._plan)
        with pytest.raises(BatchCancelledError, match=f"the batch {batch.id} is cancelled"), again:
            app.member.options(**options).enqueue(3)
        again = batch_of(Message.parse(raw, "q", str))
        assert again is not None
    assert app.waiting("q") == []
    assert batch.status().total == 2


def test_a_full_server_cancels_what_takes_its_memory(tmp_path: Path, one_binary: str) -> None:
    with running_server(one_binary, tmp_path, free_port()) as url, closing(App(url, "")) as app:
        with opened(app) as batch:
            app.member.enqueue(0)
        tagged = app.member.options(tags=["t"]).enqueue(1)
        waits = app.member.enqueue(2)
        app.redis.config_set("maxmemory", 1)
        assert batch.cancel() == CancelledBatch(removed=1, left=0)
        assert app.admin.run(cancel_jobs(app.keys, Wanted("tag", "t"))) == CancelledNumbers(1, 0)
        assert app.client.cancel(waits) is Cancelled.REMOVED
        assert not {tagged, waits} & {job["jid"] for job in app.waiting("q")}


def test_large_jobs_are_read_few_at_a_time(app: App) -> None:
    jids = [app.client.enqueue("q", "Large", ["x" * 300_000], tags=["t"]) for _ in range(40)]
    places = [app.keys.queue("q"), app.keys.cancelled, app.keys.stat("cancelled"), app.keys.stat("failed")]
    reading = script("removal/cancel", places, [0, "tag", "other", 60], integers, app.keys.namespace)
    assert app.admin.run(reading)[0] in range(10, 25)
    assert app.admin.run(cancel_jobs(app.keys, Wanted("tag", "t"))) == CancelledNumbers(len(jids), 0)
    assert app.redis.llen(app.keys.queue("q")) == 0


def test_a_batch_that_has_succeeded_and_an_unknown_one_are_left_alone(app: App) -> None:
    with opened(app) as batch:
        jid = app.member.enqueue(1)
    app.count(batch, jid, "done")
    assert batch.cancel() == CancelledBatch(ended=True)
    assert events(app) == ["complete", "success"]
    assert batch.status().state == "succeeded"
    with pytest.raises(BatchError, match="unknown"):
        Batch(app.client, "0" * 24).cancel()


def test_a_second_cancel_changes_nothing_more(app: App) -> None:
    with opened(app) as batch:
        app.member.enqueue(1)
    batch.cancel()
    assert batch.cancel() == CancelledBatch()
    assert events(app) == ["cancel", "complete"]


def test_batches_inside_are_cancelled_and_one_inside_counts_around_it(app: App) -> None:
    with opened(app) as outer:
        app.member.enqueue(0)
        with opened(app) as inner:
            app.member.enqueue(1)
    assert inner.cancel() == CancelledBatch(removed=1)
    around = outer.status()
    assert (around.state, around.cancelled, around.pending) == ("dead", 1, 1)
    assert events(app) == ["cancel", "complete", "death"]
    assert outer.cancel() == CancelledBatch(removed=1)
    assert outer.status().cancelled == 2
    assert events(app)[3:] == ["cancel", "complete"]
    whole = chain(parallel(app.anything.call(1), app.anything.call(2)), app.anything.call(3)).enqueue()
    assert whole.cancel() == CancelledBatch(removed=2)
    assert (whole.status().cancelled, whole.status().skipped) == (1, 1)


def test_a_cancellation_that_ended_after_any_step_is_completed_by_the_sweep(app: App) -> None:
    with opened(app) as outer:
        app.member.enqueue(0)
        with opened(app) as inner:
            app.member.enqueue(1)
    steps = iter(cancel_batch(app.keys, outer.id))
    app.admin.run(next(steps))
    steps.close()
    assert outer.status().cancel_at is not None
    assert inner.status().cancel_at is None
    app.redis.delete(app.keys.cancelled)
    app.sweep()
    assert inner.status().cancel_at is not None
    assert noted(app) == {f"batch:{outer.id}", f"batch:{inner.id}"}, "no member runs"
    assert outer.cancel() == CancelledBatch(removed=2)
    assert events(app) == ["cancel", "cancel", "complete", "complete"]


@pytest.mark.parametrize(("kind", "value"), [("tag", "tenant:7"), ("class", "member")])
def test_jobs_with_a_tag_or_of_a_class_are_cancelled(app: App, kind: str, value: str) -> None:
    app.anything.options(tags=["tenant:77"]).enqueue("member", "tenant:7")
    for number in range(2):
        app.member.options(tags=["x", "tenant:7"]).enqueue(number)
    app.member.options(tags=["tenant:7"]).enqueue_in(60, 9)
    running = json.loads(app.exchange([], 1).jobs[0])["jid"]
    found = app.admin.run(cancel_jobs(app.keys, Wanted(kind, value)))
    assert found == CancelledNumbers(removed=2, running=1)
    assert noted(app) == {running}
    assert [job["args"] for job in app.waiting("after")] == [["member", "tenant:7"]]
    assert (app.redis.get(app.keys.stat("cancelled")), app.redis.zcard(app.keys.schedule)) == (b"2", 0)


@pytest.mark.parametrize("way", ["due", "failed", "due again"])
def test_a_job_that_moves_between_two_reads_is_cancelled(app: App, way: str) -> None:
    """Whichever two these are."""
    keys, gap, sent = app.keys, 0, 1
    queue, running = keys.queue("q"), keys.inprogress("q", "host:1:aaa")
    while gap < sent:
        app.redis.delete(queue, running, keys.retry, keys.queues, keys.cancelled)
        if way == "due":
            app.member.options(tags=["mine"]).enqueue_in(60, 1)
            [raw] = as_list(app.redis.zrange(keys.schedule, 0, -1))
        else:
            app.member.options(tags=["mine"]).enqueue(1)
            [raw] = app.exchange([], 1).jobs
        if way == "due again":
            app.redis.delete(running)
            app.redis.zadd(keys.retry, {raw: 60})
        sent = 0

        def perform(request: Request[Any], raw: bytes = raw, gap: int = gap) -> Any:
            nonlocal sent
            if sent == gap:
                move(app, raw, way)
            sent += 1
            return app.admin.run(request)

        found = drive(cancel_jobs(keys, Wanted("tag", "mine")), perform)
        assert found.removed or found.running, f"it moves before request {gap}"
        gap += 1
    assert gap > 5


def test_few_jobs_of_a_long_queue_are_taken_out_together(app: App) -> None:
    """Each removal takes Redis through half of the queue."""
    raws = [json.dumps({"jid": f"j{n}", "class": "A", "tags": [f"t{n % 2500}"]}) for n in range(8000)]
    app.redis.lpush(app.keys.queue("q"), *raws)
    app.redis.sadd(app.keys.queues, "q")
    removals = 0
    with app.redis.monitor() as monitor:
        assert app.admin.run(cancel_jobs(app.keys, Wanted("tag", "t7"))).removed == 4
        app.redis.echo("end")
        for about in monitor.listen():
            name, *words = about["command"].split()
            if name == "ECHO":
                break
            removals += name == "LREM" and words[0] == app.keys.queue("q")
    assert removals == 1


@pytest.mark.parametrize(
    ("by", "jobs", "number", "leave"), [("tag", 25_000, 12_000, 2500), ("id", 2500, 1200, 600)]
)
def test_jobs_that_leave_a_set_between_two_pages_hide_none(
    app: App, by: str, jobs: int, number: int, leave: int
) -> None:
    """The first ones become due while the set is read."""
    keys = app.keys
    raws = [json.dumps({"jid": f"j{n}", "class": "A", "args": [], "tags": [f"t{n}"]}) for n in range(jobs)]
    app.redis.zadd(keys.schedule, {raw: n for n, raw in enumerate(raws)})

    def perform(request: Request[Any]) -> Any:
        reply = app.admin.run(request)
        app.redis.zremrangebyrank(keys.schedule, 0, leave - 1)
        return reply

    if by == "tag":
        assert drive(cancel_jobs(keys, Wanted("tag", f"t{number}")), perform).removed == 1
        return
    names, answer = [keys.cancelled, keys.schedule, keys.retry, keys.queues], [b"searching", b""]
    while answer[0] == b"searching":
        answer = perform(
            script("cancel", names, [f"j{number}", answer[1], "2026-11-29"], list, keys.namespace)
        )
    assert answer == [b"removed"]


def move(app: App, raw: bytes, way: str) -> None:
    """Move a job, if it is still there, as servers do."""
    keys = app.keys
    if way == "failed":
        if app.redis.lrem(keys.inprogress("q", "host:1:aaa"), 1, raw):  # type: ignore[arg-type]
            app.redis.zadd(keys.retry, {raw: 60})
    elif app.redis.zrem(keys.schedule if way == "due" else keys.retry, raw):
        app.redis.sadd(keys.queues, "q")
        app.redis.lpush(keys.queue("q"), raw)


@pytest.mark.parametrize("tag", ['say "a"', "App\\Jobs", "a/b", "two\nlines", "é"])
def test_a_tag_that_json_escapes_is_found(app: App, tag: str) -> None:
    app.member.options(tags=[tag]).enqueue(1)
    raw = as_bytes(app.redis.rpop(app.keys.queue("q")))
    # As PHP writes it.
    app.redis.lpush(app.keys.queue("q"), raw.replace(b"a/b", b"a\\/b"))
    assert app.admin.run(cancel_jobs(app.keys, Wanted("tag", tag))) == CancelledNumbers(removed=1, running=0)


def test_a_batch_that_flushes_sends_members_while_it_is_open(app: App) -> None:
    with opened(app, flush=2) as batch:
        jids = [app.member.enqueue(number) for number in range(3)]
        assert [job["jid"] for job in app.waiting("q")] == jids[:2]
        for jid in jids[:2]:
            app.count(batch, jid, "done")
        assert events(app) == []
        jids += app.member.options(unique_for=60).enqueue_bulk([(7,), (7,), (8,)])
    assert batch.status().total == 5, "a duplicate is no member"
    assert not app.redis.hexists(app.keys.batch(batch.id), "streams")
    for job in app.waiting("q"):
        app.count(batch, job["jid"], "done")
    assert events(app) == ["complete", "success"]


def test_members_that_were_sent_are_cancelled_if_the_body_raises(app: App) -> None:
    batch = opened(app, flush=2)
    with pytest.raises(ZeroDivisionError), batch:
        for number in range(5):
            app.member.enqueue(number)
        raise ZeroDivisionError
    assert app.waiting("q") == []
    status = batch.status()
    assert (status.state, status.total, status.open) == ("cancelled", 4, False)
    assert events(app) == ["cancel", "complete"]


async def test_an_async_batch_flushes_too(app: App) -> None:
    async with opened(app, flush=2) as batch:
        for number in range(3):
            await app.member.aenqueue(number)
        assert len(app.waiting("q")) == 2
    assert (await batch.astatus()).total == 3


@pytest.mark.fault("B3")
def test_b3_a_batch_whose_producer_is_dead_is_cancelled_after_an_hour(app: App) -> None:
    with opened(app, flush=1) as batch:
        app.member.enqueue(1)
        key = app.keys.batch(batch.id)
        for silent_s, cancelled in ((3500, False), (3700, True)):
            app.redis.hset(key, "pushed_at", float(app.redis.hget(key, "created_at") or 0) - silent_s)
            app.redis.delete(app.keys.sweep("turn"))
            app.admin.run(begin(app.keys, "aa"))
            app.admin.run(sweep(app.keys, "aa"))
            assert (batch.status().cancel_at is not None) is cancelled
    assert noted(app) == {f"batch:{batch.id}"}
    assert events(app) == ["cancel"]
