"""The event stream: one event a second, and one read of Redis a second however many look."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis

from pyworkers.api import Queue
from pyworkers.errors import RedisUnavailableError
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.helpers.records import raw_job, register
from tests.helpers.redises import OwnRedis
from tests.helpers.support import free_port, wait_for
from tests.integrations.web import served
from tests.web.events import Listener
from tests.web.visitor import Visitor


def commands(connection: redis.Redis) -> int:
    """The number of commands so far, without those of the tests."""
    stats = connection.info("commandstats")
    return sum(
        about["calls"] for name, about in stats.items() if name not in ("cmdstat_info", "cmdstat_lpush")
    )


def test_an_event_has_the_counts_and_the_parts(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    db.lpush(keys.queue("<b>mail"), raw_job("j"))
    db.sadd(keys.queues, "<b>mail")
    with Listener(dashboard.root) as listener:
        event = listener.wait()
        assert b"text/event-stream" in listener.head
        assert b"retry: 2000" in listener.head
        assert event["counts"]["enqueued"] == 1
        assert event["away"] is None
        pages = {name for name in event["parts"] if name.startswith("nav:")}
        assert set(event["parts"]) - pages == {"away", "tiles", "graph", "graph_table", "problems", "servers"}
        assert "&lt;b&gt;mail" in event["parts"]["problems"]
        assert "<b>mail" not in str(event["parts"])
        assert "<button" not in str(event["parts"])
        db.lpush(keys.queue("<b>mail"), raw_job("k"))
        wait_for(lambda: listener.events[-1]["counts"]["enqueued"] == 2)
        wait_for(lambda: any(event["rates"]["enqueued"] > 0 for event in listener.events))


def test_a_page_of_queues_has_its_own_cells(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    db.sadd(keys.queues, "mail", "other")
    with Listener(dashboard.root, "?feed=queues%3Fmatch%3Dmai") as listener:
        parts = listener.wait()["parts"]
        assert {name: html for name, html in parts.items() if name.startswith("mail:")} == {
            "mail:size": "0",
            "mail:latency_s": "\N{EN DASH}",
            "mail:rate_per_min": "\N{EN DASH}",
            "mail:in_progress": "0",
            "mail:servers": "0",
            "mail:state": '<span class="note" title="No server takes jobs from it.">unserved</span>',
        }
        assert "other:size" not in parts
    for query in ("?feed=", "?feed=unknown", "?feed=queues%3Fpage%3Dx%26order%3Dx"):
        with Listener(dashboard.root, query) as listener:
            assert "tiles" not in listener.wait()["parts"]


def test_many_viewers_cost_as_much_as_one(own_redis: OwnRedis) -> None:
    with served(app(own_redis.url, token="")) as root, own_redis.client() as db, ExitStack() as stack:
        first = stack.enter_context(Listener(root))
        first.wait(2)

        def per_event() -> float:
            began, events = commands(db), len(first.events)
            first.wait(6)
            return (commands(db) - began) / (len(first.events) - events)

        alone = per_event()
        others = [stack.enter_context(Listener(root)) for _ in range(100)]
        wait_for(lambda: all(other.events for other in others))
        # The request to servers is sent every five seconds only.
        assert per_event() < alone + 3
        stack.close()
        # Without a viewer, nothing is read. The last read may still run.
        wait_for(lambda: is_silent(db))


def is_silent(db: redis.Redis) -> bool:
    """True if no command of others comes for longer than a second."""
    began = commands(db)
    time.sleep(1.5)
    return commands(db) == began


def test_events_come_once_a_second(dashboard: Visitor) -> None:
    with Listener(dashboard.root) as listener:
        listener.wait(6)
        # An event may be late by a second; those after it are not.
        assert listener.events[5]["at"] - listener.events[0]["at"] > 3.5


def test_servers_are_asked_for_their_numbers(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    with Listener(dashboard.root) as listener:
        listener.wait()
        assert db.ttl(keys.watched) > 0


@contextmanager
def away(server: OwnRedis, way: str) -> Iterator[None]:
    """The server does not answer, or is gone."""
    if way == "stopped":
        with server.stopped():
            yield
    else:
        server.kill()
        yield
        server.start()


@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_redis_is_away_and_comes_back(own_redis: OwnRedis, way: str) -> None:
    with served(app(own_redis.url, token="")) as root, Listener(root) as listener:
        visitor = Visitor(f"{root}/")
        with own_redis.client() as db:
            db.sadd("queues", "mail")
            db.lpush("queue:mail", raw_job("j"), raw_job("k"))
        wait_for(lambda: bool(listener.events) and listener.events[-1]["counts"]["enqueued"] == 2)
        before = time.time()
        with away(own_redis, way):
            wait_for(lambda: listener.events[-1]["away"] is not None, message="the stream says so")
            event = listener.events[-1]
            assert before - 1 <= event["away"]["since"] <= time.time()
            assert "Redis has not answered since" in event["parts"]["away"]
            assert re.search(
                r'<time datetime="\S+Z" data-exact>\S+ [0-9:]{8} UTC</time>', event["parts"]["away"]
            )
            assert event["counts"]["enqueued"] == 2
            for page in ("", "queues", "metrics"):
                answer = visitor.ask(page)
                assert answer.status == 503
                assert "Redis has not answered since" in answer.text
                assert "Waiting 2" in answer.text
                assert answer.text.count("Redis has not answered") == 1
                assert '<meta http-equiv="refresh" content="5">' in answer.page.html
        wait_for(lambda: listener.events[-1]["away"] is None, message="it comes back")
        assert listener.events[-1]["parts"]["away"] == ""
        assert visitor.ask("queues").status == 200


def test_an_action_without_redis_is_not_done(own_redis: OwnRedis) -> None:
    with served(app(own_redis.url, token="")) as root:
        visitor = Visitor(f"{root}/")
        with own_redis.client() as db:
            db.sadd("queues", "mail")
        [form] = [form for form in visitor.get("queues").forms if "pause" in form.buttons.values()]
        with away(own_redis, "killed"):
            answer = visitor.ask(form.action, {**form.hidden, "action": "pause"})
        assert answer.status == 503
        assert "Not done: Redis does not answer." in answer.text
        assert "refresh" not in answer.page.html
        assert '<a href="/queues">Back to the page</a>' in answer.page.html


def test_an_action_whose_reply_is_lost_is_perhaps_done(
    dashboard: Visitor, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: Queue) -> None:
        raise RedisUnavailableError("Connection closed")

    db.sadd(keys.queues, "mail")
    [form] = [form for form in dashboard.get("queues").forms if "pause" in form.buttons.values()]
    monkeypatch.setattr(Queue, "pause", lost)
    answer = dashboard.ask(form.action, {**form.hidden, "action": "pause"})
    assert answer.status == 503
    assert "Perhaps done:" in answer.text and "Look before you try again." in answer.text


def test_a_viewer_that_does_not_read_holds_up_nobody(dashboard: Visitor) -> None:
    host, port = dashboard.root.removeprefix("http://").strip("/").split(":")
    with socket.socket() as deaf, Listener(dashboard.root) as listener:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect((host, int(port)))
        deaf.sendall(f"GET /events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        listener.wait(5)


def test_a_server_that_falls_silent_while_one_looks(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    register(db, keys, "web:1:a", {"queues": ["mail"]}, beat=time.time(), busy=3)
    db.lpush(keys.queue("mail"), raw_job("j"))
    with Listener(dashboard.root) as listener:
        assert "web:1:a" in listener.wait()["parts"]["servers"]
        db.hset(keys.process("web:1:a"), "beat", int(time.time() - 100))
        wait_for(lambda: "silent" in listener.events[-1]["parts"]["servers"])
        wait_for(lambda: "not served because of it" in listener.events[-1]["parts"]["problems"])


def test_a_server_with_the_dashboard_mounted_stops_with_viewers(one_redis_url: str, tmp_path: Path) -> None:
    (tmp_path / "mounted.py").write_text(
        "from starlette.applications import Starlette\n"
        "import pyworkers.web\n"
        "app = Starlette()\n"
        f"app.mount('/jobs', pyworkers.web.app({one_redis_url!r}, token=''))\n"
    )
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--port", str(port), "--log-level", "warning", "mounted:app"]
    with subprocess.Popen(command, cwd=tmp_path) as server:
        try:
            root = f"http://127.0.0.1:{port}/jobs"
            wait_for(lambda: answers(port))
            with Listener(root) as listener:
                listener.wait()
                server.terminate()
                wait_for(lambda: server.poll() is not None, message="the server ends")
        finally:
            server.kill()


def answers(port: int) -> bool:
    """True if a server listens."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
