"""What the log says of jobs that do nothing: of a value that is not kept, and of a middleware that skips."""

from __future__ import annotations

import pytest

from tests.helpers.records import job
from tests.helpers.server_process import Serve

RETURNING = """
@worker.job(queue="q", concurrency=1)
{kind} add(a, b):
    return a + b

@worker.job(queue="q", track=60)
{kind} kept():
    return 1

@worker.job(queue="q")
{kind} silent():
    pass
"""
SKIPPING = """
@worker.middleware
def maintenance(message, call_next):
    if message.job_class != "skipped":
        call_next(message)

@worker.job(queue="q", concurrency=1)
{kind} ran():
    note("ran")

@worker.job(queue="q")
{kind} skipped():
    note("skipped")

@worker.job(queue="q", retry=False)
{kind} fails():
    raise ValueError
"""
KINDS = ["def", "async def"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_is_not_kept_is_named_once_with_the_option(serve: Serve, kind: str) -> None:
    with serve(RETURNING.format(kind=kind)) as server:
        server.push("q", job("a", "add", 1, 2), job("b", "silent"), job("c", "kept", track=60))
        server.push("q", job("d", "add", 3, 4))
        server.wait_for_event("job.done", jid="d")
        server.wait_for_event("job.done", count=4)
        [dropped] = server.events("job.result_dropped")
        assert dropped["job_class"] == "add"
        assert dropped["jid"] in ("a", "d")
        assert dropped["hint"] == "track=3600 keeps it for an hour: worker.result(jid)"


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_a_middleware_does_not_call_is_skipped(serve: Serve, kind: str) -> None:
    with serve(SKIPPING.format(kind=kind)) as server:
        server.push("q", job("a", "ran"), job("b", "skipped"), job("c", "fails", retry=False))
        server.wait_for_event("job.done", jid="a")
        server.wait_for_event("job.skipped", jid="b", level="info")
        server.wait_for_event("job.failed", jid="c")
        assert [note[1] for note in server.ledger()] == ["ran"]
        assert len(server.events("job.skipped")) == 1
        assert server.events("job.done", jid="b") == []
