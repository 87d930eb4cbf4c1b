"""The pages of servers: any language, any bytes, alive or gone; quiet, stop and reload."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers.api import AuditLog
from pyworkers.protocol.keys import Keys
from tests.helpers.records import hold_order, raw_job, register
from tests.helpers.server_process import serving
from tests.helpers.support import wait_for
from tests.web.following import events
from tests.web.visitor import Visitor

GROUPS = {
    "ledger": {
        "queues": {"ledger": 1}, "strict": True, "mode": "process", "processes": 2, "concurrency": 2,
        "busy": 1, "ordered": True, "workers": {"idle": 3, "busy": 1}, "restarts": 2,
    }
}  # fmt: skip
WORKERS = [["ledger", 4711, "idle", 4096, 1234, 1795225197], ["ledger", 4712, "busy", 0, 0, 1795225197]]


def ours(db: redis.Redis, keys: Keys, identity: str, **changes: Any) -> None:
    info = {
        "hostname": "web", "pid": 7, "started_at": time.time() - 7200, "queues": ["ledger"], "version": "1.2",
        "flow": 99, "reloads": True,
    }  # fmt: skip
    fields = {
        "beat": time.time(), "busy": 1, "concurrency": 2, "rss": 20_480, "rtt_us": 120, "look": 0,
        "groups": json.dumps(GROUPS), "workers": json.dumps(WORKERS), **changes,
    }  # fmt: skip
    register(db, keys, identity, info, **fields)
    db.set(keys.lease(identity), 1)


def sidekiq(db: redis.Redis, keys: Keys, identity: str, **info: Any) -> None:
    about = {
        "hostname": "ruby", "pid": 9, "started_at": time.time(), "concurrency": 5, "queues": ["q"],
        "labels": ["reliable"], "version": "8.0.9", "tag": "shop", **info,
    }  # fmt: skip
    register(db, keys, identity, about, beat=time.time(), busy=0, quiet="false")


def gone(page_text: str) -> bool:
    return "This server is gone" in page_text


def test_without_servers(dashboard: Visitor) -> None:
    assert "No server has written a heartbeat" in dashboard.get("servers").text
    assert "No server can get this signal." in dashboard.get("servers?confirm=stop").text


def test_servers_of_all_languages_are_shown(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    ours(db, keys, "web:7:a")
    hold_order(db, keys, "ledger", "web:7:a")
    sidekiq(db, keys, "ruby:9:b")
    go = {"hostname": "go", "started_at": 1795225197, "Pid": 9, "concurrency": 4, "queues": ["g"]}
    register(db, keys, "go:9:c", go, beat=1, quiet=0)
    text = dashboard.get("servers").text
    assert "web:7:a running ledger active 1 of 2 1 busy, 3 idle 21 MB 2 2 h ago pyworkers 1.2" in text
    assert "ruby:9:b running q 0 of 5" in text
    assert "go:9:c silent g" in text
    text = dashboard.get("servers/web~3A7~3Aa").text
    assert "It runs the jobs of ledger ." in text
    assert "2 (workers that ended unexpectedly" in text
    assert "4711 ledger idle 4.19 MB 1,234" in text
    text = dashboard.get("servers/ruby~3A9~3Ab").text
    assert "reliable" in text and "Lease" not in text and "Worker processes" not in text


@pytest.mark.parametrize("word", ["quiet", "stop", "reload"])
def test_one_server_gets_a_signal(dashboard: Visitor, db: redis.Redis, keys: Keys, word: str) -> None:
    ours(db, keys, "web:7:a")
    expected = {"quiet": b"TSTP", "stop": b"TERM", "reload": b"HUP"}[word]
    for path in ("servers", "servers/web~3A7~3Aa"):
        [form] = [form for form in dashboard.get(path).forms if form.buttons.get("action") == word]
        page = dashboard.press(form)
        assert f"Sent {word} to web:7:a: it " in page.text and page.path.endswith(path)
        assert db.lpop(keys.signals("web:7:a")) == expected


def test_a_signal_returns_to_the_page_with_its_button(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    for number in range(51):
        sidekiq(db, keys, f"ruby:9:{number:02d}")
    [form] = [form for form in dashboard.get("servers?first=50").posts if "stop" in form.buttons.values()]
    page = dashboard.press(form)
    assert "Sent stop to ruby:9:50" in page.text and page.url.endswith("servers?first=50")


def test_all_servers_get_a_signal_after_a_question(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str, namespace: str
) -> None:
    for identity in ("web:7:a", "web:8:a"):
        ours(db, keys, identity)
    sidekiq(db, keys, "ruby:9:b")
    sidekiq(db, keys, "puma:9:c", embedded=True)
    page = dashboard.get("servers?confirm=stop")
    assert "3 servers will get the signal" in page.text and "1 is left out" in page.text
    page = dashboard.get("servers?confirm=reload")
    assert "2 servers will get the signal" in page.text and "2 are left out" in page.text
    [form] = page.posts
    assert not db.exists(keys.signals("web:7:a"))
    assert "Sent reload to 2 servers" in dashboard.press(form).text
    assert [db.lrange(keys.signals(name), 0, -1) for name in ("web:7:a", "ruby:9:b")] == [[b"HUP"], []]
    [line] = AuditLog(one_redis_url, namespace=namespace).page().actions
    assert (line.action, line.target, line.result) == ("server.reload", "all servers", "2")


def test_a_signal_to_a_server_that_is_gone_or_refuses_is_not_sent(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    sidekiq(db, keys, "ruby:9:b")
    page = dashboard.get("servers")
    forms = {form.buttons["action"]: form for form in page.forms if "action" in form.buttons}
    assert set(forms) == {"quiet", "stop"}
    refused = dashboard.press(forms["stop"], action="reload")
    assert "ruby:9:b is a server of another program, which does not reload" in refused.text
    db.srem(keys.processes, "ruby:9:b")
    assert "ruby:9:b is gone: nothing was sent" in dashboard.press(forms["stop"]).text
    assert not db.exists(keys.signals("ruby:9:b"))
    fields = {**forms["stop"].hidden, "action": "dance"}
    assert dashboard.ask("servers", fields).status == 400


def test_a_server_that_dies_while_its_page_is_open(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    ours(db, keys, "web:7:a", beat=time.time() - 7200)
    [link] = [link for link in dashboard.get("servers").links if "web~3A7~3Aa" in link]
    db.delete(keys.lease("web:7:a"))
    text = dashboard.get(link).text
    assert "has expired: it has crashed" in text and "It was last seen 2 h ago" in text
    db.srem(keys.processes, "web:7:a")
    assert gone(dashboard.get(link).text)
    db.delete(keys.process("web:7:a"))
    page = dashboard.get(link)
    assert gone(page.text) and "It was last seen 2 h ago" in page.text
    assert any(found.endswith("/servers") for found in page.links)
    page = dashboard.get("servers/web~3A7~3Aa")
    assert gone(page.text) and "last seen" not in page.text
    # Its JSON is an error.
    assert not any("/api/" in found for found in page.links)


def test_a_server_without_heartbeats_shows_what_was_running(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    ours(db, keys, "web:7:a", beat=time.time() - 125)
    payload = raw_job("j1", **{"class": "Send"})
    work = json.dumps({"queue": "ledger", "run_at": int(time.time()) - 130, "payload": payload.decode()})
    db.hset(keys.work("web:7:a"), "9", work)
    text = dashboard.get("servers/web~3A7~3Aa").text
    assert "What was running 1 job when it was last seen" in text and "Running jobs" not in text
    assert "Send 1 ledger" in text
    # Redis forgets the list of what runs before the jobs: they are in the in-progress lists.
    db.delete(keys.work("web:7:a"))
    assert "Nothing, or other servers have taken its jobs over" in dashboard.get("servers/web~3A7~3Aa").text
    db.hset(keys.owners, "web:7:a", json.dumps(["ledger", "mail"]))
    db.lpush(keys.inprogress("ledger", "web:7:a"), payload, "no job")
    page = dashboard.get("servers/web~3A7~3Aa").text
    assert "What was running 2 jobs when it was last seen" in page and "Send 1 ledger j1" in page
    db.delete(keys.process("web:7:a"), keys.lease("web:7:a"))
    page = dashboard.get("servers/web~3A7~3Aa").text
    assert gone(page) and "2 jobs when it was last seen" in page and "Send 1 ledger j1" in page
    # The list of servers does not have it any more. The problem of its lease leads to it.
    assert any(link.endswith("/servers/web~3A7~3Aa") for link in dashboard.get().links)


def test_hostile_servers_are_shown(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    nasty = "<script>alert(1)</script>\u202e\x1b[2J/../~%\n" + "x" * 300
    names = [b"\xff\xfe:1:a", nasty.encode(), b" ", b"..", b"a/b?c#d", b"y" * 5000]
    for place, name in enumerate(names):
        text = name.decode(errors="surrogateescape")
        db.sadd(keys.processes, name)
        info = {
            "hostname": nasty, "pid": "x" * 500 if place else 10**400, "started_at": "1e400",
            "tag": {"a": [nasty]}, "queues": [nasty, "\ud800", 5], "labels": [nasty], "version": nasty,
            "concurrency": 1e308,
        }  # fmt: skip
        groups = {nasty: {"queues": {nasty: 1}, "workers": {nasty: -5}, "mode": [nasty], "concurrency": "x"}}
        workers = [[nasty, nasty, nasty, -1, 10**30, -5], [1, 2, 3, 4, 5, 6]]
        key = keys.process(text).encode(errors="surrogateescape")
        db.hset(
            key,
            mapping={
                "info": json.dumps(info), "beat": "1e300", "busy": -3, "look": "x", "rss": "-1",
                "rtt_us": "x", "groups": json.dumps(groups), "workers": json.dumps(workers),
            },
        )  # fmt: skip
    db.sadd(keys.processes, "")
    page = dashboard.get("servers")
    assert "<script>alert" not in page.html and "\x1b" not in page.html and "\u202e" not in page.html
    links = {link for link in page.links if "/servers/" in link}
    assert len(links) == len(names) - 1
    for link in links:
        assert "<script>alert" not in dashboard.get(link).html
    assert dashboard.ask("servers/~uD800").status in (400, 404)
    for odd in ("~", "%00", "nobody"):
        assert gone(dashboard.get(f"servers/{odd}").text)


def test_the_cells_of_servers_follow_them(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    ours(db, keys, "web:7:a")
    key = "web~3A7~3Aa"
    assert f'data-feed="server?{key}"' in dashboard.get(f"servers/{key}").html
    with events(dashboard, "servers?first=0", f"server?{key}") as parts:
        wait_for(lambda: next(parts).get(f"{key}:busy") == "1 of 2", message="its jobs")
        db.hset(keys.process("web:7:a"), "busy", 2)
        wait_for(lambda: next(parts)[f"{key}:busy"] == "2 of 2", message="more of its jobs")
        db.hset(keys.owners, "web:7:a", '["ledger"]')
        db.delete(keys.lease("web:7:a"))
        wait_for(lambda: "has crashed" in next(parts)[f"{key}:notice"], message="its lease is lost")
        db.delete(keys.process("web:7:a"))
        wait_for(lambda: "is gone" in next(parts)[f"{key}:notice"], message="it is gone")


def test_a_real_server_is_stopped_from_its_page(
    dashboard: Visitor, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    code = '@worker.process("q", concurrency=2)\ndef handle(message):\n    note("ran", message.jid)\n'
    with serving(tmp_path, one_redis_url, namespace, code) as server:
        wait_for(lambda: "2 idle" in dashboard.get("servers").text, message="its workers are shown")
        page = dashboard.get("servers")
        [link] = [link for link in page.links if "/servers/" in link]
        page = dashboard.get(link)
        assert f"process {server.pid}" in page.text and "held" in page.text
        server.push("q", raw_job("a"))
        server.wait_for_event("job.done", jid="a")
        [form] = [form for form in page.forms if form.buttons.get("action") == "stop"]
        dashboard.press(form)
        assert server.wait() == 0
        assert gone(dashboard.get(link).text)
