"""Batches page by page: order, callbacks, members, and what other programs have written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from pyworkers.api import Member
from pyworkers.api.batches import read_batch, read_batch_page, read_members
from pyworkers.errors import BadArgumentError
from pyworkers.store.flow.batchviews import STATES
from pyworkers.testing import fake
from tests.store.conftest import Cli
from tests.store.test_batches import App


@pytest.fixture
def app(redis_url: str, namespace: str) -> Iterator[App]:
    with closing(App(redis_url, namespace)) as app:
        yield app


def test_batches_page_by_page_with_those_that_have_ended_last(app: App) -> None:
    made = []
    for number in range(5):
        with app.batch() as batch:
            jid = app.member.enqueue(number)
        made.append((batch, jid))
    ended, jid = made[4]
    app.count(ended, jid, "done")
    page = app.admin.run(read_batch_page(app.keys, 0, 2))
    rest = app.admin.run(read_batch_page(app.keys, 2, 50))
    assert (page.total, len(page.batches), rest.total) == (5, 2, 5)
    found = [about.id for about in [*page.batches, *rest.batches]]
    assert sorted(found) == sorted(batch.id for batch, _ in made)
    assert app.admin.run(read_batch_page(app.keys, 50, 50)).batches == []


def test_a_batch_has_its_callbacks_and_when_they_were_enqueued(app: App, cli: Cli) -> None:
    with app.batch() as batch:
        jid = app.member.enqueue(1)
    view = app.admin.run(read_batch(app.keys, batch.id))
    assert view is not None
    assert {callback.event for callback in view.callbacks} == {"complete", "success", "death"}
    assert {callback.fired_at for callback in view.callbacks} == {None}
    assert all(
        callback.queue == "after" and callback.job_class and callback.jid for callback in view.callbacks
    )
    app.count(batch, jid, "done")
    view = app.admin.run(read_batch(app.keys, batch.id))
    assert view is not None
    fired = {callback.event: callback.fired_at for callback in view.callbacks}
    assert fired["complete"] and fired["success"] and fired["death"] is None
    shown = json.loads(cli("batches", "show", batch.id, "--json").output)
    assert shown["callbacks"] == [callback.as_dict() for callback in view.callbacks]
    assert cli("batches", "show", batch.id).output.count("\ncallback ") == 3


def test_members_in_each_state_and_which_of_them_are_batches(app: App) -> None:
    with app.batch() as batch:
        jids = [app.member.enqueue(number) for number in range(3)]
        with app.batch() as inner:
            app.member.enqueue(4)
    app.count(batch, jids[0], "failed")
    app.count(batch, jids[1], "dead")
    found = {state: app.admin.run(read_members(app.keys, batch.id, state, 0, 50)).members for state in STATES}
    assert found["failed"] == [Member(jids[0], False)]
    assert found["dead"] == [Member(jids[1], False)]
    assert found["waiting"] == sorted([Member(jids[2], False), Member(inner.id, True)])


def test_many_members_are_read_cursor_by_cursor(app: App) -> None:
    names = [f"j{number}" for number in range(1000)]
    app.redis.sadd(app.keys.batch("b") + ":dead", *names)
    found, cursor, pages = set(), 0, 0
    while True:
        page = app.admin.run(read_members(app.keys, "b", "dead", cursor, 50))
        assert len(page.members) < 200
        found |= {member.id for member in page.members}
        pages, cursor = pages + 1, page.cursor
        if not cursor:
            break
    assert pages > 4
    assert found == set(names)


def test_what_other_programs_have_written(app: App) -> None:
    with app.batch() as batch:
        app.member.enqueue(1)
    app.redis.hset(app.keys.batch("numbers"), "open", "x")
    app.redis.hset(app.keys.batch("name"), b"\xff\xfe", b"1")
    app.redis.set(app.keys.batch("type"), "x")
    app.redis.hset(
        app.keys.batch("times"),
        mapping={
            "open": "0", "total": "1", "done": "0", "created_at": "inf", "success_at": "soon",
            "on_success": "[", "on_death": "q " + "[" * 100_000, "on_complete": b"\xff {\"class\":[1]}",
        },
    )  # fmt: skip
    app.redis.set(app.keys.batch("times") + ":members", "no set")
    for place, name in enumerate((b"numbers", b"name", b"type", b"times", b"gone", b"\xff/\n")):
        app.redis.zadd(app.keys.batches, {name: place})
    page = app.admin.run(read_batch_page(app.keys, 0, 50))
    assert [about.id for about in page.batches] == [batch.id, "times"]
    times = app.admin.run(read_batch(app.keys, "times"))
    assert times is not None
    assert (times.status.created_at, times.status.success_at) == (0.0, None)
    assert {callback.event: callback.job_class for callback in times.callbacks} == {
        "complete": "[1]", "success": "", "death": "",
    }  # fmt: skip
    json.dumps([times.status.as_dict()])
    assert app.admin.run(read_members(app.keys, "times", "waiting", 0, 50)).members == []
    app.redis.delete(app.keys.batches)
    app.redis.set(app.keys.batches, "no set")
    assert app.admin.run(read_batch_page(app.keys, 0, 50)).total == 0


def test_batches_are_found_by_their_tags(app: App, cli: Cli) -> None:
    made = {}
    for name, tags in (
        ("one", ["tenant:7", "é"]),
        ("two", ["tenant:8"]),
        ("three", ["tenant:7"]),
        ("four", []),
    ):
        with app.worker.batch(name, tags=tags) as batch:
            app.member.enqueue(1)
        assert batch.status().tags == tuple(tags)
        made[name] = batch.id
    page = app.admin.run(read_batch_page(app.keys, 0, 50, "tenant:7"))
    assert (page.total, {about.description for about in page.batches}) == (2, {"one", "three"})
    [second] = app.admin.run(read_batch_page(app.keys, 1, 1, "tenant:7")).batches
    assert second in page.batches and app.admin.run(read_batch_page(app.keys, 0, 50, "tenant")).total == 0
    listed = json.loads(cli("batches", "list", "--tag", "tenant:8", "--json").output)
    assert [(about["id"], about["tags"]) for about in listed] == [(made["two"], ["tenant:8"])]
    assert "tenant:7, é" in cli("batches", "show", made["one"]).output
    # Another program may write anything.
    app.redis.hset(app.keys.batch(made["four"]), "tags", '{"tenant:7":1}')
    assert app.admin.run(read_batch_page(app.keys, 0, 50, "tenant:7")).total == 2
    with fake(app.worker), app.worker.batch(tags=["x"]) as batch:
        pass
    assert batch.id and app.redis.exists(app.keys.batch(batch.id)) == 0


@pytest.mark.parametrize("tags", ["tenant", [7], [""]])
def test_tags_are_texts(app: App, tags: Any) -> None:
    with pytest.raises(BadArgumentError, match="tags"):
        app.worker.batch(tags=tags)
