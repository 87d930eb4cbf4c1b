"""The live parts in a browser: replaced by the event stream, without loss of the focus."""

from __future__ import annotations

from pathlib import Path

import redis

from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.helpers.records import raw_job
from tests.helpers.redises import OwnRedis
from tests.helpers.support import wait_for
from tests.integrations.web import served
from tests.web.chromium import Chromium
from tests.web.visitor import Visitor


def test_numbers_follow_and_the_focus_stays(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.sadd(keys.queues, "mail")
    chromium.open(dashboard.root)
    chromium.run("document.querySelector('[data-live=tiles] a').focus()")
    db.lpush(keys.queue("mail"), raw_job("j"), raw_job("k"))
    wait_for(lambda: "Waiting\n2" in chromium.text, message="the new number")
    assert chromium.run("return document.activeElement.textContent") == "2"
    wait_for(lambda: bool(chromium.all("svg polyline")), message="the graph")
    assert chromium.messages() == []


def test_the_focus_stays_at_the_same_link(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    for name in ("alpha", "beta"):
        db.sadd(keys.queues, name)
        db.lpush(keys.queue(name), raw_job("j"))
    chromium.open(dashboard.root)
    link = "[data-live=problems] a[href$='/beta']"
    chromium.run("document.querySelector(arguments[0]).focus()", link)
    db.delete(keys.queue("alpha"))
    db.srem(keys.queues, "alpha")
    wait_for(lambda: "alpha" not in chromium.text_of("[data-live=problems]"))
    assert chromium.has_focus(link)
    db.delete(keys.queue("beta"))
    wait_for(lambda: "beta" not in chromium.text_of("[data-live=problems]"))
    assert chromium.has_focus("[data-live=problems] a")


def test_the_focus_goes_to_the_content_if_the_last_link_is_gone(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.sadd(keys.queues, "mail")
    db.lpush(keys.queue("mail"), raw_job("j"))
    chromium.open(f"{dashboard.root}queues/mail")
    db.lpush(keys.queue("mail"), raw_job("k"))
    wait_for(lambda: chromium.texts(".news a") == ["1 new: show"])
    chromium.run("document.querySelector('.news a').focus()")
    db.lpop(keys.queue("mail"))
    wait_for(lambda: not chromium.all(".news a"))
    assert chromium.has_focus("main")


def test_a_chart_says_what_the_pointer_is_at(chromium: Chromium, dashboard: Visitor) -> None:
    chromium.open(dashboard.root)
    point(chromium, "[data-live$=':runs']")
    assert chromium.text_of("[data-live$=':runs'] .pointed").endswith(": 0 done")


def test_the_live_graph_says_it_after_each_second(chromium: Chromium, dashboard: Visitor) -> None:
    chromium.open(dashboard.root)
    point(chromium, "[data-live=graph]")
    pointed = "[data-live=graph] .pointed"
    assert "0.0 done, 0.0 failed" in chromium.text_of(pointed)
    # What is enqueued is known from the second look on.
    wait_for(lambda: "0.0 failed, 0.0 enqueued a second" in chromium.text_of(pointed), message="a second")


def point(page: Chromium, part: str) -> None:
    """Move the pointer to the first place of a chart."""
    place = "document.querySelector(`${arguments[0]} .place`)"
    page.run(f"{place}.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))", part)


def test_the_cells_of_queues_follow(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.sadd(keys.queues, "a:b/<i>")
    chromium.open(f"{dashboard.root}queues?match=%3Ci%3E")
    assert chromium.text_of("[data-live$=':latency_s']") == "\N{EN DASH}"
    db.lpush(keys.queue("a:b/<i>"), raw_job("j"))
    wait_for(lambda: chromium.text_of("[data-live$=':size']") == "1", message="the new number")
    assert chromium.is_shown("details.menu summary")


def test_a_banner_says_that_redis_is_away(chromium: Chromium, valkey_binary: str, tmp_path: Path) -> None:
    with OwnRedis(valkey_binary, tmp_path / "redis") as server:
        server.start()
        with served(app(server.url, token="")) as root:
            chromium.open(f"{root}/metrics")
            assert not chromium.is_shown(".banner")
            server.kill()
            wait_for(lambda: "Redis has not answered since" in chromium.text_of(".banner"))
            server.start()
            wait_for(lambda: not chromium.is_shown(".banner"))
            chromium.open("about:blank")


def test_a_page_without_redis_goes_on_when_it_answers(
    chromium: Chromium, valkey_binary: str, tmp_path: Path
) -> None:
    with OwnRedis(valkey_binary, tmp_path / "redis") as server:
        server.start()
        with served(app(server.url, token="")) as root:
            Visitor(f"{root}/").get("metrics")
            server.kill()
            chromium.open(f"{root}/metrics")
            assert chromium.text_of("h1") == "Redis does not answer"
            # Without the reload by time, the script does it.
            chromium.run("document.querySelector('meta[http-equiv]').remove(); window.stop()")
            server.start()
            # In one step: between two, the page is replaced.
            heading = "return document.querySelector('h1')?.textContent"
            wait_for(lambda: chromium.run(heading) == "Metrics", message="the page")
            chromium.open("about:blank")


def test_a_page_says_that_the_dashboard_is_away(
    chromium: Chromium, one_redis_url: str, namespace: str
) -> None:
    with served(app(one_redis_url, token="")) as root:
        chromium.open(f"{root}/")
        wait_for(lambda: chromium.run("return performance.getEntriesByType('resource').length") > 0)
        chromium.run("window.stop()")
    wait_for(lambda: "no news from the dashboard" in chromium.text_of(".banner"), timeout=30)


def test_relative_times_stay_true(
    chromium: Chromium, dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.set(keys.unique("Add|q|1"), "j1", px=3_630_000)
    chromium.open(f"{dashboard.root}locks")
    expires = "return document.querySelector('main td time').textContent"
    assert chromium.run(expires) == "in 1 h"
    chromium.run(
        "window.passed = 0; const real = Date.now.bind(Date); Date.now = () => real() + window.passed * 1000;"
    )

    def shows(text: str, *, after_s: int) -> None:
        chromium.run("window.passed = arguments[0]", after_s)
        wait_for(lambda: chromium.run(expires) == text, message=text)

    shows("in 30 min", after_s=1800)
    shows("1 h ago", after_s=7800)
    shows("2 d ago", after_s=86_400 * 2 + 7800)
