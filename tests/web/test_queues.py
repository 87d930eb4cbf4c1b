"""The page of all queues."""

from __future__ import annotations

import html
import json
import re
import time
from urllib.parse import urlsplit

import redis

from pyworkers import Client
from pyworkers.api import Queue
from pyworkers.protocol.keys import Keys
from tests.helpers.records import hold_order, raw_job, register
from tests.helpers.support import wait_for
from tests.interop.browser import Form, Page
from tests.web.visitor import Visitor


def form_of(page: Page, button: str) -> Form:
    """The only form with a button of that value."""
    [form] = [form for form in page.forms if button in form.buttons.values()]
    return form


def rows_of(page: Page) -> list[list[str]]:
    """The cells of the rows of the tables, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", page.html, re.DOTALL)
    cells = (re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL) for row in rows)
    return [[html.unescape(re.sub(r"<.*?>", "", cell)) for cell in row] for row in cells]


def test_an_empty_redis(dashboard: Visitor) -> None:
    assert "There are no queues yet." in dashboard.get("queues").text


def test_a_queue_is_paused_and_resumed(dashboard: Visitor, one_redis_url: str, namespace: str) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue("mail", "Send", [1])
    queue = Queue("mail", one_redis_url, namespace=namespace)
    page = dashboard.press(form_of(dashboard.get("queues?match=mai&order=size"), "pause"))
    assert "mail is paused." in page.text
    assert "match=mai" in page.url
    assert queue.paused
    assert "mail is resumed." in dashboard.press(form_of(page, "resume")).text
    assert not queue.paused


def test_a_queue_is_cleared_after_a_question(dashboard: Visitor, one_redis_url: str, namespace: str) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        client.enqueue_bulk("mail", "Send", [[1], [2], [3]])
    queue = Queue("mail", one_redis_url, namespace=namespace)
    page = dashboard.press(form_of(dashboard.get("queues"), "clear"), "ask")
    assert (
        "Clear the queue mail now? 3 waiting jobs will be removed; this can be undone for ten minutes."
        in page.text
    )
    assert queue.size == 3
    assert "mail is cleared: 3 jobs removed." in dashboard.press(form_of(page, "clear")).text
    assert queue.size == 0


def test_a_long_queue_is_cleared_by_a_task(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    db.sadd(keys.queues, "mail")
    db.lpush(keys.queue("mail"), *(raw_job(str(n)) for n in range(10_001)))
    page = dashboard.press(form_of(dashboard.get("queues"), "clear"), "ask")
    task = dashboard.press(form_of(page, "clear"))
    assert "/tasks/" in task.url
    wait_for(lambda: "Done: 10,001 jobs deleted." in dashboard.get(urlsplit(task.url).path).text)
    assert not db.exists(keys.queue("mail"))
    undo = form_of(dashboard.get(urlsplit(task.url).path), "undo")
    # As if ten minutes ended meanwhile.
    db.hdel(keys.deletion(urlsplit(task.url).path.rpartition("/")[2]), "7")
    back = dashboard.press(undo)
    assert "/tasks/" in back.url and "Put back: Deleted jobs" in back.text
    words = "Done: 10,000 jobs put back, 1 no longer kept."
    wait_for(lambda: words in dashboard.get(urlsplit(back.url).path).text)
    assert db.llen(keys.queue("mail")) == 10_000


def test_a_row_says_who_serves_the_queue(dashboard: Visitor, db: redis.Redis, namespace: str) -> None:
    keys = Keys(namespace)
    now = time.time()
    for identity in ("a:1:x", "b:2:y"):
        register(db, keys, identity, {"queues": ["mail", "ledger"]}, beat=now)
    db.hset(keys.owners, "a:1:x", '["mail"]')
    db.set(keys.lease("a:1:x"), "x")
    hold_order(db, keys, "ledger", "b:2:y")
    for minute in (int(now // 60), int(now // 60) + 1):
        db.hset(keys.runs(minute), mapping={"mail|p": 60_000, "mail|f": 600})
    db.hset(keys.runs(int(now // 60) - 10), mapping={"mail|p": 7, "mail|f": 1})
    db.lpush(keys.queue("left"), raw_job("j", enqueued_at=now - 7200))
    db.sadd(keys.queues, "left")
    page = dashboard.get("queues")
    rows = {row[0]: row for row in rows_of(page)}
    [mail] = re.findall(r'aria-label="Runs by minute: ([^"]*7[^"]*)"', page.html)
    assert mail.count(", ") == 29 and "60,000" in mail
    assert rows["mail"][5] == "2"
    rate = re.fullmatch(r"([\d,]+) \(([\d,]+) failed\)", rows["mail"][3])
    assert rate and int(rate[1].replace(",", "")) >= 30_000 and int(rate[2].replace(",", "")) >= 300
    assert re.search(r'href="/errors">\([\d,]+ failed\)</a>', page.html)
    assert "failed" not in rows["ledger"][3]
    assert rows["ledger"][6] == "active: b:2:y"
    assert rows["left"][1:7] == ["1", "2 h", "\N{EN DASH}", "0", "0", "unserved"]


def test_a_thousand_queues_are_paged_filtered_and_sorted(
    dashboard: Visitor, db: redis.Redis, namespace: str
) -> None:
    keys = Keys(namespace)
    db.sadd(keys.queues, *(f"queue{number:04}" for number in range(1000)))
    db.lpush(keys.queue("queue0777"), raw_job("a"), raw_job("b"))
    page = dashboard.get("queues")
    assert "Page 1 of 20, 1,000 queues" in page.text
    assert [row[0] for row in rows_of(page)][1:3] == ["queue0000", "queue0001"]
    page = dashboard.get("queues?match=QUEUE07&page=2")
    assert "Page 2 of 2, 100 queues" in page.text
    assert "queue0799" in page.text
    assert "queue0777" in dashboard.get("queues?order=size").text
    behind = dashboard.get("queues?match=QUEUE07&order=size&page=3")
    assert "The list is shorter now. To its beginning" in behind.text
    assert any(link.endswith("/queues?match=QUEUE07&order=size") for link in behind.links)
    assert "No queue has this text" in dashboard.get("queues?match=none").text
    for odd in ("queues?page=0", "queues?page=x&order=x", "queues?page=99999999999", "queues?match=%FF%00"):
        assert dashboard.ask(odd).status == 200


def test_hostile_names(dashboard: Visitor, db: redis.Redis, namespace: str) -> None:
    keys = Keys(namespace)
    hostile: list[str | bytes] = [
        '<script>alert(1)</script>"',
        b"\xff\x00/\n",
        "‮evil",
        "x" * 5000,
        "",
        "~",
        "..",
    ]
    db.sadd(keys.queues, *hostile)
    db.sadd(keys.paused, hostile[1])
    page = dashboard.get("queues")
    assert "<script>alert(1)</script>" in page.text
    assert "\\u202eevil" in page.text
    assert "resume" in json.dumps([form.buttons for form in page.forms])
    assert "\\xff\\u0000/\\u000a is resumed." in dashboard.press(form_of(page, "resume")).text


def test_an_action_on_a_name_that_cannot_be_a_queue_is_refused(
    dashboard: Visitor, db: redis.Redis, namespace: str
) -> None:
    db.sadd(Keys(namespace).queues, "mail")
    form = form_of(dashboard.get("queues"), "pause")
    answer = dashboard.ask("queues", {**form.hidden, "name": "a~20b", "action": "pause"})
    assert "cannot be a queue" in answer.text
    assert dashboard.ask("queues", {**form.hidden, "action": "explode"}).status == 400
