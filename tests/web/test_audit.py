"""The audit: each action is a line, whatever becomes of it; the page shows any bytes."""

from __future__ import annotations

import json
import time

import redis

from pyworkers import Client
from pyworkers.api import AuditLog
from pyworkers.api.browse.actions import JobAction, Order
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.places import DEAD, RETRIES
from pyworkers.api.browse.search import Sought
from pyworkers.api.browse.tasks import (
    TaskProgress,
    TaskState,
    confirm_task,
    create_task,
    fields_of,
    read_task,
)
from pyworkers.api.browse.work import work_on
from pyworkers.api.target import admin_of
from pyworkers.protocol.keys import Keys
from pyworkers.store.browse import tasks
from tests.helpers.records import raw_job
from tests.web.chromium import Chromium
from tests.web.visitor import Visitor


def test_an_action_is_a_line_with_its_viewer_and_its_result(
    dashboard: Visitor, one_redis_url: str, namespace: str
) -> None:
    assert "No action was taken yet." in dashboard.get("audit").text
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue("mail", "Send", [1])
    [form] = [one for one in dashboard.get("queues").forms if one.buttons.get("action") == "pause"]
    dashboard.press(form)
    dashboard.press(form)
    actions = AuditLog(one_redis_url, namespace=namespace).page().actions
    assert [(found.action, found.target, found.result, found.source) for found in actions] == [
        ("queue.pause", "mail", "nothing changed", "127.0.0.1"),
        ("queue.pause", "mail", "done", "127.0.0.1"),
    ]
    page = dashboard.get("audit")
    assert "queue.pause mail nothing changed" in page.text
    assert f"{dashboard.root}queues/mail" in page.links


def test_the_line_of_an_action_on_jobs_says_how_many_were_moved(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    db.zadd(keys.dead, {raw_job("1"): 1, raw_job("2", queue="a b"): 2, raw_job("3"): 3})
    [form] = [one for one in dashboard.get("dead").posts if one.boxes]
    ats = {jid: at for jid, (_, at) in zip("321", form.boxes, strict=True)}
    for button in (f"run|{ats['3']}", f"run|{ats['3']}", f"run|{ats['2']}"):
        dashboard.ask(form.action, {"csrf": form.hidden["csrf"], "one": button})
    actions = AuditLog(one_redis_url, namespace=keys.namespace).page().actions
    results = [found.result for found in actions]
    assert results[1:] == ["nothing changed", "1"]
    assert results[0].startswith("nothing changed, refused: 'a b' cannot be a queue: ")


def test_deleted_jobs_are_put_back_by_a_button(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    db.zadd(keys.dead, {raw_job("1"): 1, raw_job("2"): 2})
    [form] = [one for one in dashboard.get("dead").posts if one.boxes]
    [(_, at), _] = form.boxes
    page = dashboard.ask(form.action, {"csrf": form.hidden["csrf"], "one": f"delete|{at}"}).page
    assert db.zcard(keys.dead) == 1
    assert "Undo For ten minutes, also in Audit ." in page.text
    [line] = AuditLog(one_redis_url, namespace=keys.namespace).page().actions
    assert (line.action, line.target) == ("job.delete", "2"), "a single job has its name"
    [button] = [one for one in page.posts if one.buttons.get("action") == "undo"]
    back = dashboard.press(button)
    assert "1 job put back." in back.text and back.path == page.path, "where the button was"
    assert db.zcard(keys.dead) == 2
    for odd in ("https://evil.example/", "//evil.example", "/\\evil.example", "audit", "/ x"):
        assert dashboard.press(button, back=odd).path == "/audit"
    assert "Nothing to put back" in dashboard.press(button).text
    # The queue, all of whose jobs are deleted, and the line in the audit.
    db.lpush(keys.queue("q"), raw_job("3"))
    db.sadd(keys.queues, "q")
    [clear] = [one for one in dashboard.get("queues").forms if one.buttons.get("ask") == "clear"]
    [question] = [one for one in dashboard.press(clear, "ask").posts if one.buttons.get("action") == "clear"]
    assert "q is cleared: 1 job removed." in dashboard.press(question).text
    first = AuditLog(one_redis_url, namespace=keys.namespace).page().actions[0]
    assert (first.action, first.result, bool(first.undo)) == ("queue.clear", "1", True)
    numbers = json.loads(dashboard.ask(f"/api/undo/{first.undo}").text)
    assert (numbers["kept"], numbers["lost"]) == (1, 0)
    [button] = [one for one in dashboard.get("audit").posts if one.buttons.get("action") == "undo"]
    assert "1 job put back." in dashboard.press(button).text
    assert db.llen(keys.queue("q")) == 1
    assert not [one for one in dashboard.get("audit").posts if one.buttons.get("action") == "undo"]


def test_a_change_stays_if_redis_refuses_its_line(
    dashboard: Visitor, db: redis.Redis, namespace: str
) -> None:
    keys = Keys(namespace)
    db.set(keys.audit, "of another type")
    db.lpush(keys.queue("mail"), b"{}")
    db.sadd(keys.queues, "mail")
    [form] = [one for one in dashboard.get("queues").forms if one.buttons.get("action") == "pause"]
    assert "mail is paused." in dashboard.press(form).text
    assert "No action was taken" in dashboard.get("audit").text


def test_a_long_audit_has_pages_and_hostile_texts_are_shown(
    dashboard: Visitor, db: redis.Redis, namespace: str
) -> None:
    keys = Keys(namespace)
    db.lpush(keys.audit, *(b'{"action":"a%d","at":%d}' % (n, n) for n in range(120)))
    db.lpush(keys.audit, b"\xff<script>\x1b", b'{"at":1e308,"who":{"x":"\\ud800"}}')
    page = dashboard.get("audit")
    assert "\\xff<script>\\u001b" in page.text and "<script>\x1b" not in page.html
    assert "1 to 50 of 122" in page.text
    [older] = [link for link in page.links if "first=" in link]
    assert "51 to 100 of 122" in dashboard.get(older).text
    assert "a0" in dashboard.get("audit?first=100").text
    assert "The list is shorter now." in dashboard.get("audit?first=5000").text
    for odd in ("-1", "x", "1e9", "9" * 40, "%00"):
        assert "1 to 50 of 122" in dashboard.get(f"audit?first={odd}").text


def test_a_target_is_broken_where_its_line_is_full(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.lpush(keys.audit, b'{"action":"server.quiet","target":"shop-1.example:4711:5f0c2a9be431","at":1}')
    chromium.open(f"{dashboard.root}audit")
    assert chromium.style('[data-label="Target"]', "word-break") == "break-all"


def test_a_task_says_how_many_of_its_jobs_can_be_put_back(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str, namespace: str
) -> None:
    db.zadd(keys.dead, {raw_job("1"): 1, raw_job("2"): 2})
    admin = admin_of(one_redis_url, namespace)
    order, sought = Order(DEAD, JobAction.DELETE), Sought(DEAD, Filter(jid="1"), time.time())
    counting = create_task(admin, order, sought, "Ann")
    assert work_on(admin, counting) is TaskState.COUNTED
    counted = admin.run(read_task(keys, counting.id))
    assert counted is not None
    running = confirm_task(admin, counted)
    assert running is not None
    assert work_on(admin, running) is TaskState.DONE

    def shown(numbers: str) -> tuple[bool, str]:
        if numbers:
            db.hset(keys.deletions, running.id, f"{time.time():.3f} {numbers}")
        page = dashboard.get(f"tasks/{running.id}")
        return any("undo" in one.buttons.values() for one in page.posts), page.text

    offered, text = shown("")
    assert offered and "cannot" not in text
    offered, text = shown("95870 60000000 204130")
    assert offered and "95,870 jobs can be put back, the other 204,130 cannot: there was no room" in text
    offered, text = shown("0 0 1")
    assert not offered and "They cannot be put back: there was no room" in text


def test_a_task_says_that_dead_does_not_keep_all(
    dashboard: Visitor, keys: Keys, one_redis_url: str, namespace: str
) -> None:
    admin = admin_of(one_redis_url, namespace)
    sought = Sought(RETRIES, Filter(error="Timeout"), time.time())
    task = create_task(admin, Order(RETRIES, JobAction.KILL), sought, "Ann")
    for selected, said in ((9_999, False), (12_000, True)):
        counted = fields_of(TaskState.COUNTED, TaskProgress(20_000, selected=selected))
        admin.run(tasks.report(keys, task.id, counted))
        text = dashboard.get(f"tasks/{task.id}").text
        assert f"{selected:,} jobs are selected" in text
        assert ("Dead keeps its last 9,999 jobs: the others are lost." in text) == said
