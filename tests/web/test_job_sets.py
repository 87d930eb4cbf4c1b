"""Scheduled, retries and dead: filters, single jobs, selected jobs, and all that match."""

from __future__ import annotations

import json
import re
import time
from html import unescape

import pytest
import redis

from pyworkers.api import AuditLog
from pyworkers.protocol.keys import Keys
from tests.helpers.records import raw_job
from tests.helpers.support import wait_for
from tests.interop.browser import Page
from tests.web import hostile
from tests.web.following import events
from tests.web.visitor import Visitor


def fail(db: redis.Redis, keys: Keys, error: str, number: int, ago_s: float) -> None:
    now = time.time()
    raws = [
        raw_job(f"{error}{n}", error_class=error, error_message="m", failed_at=now - ago_s, retry_count=0)
        for n in range(number)
    ]
    db.zadd(keys.retry, {raw: now + 600 + place for place, raw in enumerate(raws)})


def press_all(dashboard: Visitor, path: str, action: str, **fields: str) -> Page:
    """Press a button for all that match; the page of its task."""
    answer = dashboard.ask(
        path, {"csrf": dashboard.get(path).posts[-1].hidden["csrf"], "action": action, **fields}
    )
    assert answer.status == 200, answer.text
    return answer.page


def settled(dashboard: Visitor, page: Page, word: str) -> Page:
    """The page of a task once it says ``word``; it refreshes itself until then."""
    pages = [page]

    def says() -> bool:
        pages.append(dashboard.get(page.path))
        return word in pages[-1].text

    wait_for(says, message=f"the task says {word}")
    return pages[-1]


@pytest.mark.parametrize("place", ["scheduled", "retries", "dead"])
def test_an_empty_set(dashboard: Visitor, place: str) -> None:
    assert "There are no jobs here." in dashboard.get(place).text


def test_an_id_between_the_ends_of_a_large_job_is_not_read(
    dashboard: Visitor, keys: Keys, db: redis.Redis
) -> None:
    large = {"class": "Add", "args": ["x" * 100_000], "jid": "1", "error_message": "x" * 9000}
    db.zadd(keys.dead, {json.dumps(large): 1})
    page = dashboard.get("dead")
    assert "bytes) not read ⋯ Run now" in page.text
    [link] = {link for link in page.links if "/jobs/" in link}
    assert "JID 1 State dead" in dashboard.get(link).text
    db.zadd(keys.dead, {'{"class":"Add","args":[]}': 2})
    assert "no id ⋯ Run now" in dashboard.get("dead").text


def test_all_time_outs_of_the_last_hour_are_retried(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fail(db, keys, "Net::ReadTimeout", 70, 60)
    fail(db, keys, "Refused", 30, 60)
    db.zadd(keys.retry, {raw_job("old", error_class="Net::ReadTimeout", failed_at=time.time() - 9000): 1e10})
    # From the page, the error leads to the filter, and a choice to the hour.
    [link] = {link for link in dashboard.get("retries").links if "error=Net" in link}
    path = f"{link.removeprefix(dashboard.root)}&younger=3600"
    assert "Found 50 so far" in dashboard.get(path).text
    task = settled(dashboard, press_all(dashboard, path, "all-run"), "70 jobs are selected.")
    assert "Jobs error contains Net::ReadTimeout , failed within the last hour Ordered by" in task.text
    assert "70 jobs are selected. Nothing has happened yet." in task.text
    assert "Begun" not in task.text and "looked at" not in task.text
    assert db.llen(keys.queue("q")) == 0
    task = settled(dashboard, dashboard.press(task.posts[-1]), "Done: 70 jobs put into their queues.")
    assert 'http-equiv="refresh"' not in task.html
    assert (db.llen(keys.queue("q")), db.zcard(keys.retry)) == (70, 31)


def test_all_jobs_are_counted_before_they_are_deleted(
    dashboard: Visitor, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.dead, {raw_job(str(number)): number for number in range(120)})
    task = press_all(dashboard, "dead", "all-delete")
    assert "120 jobs are selected." in task.text
    settled(dashboard, dashboard.press(task.posts[-1]), "Done: 120 jobs deleted.")
    assert not db.exists(keys.dead)


def test_run_now_is_a_retry_in_retries_alone(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    fail(db, keys, "Timeout", 1, 60)
    db.zadd(keys.dead, {raw_job("1"): 1})
    # Of all jobs, of one, and of the selected ones.
    assert dashboard.get("retries").html.count('title="Retry now"') == 3
    assert "Retry now" not in dashboard.get("dead").html


def test_jobs_that_left_before_the_confirmation_are_said(
    dashboard: Visitor, keys: Keys, db: redis.Redis
) -> None:
    fail(db, keys, "Timeout", 56, 60)
    task = settled(dashboard, press_all(dashboard, "retries?error=Time", "all-kill"), "56 jobs are selected.")
    db.zpopmin(keys.retry, 27)
    words = "Done: 29 jobs moved to the dead jobs, 27 had already left the list."
    task = settled(dashboard, dashboard.press(task.posts[-1]), words)
    assert "looked at" not in task.text


def test_two_people_confirm_one_task(
    dashboard: Visitor, keys: Keys, db: redis.Redis, one_redis_url: str
) -> None:
    db.zadd(keys.dead, {raw_job("1"): 1})
    task = press_all(dashboard, "dead", "all-run")
    settled(dashboard, dashboard.press(task.posts[-1]), "Done: 1 job put")
    assert "It was confirmed already." in dashboard.press(task.posts[-1]).text
    assert db.llen(keys.queue("q")) == 1
    actions = AuditLog(one_redis_url, namespace=keys.namespace).page().actions
    assert [(line.action, line.result) for line in actions] == [
        ("jobs.run", "nothing changed"), ("jobs.run", "begun")
    ]  # fmt: skip


def test_all_scheduled_jobs_get_another_time(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job(str(number)): time.time() + 60 for number in range(9)})
    task = press_all(dashboard, "scheduled?class=Add", "all-reschedule", **{"in": "3600"})
    task = settled(dashboard, task, "9 jobs are selected.")
    settled(dashboard, dashboard.press(task.posts[-1]), "Done: 9 jobs rescheduled.")
    assert db.zcount(keys.schedule, time.time() + 3000, "+inf") == 9


def test_a_task_that_is_gone(dashboard: Visitor) -> None:
    assert dashboard.ask("tasks/none").status == 404


@pytest.mark.parametrize(
    ("place", "action", "text"),
    [
        ("scheduled", "run", "1 job put into its queue."),
        ("scheduled", "kill", "1 job moved to the dead jobs."),
        ("scheduled", "delete", "1 job deleted."),
        ("scheduled", "reschedule", "1 job rescheduled."),
        ("retries", "run", "1 job put into its queue."),
        ("dead", "run", "1 job put into its queue."),
        ("dead", "delete", "1 job deleted."),
    ],
)
def test_one_job_and_then_it_is_gone(
    dashboard: Visitor, keys: Keys, db: redis.Redis, place: str, action: str, text: str
) -> None:
    key = {"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}[place]
    db.zadd(key, {raw_job("1"): time.time() + 60, raw_job("2"): time.time() + 60})
    found = dashboard.get(place).posts[-1]
    fields = {"csrf": found.hidden["csrf"], "action": action, "job": found.boxes[0][1], "in": "60"}
    assert text in dashboard.ask(place, fields).text
    if action != "reschedule":
        assert db.zcard(key) == 1
        assert "1 job is no longer here" in dashboard.ask(place, fields).text


def test_the_other_end_comes_first(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    for number in range(60):
        db.zadd(keys.dead, {raw_job(f"n{number}"): number})
    page = dashboard.get("dead")
    assert "the one that died last is first" in page.text and 'aria-sort="descending"' in page.html
    page = dashboard.get("dead?order=reversed")
    assert "the one that died first is first" in page.text and 'aria-sort="ascending"' in page.html
    found = page.posts[-1]
    assert found.boxes[0][1].startswith("0_") and len(found.boxes) == 50
    [further] = [link for link in page.links if "first=51" in link]
    assert "n50" in dashboard.get(further).text and "n49" not in dashboard.get(further).text
    [link] = [link for link in page.links if "/jobs/n0?" in link][:1]
    # On a busy machine, the search for its place may not end in one request.
    wait_for(lambda: "dead , in Dead , at place 60" in dashboard.get(link).text)
    fields = {"csrf": found.hidden["csrf"], "one": f"delete|{found.boxes[0][1]}"}
    assert "1 job deleted." in dashboard.ask("dead?order=reversed", fields).text
    assert db.zscore(keys.dead, raw_job("n0")) is None


def test_columns_are_chosen_and_kept(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1", error_class="Refused"): 1})
    db.lpush(keys.queue("mail"), raw_job("2"))
    assert "Died Queue Error Arguments JID Actions" in dashboard.get("dead").text
    chosen = "dead?columns=queue&columns=length&columns=jid"
    assert "Class Queue Size JID Actions" in dashboard.get(chosen).text
    assert "Class Queue Size JID Actions" in dashboard.get("dead").text
    assert "Class Enqueued Arguments JID Actions" in dashboard.get("queues/mail").text
    assert "Died Queue Error Arguments JID Actions" in dashboard.get("dead?columns=x").text


def test_a_list_says_how_many_jobs_are_new(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1"): 1})
    [feed] = re.findall('data-feed="(jobs[^"]*)"', dashboard.get("dead").html)
    with events(dashboard, unescape(feed)) as parts:
        assert next(parts)["news"] == ""
        db.zadd(keys.dead, {raw_job("2"): 1, raw_job("3"): 1})
        wait_for(lambda: next(parts)["news"] == '<a href="">2 new: show</a>')
        db.delete(keys.dead)
        wait_for(lambda: next(parts)["news"] == '<a href="">1 fewer: show</a>')


def test_a_job_that_cannot_be_moved_says_why(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {raw_job("1", queue="a b"): 1})
    found = dashboard.get("dead").posts[-1]
    fields = {"csrf": found.hidden["csrf"], "one": f"run|{found.boxes[0][1]}"}
    assert "cannot be a queue" in dashboard.ask("dead", fields).text


@pytest.mark.parametrize("place", ["scheduled", "retries", "dead"])
def test_any_bytes_and_scores_are_rows(dashboard: Visitor, keys: Keys, db: redis.Redis, place: str) -> None:
    raws = list(hostile.envelopes())
    key = {"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}[place]
    scores = [float(hostile.SCORES[number % len(hostile.SCORES)]) for number in range(len(raws))]
    db.zadd(key, dict(zip(raws, scores, strict=True)))
    shown = 0
    for number in range(1, len(raws) // 50 + 2):
        page = dashboard.get(f"{place}?first={number * 50 - 49}")
        shown += page.html.count('name="job"')
        assert f"<{hostile.MARK}" not in page.html
    assert shown == db.zcard(key)


def test_an_unreadable_job_is_found_by_that_word(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.dead, {b"\xff": 1, raw_job("1"): 2})
    assert "Found 1: looked" in dashboard.get("dead?error=unreadable").text


def test_an_invalid_new_time_is_refused_with_the_reason(
    dashboard: Visitor, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.schedule, {raw_job("1"): 4e9})
    found = dashboard.get("scheduled").posts[-1]
    fields = {"csrf": found.hidden["csrf"], "action": "reschedule", "job": found.boxes[0][1], "when": "x"}
    assert "Not done: x is not a date and time" in dashboard.ask("scheduled", fields).text
    assert db.zscore(keys.schedule, raw_job("1")) == 4e9


@pytest.mark.parametrize("action", ["reschedule", "all-reschedule"])
def test_a_refused_new_time_stays_with_the_jobs_that_are_selected(
    dashboard: Visitor, keys: Keys, db: redis.Redis, action: str
) -> None:
    db.zadd(keys.schedule, {raw_job("1"): 4e9, raw_job("2"): 4e9 + 1})
    path = "scheduled?class=Add"
    found = dashboard.get(path).posts[-1]
    typed = {"action": action, "job": found.boxes[1][1], "when": "2020-01-01T00:00", "in": "86400"}
    answer = dashboard.ask(path, {"csrf": found.hidden["csrf"], **typed})
    assert "2020-01-01T00:00 has passed" in answer.text and "class" in answer.page.url
    assert 'value="2020-01-01T00:00"' in answer.page.html
    assert '<option value="86400" selected>' in answer.page.html
    assert len(re.findall('name="job"[^>]* checked', answer.page.html)) == 1
    assert f'value="{found.boxes[1][1]}" checked' in unescape(answer.page.html)
    assert not re.search('name="job"[^>]* checked', dashboard.get(path).html)


def test_a_new_time_stays_if_no_job_is_selected(dashboard: Visitor, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.schedule, {raw_job("1"): 4e9})
    typed = {"csrf": dashboard.get("scheduled").posts[-1].hidden["csrf"], "action": "reschedule"}
    answer = dashboard.ask("scheduled", {**typed, "when": "2035-01-01T00:00"})
    assert "No job is selected." in answer.text and 'value="2035-01-01T00:00"' in answer.page.html
