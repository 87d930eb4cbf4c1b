"""Errors of the dashboard itself: they have the form and the headers of every other answer."""

from __future__ import annotations

import pytest
import redis

from pyworkers.api import Queue
from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.keys import Keys
from pyworkers.web.site import Site
from tests.web.programs import Program
from tests.web.visitor import Answer, Visitor

FAILED = "The dashboard has failed: its log says why."
NOT_DONE = "Not done: the dashboard has failed. Its log says why."
PERHAPS_DONE = "Perhaps done: the dashboard has failed. Look before you try again; its log says why."


@pytest.fixture
def program(dashboard: Visitor) -> Program:
    return Program.with_token(dashboard.root)


@pytest.fixture
def queue(db: redis.Redis, keys: Keys) -> str:
    db.sadd(keys.queues, "mail")
    return "mail"


def broken(*_: object) -> None:
    raise RuntimeError("a bug")


def is_safe(answer: Answer) -> bool:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return (
        "default-src 'none'" in headers["content-security-policy"] and headers["cache-control"] == "no-store"
    )


def test_a_page(dashboard: Visitor, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [form] = [form for form in dashboard.get("queues").forms if "pause" in form.buttons.values()]
    with monkeypatch.context() as patched:
        patched.setattr(Queue, "pause", broken)
        answer = dashboard.ask(form.action, {**form.hidden, "action": "pause"})
        assert answer.status == 500 and PERHAPS_DONE in answer.text and is_safe(answer)
    monkeypatch.setattr(Site, "read", broken)
    answer = dashboard.ask("queues")
    assert answer.status == 500 and FAILED in answer.text and is_safe(answer)
    assert "To the overview" in answer.text
    answer = dashboard.ask(form.action, {**form.hidden, "action": "pause"})
    assert answer.status == 500 and NOT_DONE in answer.text and is_safe(answer)


def test_json(program: Program, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Queue, "pause", broken)
        reply = program.act(f"/queues/{queue}", "pause")
        assert (reply.status, reply.error) == (500, PERHAPS_DONE)
    monkeypatch.setattr(Site, "read", broken)
    reply = program.ask("GET", "/queues")
    assert (reply.status, reply.error) == (500, FAILED)
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    reply = program.act(f"/queues/{queue}", "pause")
    assert (reply.status, reply.error) == (500, NOT_DONE)


def test_json_of_a_change_whose_reply_is_lost(
    program: Program, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: Queue) -> None:
        raise RedisUnavailableError("Connection closed")

    monkeypatch.setattr(Queue, "pause", lost)
    reply = program.act(f"/queues/{queue}", "pause")
    assert reply.status == 503 and reply.error.startswith("Perhaps done: ")
    assert "retry-after" not in reply.headers
