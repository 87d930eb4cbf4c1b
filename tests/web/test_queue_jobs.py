"""The jobs of a queue: pages, filters, and what people do with them."""

from __future__ import annotations

import json
import re
import time

import pytest
import redis

from pyworkers.protocol.keys import Keys
from tests.helpers.records import hold_order, raw_job, register
from tests.web import hostile
from tests.web.visitor import Visitor


def fill(db: redis.Redis, keys: Keys, number: int) -> None:
    db.lpush(keys.queue("mail"), *(raw_job(f"j{jid}", tags=["odd"] * (jid % 2)) for jid in range(number)))


def token(dashboard: Visitor) -> str:
    form, *_ = dashboard.get("queues/mail").posts
    return form.hidden["csrf"]


def boxes(dashboard: Visitor, path: str = "queues/mail") -> list[str]:
    [form] = [form for form in dashboard.get(path).posts if form.boxes]
    return [value for name, value in form.boxes if name == "job"]


def test_an_empty_queue(dashboard: Visitor) -> None:
    assert "There are no jobs here." in dashboard.get("queues/none").text


def test_the_numbers_of_the_queue(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    now = time.time()
    db.lpush(keys.queue("mail"), raw_job("j", enqueued_at=now - 7500))
    for minute in (int(now // 60) - 1, int(now // 60), int(now // 60) + 1):
        db.hset(keys.runs(minute), mapping={"mail|p": 1000, "mail|f": 100})
    page = dashboard.get("queues/mail")
    assert re.search(
        r"the next job has been waiting for 2 h 5 min · [12],\d{3} jobs/min, [12]\d\d of them failed",
        page.text,
    )
    assert re.search(r'/errors">[12]\d\d of them failed</a>', page.html)
    # Nothing counts the runs of a queue that only other programs serve.
    assert "jobs/min" not in dashboard.get("queues/other").text


def test_the_state_of_the_queue(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 1)
    page = dashboard.get("queues/mail?tag=none")
    assert "State: unserved · 0 servers take jobs from it · 0 in progress Pause" in page.text
    page = dashboard.press(next(form for form in page.posts if "pause" in form.buttons.values()))
    assert page.url.endswith("queues/mail?tag=none")
    assert "mail is paused." in page.text and "State: paused , unserved ·" in page.text
    page = dashboard.press(next(form for form in page.posts if "resume" in form.buttons.values()))
    assert "mail is resumed." in page.text
    now = time.time()
    register(db, keys, "a:1:x", {"queues": ["mail", "other"]}, beat=now)
    register(db, keys, "b:2:y", {"queues": ["mail"]}, beat=now, quiet="true")
    register(db, keys, "c:3:z", {"queues": ["other"]}, beat=now)
    assert "State: runs · 1 server takes jobs from it" in dashboard.get("queues/mail").text
    db.hset(keys.owners, "a:1:x", '["mail","other"]')
    hold_order(db, keys, "mail", "a:1:x")
    db.lpush(keys.inprogress("mail", "a:1:x"), raw_job("1"))
    db.lpush(keys.inprogress("other", "a:1:x"), raw_job("2"))
    page = dashboard.get("queues/mail")
    assert "State: active: a:1:x · 1 server takes jobs from it · 1 in progress" in page.text
    assert any(link.endswith("/servers/a~3A1~3Ax") for link in page.links)
    assert any(link.endswith("/servers/a~3A1~3Ax") for link in dashboard.get("queues").links)


def test_a_paused_queue_says_who_paused_it(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    def note(action: str, who: str, target: str = "mail") -> None:
        fields = {"at": time.time() - 7300, "who": who, "action": action, "target": target, "result": "done"}
        db.lpush(keys.audit, json.dumps(fields))

    db.sadd(keys.queues, "mail")
    db.sadd(keys.paused, "mail")
    assert "paused by" not in dashboard.get("queues/mail").text
    note("queue.pause", "eve")
    note("queue.resume", "eve")
    note("queue.pause", "ada")
    note("queue.pause", "bob")  # Nothing changed.
    note("queue.pause", "mia", "billing")
    page = dashboard.get("queues/mail")
    assert "State: paused , unserved · paused by ada 2 h ago" in page.text
    assert f"{dashboard.root}audit" in page.links
    db.srem(keys.paused, "mail")
    assert "ada" not in dashboard.get("queues/mail").text


def test_pages_of_a_queue(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 120)
    first = dashboard.get("queues/mail")
    assert "120 waiting; the job that runs next is first." in first.text
    assert "1 to 50 of 120" in first.text
    assert first.text.index("j0 ") < first.text.index("j49 ")
    assert "101 to 120 of 120" in dashboard.get("queues/mail?first=101").text
    assert "101 to 120 of 120" in dashboard.get("queues/mail?first=999999").text


def test_a_filter_finds_by_class_id_tag_and_argument(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 60)
    db.lpush(keys.queue("mail"), raw_job("late", **{"class": "Bill"}, args=[{"to": "Ann"}]))
    for query in ("class=Bi*", "jid=late", "text=ann", "class=Bill&jid=late&text=Ann&younger="):
        page = dashboard.get(f"queues/mail?{query}")
        assert "Found 1: looked at 61 of 61 jobs. The search is complete." in page.text
        assert "late" in page.text
    assert "Found 30: looked" in dashboard.get("queues/mail?tag=odd").text
    page = dashboard.get("queues/mail?jid=none")
    assert "None found: looked" in page.text and "All jobs that match" not in page.text


def test_every_filter_in_effect_is_a_field(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 1)
    [form] = [form for form in dashboard.get("queues/mail").forms if "jid" in form.hidden]
    assert not {"error", "queue"} & form.hidden.keys()
    page = dashboard.get("queues/mail?error=TimeoutError&queue=other&younger=120&older=30")
    [form] = [form for form in page.forms if "jid" in form.hidden]
    assert (form.hidden["error"], form.hidden["queue"]) == ("TimeoutError", "other")
    assert '<option value="120" selected>the last 2 min</option>' in page.html
    page = dashboard.get("queues/mail?younger=90000.5&older=0.0000001")
    assert '<option value="90000.5" selected>the last 25 h 0.5 s</option>' in page.html
    assert '<option value="0.0000001" selected>0.0000001 s ago</option>' in page.html
    page = dashboard.get("queues/mail?error=TimeoutError&queue=other&younger=120&older=30")
    assert '<option value="30" selected>30 s ago</option>' in page.html


def test_a_search_goes_on(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 300)
    page = dashboard.get("queues/mail?tag=odd")
    assert "looked at 100 of 300 jobs" in page.text
    [further] = {link for link in page.links if "from=" in link}
    page = dashboard.get(further.removeprefix(dashboard.root))
    assert "j101" in page.text
    assert "j99 " not in page.text


def test_selected_jobs_run_first_and_are_deleted(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 5)
    ats, csrf = boxes(dashboard), token(dashboard)
    answer = dashboard.ask("queues/mail", {"csrf": csrf, "action": "first", "job": ats[3]})
    assert "1 job moved to the front." in answer.text
    assert db.lindex(keys.queue("mail"), -1) == raw_job("j3", tags=["odd"])
    answer = dashboard.ask("queues/mail", {"csrf": csrf, "one": f"delete|{ats[1]}"})
    assert "1 job deleted." in answer.text
    assert db.llen(keys.queue("mail")) == 4
    answer = dashboard.ask("queues/mail", {"csrf": csrf, "one": f"delete|{ats[1]}"})
    assert "1 job is no longer here" in answer.text
    answer = dashboard.ask("queues/mail", {"csrf": csrf, "action": "kill", "job": ats[2]})
    assert "1 job moved to the dead jobs." in answer.text
    assert db.zcard(keys.dead) == 1


def test_nothing_selected(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fill(db, keys, 1)
    for action in ("delete", "ask-delete"):
        answer = dashboard.ask("queues/mail", {"csrf": token(dashboard), "action": action})
        assert "No job is selected." in answer.text


@pytest.mark.parametrize("action", ["", "run", "reschedule", "all-", "all-run", "nonsense", "first|1"])
def test_an_action_that_a_queue_does_not_have(
    dashboard: Visitor, keys: Keys, db: redis.Redis, action: str
) -> None:
    fill(db, keys, 1)
    assert dashboard.ask("queues/mail", {"csrf": token(dashboard), "action": action}).status == 400


def test_a_name_of_any_bytes(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("").encode() + b"a/b\xff\n", raw_job("found"))
    page = dashboard.get("queues/a~2Fb~FF~0A")
    assert "found" in page.text
    _, search, _ = [form for form in page.forms if form.method == "get"]
    assert search.action.endswith("/queues/a~2Fb~FF~0A")


def test_a_filter_with_invisible_characters(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.lpush(keys.queue("mail"), raw_job("1", **{"class": "\x1b[31m"}), raw_job("2", **{"class": "\ud800"}))
    [link] = {link for link in dashboard.get("queues/mail").links if "class=%5Cu001b" in link}
    page = dashboard.get(link.removeprefix(dashboard.root))
    assert "Found 1: looked" in page.text
    assert 'value="\\u001b[31m"' in page.html
    assert "Found 1: looked" in dashboard.get("queues/mail?class=%5Cud800").text


def test_a_key_of_another_type_is_said(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.set(keys.queue("mail"), "text")
    answer = dashboard.ask("queues/mail")
    assert (answer.status, "is a key of another type" in answer.text) == (200, True)


def test_masked_and_encrypted_arguments_are_not_shown(
    dashboard: Visitor, keys: Keys, db: redis.Redis
) -> None:
    sealed = raw_job("2", args=["ciphertext"], encrypted=True)
    db.lpush(keys.queue("mail"), raw_job("1", args=[{"password": "hunter2", "to": "Ann"}]), sealed)
    page = dashboard.get("queues/mail")
    assert "hunter2" not in page.html
    assert "ciphertext" not in page.html
    assert "(hidden)" in page.text
    assert "(encrypted)" in page.text
    assert "None found" in dashboard.get("queues/mail?text=hunter2").text


def test_fifty_jobs_of_a_megabyte_are_a_small_page(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    for number in range(50):
        db.lpush(keys.queue("mail"), raw_job(f"big{number}", args=["x" * 1_000_000]))
    page = dashboard.get("queues/mail")
    assert "big0" in page.text
    assert len(page.html) < 200_000
    # Redis reads some 24 MB for a page: the next one begins after its last row.
    shown = page.html.count('name="job"')
    [following] = {link for link in page.links if "first=" in link}
    assert following.endswith(f"first={shown + 1}")
    assert f"big{shown} " in dashboard.get(following.removeprefix(dashboard.root)).text


def test_any_bytes_are_rows(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    raws = list(hostile.envelopes())
    db.rpush(keys.queue("mail"), *raws)
    shown = 0
    for number in range(1, len(raws) // 50 + 2):
        page = dashboard.get(f"queues/mail?first={number * 50 - 49}")
        shown += page.html.count('name="job"')
        assert f"<{hostile.MARK}" not in page.html
        assert "\x1b" not in page.html
    assert shown == len(raws)
