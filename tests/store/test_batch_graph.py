"""The graph of a batch: what it names, the batches inside it, their states, and its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import redis

from pyworkers import RESULT, RESULTS, chain, parallel
from pyworkers.protocol.flow.plans import MOST_INNER
from pyworkers.store.flow.batchgraph import BatchNode, JobNode, read_graph
from pyworkers.testing import fake
from tests.store.conftest import Cli
from tests.store.test_batches import App


@pytest.fixture
def app(redis_url: str, namespace: str) -> Iterator[App]:
    with closing(App(redis_url, namespace)) as app:
        yield app


def graph_of(app: App, batch: str) -> BatchNode:
    node = app.admin.run(read_graph(app.keys, batch))
    assert node is not None
    return node


def drawn(node: BatchNode) -> object:
    """Kinds, classes and states, in the order of the members."""
    members = [
        (member.job_class.rpartition(".")[2], member.state) if isinstance(member, JobNode) else drawn(member)
        for member in node.members
    ]
    return (node.status.kind, members, dict(node.others))


def test_a_chain_with_a_group_names_its_steps_in_their_order(app: App) -> None:
    call = app.member.call
    whole = chain(call(1), parallel(call(RESULT), chain(call(RESULT), call(RESULT))), call(RESULTS)).enqueue()
    steps = ("member", "waiting")
    inner: object = ("group", [steps, ("chain", [steps, steps], {})], {})
    assert drawn(graph_of(app, whole.id)) == ("chain", [steps, inner, steps], {})


def test_members_have_their_states_and_those_without_a_name_are_numbers(app: App) -> None:
    with app.batch() as batch:
        jids = [app.member.enqueue(number) for number in range(4)]
    for jid, state in zip(jids, ("done", "failed", "dead", "waiting"), strict=True):
        if state != "waiting":
            app.count(batch, jid, state)
    node = graph_of(app, batch.id)
    assert [(one.jid, one.state) for one in node.members if isinstance(one, JobNode)] == [
        *zip(jids, ("done", "failed", "dead", "waiting"), strict=True)
    ]
    assert len(node.callbacks) == 3 and not node.others
    with app.batch() as large:
        jids = [app.member.enqueue(number) for number in range(30)]
    app.count(large, jids[0], "done")
    app.count(large, jids[1], "dead")
    assert drawn(graph_of(app, large.id)) == ("batch", [], {"waiting": 28, "dead": 1, "done": 1})


def test_a_batch_knows_those_inside_it_also_later_ones(app: App, cli: Cli) -> None:
    with app.batch() as outer:
        with app.batch() as first:
            jid = app.member.enqueue(1)
        with app.batch():
            app.member.enqueue(2)
    app.count(first, jid, "done")
    status = outer.status()
    assert (status.inner_total, [one.state for one in status.inner]) == (2, ["succeeded", "running"])
    assert f"batch {first.id}: succeeded, 1 of 1 done" in cli("batches", "show", outer.id).output
    assert [one["id"] for one in status.as_dict()["inner"]] == [one.id for one in status.inner]


def test_a_group_of_many_chains_names_the_first(app: App) -> None:
    call = app.member.call
    many = parallel([chain(call(1), call(RESULT)) for _ in range(MOST_INNER + 10)]).enqueue()
    status, node = many.status(), graph_of(app, many.id)
    assert (status.inner_total, len(status.inner), len(node.members)) == (
        MOST_INNER + 10,
        MOST_INNER,
        MOST_INNER,
    )
    assert dict(node.others) == {"waiting": 10}


def test_batches_that_contain_each_other_are_drawn_once(app: App, db: redis.Redis) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        db.hset(
            app.keys.batch(name),
            mapping={
                "open": "0",
                "total": "9",
                "done": "0",
                "created_at": "1",
                "member:1": "x y",
                "member:0": name,
                "inner": "1",
                "inner:1": other,
            },
        )
    assert drawn(graph_of(app, "one")) == (
        "batch",
        [("y", "done"), ("batch", [("y", "done")], {})],
        {},
    )
    assert app.admin.run(read_graph(app.keys, "none")) is None


def test_a_test_without_redis_knows_the_batches_inside(app: App) -> None:
    with fake(app.worker):
        with app.batch() as outer, app.batch():
            app.member.enqueue(1)
        assert [one.total for one in outer.status().inner] == [1]
