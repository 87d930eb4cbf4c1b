"""The pages of batches: progress, callbacks, members by state, and their deletion."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest
import redis

from pyworkers import Worker, chain, parallel
from pyworkers.api import BatchSet, Queue
from pyworkers.protocol.effects import CountMember
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import script
from pyworkers.store.flow.removal import written
from pyworkers.web.names import encode as segment
from tests.helpers.support import wait_for
from tests.web.acting import act
from tests.web.visitor import Visitor

HOSTILE = (b"a/b", b"..", b"<script>alert(1)</script>", "\u202egnp".encode(), b"\xff\xfe", b"a\nb", b" ")


@pytest.fixture
def batches(one_redis_url: str, namespace: str) -> BatchSet:
    return BatchSet(one_redis_url, namespace=namespace)


def test_an_empty_redis(dashboard: Visitor) -> None:
    assert "There are no batches." in dashboard.get("batches").text
    assert "There is no such batch" in dashboard.get("batches/none").text


def test_a_batch_with_its_members_and_its_callbacks(
    dashboard: Visitor, one_redis_url: str, namespace: str, batches: BatchSet
) -> None:
    worker = Worker(one_redis_url, namespace=namespace)

    @worker.job(queue="q")
    def member() -> None: ...

    with worker.batch("Sum <b>up</b>", on_complete=member.call()) as batch:
        jids = [member.enqueue() for _ in range(3)]
        with worker.batch("inner") as inner:
            member.enqueue()
    for jid, state in zip(jids, ("done", "failed", "dead"), strict=True):
        names, args = written(Keys(namespace), [(1, CountMember(batch.id, jid, state))])
        batches._admin.run(script("removal/apply", names, args, lambda _: None, namespace))
    page = dashboard.get("batches")
    assert "Sum <b>up</b>" in page.text and "1 of 4" in page.text
    assert urljoin(dashboard.root, f"batches/{batch.id}") in page.links
    page = dashboard.get(f"batches/{batch.id}")
    assert "No member" not in page.text and "not yet" in page.text
    # The dead ones are shown first.
    assert urljoin(dashboard.root, f"jobs/{jids[2]}") in page.links
    page = dashboard.get(f"batches/{batch.id}?state=failed")
    assert urljoin(dashboard.root, f"jobs/{jids[1]}") in page.links
    page = dashboard.get(f"batches/{batch.id}?state=waiting")
    assert urljoin(dashboard.root, f"batches/{inner.id}") in page.links
    assert urljoin(dashboard.root, f"batches/{batch.id}") in dashboard.get(f"batches/{inner.id}").links
    page = dashboard.get(f"batches/{batch.id}")
    [delete] = [form for form in page.posts if "delete" in form.buttons.values()]
    assert "is deleted." in dashboard.press(delete).text
    assert "is unknown." in dashboard.press(delete).text
    assert list(batches) == []
    # Its jobs stay.
    assert Queue("q", one_redis_url, namespace=namespace).size == 4


def drawn(html: str) -> str:
    """The picture of a graph."""
    return html.partition('role="group"')[2].partition("</svg>")[0]


def test_the_graph_of_a_chain_leads_to_its_jobs_and_to_the_group_inside_it(
    dashboard: Visitor, one_redis_url: str, namespace: str
) -> None:
    worker = Worker(one_redis_url, namespace=namespace)

    @worker.job(queue="q", name="step")
    def step(number: int = 0) -> None: ...

    whole = chain(
        step.call(1), parallel(step.call(2), step.call(3)), step.call(4), on_success=step.call()
    ).enqueue()
    page = dashboard.get(f"batches/{whole.id}")
    graph = drawn(page.html)
    assert graph.count(">step<") == 4 and graph.count('class="arrow"') == 2
    assert graph.count(">waiting<") == 4 and ">success: step<" in graph
    [group] = whole.status().inner
    assert f"batches/{group.id}" in graph and "group" in graph
    # The same in words.
    words = page.text.partition("As a list")[2].partition("Callbacks")[0]
    assert words.count("step : waiting") == 4 and "0 of 2" in words
    first = graph.partition("/jobs/")[2].partition('"')[0]
    # On a busy machine the page of a job goes on with its search.
    wait_for(lambda: drawn(dashboard.get(f"jobs/{first}").html).count(">step<") == 4, message="the graph")


def test_a_tag_leads_to_the_batches_that_have_it(
    dashboard: Visitor, one_redis_url: str, namespace: str
) -> None:
    worker = Worker(one_redis_url, namespace=namespace)
    for name, tag in (("first", "tenant:7 <b>"), ("second", "other")):
        with worker.batch(name, tags=[tag]) as batch:
            pass
    assert {"first", "second"} <= set(dashboard.get("batches").text.split())
    [link] = [link for link in dashboard.get(f"batches/{batch.id}").links if "tag=other" in link]
    words = dashboard.get(link.removeprefix(dashboard.root)).text.split()
    assert "second" in words and "first" not in words
    assert "first" in dashboard.get("batches?tag=tenant%3A7+%3Cb%3E").text
    assert "has this tag" in dashboard.get("batches?tag=none").text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(
    dashboard: Visitor, db: redis.Redis, namespace: str, batches: BatchSet, name: bytes
) -> None:
    keys, text = Keys(namespace), name.decode(errors="surrogateescape")
    key = keys.batch(text).encode(errors="surrogateescape")
    facts = {b"open": b"0", b"total": b"2", b"done": b"-5", b"created_at": b"1", b"description": name}
    db.hset(key, mapping=facts | {b"kind": name, b"parent": b"1 " + name, b"on_success": name})  # type: ignore[arg-type]
    db.zadd(keys.batches, {name: 5})
    db.sadd(key + b":dead", name, "x" * 5000)
    page = dashboard.get("batches")
    assert "<script>alert" not in page.html and "\u202e" not in page.html
    path = f"batches/{segment(text)}"
    assert urljoin(dashboard.root, path) in page.links
    assert "Members" in dashboard.get(path).text
    assert "is deleted." in act(dashboard, path, action="delete")
    assert batches.find(text) is None


def test_many_batches_and_members(dashboard: Visitor, db: redis.Redis, namespace: str) -> None:
    keys = Keys(namespace)
    for number in range(120):
        name = f"b{number:03}"
        db.zadd(keys.batches, {name: number})
        db.hset(keys.batch(name), mapping={"open": "0", "total": "1", "done": "0", "created_at": "1"})
    db.sadd(keys.batch("b000") + ":members", *(f"j{number}" for number in range(1000)))
    first, last = dashboard.get("batches"), dashboard.get("batches?first=100")
    assert "1 to 50 of 120" in first.text and "b119" in first.text and "b069" not in first.text
    assert "b000" in last.text and "b020" not in last.text
    assert "no more batches" in dashboard.get("batches?first=500").text
    page = dashboard.get("batches/b000?state=waiting&cursor=x")
    assert any("cursor=" in link for link in page.links)
    assert page.html.count("jobs/j") < 200
