"""The page of a tag: where its jobs are, and the cancellation of all of them."""

from __future__ import annotations

import json
import time

import pytest
import redis

from pyworkers.api import AuditLog
from pyworkers.protocol.keys import Keys
from tests.helpers.records import raw_job
from tests.interop.browser import Page
from tests.web import hostile
from tests.web.programs import Program
from tests.web.test_one_job import found
from tests.web.test_running import running, runs
from tests.web.visitor import Visitor


@pytest.fixture
def tenant(db: redis.Redis, keys: Keys) -> dict[str, bytes]:
    """Jobs of tenant 7 in each place, next to one of tenant 8; by their ids."""
    raw = {jid: raw_job(jid, queue="mail", tags=["tenant:7", "eu"]) for jid in "abcd"}
    db.sadd(keys.queues, "mail", "bills")
    db.lpush(keys.queue("mail"), raw["a"], raw_job("x", tags=["tenant:8"]))
    db.lpush(keys.queue("bills"), raw_job("y"))
    for key, jid in ((keys.schedule, "b"), (keys.retry, "c"), (keys.dead, "d")):
        db.zadd(key, {raw[jid]: 4e9})
    taken = raw_job("r", tags=["tenant:7"])
    run = {"queue": "mail", "payload": taken.decode(), "run_at": time.time() - 5}
    db.hset(keys.owners, "web:1:a", '["mail"]')
    db.lpush(keys.inprogress("mail", "web:1:a"), taken)
    runs(db, keys, "web:1:a", {"7.1": json.dumps(run), "7.2": running("z", 5.0)})
    return raw


def test_a_tag_leads_to_all_its_jobs(dashboard: Visitor, tenant: dict[str, bytes]) -> None:
    link = next(link for link in dashboard.get("dead").links if "/tags/tenant" in link)
    page = dashboard.get(link.removeprefix(dashboard.root))
    assert "Running 1 job Scheduled 1 job Retries 1 job Dead 1 job Queue mail 1 job" in page.text
    assert "bills" not in page.text and "No job has this tag" not in page.text
    assert "No job has this tag." in dashboard.get("tags/tenant%207").text
    assert any(link.endswith("/jobs/r") for link in page.links)
    assert not any(link.endswith("/jobs/z") for link in page.links)
    assert "Found 1:" in dashboard.get("queues/mail?tag=tenant%3A7").text
    assert any(link.endswith("/queues/mail?tag=tenant%3A7") for link in page.links)
    # From a running job, too.
    assert any("/tags/tenant" in link for link in dashboard.get("running").links)
    assert any("/tags/eu" in link for link in found(dashboard, "jobs/d").links)


def _cancelled(dashboard: Visitor, tag: str) -> Page:
    """The page after the button and its question."""
    [button] = [form for form in dashboard.get(f"tags/{tag}").posts if "cancel" in form.buttons.values()]
    question = dashboard.press(button, "ask")
    assert "This cannot be undone." in question.text
    [answer] = [form for form in question.posts if "cancel" in form.buttons.values()]
    return dashboard.press(answer)


def test_all_jobs_of_a_tag_are_cancelled_after_a_question(
    dashboard: Visitor, tenant: dict[str, bytes], db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    text = _cancelled(dashboard, "tenant~3A7").text
    assert "Jobs with the tag tenant:7 are cancelled: 3 jobs removed, 1 running asked to end." in text
    assert [db.zcard(keys.schedule), db.zcard(keys.retry), db.zcard(keys.dead)] == [0, 0, 1]
    assert [db.llen(keys.queue(name)) for name in ("mail", "bills")] == [1, 1]
    [line] = AuditLog(one_redis_url, namespace=keys.namespace).page().actions
    assert (line.action, line.target) == ("jobs.cancel", "tag tenant:7")
    assert "No job with the tag none waits or runs" in _cancelled(dashboard, "none").text


def test_a_program_cancels_the_jobs_of_a_tag(dashboard: Visitor, tenant: dict[str, bytes]) -> None:
    program = Program.with_token(dashboard.root)
    assert program.done("/tags/tenant~3A7", "cancel") == 1
    assert program.act("/tags/none", "cancel").status == 409


def test_a_place_of_another_type_and_any_tag_have_a_page(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.dead, "of another type")
    db.sadd(keys.queues, "")
    db.lpush(keys.queue(""), raw_job("1", tags=["eu"]))
    page = dashboard.get("tags/eu")
    assert "Dead" in page.text and not [
        link for link in page.links if "/queues/?" in link or "/queue~" in link
    ]
    for text in hostile.TEXTS[:10]:
        db.zadd(keys.schedule, {raw_job("1", tags=[text]): 4e9})
    for link in dashboard.get("scheduled").links:
        if "/tags/" in link:
            assert f"<{hostile.MARK}" not in dashboard.get(link.removeprefix(dashboard.root)).html
