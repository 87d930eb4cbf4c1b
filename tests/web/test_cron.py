"""The pages of cron: entries, slots, runs with their outcome, and what is done to them."""

from __future__ import annotations

import json
from urllib.parse import urljoin

import pytest
import redis
from markupsafe import escape

from pyworkers.api import CronSet
from pyworkers.config.cron_entries import dump
from pyworkers.protocol.cron import CronEntry
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.keys import Keys
from pyworkers.web.names import encode as segment
from tests.interop.browser import Page
from tests.web.acting import act, fields
from tests.web.visitor import Visitor

HOSTILE = ("a/b", "..", "<script>alert(1)</script>", "ä ö", "'\"><b>", "x" * 900)


@pytest.fixture
def entries(one_redis_url: str, namespace: str) -> CronSet:
    return CronSet(one_redis_url, namespace=namespace)


def declare(db: redis.Redis, keys: Keys, *entries: CronEntry) -> None:
    """As a server does it that lives."""
    rows = [json.loads(dump(entry)) | {"origin": "application"} for entry in entries]
    db.hset(keys.owners, "host:1:x", "[]")
    db.set(keys.cron_declared("host:1:x"), encode(rows))


def test_an_empty_redis(dashboard: Visitor) -> None:
    assert "There are no cron entries" in dashboard.get("cron").text
    assert "There is no such entry" in dashboard.get("cron/none").text


def test_an_entry_has_its_slots_its_zone_and_its_runs(dashboard: Visitor, entries: CronSet) -> None:
    entries.add("nightly", "30 3 * * *", "Sweep", [{"password": "geheim"}, 7], timezone="Asia/Kolkata")
    jid = entries.trigger("nightly")
    page = dashboard.get("cron")
    assert "30 3 * * *" in page.text
    assert "waiting (triggered)" in page.text
    address = urljoin(dashboard.root, "cron/nightly")
    assert address in page.links
    page = dashboard.get("cron/nightly")
    assert page.text.count("03:30:00+05:30") == 10
    assert page.html.count("data-exact") == 10
    assert " 22:00:00 UTC" in page.text
    assert urljoin(dashboard.root, f"jobs/{jid}") in page.links
    assert "geheim" not in page.html
    # Without a text, a card has no line for it.
    assert '<td data-label="Error"></td>' in page.html


def test_an_action_on_an_entry_returns_to_the_page_with_its_button(
    dashboard: Visitor, entries: CronSet
) -> None:
    for number in range(51):
        entries.add(f"entry {number:02d}", "@daily", "Sweep")
    form = next(form for form in dashboard.get("cron?first=50").posts if "pause" in form.buttons.values())
    page = dashboard.press(form)
    assert "entry 50 is paused." in page.text and page.url.endswith("cron?first=50")


def test_an_entry_is_paused_resumed_triggered_changed_and_removed(
    dashboard: Visitor, entries: CronSet
) -> None:
    entries.add("nightly", "@daily", "Sweep", [7])
    assert "nightly is paused." in act(dashboard, "cron", action="pause", name="nightly")
    assert "nightly is paused already." in act(dashboard, "cron/nightly", action="pause")
    assert "these slots do not fire" in dashboard.get("cron/nightly").text
    assert "nightly fires again." in act(dashboard, "cron/nightly", action="resume")
    assert "is triggered: job" in act(dashboard, "cron/nightly", action="trigger")
    text = act(dashboard, "cron/nightly", action="change", schedule="@hourly", timezone="Europe/Paris")
    assert "nightly is changed." in text
    [job] = entries
    assert (job.entry.schedule, job.entry.timezone, job.entry.args) == ("@hourly", "Europe/Paris", (7,))
    assert "is not a cron line" in act(dashboard, "cron/nightly", action="change", schedule="x")
    assert "not JSON" in act(dashboard, "cron/nightly", action="change", args="[")
    assert "nightly is removed." in act(dashboard, "cron/nightly", action="remove")
    assert list(entries) == []


@pytest.mark.parametrize("action", ["pause", "resume", "trigger", "remove", "change"])
def test_what_is_done_to_an_entry_that_is_gone(dashboard: Visitor, action: str) -> None:
    text = act(dashboard, "cron/gone", action=action)
    assert "There is no such entry" in text
    assert "there is no" in text or "was not paused" in text


def test_an_entry_is_added(dashboard: Visitor, entries: CronSet) -> None:
    about = {"action": "add", "name": "poll", "class": "Poll", "schedule": "every 30s", "args": "[1]"}
    assert "poll is added." in act(dashboard, "cron", **about)
    assert "exists already" in act(dashboard, "cron", **about)
    [job] = entries
    assert (job.name, job.entry.args, job.entry.queue) == ("poll", (1,), "default")
    for field, text in (("name", ""), ("class", ""), ("schedule", ""), ("args", "{}"), ("timezone", "x")):
        assert "is added." not in act(dashboard, "cron", **{**about, "name": "other", field: text})
    assert "other is added." in act(dashboard, "cron", **{**about, "name": "other", "queue": " "})
    assert dashboard.ask("cron", fields(dashboard, action="x", name="poll")).status == 400


def test_a_refused_form_keeps_its_fields(dashboard: Visitor, entries: CronSet) -> None:
    typed = {
        "name": "poll",
        "class": "Poll",
        "schedule": "often",
        "timezone": "UTC",
        "queue": "q",
        "args": '["<b>"]',
    }
    answer = dashboard.ask("cron", fields(dashboard, action="add", misfire="skip", **typed))
    assert "is not a cron line" in answer.text and list(entries) == []
    values = [f'name="{field}" value="{escape(text)}"' for field, text in typed.items()]
    assert [value for value in values if value not in answer.page.html] == []
    assert "<option selected>skip</option>" in answer.page.html
    entries.add("nightly", "@daily", "Sweep")
    change = {"action": "change", "schedule": "@hourly", "timezone": "Mars", "args": "[1]"}
    answer = dashboard.ask("cron/nightly", fields(dashboard, **change))
    assert 'value="Mars"' in answer.page.html and 'value="[1]"' in answer.page.html
    assert 'value="Mars"' not in dashboard.get("cron/nightly").html
    assert [job.entry.schedule for job in entries] == ["@daily"]


def test_a_declared_entry_is_paused_and_triggered_and_has_no_other_button(
    dashboard: Visitor, entries: CronSet, db: redis.Redis, keys: Keys
) -> None:
    declare(db, keys, CronEntry("own", "@daily", "night", "Sweep"))

    def press(page: Page, word: str) -> Page:
        [form] = [form for form in page.posts if word in form.buttons.values()]
        return dashboard.press(form)

    page = press(dashboard.get("cron/own"), "pause")
    assert [job.state for job in entries] == ["paused"]
    assert [word for form in page.posts for word in form.buttons.values()] == ["resume", "trigger"]
    # Also while it is paused.
    assert "is triggered: job" in press(page, "trigger").text
    assert db.llen(keys.queue("night")) == 1
    assert "there is no run-time entry" in act(dashboard, "cron/own", action="change", schedule="@hourly")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_shown_and_linked(
    dashboard: Visitor, db: redis.Redis, keys: Keys, name: str
) -> None:
    declare(db, keys, CronEntry(name, "@daily", "q", name[:200]))
    page = dashboard.get("cron")
    assert "<script>alert" not in page.html
    path = f"cron/{segment(name)}"
    assert urljoin(dashboard.root, path) in page.links
    assert "Next slots" in dashboard.get(path).text
    assert "is paused." in act(dashboard, path, action="pause")


def test_an_entry_with_a_name_that_cannot_be_shown_is_left_out(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    declare(db, keys, CronEntry("\u202egnp.exe", "@daily", "q", "C"))
    assert "There are no cron entries" in dashboard.get("cron").text


def test_many_entries_page_by_page(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    declare(db, keys, *(CronEntry(f"e{number:03}", "@daily", "q", "C") for number in range(120)))
    assert "1 to 50 of 120" in dashboard.get("cron").text
    last = dashboard.get("cron?first=100").text
    assert "e119" in last and "e099" not in last
    assert "no more entries" in dashboard.get("cron?first=900").text
