"""The page that enqueues a job: checked before it is written, with a preview, an audit, and for one role."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import redis

from pyworkers.api import AuditLog, ScheduledSet
from pyworkers.protocol.keys import Keys
from tests.helpers.records import register
from tests.web.acting import act, fields
from tests.web.visitor import Visitor

JOB = {"class": "Send", "queue": "mail", "args": '[7, {"to": "ann"}]', "options": '{"retry": 3}'}


def stored(db: redis.Redis, keys: Keys) -> list[Any]:
    return list(db.lrange(keys.queue("mail"), 0, -1))


def test_an_address_fills_the_form(dashboard: Visitor) -> None:
    page = dashboard.get("enqueue?class=Send&queue=mail&args=%5B7%5D").html
    assert 'value="Send"' in page and 'value="mail"' in page and ">[7]</textarea>" in page


def test_a_preview_writes_nothing(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    text = act(dashboard, "enqueue", action="preview", **JOB)
    assert "Nothing has happened yet." in text and '"class": "Send"' in text and '"to": "ann"' in text
    assert '"retry": 3' in text and not db.exists(keys.queue("mail"))


def test_a_job_is_enqueued_with_an_audit(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str, namespace: str
) -> None:
    text = act(dashboard, "enqueue", action="enqueue", **JOB)
    assert "Enqueued into mail." in text
    [job] = map(json.loads, stored(db, keys))
    assert (job["class"], job["args"], job["retry"]) == ("Send", [7, {"to": "ann"}], 3)
    assert job["jid"] in text
    [line] = AuditLog(one_redis_url, namespace=namespace).page().actions
    assert (line.action, line.target, line.result) == ("job.enqueue", "mail", job["jid"])


@pytest.mark.parametrize(
    ("typed", "least_s", "most_s"),
    [({"in": "3600"}, 3590, 3610), ({"when": "2035-07-01T12:00", "zone": "UTC"}, 1e8, 1e9)],
)
def test_a_job_for_later(
    dashboard: Visitor,
    one_redis_url: str,
    namespace: str,
    typed: dict[str, str],
    least_s: float,
    most_s: float,
) -> None:
    act(dashboard, "enqueue", action="enqueue", **JOB, **typed)
    [entry] = ScheduledSet(one_redis_url, namespace=namespace)
    assert entry.job_class == "Send" and least_s < entry.score - time.time() < most_s


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"args": "[7"}, "the arguments are not JSON"),
        ({"args": '{"a": 1}'}, "the arguments are a JSON list, e.g. [7]"),
        ({"options": "3"}, 'the options are a JSON object, e.g. {"retry": 3}'),
        ({"options": '{"retri": 3}'}, "retri is not a field of a job"),
        ({"queue": "a b"}, "queue"),
        ({"class": ""}, "class"),
        ({"when": "2020-01-01T00:00"}, "has passed"),
    ],
)
def test_what_is_invalid_is_refused_and_stays_in_the_form(
    dashboard: Visitor, db: redis.Redis, keys: Keys, changed: dict[str, str], text: str
) -> None:
    answer = dashboard.ask("enqueue", fields(dashboard, action="enqueue", **{**JOB, **changed}))
    assert "Not done: " in answer.text and text in answer.text
    assert "{&#34;to&#34;: &#34;ann&#34;}" in answer.page.html or "args" in changed
    assert not stored(db, keys) and not db.exists(keys.schedule)


def test_a_duplicate_is_refused_with_the_id_of_the_other(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    unique = {**JOB, "options": '{"unique_for": 60}'}
    act(dashboard, "enqueue", action="enqueue", **unique)
    [job] = map(json.loads, stored(db, keys))
    text = act(dashboard, "enqueue", action="enqueue", **unique)
    assert "Not done: " in text and job["jid"] in text and len(stored(db, keys)) == 1


def test_the_classes_of_servers_are_offered_with_their_arguments(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    said = {"Send": ["to: str, lang: str = …", 1, 2], "Odd": ["x"], "Any": ["*args", 0, None]}
    classes = json.dumps({"mail": ["Send", "Odd", "Any"], "all": None})
    for number, signatures in enumerate((json.dumps(said), "[7]", '{"Send": ["to", 1, true]}')):
        facts = {"beat": time.time(), "look": "x", "classes": classes, "signatures": signatures}
        register(db, keys, f"host:{number}:a", {"identity": f"host:{number}:a"}, **facts)
    page = dashboard.get("enqueue")
    assert "Send (to: str, lang: str = …) mail" in page.text
    assert '<option value="Send">(to: str, lang: str = …)</option>' in page.html
    assert "class=Send&amp;queue=mail" in page.html and "Odd" in page.text
    job = {"class": "Send", "queue": "mail"}
    for args in ("[]", "[1, 2, 3]"):
        text = act(dashboard, "enqueue", action="enqueue", args=args, **job)
        assert "Send takes (to: str, lang: str = …), not" in text and not stored(db, keys)
    assert "Enqueued into mail." in act(dashboard, "enqueue", action="enqueue", args="[1]", **job)
    act(dashboard, "enqueue", action="enqueue", args="[1, 2, 3]", **{**job, "class": "Any"})
    assert len(stored(db, keys)) == 2
