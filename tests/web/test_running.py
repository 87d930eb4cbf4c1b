"""The page of running jobs: a thousand of them, any bytes, and their cancellation."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers.api import AuditLog, WorkPage
from pyworkers.api.running import read_works
from pyworkers.api.target import Steps
from pyworkers.protocol.keys import Keys
from pyworkers.web.live.reader import Reader
from tests.helpers.records import job, raw_job, register
from tests.helpers.server_process import serving
from tests.helpers.support import wait_for
from tests.web.chromium import Chromium
from tests.web.following import events
from tests.web.visitor import Visitor


def runs(db: redis.Redis, keys: Keys, identity: str, jobs: dict[Any, Any], **fields: Any) -> None:
    info = {"hostname": "web", "pid": 7, "queues": ["q"]}
    register(db, keys, identity, info, **{"beat": time.time(), "busy": len(jobs), **fields})
    db.hset(keys.work(identity), mapping=jobs)


def running(jid: str, run_at: float, **more: Any) -> str:
    return json.dumps({"queue": "q", "payload": raw_job(jid).decode(), "run_at": run_at, **more})


def test_a_thousand_running_jobs_are_shown_in_pages(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    assert "No job runs" in dashboard.get("running").text
    now = time.time()
    for server in range(10):
        jobs = {
            f"{number}.1": running(f"j{server}-{number}", now - 60 * number - server) for number in range(100)
        }
        runs(db, keys, f"web:{server}:a", jobs)
    page = dashboard.get("running")
    assert "j9-99" in page.text and "j9-94" not in page.text and "1 to 50 of 1,000" in page.text
    assert "Time limit" not in page.text
    [older] = [link for link in page.links if "first=50" in link]
    assert "51 to 100 of 1,000" in dashboard.get(older).text
    only = dashboard.get("running?server=web~3A4~3Aa")
    assert "1 to 50 of 100" in only.text and "j4-99" in only.text and "j9-99" not in only.text
    assert "server=web~3A4~3Aa" in next(link for link in only.links if "first=50" in link)
    assert "All 100 running jobs" in dashboard.get("servers/web~3A4~3Aa").text


def test_progress_memory_and_time_limit(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    now = time.time()
    workers = json.dumps([["q", 7, "busy", 4096, 3, 5]])
    runs(
        db, keys, "web:7:a", {"7.1": running("j1", now - 7200, limit_at=now + 7230)}, look=0, workers=workers
    )
    db.hset(keys.job("j1"), mapping={"state": "running", "progress": '[30,200,"half <b>"]'})
    page = dashboard.get("running")
    assert "Add 1 q 2 h ago 30 of 200 half <b> web:7:a 7.1 4.19 MB in 2 h j1" in page.text
    assert "Time limit" in page.text
    assert '<progress value="30' in page.html


def test_arguments_tell_jobs_of_a_class_apart(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    args: list[Any] = [{"to": "Ann", "password": "hunter2"}, "x" * 500]
    jobs = {
        "7.1": raw_job("j1", args=args),
        "7.2": raw_job("j2", args=["ciphertext"], encrypted=True),
        "7.3": raw_job("j3", args=["x" * 30_000]),
    }
    runs(
        db, keys, "web:7:a",
        {at: json.dumps({"queue": "q", "payload": raw.decode(), "run_at": 5}) for at, raw in jobs.items()},
    )  # fmt: skip
    for path in ("running", "servers/web~3A7~3Aa"):
        page = dashboard.get(path)
        assert '{"to":"Ann","password":"(hidden)"}' in page.text and "x…" in page.text
        assert "hunter2" not in page.html and "ciphertext" not in page.html
        assert 'Add "(encrypted)"' in page.text and f"Add ({len(jobs['7.3']):,} bytes)" in page.text


def test_progress_and_ends_follow_the_running_jobs(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    runs(db, keys, "web:7:a", {"7.1": running("j1", 5), "8.1": running("j2", 6)})
    page = dashboard.get("running")
    assert 'data-feed="running"' in page.html and "2 jobs run now." in page.text
    first, second = "web~3A7~3Aa/7.1/j1", "web~3A7~3Aa/8.1/j2"
    assert f'data-live="{first}:progress"' in page.html
    with events(dashboard, "running") as parts:
        wait_for(lambda: next(parts).get("running:total") == "2 jobs run now.", message="both")
        db.hset(keys.job("j1"), mapping={"state": "running", "progress": "[3,4]"})
        wait_for(lambda: "3 of 4" in next(parts)[f"{first}:progress"], message="the progress of one")
        db.hdel(keys.work("web:7:a"), "8.1")
        wait_for(lambda: f"{second}:progress" not in next(parts), message="the end of the other")
        event = next(parts)
        assert event["running:total"] == "1 job runs now." and "running:all" in event


@pytest.mark.parametrize("first", [True, False])
def test_a_job_that_has_ended_is_marked(
    chromium: Chromium,
    dashboard: Visitor,
    db: redis.Redis,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
    first: bool,
) -> None:
    """``first``: before the first event that the page gets, or after it."""

    def later(keys: Keys) -> Steps[WorkPage]:
        db.hdel(keys.work("web:7:a"), "8.1")
        return read_works(keys)

    runs(db, keys, "web:7:a", {"7.1": running("j1", 5), "8.1": running("j2", 6)})
    if first:
        watch = Reader.watch
        monkeypatch.setattr(Reader, "watch", lambda reader, feed, _read: watch(reader, feed, later))
    chromium.open(f"{dashboard.root}running")
    if not first:
        db.hset(keys.job("j1"), mapping={"state": "running", "progress": "[3,4]"})
        wait_for(lambda: "3 of 4" in chromium.text, message="an event")
        db.hdel(keys.work("web:7:a"), "8.1")
    wait_for(lambda: "1 job runs now." in chromium.text, message="the total")
    assert ["ended" in row for row in chromium.texts("tbody tr")] == [False, True]


@pytest.mark.parametrize(
    "path", ["running?first=50", "running?server=web~3A7~3Aa&first=50", "servers/web~3A7~3Aa?first=50"]
)
def test_a_cancellation_returns_to_the_page_with_its_button(
    dashboard: Visitor, db: redis.Redis, keys: Keys, path: str
) -> None:
    runs(db, keys, "web:7:a", {f"{number}.1": running(f"j{number}", 5 + number) for number in range(60)})
    form = next(form for form in dashboard.get(path).posts if form.buttons.get("action") == "cancel")
    page = dashboard.press(form)
    assert page.url == dashboard.root + path
    assert "runs in Sidekiq" in page.text


def test_hostile_jobs_are_shown(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    nasty = "<script>alert(1)</script>\u202e\x1b"
    jobs: dict[Any, Any] = {
        "1": json.dumps(
            {"queue": nasty, "payload": json.dumps({"class": nasty, "jid": nasty}), "run_at": "x"}
        ),
        "2": json.dumps(
            {"queue": {}, "payload": {"class": 5, "jid": ["\ud800"], "args": nasty}, "run_at": 1e300}
        ),
        "3": json.dumps({"queue": "\ud800", "payload": "no job", "run_at": True}),
        "4": json.dumps(
            {"queue": "q", "payload": raw_job("big", args=["x" * 1_000_000]).decode(), "run_at": 5}
        ),
        b"\xff\xfe": b"\xff",
        nasty: running("\ud800", -5, limit_at="x"),
        "5": running("x" * 5000, 1e18, limit_at=-1),
        "6": json.dumps({"run_at": 3}),
    }
    runs(db, keys, "web:7:a", jobs)
    db.hset(keys.job("big"), mapping={"state": "running", "progress": "[-1e308, 0]"})
    page = dashboard.get("running")
    assert "<script>alert" not in page.html and "\x1b" not in page.html and "x" * 300 not in page.text
    forms = [form for form in page.forms if "cancel" in form.buttons.values()]
    for form in forms:
        assert dashboard.ask(form.action, {**form.hidden, "action": "cancel"}).status in (200, 400)
    assert dashboard.ask("running?server=~uD800").status == 404


def test_a_running_job_is_cancelled_and_one_that_has_ended_is_not(
    dashboard: Visitor, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    code = """
@worker.job(queue="q", concurrency=1, timeout=600)
def wait():
    note("start")
    time.sleep(600)
"""
    with serving(tmp_path, one_redis_url, namespace, code) as server:
        server.push("q", job("a", "wait"))
        server.wait_for_notes(1, "start")
        limit = "the job is shown with its limit"
        wait_for(lambda: " in 9 min" in dashboard.get("running").text, message=limit)
        [form] = [form for form in dashboard.get("running").posts if "cancel" in form.buttons.values()]
        page = dashboard.press(form)
        assert "a is cancelled" in page.text
        server.wait_for_event("job.cancelled", jid="a")
        wait_for(lambda: server.settled("q"))
        assert "a does not run there any more: nothing was changed." in dashboard.press(form).text
    actions = AuditLog(one_redis_url, namespace=namespace).page().actions
    assert [(line.action, line.target, line.result) for line in actions] == [
        ("job.cancel", "a", "unknown"), ("job.cancel", "a", "running")
    ]  # fmt: skip
