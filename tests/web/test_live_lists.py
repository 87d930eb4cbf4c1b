"""The live parts of batches, limits and cron: they follow what Redis holds, and cost nothing unseen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode

import pytest
import redis

from pyworkers.api import CronSet
from pyworkers.protocol.keys import Keys
from pyworkers.store.flow.batchviews import known
from pyworkers.web.live.watched import Latest, WatchList
from pyworkers.web.names import encode as segment
from tests.helpers.support import wait_for
from tests.web.chromium import Chromium
from tests.web.events import Listener
from tests.web.visitor import Visitor

NAME = 'a/b "<i>"'


def parts_in(listener: Listener) -> Callable[[], dict[str, str]]:
    """What returns the parts of the last event."""
    return lambda: listener.events[-1]["parts"] if listener.events else {}


def html_of(dashboard: Visitor, feeds: Sequence[str]) -> list[str]:
    """The parts of each feed, once they were read; each has its own stream."""
    with ExitStack() as stack:
        queries = [urlencode({"feed": feed}) for feed in feeds]
        streams = [parts_in(stack.enter_context(Listener(dashboard.root, f"?{query}"))) for query in queries]
        wait_for(lambda: all(parts().keys() - {"away"} for parts in streams), message="all were read")
        return ["".join(parts().values()) for parts in streams]


@pytest.fixture
def cron(one_redis_url: str, namespace: str) -> CronSet:
    entries = CronSet(one_redis_url, namespace=namespace)
    entries.add(NAME, "@daily", "Sweep", queue="night")
    return entries


@pytest.fixture
def batch(db: redis.Redis, keys: Keys) -> str:
    fields: dict[Any, Any] = {"open": 0, "total": 8, "done": 1, "created_at": repr(time.time())}
    fields["on_success"] = json.dumps({"class": "Tell", "queue": "night", "jid": "told", "args": []})
    db.hset(keys.batch(NAME), mapping=fields)
    db.zadd(keys.batches, {NAME: time.time() + 60})
    return segment(NAME)


@pytest.mark.parametrize("path", ["batches", f"batches/{segment(NAME)}"])
def test_batches_follow(
    path: str, chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys, batch: str
) -> None:
    chromium.open(dashboard.root + path)
    assert "1 of 8" in chromium.text_of("main")
    db.hset(keys.batch(NAME), "done", 5)
    wait_for(lambda: "5 of 8" in chromium.text_of("main"))
    assert chromium.run("return document.querySelector('main progress').value") == 5
    assert chromium.messages() == []


def test_a_batch_that_goes_is_said_to_be_gone(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys, batch: str
) -> None:
    chromium.open(f"{dashboard.root}batches/{batch}")
    db.delete(keys.batch(NAME))
    wait_for(lambda: "This batch is gone" in chromium.text_of("main"))


def test_the_members_of_a_batch_follow(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys, batch: str
) -> None:
    failed = f"{keys.batch(NAME)}:failed"
    db.sadd(failed, "j1")
    chromium.open(f"{dashboard.root}batches/{batch}?state=failed")
    members = "main th[data-label=Member]"
    assert chromium.texts(members) == ["j1"]
    db.sadd(failed, *(f"k{number}" for number in range(1_000)))
    wait_for(lambda: len(chromium.all(members)) > 40)
    following = f"main a[rel=next][href*='/batches/{batch}?state=failed&cursor=']"
    assert chromium.is_shown(following)
    db.delete(failed)
    wait_for(lambda: "No member is failed." in chromium.text_of("main"))
    assert chromium.messages() == []


@pytest.mark.parametrize("path", ["limits", f"limits/{segment(NAME)}"])
def test_limits_follow(
    path: str, chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.hset(keys.limits, NAME, "4 0")
    chromium.open(dashboard.root + path)
    used = "[data-live$=':used']"
    assert chromium.text_of(used) == "0"
    db.zadd(keys.limit(NAME), {"web1:7:ab|aa j1": time.time(), "web1:7:ab|bb j2": time.time()})
    wait_for(lambda: chromium.text_of(used) == "2")


def test_a_holder_that_has_left_is_marked(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.hset(keys.limits, NAME, "4 0")
    db.zadd(keys.limit(NAME), {"web1:7:ab|aa j1": 1e9, "web1:7:ab|bb j2": 1e9 + 1})
    chromium.open(f"{dashboard.root}limits/{segment(NAME)}")
    db.zrem(keys.limit(NAME), "web1:7:ab|bb j2")
    wait_for(lambda: chromium.text_of("[data-live$=':used']") == "1")
    wait_for(lambda: ["ended" in row for row in chromium.texts("tbody tr")] == [False, True])
    db.hdel(keys.limits, NAME)
    wait_for(lambda: ["ended" in row for row in chromium.texts("tbody tr")] == [True, True])


def test_a_start_that_a_later_one_pushes_out_is_not_marked(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.hset(keys.limits, mapping={NAME: "400 60.004", "slots": "400 0"})
    for name in (NAME, "slots"):
        db.zadd(keys.limit(name), {f"web1:7:ab|aa j{number}": 1e9 + number for number in range(100)})
    name = segment(NAME)
    assert f'data-live="{name}/' in dashboard.get(f"limits/{name}").html
    assert "data-ended" not in dashboard.get(f"limits/{name}").html
    feeds = urlencode({"feed": [f"limit?{name}", "limit?slots"]}, doseq=True)
    with Listener(dashboard.root, f"?{feeds}") as listener:
        parts = parts_in(listener)
        wait_for(lambda: {f"{name}:used", "slots:used"} <= parts().keys())
        assert not {f"limit?{name}:all", "limit?slots:all"} & parts().keys()
        db.zremrangebyrank(keys.limit("slots"), 0, 0)
        wait_for(lambda: "limit?slots:all" in parts())


@pytest.mark.parametrize("path", ["cron", f"cron/{segment(NAME)}"])
def test_cron_follows(path: str, chromium: Chromium, dashboard: Visitor, cron: CronSet) -> None:
    chromium.open(dashboard.root + path)
    state = "[data-live$=':state']"
    assert chromium.text_of(state) == "active"
    jid = cron.trigger(NAME)
    cron.pause(NAME)
    wait_for(lambda: chromium.text_of(state) == "paused")
    wait_for(lambda: bool(chromium.all(f"main a[href$='/jobs/{jid}']")))
    assert "waiting (triggered)" in chromium.text_of("main")


def test_a_cron_entry_that_goes_is_said_to_be_gone(
    chromium: Chromium, dashboard: Visitor, cron: CronSet
) -> None:
    chromium.open(f"{dashboard.root}cron/{segment(NAME)}")
    cron.remove(NAME)
    wait_for(lambda: "gone: it was removed" in chromium.text_of("main"))


def test_the_parts_have_no_buttons_and_are_escaped(
    dashboard: Visitor, db: redis.Redis, keys: Keys, cron: CronSet, batch: str
) -> None:
    db.hset(keys.limits, NAME, "4 0")
    name = segment(NAME)
    db.sadd(f"{keys.batch(NAME)}:dead", NAME)
    feeds = (
        f"batch?{name}", "batches?0", "limits?0", f"limit?{name}", "cron?0", f"entry?{name}",
        f"members?dead/0/{name}",
    )  # fmt: skip
    for feed, html in zip(feeds, html_of(dashboard, feeds), strict=True):
        assert "<i>" not in html and "<button" not in html and "csrf" not in html, feed


def test_a_feed_that_redis_refuses_disturbs_no_other(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    db.set(keys.cron_entries, "no hash")
    db.hset(keys.limits, NAME, "4 0")
    feeds = urlencode({"feed": ["cron?0", "entry?\0", "members?dead/0/~FF", "limits?0"]}, doseq=True)
    with Listener(dashboard.root, f"?{feeds}") as listener:
        parts = parts_in(listener)
        wait_for(lambda: f"{segment(NAME)}:used" in parts())
        assert parts()["away"] == ""


def test_only_what_is_asked_for_is_read_and_only_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = WatchList()
    made = [watched.ask(f"batch?{number}", known) for number in range(50)]
    assert watched.due() == made[:20]
    assert watched.ask("batch?0", known) is made[0]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 6)
    assert watched.due() == []


def test_what_seldom_changes_is_read_again_when_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    latest = Latest(known, 60.0)
    assert latest.is_due()
    latest.add([])
    for passed_s, due in ((59.0, False), (60.0, True)):
        now = latest.read_at + passed_s
        monkeypatch.setattr(time, "monotonic", lambda now=now: now)
        assert latest.is_due() == due
