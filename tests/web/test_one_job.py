"""The page of one job: wherever it is, whatever it holds, with the actions of its state."""

from __future__ import annotations

import base64
import json
import time
import zlib
from datetime import datetime
from hashlib import sha1

import pytest
import redis
from markupsafe import escape

from pyworkers import Client
from pyworkers.protocol.keys import Keys
from tests.helpers.records import hold_order, raw_job
from tests.helpers.replies import as_list
from tests.interop.browser import Page
from tests.web import hostile
from tests.web.visitor import Visitor

OWNER = "host:1:abcdef"


def linked(dashboard: Visitor, path: str) -> list[str]:
    """The addresses of the jobs of a list."""
    links = dashboard.get(path).links
    return list(dict.fromkeys(link.removeprefix(dashboard.root) for link in links if "/jobs/" in link))


def found(dashboard: Visitor, path: str) -> Page:
    """The page of a job. A search of 50 ms is not complete on a slow machine, and goes on by itself."""
    page = dashboard.get(path)
    while further := [link for link in page.links if "look=" in link and "#" not in link]:
        page = dashboard.get(further[0].removeprefix(dashboard.root))
    return page


def act(dashboard: Visitor, path: str, action: str, **fields: str) -> str:
    hidden = found(dashboard, path).posts[-1].hidden
    answer = dashboard.ask(path, {**hidden, "action": action, **fields})
    assert answer.status == 200, answer.text
    return answer.text


def test_an_unknown_job(dashboard: Visitor) -> None:
    text = found(dashboard, "jobs/none").text
    assert "There is no such job on the servers, in Scheduled, Retries and Dead, or in any queue: it" in text


def test_the_box_on_every_page_finds_a_job(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("a b/1"): 1, raw_job("\x1b"): 2})
    for page in ("", "dead", "jobs/none", "tasks/none"):
        [box] = [form for form in dashboard.ask(page).page.forms if form.action.endswith("/find")]
        assert box.method == "get" and list(box.hidden) == ["q"]
    answer = dashboard.ask("jobs?id=%20a+b%2F1%20", follow=False)
    assert (answer.status, answer.headers["location"].endswith("/jobs/a~20b~2F1")) == (303, True)
    assert "Dead" in found(dashboard, "jobs?id=%20a+b%2F1%20").text
    assert "State dead" in found(dashboard, "jobs?id=%5Cu001b").text
    assert "Type the id" in dashboard.get("jobs?id=+").text
    assert "as long as this one" in dashboard.get(f"jobs?id={'%00' * 3000}").text


def test_a_dead_job_links_its_queue(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1", queue="mail"): 1})
    assert 'href="/queues/mail"' in found(dashboard, "jobs/1").html


def test_a_waiting_job_runs_first(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.sadd(keys.queues, "mail")
    db.lpush(keys.queue("mail"), raw_job("1"), raw_job("2", tags=["vip"], args=[{"to": "Ann"}]))
    page = found(dashboard, "jobs/2")
    assert "waiting , in Queue mail , at place 2" in page.text
    assert '{"to":"Ann"}' in page.text
    assert "vip" in page.text
    assert "1 job moved to the front." in act(dashboard, "jobs/2", "first")
    assert db.lindex(keys.queue("mail"), -1) == raw_job("2", tags=["vip"], args=[{"to": "Ann"}])


@pytest.mark.parametrize("place", ["scheduled", "retries", "dead"])
def test_a_job_of_a_set_runs_now(dashboard: Visitor, keys: Keys, db: redis.Redis, place: str) -> None:
    key = {"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}[place]
    db.zadd(key, {raw_job("1"): time.time() + 60})
    [path] = linked(dashboard, place)
    text = act(dashboard, path, "run")
    assert "1 job put into its queue." in text
    assert "waiting , in Queue q" in found(dashboard, "jobs/1").text
    assert db.llen(keys.queue("q")) == 1


def test_a_job_that_has_just_gone(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1"): time.time()})
    [path] = linked(dashboard, "dead")
    hidden = found(dashboard, path).posts[-1].hidden
    db.delete(keys.dead)
    assert "1 job is no longer here" in dashboard.ask(path, {**hidden, "action": "delete"}).text
    assert "There is no such job" in found(dashboard, path).text


def test_a_job_that_waits_for_a_limit(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.hset(keys.limits, "mails", "5 0")
    db.zadd(keys.limit_waiting("mails"), {"q 1": 9e9})
    db.zadd(keys.schedule, {raw_job("1"): 9e9})
    assert "Waits for the limit mails" in found(dashboard, "jobs/1").text


def test_a_job_gets_another_time(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job("1"): time.time() + 60})
    assert "1 job rescheduled." in act(dashboard, "jobs/1", "reschedule", delay="86400")
    assert db.zcount(keys.schedule, time.time() + 80_000, "+inf") == 1


def test_a_job_gets_a_date_and_a_time_in_a_zone(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job("1"): time.time() + 60})
    for when, zone, at in (
        ("2035-07-01T12:00", "", "2035-07-01T12:00+00:00"),
        ("2035-07-01T12:00:30", "UTC", "2035-07-01T12:00:30+00:00"),
        ("2035-07-01T12:00", "Europe/Paris", "2035-07-01T12:00+02:00"),
        ("2035-07-01T12:00-05:00", "Europe/Paris", "2035-07-01T12:00-05:00"),
    ):
        text = act(dashboard, "jobs/1", "reschedule", delay="60", when=when, zone=zone)
        assert "1 job rescheduled." in text
        assert db.zscore(keys.schedule, raw_job("1")) == datetime.fromisoformat(at).timestamp()


@pytest.mark.parametrize(
    ("when", "zone", "sentence"),
    [
        ("2035-02-30T12:00", "", "is not a date and time such as 2026-11-23T09:30."),
        ("<b>" + "9" * 500, "", "is not a date and time"),
        ("\u202e\0", "", "\\u202e\\u0000 is not a date and time"),
        ("0001-01-01T00:00", "Asia/Tokyo", "0001-01-01T00:00 "),
        ("2020-01-01T00:00", "", "2020-01-01T00:00 has passed: it was "),
        ("9999-12-31T23:59", "America/New_York", "9999-12-31T23:59 "),
        ("2035-01-01T00:00", "Mars/Base", "Mars/Base is not a time zone that this server knows."),
        ("2035-01-01T00:00", "../../etc/passwd", "is not a time zone"),
        ("2035-01-01T00:00", "Europe", "is not a time zone"),
        ("2035-01-01T00:00", "\0", "is not a time zone"),
    ],
)
def test_an_invalid_new_time_is_refused_with_the_reason(
    dashboard: Visitor, keys: Keys, db: redis.Redis, when: str, zone: str, sentence: str
) -> None:
    db.zadd(keys.schedule, {raw_job("1"): 4e9})
    text = act(dashboard, "jobs/1", "reschedule", delay="60", when=when, zone=zone)
    assert "Not done: " in text
    assert sentence in text
    assert db.zscore(keys.schedule, raw_job("1")) == 4e9


def test_a_refused_new_time_stays(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job("1"): 4e9})
    typed = {"action": "reschedule", "delay": "3600", "when": '2020"<b>'}
    page = dashboard.ask("jobs/1", {**found(dashboard, "jobs/1").posts[-1].hidden, **typed}).page
    assert f'value="{escape(typed["when"])}"' in page.html
    assert '<option value="3600" selected>' in page.html


def test_a_refused_new_time_stays_where_a_search_would_go_on(
    dashboard: Visitor, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.schedule, {raw_job("1"): 4e9})
    typed = {"action": "reschedule", "delay": "3600", "when": "2020"}
    # From the dead jobs on, a search does not find it.
    page = dashboard.ask("jobs/1?look=dead", {**found(dashboard, "jobs/1").posts[-1].hidden, **typed}).page
    assert "Not done: 2020 is not a date and time" in page.text
    assert 'value="2020"' in page.html and '<option value="3600" selected>' in page.html


def test_a_running_job_is_cancelled(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.hset(keys.owners, OWNER, '["q"]')
    db.lpush(keys.inprogress("q", OWNER), raw_job("1"))
    page = found(dashboard, "jobs/1")
    assert "running" in page.text
    assert OWNER in page.text
    assert "1 is cancelled" in act(dashboard, "jobs/1", "cancel")
    assert db.zscore(keys.cancelled, "1") is not None
    hidden = found(dashboard, "jobs/1").posts[-1].hidden
    db.delete(keys.inprogress("q", OWNER))
    text = dashboard.ask("jobs/1", {**hidden, "action": "cancel"}).text
    assert "1 does not run there any more" in text


def test_progress_and_result_of_a_tracked_job(
    dashboard: Visitor, keys: Keys, one_redis_url: str, namespace: str, db: redis.Redis
) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        jid = client.enqueue("q", "Add", [1], track=60)
    db.hset(keys.job(jid), mapping={"progress": '[3,10,"third"]'})
    assert "3 of 10 third" in found(dashboard, f"jobs/{jid}").text
    db.delete(keys.queue("q"))
    db.hset(keys.job(jid), mapping={"state": "done"})
    answer = {"state": "done", "result": {"sum": 3, "token": "secret"}}
    db.xadd(keys.result(jid), {"answer": json.dumps(answer)})
    page = found(dashboard, f"jobs/{jid}")
    assert "it is done" in page.text
    assert '"sum": 3' in page.text
    assert "secret" not in page.html
    db.delete(keys.result(jid))
    db.xadd(keys.result(jid), {"answer": json.dumps({"state": "cancelled", "error_class": "", "error": ""})})
    assert "Result" not in found(dashboard, f"jobs/{jid}").text


@pytest.mark.parametrize("packed", [True, False])
def test_the_traceback_is_readable(dashboard: Visitor, keys: Keys, db: redis.Redis, packed: bool) -> None:
    lines = ["app.py:1:in `call'", "lib.py:2:in `run'"]
    stored = base64.b64encode(zlib.compress(json.dumps(lines).encode())).decode() if packed else lines
    raw = raw_job("1", error_class="Timeout", error_message="late\nvery", error_backtrace=stored)
    db.zadd(keys.retry, {raw: time.time()})
    text = found(dashboard, "jobs/1").text
    assert "Timeout: late very" in text
    assert "app.py:1:in `call' lib.py:2:in `run'" in text


def test_masked_and_encrypted_arguments_are_not_shown(
    dashboard: Visitor, keys: Keys, db: redis.Redis
) -> None:
    sealed = raw_job("2", args=["ciphertext"], encrypted=True)
    db.zadd(keys.dead, {raw_job("1", args=[{"password": "hunter2"}]): 1, sealed: 2})
    for path in linked(dashboard, "dead"):
        html = found(dashboard, path).html
        assert "hunter2" not in html
        assert "ciphertext" not in html


def test_a_megabyte_is_cut_with_a_link_to_the_whole(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1", args=["x" * 1_000_000]): 1})
    page = found(dashboard, "jobs/1")
    assert len(page.html) < 100_000
    [whole] = {link for link in page.links if "whole=1" in link}
    # The link needs no search, which may end too soon.
    assert "in=dead&at=" in whole
    assert "x" * 1_000_000 in dashboard.get(whole.removeprefix(dashboard.root)).html


@pytest.mark.parametrize("value", ["[" * 9000, "\xff", f"[{10**400},1]", "[]", "{}", '{"state":"done"}'])
def test_any_track_has_a_page(dashboard: Visitor, keys: Keys, db: redis.Redis, value: str) -> None:
    fields = ("progress", "started_at", "finished_at", "attempt", "run:1", "error:1", "queue", "error")
    for name, text in {"state": "running", "job": "{}", **dict.fromkeys(fields, value)}.items():
        db.hset(keys.job("1"), name, text)
    db.xadd(keys.result("1"), {"answer": value})
    assert "running" in found(dashboard, "jobs/1").text


def test_any_bytes_have_a_page(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    raws = list(hostile.envelopes())
    db.rpush(keys.queue("q"), *raws)
    pages = len(raws) // 50 + 1
    paths = [
        path for number in range(pages) for path in linked(dashboard, f"queues/q?first={number * 50 + 1}")
    ]
    assert len(paths) == len(raws)
    for path in paths:
        page = found(dashboard, path)
        assert "in Queue q" in page.text
        assert f"<{hostile.MARK}" not in page.html
        assert "\x1b" not in page.html


@pytest.mark.parametrize(
    "path",
    ["jobs/1?in=x&at=y", "jobs/1?in=queue:q&at=1", "jobs/-?in=dead&at=0_ab_1", "jobs/~FF", "jobs/1?look=x"],
)
def test_an_address_that_leads_nowhere(dashboard: Visitor, path: str) -> None:
    assert "There is no such job" in found(dashboard, path).text


@pytest.mark.parametrize("fields", [{}, {"in": "dead"}, {"in": "dead", "action": "kill"}, {"action": "run"}])
def test_an_action_that_the_job_does_not_have(
    dashboard: Visitor, keys: Keys, db: redis.Redis, fields: dict[str, str]
) -> None:
    db.zadd(keys.dead, {raw_job("1"): 1})
    csrf = found(dashboard, "jobs/1").posts[-1].hidden["csrf"]
    assert dashboard.ask("jobs/1", {"csrf": csrf, **fields}).status == 400


def retry(db: redis.Redis, keys: Keys, jid: str) -> None:
    """Note that this job, which is the next one, has failed and is due again in 350 seconds."""
    head = sha1(raw_job(jid)).hexdigest()
    due_ms = int((time.time() + 350) * 1000)
    db.hset(keys.ordered("ledger"), mapping={"head": head, "until": due_ms})


def test_a_job_of_an_ordered_queue_says_what_it_waits_for(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.sadd(keys.queues, "ledger")
    db.lpush(keys.queue("ledger"), raw_job("first"), raw_job("second"))
    assert "Waits for" not in found(dashboard, "jobs/second").text
    hold_order(db, keys, "ledger", OWNER)
    page = found(dashboard, "jobs/second")
    assert (
        f"Waits for the job before it. The queue is ordered: {OWNER} runs its jobs one at a time."
        in page.text
    )
    assert "Waits for its server." in found(dashboard, "jobs/first").text
    db.lpush(keys.inprogress("ledger", OWNER), raw_job("zero"))
    assert "Waits for the job that runs." in found(dashboard, "jobs/first").text
    retry(db, keys, "first")
    assert "Waits for its retry in 5 min ." in found(dashboard, "jobs/first").text
    assert "The first one has failed, and runs again in 5 min ." in found(dashboard, "jobs/second").text


def test_a_job_of_an_ordered_queue_waits_for_a_live_server(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.sadd(keys.queues, "ledger")
    db.lpush(keys.queue("ledger"), raw_job("first"), raw_job("second"))
    hold_order(db, keys, "ledger", OWNER)
    db.delete(keys.lease(OWNER))
    waits = "Waits for a live server. The queue is ordered, and no live server takes jobs from it."
    assert waits in found(dashboard, "jobs/second").text
    retry(db, keys, "first")
    assert f"{waits} The job has failed, and is due again in 5 min ." in found(dashboard, "jobs/first").text
    assert f"{waits} The first job has failed," in found(dashboard, "jobs/second").text


def test_a_job_that_is_done_says_what_is_kept_of_it(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    for state, sentence in (
        ("done", "Of a job that is done, class and arguments are not kept, nor a result."),
        ("failed", "Its class and arguments are not kept."),
    ):
        db.hset(keys.job(state), mapping={"state": state, "queue": "mail"})
        assert sentence in dashboard.get(f"jobs/{state}").text
    db.xadd(keys.result("done"), {"answer": '{"state":"done","result":{"sum":3}}'})
    page = dashboard.get("jobs/done")
    assert "class and arguments are not kept; its result is below." in page.text
    assert '"sum": 3' in page.text


def test_a_job_that_is_done_is_shown_from_its_history(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    stored = raw_job("a", **{"class": "Send", "args": [{"to": "ann", "token": "secret"}], "queue": "mail"})
    db.hset(keys.job("a"), mapping={"state": "done", "queue": "mail", "job": stored})
    page = dashboard.get("jobs/a")
    assert "Class and arguments are from its history." in page.text
    assert "Send" in page.text and '"to":"ann"' in page.text
    assert "secret" not in page.text and "not kept" not in page.text
    assert "Delete" not in page.text
    assert not [form for form in page.forms if "preview" in form.buttons.values()], "not all is shown"


@pytest.mark.parametrize(
    "more", [{}, {"encrypted": True}, {"queue": ""}, {"args": 7}, {"args": ["x" * 20_000]}]
)
def test_a_job_that_is_done_is_edited_and_enqueued_again(
    dashboard: Visitor, db: redis.Redis, keys: Keys, more: dict[str, object]
) -> None:
    fields = {
        "class": "<b>Send",
        "args": ["to\u001b", 1],
        "queue": "mail",
        "retry": True,
        "retry_max": 3,
        "tags": ["vip"],
        **more,
    }
    db.hset(keys.job("a"), mapping={"state": "done", "job": raw_job("a", **fields)})
    forms = [form for form in dashboard.get("jobs/a").forms if "preview" in form.buttons.values()]
    if more:
        assert forms == []
        return
    page = dashboard.press(forms[0])
    assert "Nothing has happened yet." in page.text
    [form] = [form for form in page.forms if "enqueue" in form.buttons.values()]
    typed = forms[0].hidden
    dashboard.ask(form.action, {**form.hidden, **typed, "args": '["to others"]', "action": "enqueue"})
    [copy] = map(json.loads, as_list(db.lrange(keys.queue("mail"), 0, -1)))
    assert (copy["class"], copy["args"], copy["retry"]) == ("<b>Send", ["to others"], True)
    assert (copy["tags"], copy["retry_max"]) == (["vip"], 3) and copy["jid"] != "a"


def test_a_job_that_is_done_with_deep_arguments(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    for depth in (90, 400, 900):
        args = b"[" * depth + b"]" * depth
        job = b'{"class":"Send","queue":"mail","jid":"a","args":%b,"retry":%b}' % (args, args)
        db.hset(keys.job("a"), mapping={"state": "done", "job": job})
        assert "it is done" in dashboard.get("jobs/a").text


def test_a_queue_that_no_key_can_have_is_not_linked(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.retry, {rb'{"class":"Send","args":[],"jid":"a","queue":"x\ud800"}': 1.0})
    for page in (dashboard.get("retries"), dashboard.get("jobs/a")):
        assert not [link for link in page.links if "ud800" in link.lower() and "/queues/" in link]
