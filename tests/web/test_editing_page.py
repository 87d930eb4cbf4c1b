"""Edit a job, or enqueue a copy of it: the form and the JSON, what they refuse, and what they never show."""

from __future__ import annotations

import json
import time
from html import unescape
from typing import Any

import pytest
import redis

from pyworkers import Client
from pyworkers.api import AuditLog
from pyworkers.protocol.keys import Keys
from tests.helpers.records import hold_order, raw_job
from tests.interop.browser import Page
from tests.web import hostile
from tests.web.programs import Program
from tests.web.test_one_job import found
from tests.web.visitor import Answer, Visitor


def editing(dashboard: Visitor, jid: str = "1", *, copy: bool = False) -> Page:
    """The form, by its link on the page of the job."""
    links = [link for link in found(dashboard, f"jobs/{jid}").links if "/edit?" in link]
    [link] = [link for link in links if ("copy=" in link) is copy]
    return dashboard.get(link.removeprefix(dashboard.root))


def send(dashboard: Visitor, page: Page, **typed: str) -> Answer:
    """Press its only button."""
    filled = page.posts[-1]
    [action] = filled.buttons.values()
    return dashboard.ask(filled.action, {**filled.hidden, "action": action, **typed})


@pytest.fixture
def waiting(db: redis.Redis, keys: Keys) -> bytes:
    """A job in the queue mail."""
    raw = raw_job("1", queue="mail", args=[7, {"to": "Ann"}], retry=3)
    db.sadd(keys.queues, "mail")
    db.lpush(keys.queue("mail"), raw)
    return raw


def queued(db: redis.Redis, keys: Keys) -> list[Any]:
    found_raw: Any = db.lrange(keys.queue("mail"), 0, -1)
    return [json.loads(raw) for raw in found_raw]


def due_jobs(db: redis.Redis, key: str) -> list[Any]:
    found_raw: Any = db.zrange(key, 0, -1, withscores=True)
    return list(found_raw)


def test_other_arguments_are_written_and_audited_without_them(
    dashboard: Visitor, waiting: bytes, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    page = editing(dashboard)
    assert "[7, {&#34;to&#34;: &#34;Ann&#34;}]</textarea>" in page.html
    assert "The job is edited." in send(dashboard, page, args='[7, {"to": "Bob"}]').text
    [job] = queued(db, keys)
    assert (job["jid"], job["args"], job["retry"]) == ("1", [7, {"to": "Bob"}], 3)
    [line] = AuditLog(one_redis_url, namespace=keys.namespace).page().actions
    assert (line.action, line.target, line.result) == ("job.edit", "1", "done")
    assert "Bob" not in str(line)


@pytest.mark.parametrize("place", ["scheduled", "retries", "dead", "queue:mail"])
def test_another_time_leaves_the_arguments(
    dashboard: Visitor, waiting: bytes, db: redis.Redis, keys: Keys, place: str
) -> None:
    sets = {"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}
    if place in sets:
        db.delete(keys.queue("mail"))
        db.zadd(sets[place], {waiting: time.time() + 60})
    typed = {"args": '[7, {"to": "Ann"}]', "delay": "86400"}
    assert "The job is edited." in send(dashboard, editing(dashboard), **typed).text
    home = keys.retry if place == "retries" else keys.schedule
    [(raw, due)] = due_jobs(db, home)
    assert json.loads(raw)["args"] == [7, {"to": "Ann"}] and due > time.time() + 80_000


def test_a_dead_job_with_another_address_runs_now(
    dashboard: Visitor, waiting: bytes, db: redis.Redis, keys: Keys
) -> None:
    assert ">now</option>" not in editing(dashboard).html, "a waiting job runs in its turn"
    db.delete(keys.queue("mail"))
    db.zadd(keys.dead, {waiting: 5.0})
    page = editing(dashboard)
    assert ">never: it stays dead</option>" in page.html and '<option value="0">now</option>' in page.html
    assert "The job is edited." in send(dashboard, page, args='[7, {"to": "Bob"}]', delay="0").text
    [(raw, due)] = due_jobs(db, keys.schedule)
    assert json.loads(raw)["args"] == [7, {"to": "Bob"}] and due <= time.time()
    assert not db.zcard(keys.dead)


def test_a_copy_has_its_own_id_and_the_options(
    dashboard: Visitor, waiting: bytes, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    text = send(dashboard, editing(dashboard, copy=True), args="[8]").text
    copy, first = queued(db, keys)
    assert (first["jid"], first["args"]) == ("1", [7, {"to": "Ann"}])
    assert (copy["args"], copy["retry"]) == ([8], 3)
    assert f"A copy is enqueued: {copy['jid']}." in text
    [line] = AuditLog(one_redis_url, namespace=keys.namespace).page().actions
    assert (line.action, line.target, line.result) == ("job.copy", "1", copy["jid"])


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ({"args": "[8"}, "the arguments are not JSON"),
        ({"args": '{"a": 8}'}, "the arguments are a JSON list, e.g. [7]"),
        ({"args": "[NaN, 8]"}, "the arguments are not JSON"),
        ({"args": '["\\ud800"]'}, "args"),
        ({"args": "[8]", "when": "2020-01-01T00:00"}, "has passed"),
        ({"args": '[7, {"to": "Ann"}]'}, "neither the arguments nor the time have changed"),
    ],
)
def test_what_is_refused_stays_in_the_form(
    dashboard: Visitor, waiting: bytes, db: redis.Redis, keys: Keys, typed: dict[str, str], text: str
) -> None:
    page = send(dashboard, editing(dashboard), **typed).page
    assert "Not done: " in page.text and text in page.text
    assert f"{typed['args']}</textarea>".replace('"', "&#34;") in page.html
    assert f'value="{typed.get("when", "")}"' in page.html
    assert db.lrange(keys.queue("mail"), 0, -1) == [waiting]


def test_a_job_that_has_just_started(dashboard: Visitor, waiting: bytes, db: redis.Redis, keys: Keys) -> None:
    page = editing(dashboard)
    db.delete(keys.queue("mail"))
    answer = send(dashboard, page, args='["typed"]')
    assert "Not done: the job is no longer here" in answer.text
    assert "[&#34;typed&#34;]</textarea>" in answer.page.html and not answer.page.posts[-1].buttons


def test_a_duplicate_is_named_and_an_ordered_queue_has_no_time(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    with Client(one_redis_url, namespace=keys.namespace) as client:
        other, jid = (client.enqueue("mail", "Send", [to], unique_for=60) for to in ("Ann", "Bob"))
    page = editing(dashboard, jid)
    answer = send(dashboard, page, args='["Ann"]')
    assert "Not done: " in answer.text and str(other) in answer.text
    assert "[&#34;Ann&#34;]</textarea>" in answer.page.html
    hold_order(db, keys, "mail", "host:1:abcdef")
    assert "ordered queue" in send(dashboard, page, args='["Bob"]', delay="60").text
    assert "ordered" in editing(dashboard, jid).text


@pytest.mark.parametrize(
    ("fields", "secret", "text"),
    [
        ({"args": ["c1phertext"], "encrypted": True}, "c1phertext", "The arguments are encrypted"),
        ({"args": [1, "c1phertext"], "encrypt": True}, "c1phertext", "The arguments are encrypted"),
        ({"args": [{"password": "hunter2"}]}, "hunter2", "stays as it is"),
    ],
)
def test_hidden_arguments_are_not_shown_and_stay(
    dashboard: Visitor, db: redis.Redis, keys: Keys, fields: dict[str, Any], secret: str, text: str
) -> None:
    db.zadd(keys.schedule, {raw_job("1", **fields): 4e9})
    page = editing(dashboard)
    assert text in page.text and secret not in page.html
    assert ("<textarea" in page.html) == ("encrypt" not in str(fields))
    send(dashboard, page, args='[{"password": "(hidden)"}]', delay="60")
    [(raw, due)] = due_jobs(db, keys.schedule)
    assert json.loads(raw)["args"] == fields["args"] and due < 4e9


_LOGIN = {"to": "Ann", "login": {"token": "t0p", "n": 1}}


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        (
            [7, {"to": "Bob", "login": {"token": "(hidden)", "n": 1}}],
            [7, {"to": "Bob", "login": {"token": "t0p", "n": 1}}],
        ),
        ([7, {"to": "Ann", "login": {"token": "new"}}], [7, {"to": "Ann", "login": {"token": "new"}}]),
        ([7, {"to": "Ann"}], [7, {"to": "Ann"}]),
    ],
)
def test_a_hidden_value_stays_while_another_is_changed(
    dashboard: Visitor, db: redis.Redis, keys: Keys, typed: list[Any], stored: list[Any]
) -> None:
    db.zadd(keys.schedule, {raw_job("1", args=[7, _LOGIN]): 4e9})
    assert "The job is edited." in send(dashboard, editing(dashboard), args=json.dumps(typed)).text
    [(raw, _)] = due_jobs(db, keys.schedule)
    assert json.loads(raw)["args"] == stored


@pytest.mark.parametrize(
    "typed",
    [
        [{"to": "Ann", "login": {"token": "(hidden)", "n": 1}}],
        [7, {"to": "Ann", "login": {"pin": "(hidden)"}}],
        [8, {"to": "Ann", "deeper": {"token": "(hidden)"}}],
        ["(hidden)", 7],
    ],
)
def test_a_hidden_value_in_another_place_is_refused(
    dashboard: Visitor, db: redis.Redis, keys: Keys, typed: list[Any]
) -> None:
    raw = raw_job("1", args=[7, _LOGIN])
    db.zadd(keys.schedule, {raw: 4e9})
    refused = send(dashboard, editing(dashboard), args=json.dumps(typed))
    assert "(hidden) is in another place than before" in refused.text and "t0p" not in refused.page.html
    assert due_jobs(db, keys.schedule) == [(raw, 4e9)]


def test_hostile_arguments_are_the_same_after_an_edit(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    args = [text for text in hostile.TEXTS if text is not hostile.ENDLESS]
    db.zadd(keys.schedule, {raw_job("1", args=args): 4e9})
    page = editing(dashboard)
    [shown] = page.html.split("<textarea", 1)[1].split("</textarea>")[:1]
    assert f"<{hostile.MARK}" not in shown
    # As a browser sends it.
    typed = unescape(shown.partition(">")[2].removeprefix("\n")).replace("\n", "\r\n")
    send(dashboard, page, args=typed[:-1] + ", 1]")
    [(raw, _)] = due_jobs(db, keys.schedule)
    assert json.loads(raw)["args"] == [*args, 1]


def test_a_program_edits_a_job(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    program = Program.with_token(dashboard.root)
    db.zadd(keys.retry, {raw_job("1"): 5.0})
    [job] = program.get("/retries")["jobs"]
    where = {"place": "retries", "at": job["at"]}
    assert program.act("/jobs/1", "edit", **where).status == 400
    assert program.act("/jobs/1", "edit", **where, args={"a": 1}).error == "args must be an array."
    assert program.done("/jobs/1", "edit", **where, args=[{"a": [None]}], time=4e9) == 1
    [(raw, due)] = due_jobs(db, keys.retry)
    assert json.loads(raw)["args"] == [{"a": [None]}] and due == 4e9
    assert program.act("/jobs/1", "edit", **where, args=[2]).status == 409
