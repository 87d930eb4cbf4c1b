"""The charts of busy jobs and of latencies: on the overview, and on the page of a queue."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from html import unescape
from urllib.parse import urlencode

import pytest
import redis

from pyworkers.api import Gauges
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import run
from pyworkers.store.counters import minute_of
from pyworkers.store.measures import gauges
from pyworkers.store.measures.deploys import mark
from pyworkers.store.measures.gauges import MINUTE, TEN_MINUTES, GaugeEntry
from pyworkers.web.live import reader
from pyworkers.web.pages import gauges as gauges_page
from pyworkers.web.pages.gauges import edge_s, waited
from tests.helpers.support import wait_for
from tests.web.events import Listener
from tests.web.programs import Program
from tests.web.visitor import Visitor

Noted = Mapping[int, tuple[float, int, Mapping[str, float]]]
"""By the minutes that have passed since, from the first on: busy jobs, concurrency and waits."""


def note(db: redis.Redis, keys: Keys, noted: Noted, size: int = MINUTE, *, now: float | None = None) -> None:
    """Add these entries to one of the streams; their ages count back from ``now``, by default this moment."""
    now = time.time() if now is None else now
    for ago_min, numbers in noted.items():
        at = (now - 60 * ago_min) // (60 * size) * 60 * size
        run(db, gauges.add(keys, size, GaugeEntry(at, *numbers)))


def spaced(html: str) -> str:
    """With plain spaces before units."""
    return html.replace("\N{NARROW NO-BREAK SPACE}", " ")


def test_without_entries_the_charts_say_who_makes_them(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    assert "Latency of queues" in dashboard.get().text
    assert "Servers note it once a minute" in dashboard.get().text
    db.sadd(keys.queues, "mail")
    assert "servers note it once a minute" in dashboard.get("queues/mail").text


def test_latency_by_queue_and_busy_of_all(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    waits = {"mail": 7200.0, **{f"q{number}": 60.0 - number for number in range(9)}}
    note(db, keys, {7: (3, 10, {"mail": 1.5}), 5: (4.5, 10, waits), 4: (0, 10, {})})
    page = dashboard.get("?range=15m")
    chart = spaced(page.html[page.html.index("Latency of queues") :])
    # The five longest of all parts.
    assert re.findall(r'<path class="line (q\d)"', chart) == ["q1", "q2", "q3", "q4", "q5"]
    assert re.search(r"mail q0 q1 q2 q3 The queues with the longest waits", page.text)
    assert 'data-says="mail 2 h, q0 1 min, q1 59 s"' in chart
    assert 'data-says="4.5 of 10 busy"' in chart and 'data-says="no job waited"' in chart
    assert ">2 h</span><span>60 min</span><span>0</span>" in chart
    assert "5 min ago 4.5 10 2 h in mail" in page.text or "6 min ago 4.5 10 2 h in mail" in page.text


def test_a_minute_without_a_server_is_a_gap_and_not_zero(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    note(db, keys, {9: (2, 4, {"mail": 5.0}), 8: (2, 4, {}), 5: (4, 4, {"mail": 2.0})})
    chart = dashboard.get().html
    [busy] = re.findall(r'<path class="line busy" [^>]*d="(.*?)"', chart)
    # Two neighbours are joined, and the third one begins anew.
    assert re.fullmatch(r"M\d+ 60.0h1V60.0h1M\d+ 20.0h1", busy)
    [latency] = re.findall(r'<path class="line q1" [^>]*d="(.*?)"', chart)
    assert re.fullmatch(r"M\d+ 0.0h1V100.0h1M\d+ 60.0h1", latency)
    assert chart.count('data-says="unknown"') == 2 * 12


def test_long_ranges_have_ten_minutes_and_half_hours(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    note(db, keys, {60: (6, 8, {"mail": 30.0}), 300: (2, 4, {})}, TEN_MINUTES)
    note(db, keys, {0: (1, 8, {"late": 3.0})})
    for window, parts in (("2h", 120), ("24h", 144), ("72h", 144), ("odd", 15)):
        chart = dashboard.get(f"?range={window}").html.partition("Busy jobs</h3>")[2].partition("</svg>")[0]
        assert chart.count('class="place"') == parts
    assert 'data-says="6 of 8 busy"' in dashboard.get("?range=72h").html
    # The newest ten minutes are not over.
    assert 'data-says="late 3 s"' in spaced(dashboard.get("?range=24h").html)


def test_the_page_of_a_queue_has_its_own_latency(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    db.sadd(keys.queues, "mail")
    note(db, keys, {5: (4, 4, {"other": 500.0, "mail": 90.0}), 3: (4, 4, {"other": 500.0})})
    assert run(db, mark(keys, "v1"))
    page = dashboard.get("queues/mail?range=15m")
    assert '<details class="filters" id="latency" open>' in page.html
    assert 'data-says="1.5 min"' in spaced(page.html) and ">2 min</span>" in spaced(page.html)
    assert "other" not in page.html
    assert page.html.count('<line class="deploy"') == 1
    assert 'id="latency">' in dashboard.get("queues/mail").html
    assert "Latency over time" not in dashboard.get("retries").text


def test_the_numbers_as_json_and_from_python(
    dashboard: Visitor, db: redis.Redis, one_redis_url: str, keys: Keys
) -> None:
    run(db, gauges.add(keys, MINUTE, GaugeEntry(time.time() // 60 * 60 - 120, 4, 5, {"mail": 90.5}, 3)))
    program = Program(dashboard.root)
    [part] = [one for one in program.get("/gauges?range=2h") if one["busy"] is not None]
    assert {name: part[name] for name in ("busy", "concurrency", "latencies_s", "left_out")} == {
        "busy": 4,
        "concurrency": 5,
        "latencies_s": {"mail": 90.5},
        "left_out": 3,
    }
    found = Gauges.fetch("2h", one_redis_url, namespace=keys.namespace)
    assert part in [one.as_dict() for one in found]
    latencies = [one["latency_s"] for one in program.get("/queues/mail/latency")]
    assert (len(latencies), latencies.count(None), 90.5 in latencies) == (15, 14, True)
    # Of a queue among those that were left out, it is unknown.
    assert {one["latency_s"] for one in program.get("/queues/other/latency")} == {None}


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.5, "500 ms"), (1.5, "1.5 s"), (90, "1.5 min"), (5400, "90 min"), (200_000, "2 d 7 h")],
)
def test_a_wait_in_words(seconds: float, words: str) -> None:
    assert spaced(waited(seconds)) == words


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 1), (1.1, 2), (130, 300), (3601, 7200), (86_401, 172_800), (9e6, 200 * 86_400)]
)
def test_the_scale_of_waits_is_round(highest: float, top: float) -> None:
    assert edge_s(highest) == top


def feed_of(dashboard: Visitor, path: str) -> str:
    """The name of the feed of the charts of a page."""
    [feed] = re.findall(r'data-feed="((?:hours|latency)[^"]*)"', dashboard.get(path).html)
    return unescape(feed)


def heard(listener: Listener, part: str) -> str:
    """A live part as it was sent last; empty if it was not."""
    return next(
        (spaced(event["parts"][part]) for event in listener.events[::-1] if part in event["parts"]), ""
    )


def test_charts_and_their_tables_follow(
    dashboard: Visitor, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reader, gauges_page):
        monkeypatch.setattr(module, "MINUTE_S", 0.5)
    hours, latency = (feed_of(dashboard, f"{page}?range=2h") for page in ("", "queues/a&b"))
    with Listener(dashboard.root, f"?{urlencode({'feed': [hours, latency]}, doseq=True)}") as listener:
        wait_for(lambda: "Servers note it" in heard(listener, f"{hours}:gauges"))
        wait_for(lambda: "servers note it" in heard(listener, latency))
        note(db, keys, {1: (3, 10, {"mail": 7200.0, "a&b": 90.0})})
        db.hincrby(keys.executions(minute_of(datetime.now(UTC))), "Mail|p", 7)
        wait_for(lambda: "mail 2 h, a&amp;b 1.5 min" in heard(listener, f"{hours}:gauges"))
        wait_for(lambda: "7 by minute" in heard(listener, f"{hours}:runs"))
        wait_for(lambda: 'data-says="1.5 min"' in heard(listener, latency))
        assert "2 h in <a" in heard(listener, f"{hours}:gauges_table")
        assert ">7</td>" in heard(listener, f"{hours}:runs_table")
        assert "1.5 min" in heard(listener, f"{latency}:table")


def test_charts_are_not_sent_again_before_the_next_minute(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    feed = feed_of(dashboard, "?range=24h")
    part, query = f"{feed}:gauges", f"?{urlencode({'feed': feed})}"
    with Listener(dashboard.root, query) as listener:
        wait_for(lambda: "Servers note it" in heard(listener, part))
        note(db, keys, {1: (3, 10, {})})
        wait_for(lambda: part not in listener.wait()["parts"])
        # Nor to a viewer whose page is newer than what was read.
        with Listener(dashboard.root, query) as other:
            assert part not in other.wait()["parts"]


def test_hostile_names_and_entries(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    note(db, keys, {3: (1, 1, {"<script>x": 9.0, "\u202e": 8.0, "a/b\n": 7.0, "": 6.0})})
    db.xadd(keys.gauges(MINUTE), {"v": '{"busy":"<b>"}'})
    page = dashboard.get()
    assert "<script>x" not in page.html and "&lt;script&gt;x 9" in page.html
    db.set(keys.gauges(TEN_MINUTES), "of another type")
    db.delete(keys.gauges(MINUTE))
    db.rpush(keys.gauges(MINUTE), "x")
    for path in ("", "?range=72h", "queues/mail?range=24h", "api/gauges?range=24h"):
        assert dashboard.ask(path).status == 200
