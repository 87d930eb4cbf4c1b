"""Client middleware: links around an enqueue call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pyworkers import AsyncClient, BadArgumentError, Client, Worker
from pyworkers.errors import DeclarationError
from pyworkers.middleware import ClientCallNext, ClientMiddleware
from pyworkers.protocol import envelope
from pyworkers.protocol.draft import Bulk, JobDraft
from pyworkers.testing import Fake, fake


@pytest.fixture
def pushed() -> Iterator[Fake]:
    with fake() as jobs:
        yield jobs


def tenant(draft: JobDraft, call_next: ClientCallNext) -> str:
    return call_next(draft.with_extra(tenant=7))


def refuse(draft: JobDraft, call_next: ClientCallNext) -> str:
    return ""


def only_even(draft: JobDraft, call_next: ClientCallNext) -> str:
    return call_next(draft) if draft.args[0] % 2 == 0 else ""


def an_app(*links: ClientMiddleware) -> Worker:
    worker = Worker()
    for link in links:
        worker.client_middleware(link)
    return worker


def data(jobs: Fake) -> list[dict[str, Any]]:
    return [envelope.decode(job.raw) for job in jobs.jobs]


def test_a_link_adds_a_field_however_the_job_is_enqueued(pushed: Fake) -> None:
    worker = an_app(tenant)

    @worker.job(queue="q", retry=3, extra={"region": "eu"})
    def add(a: int, b: int = 0) -> None: ...

    jids = [
        add.enqueue(1),
        add.enqueue_in(60, 2),
        *add.enqueue_bulk([(3,), (4, 5)]),
        worker.enqueue("q", "add", [6]),
        Client.of(worker).enqueue("q", "add", [7]),
        *Client.of(worker).enqueue_bulk("q", "add", [[8]]),
        Client(middleware=[tenant]).enqueue("q", "other", [9]),
    ]
    found = data(pushed)
    assert [job["jid"] for job in found] == jids
    assert [job["tenant"] for job in found] == [7] * 8
    assert [job.get("region") for job in found] == ["eu"] * 7 + [None]
    assert [job.get("retry") for job in found] == [3] * 7 + [None]
    assert [job["args"] for job in found] == [[1], [2], [3], [4, 5], [6], [7], [8], [9]]
    assert [job.at is not None for job in pushed.jobs] == [False, True, *[False] * 6]


async def test_the_asyncio_client_runs_the_same_links(pushed: Fake) -> None:
    client = AsyncClient(middleware=[tenant])
    jids = [await client.enqueue("q", "add", [1]), *await client.enqueue_bulk("q", "add", [[2], [3]])]
    assert [(job["jid"], job["tenant"]) for job in data(pushed)] == [(jid, 7) for jid in jids]


def test_links_run_in_order_the_first_outermost(pushed: Fake) -> None:
    order: list[str] = []

    def outer(draft: JobDraft, call_next: ClientCallNext) -> str:
        order.append("outer")
        jid = call_next(draft)
        order.append(f"outer {bool(jid)}")
        return jid

    def inner(draft: JobDraft, call_next: ClientCallNext) -> str:
        order.append("inner")
        return call_next(draft)

    an_app(outer, inner).enqueue("q", "add", [1])
    assert order == ["outer", "inner", "outer True"]


def test_without_calling_on_nothing_is_enqueued(pushed: Fake) -> None:
    assert an_app(refuse).enqueue("q", "add", [1]) == ""
    assert an_app(refuse).enqueue_bulk("q", "add", [[1], [2]]) == ["", ""]
    assert pushed.jobs == []


def test_a_bulk_enqueue_returns_a_jid_for_each_row(pushed: Fake) -> None:
    jids = an_app(only_even).enqueue_bulk("q", "add", [[1], [2], [3], [4]])
    assert [bool(jid) for jid in jids] == [False, True, False, True]
    assert [job["jid"] for job in data(pushed)] == [jids[1], jids[3]]


def test_a_link_that_raises_fails_the_call_before_anything_is_written(pushed: Fake) -> None:
    def third(draft: JobDraft, call_next: ClientCallNext) -> str:
        if draft.args == [3]:
            raise ValueError("not three")
        return call_next(draft)

    with pytest.raises(ValueError, match="not three"):
        an_app(third).enqueue_bulk("q", "add", [[1], [2], [3]])
    assert pushed.jobs == []


def test_a_link_may_change_everything(pushed: Fake) -> None:
    seen: list[JobDraft] = []

    def move(draft: JobDraft, call_next: ClientCallNext) -> str:
        seen.append(draft)
        moved = draft.replace(queue="slow", job_class="Later", args=[*draft.args, "x"])
        return call_next(moved.with_options(retry=1, at=4e9, tags=["late"]))

    Client(middleware=[move]).enqueue("q", "Now", [1], retry=5, extra={"a": 1})
    [job] = data(pushed)
    assert (job["queue"], job["class"], job["args"]) == ("slow", "Later", [1, "x"])
    assert (job["retry"], job["tags"], job["a"]) == (1, ["late"], 1)
    assert pushed.jobs[0].at == 4e9
    assert seen == [JobDraft("q", "Now", [1], {"retry": 5}, {"a": 1})]


def test_a_link_sees_the_time_of_a_job_for_later(pushed: Fake) -> None:
    seen: list[Any] = []

    def look(draft: JobDraft, call_next: ClientCallNext) -> str:
        seen.append(draft.options.get("at"))
        return call_next(draft)

    client = Client(middleware=[look])
    client.enqueue("q", "add", [1], at=4e9)
    client.enqueue("q", "add", [1])
    assert seen == [4e9, None]
    assert [job.at for job in pushed.jobs] == [4e9, None]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"args": [float("nan")]}, r"args_list\[1\]\[0\]"),
        ({"queue": ""}, "queue"),
        ({"job_class": ""}, "job class"),
    ],
)
def test_a_bad_change_is_refused(pushed: Fake, change: dict[str, Any], text: str) -> None:
    def spoil(draft: JobDraft, call_next: ClientCallNext) -> str:
        return call_next(draft.replace(**change) if draft.args == [2] else draft)

    with pytest.raises(BadArgumentError, match=text):
        an_app(spoil).enqueue_bulk("q", "add", [[1], [2]])
    assert pushed.jobs == []


def test_a_link_must_return_a_jid(pushed: Fake) -> None:
    def forgets(draft: JobDraft, call_next: ClientCallNext) -> None:
        call_next(draft)

    with pytest.raises(TypeError, match="forgets returned None, not a jid"):
        an_app(forgets).enqueue("q", "add", [1])  # type: ignore[arg-type]
    assert pushed.jobs == []


def test_several_jobs_cannot_have_one_jid(pushed: Fake) -> None:
    with pytest.raises(BadArgumentError, match="jid cannot be given"):
        an_app(tenant).enqueue_bulk("q", "add", [[1], [2]], jid="one")


def test_a_client_middleware_is_a_function() -> None:
    with pytest.raises(DeclarationError, match="client middleware"):
        Worker().client_middleware("tenant")  # type: ignore[type-var]


def test_a_link_that_is_declared_after_the_first_enqueue_counts(pushed: Fake) -> None:
    worker = an_app()
    worker.enqueue("q", "add", [1])
    worker.client_middleware(tenant)
    worker.enqueue("q", "add", [2])
    assert [job.get("tenant") for job in data(pushed)] == [None, 7]


def test_a_link_sees_which_jobs_are_enqueued_together(pushed: Fake) -> None:
    seen: list[Bulk | None] = []

    def look(draft: JobDraft, call_next: ClientCallNext) -> str:
        seen.append(draft.with_extra(tenant=7).bulk)
        return call_next(draft)

    worker = an_app(look)
    worker.enqueue("q", "add", [1])
    worker.enqueue_bulk("q", "add", [[1], [2]])
    worker.enqueue_bulk("q", "add", [[1]])
    alone, first, second, third = seen
    assert alone is None
    assert first is second
    assert first is not None
    assert third is not None
    assert third is not first
    assert (first.size, third.size) == (2, 1)
