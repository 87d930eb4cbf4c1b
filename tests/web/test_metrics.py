"""The metrics: the table of classes, and the page of one."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import urlencode

import pytest
import redis
from markupsafe import escape

from pyworkers.api.metrics import Period, read_class_metrics, read_metrics
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import run
from pyworkers.store.counters import add_executions
from pyworkers.store.measures.deploys import mark
from pyworkers.web.live import reader
from tests.helpers.records import register
from tests.helpers.support import wait_for
from tests.helpers.tallies import tally
from tests.web.events import Listener
from tests.web.test_gauges import heard
from tests.web.visitor import Visitor


def test_no_job_has_run(dashboard: Visitor) -> None:
    assert "No job ran in the last hour." in dashboard.get("metrics").text
    assert "No job ran in the last day." in dashboard.get("metrics?period=day").text


def test_a_class_and_its_page(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    run(db, add_executions(keys, {"Send": tally(*[40] * 99, 4000, failed=2)}, datetime.now(UTC)))
    for address in ("metrics", "metrics?period=day", "metrics?match=SEND&page=1"):
        assert "Send 102 2 37.6 ms 44.4 ms" in dashboard.get(address).text
    assert "No class with this text" in dashboard.get("metrics?match=other").text
    for address in ("metrics/Send", "metrics/Send?period=day"):
        page = dashboard.get(address)
        assert "Processed 102 Failed 2 Mean 79.6 ms p50 37.6 ms" in page.text
        assert "30 ms to 45 ms 99" in page.text
        assert "Jobs by duration: p50 37.6" in page.html


def test_hostile_classes(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    names = ["<script>x", "a/b\n", "\u202e", "\udcff", "x" * 3000]
    run(db, add_executions(keys, {name: tally(5) for name in names}, datetime.now(UTC)))
    page = dashboard.get("metrics")
    assert "<script>x" not in page.html
    links = [link for link in page.links if "/metrics/" in link]
    assert len(links) == 4
    for link in links:
        assert dashboard.ask(link).status == 200
    assert dashboard.ask("metrics/never~00seen").status == 200


def test_a_thousand_classes_are_paged(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    tallies = {f"Class{number:04}": tally(5) for number in range(1000)}
    run(db, add_executions(keys, tallies, datetime.now(UTC)))
    assert "Page 1 of 20, 1,000 classes" in dashboard.get("metrics").text
    assert "Class0999" in dashboard.get("metrics?period=day&page=20").text
    assert "The list is shorter now. To its beginning" in dashboard.get("metrics?page=21").text
    for odd in ("metrics?page=0", "metrics?page=99999999", "metrics?page=x&period=x&match=%FF%00"):
        assert dashboard.ask(odd).status == 200


def test_a_deployment_is_a_line_in_the_charts(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    run(db, add_executions(keys, {"Send": tally(40)}, datetime.now(UTC)))
    assert run(db, mark(keys, "v1 <b>"))
    # Without the live graph, which has the deployments of two minutes.
    for address, begin, charts in (("metrics/Send", "<main", 4), ("?range=2h", 'id="hours"', 6)):
        page = dashboard.get(address)
        html = page.html[page.html.index(begin) :]
        assert html.count('<line class="deploy"') == html.count('class="key deploy"') == charts
        assert html.count("; deploy v1 &lt;b&gt;") == charts and "Deploy v1 <b>" in page.text


def test_a_class_leads_to_its_jobs(dashboard: Visitor) -> None:
    links = dashboard.get("metrics/Send%20it").links
    paths = [link.partition(dashboard.root)[2] for link in links if "class=Send" in link]
    assert paths == [f"{place}?class=Send+it" for place in ("scheduled", "retries", "dead", "finished")]


def test_the_start_of_servers_of_a_version_is_a_line_in_the_charts(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    now = time.time()
    for number, (version, ago_s) in enumerate((("0.2.0", 9e5), ("0.3.0", 600), ("0.3.0", 300), ("<b>", 60))):
        info = {"identity": f"host:{number}:aaaaaa", "version": version, "started_at": now - ago_s}
        register(db, keys, f"host:{number}:aaaaaa", info, beat=now, look=1)
    page = dashboard.get()
    assert "Deploy servers of pyworkers 0.3.0" in page.text
    assert page.html.count("; deploy servers of pyworkers 0.3.0") == 6
    assert "Deploy servers of pyworkers <b>" in page.text
    assert page.html.count("; deploy servers of pyworkers 0.2.0") == 2, "only in the charts of thirty days"


def test_durations_over_time_as_percentiles_and_as_a_heat_map(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    now = datetime.now(UTC)
    run(db, add_executions(keys, {"Send": tally(*[40] * 99, 4000)}, now))
    run(db, add_executions(keys, {"Send": tally(7)}, now - timedelta(minutes=30)))
    page = dashboard.get("metrics/Send")
    html, text = (shown.replace("\u202f", " ") for shown in (page.html, page.text))
    assert page.html.count('data-says="p50 ') == 2 and page.html.count('data-says="no job"') == 2 * 58
    assert "p50 37.6 ms, p95" in html and page.html.count('class="heat"') == 3
    assert "30 ms to 45 ms: 99, 3.8 s to 5.75 s: 1" in html
    # The same as a table, and as JSON; over a day, by hours.
    assert "37.6 ms" in text.partition("Durations over time")[2].partition("As a table")[2]
    found = read_class_metrics(keys, "Send")
    parts = [part for part in run(db, found).durations if part.jobs]
    assert [part.jobs for part in parts] == [1, 100]
    assert len(run(db, read_class_metrics(keys, "Send", Period.DAY)).durations) == 24


def test_each_class_has_its_runs_over_time_in_its_row(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    now = datetime.now(UTC)
    run(db, add_executions(keys, {"Send": tally(1, 1)}, now))
    run(db, add_executions(keys, {"Send": tally(1)}, now - timedelta(minutes=30)))
    [hour], [day] = (run(db, read_metrics(keys, period)).classes for period in Period)
    assert [runs for runs in hour.trend if runs] == [1, 2] and len(hour.trend) in (6, 7)
    assert (sum(day.trend), len(day.trend)) == (3, 24)
    # Ten minutes may end in between.
    shown = r'aria-label="Runs by ten minutes: (0, )*1(, 0){2}, 2(, 0)?"'
    assert re.search(shown, dashboard.get("metrics").html)
    assert "Runs by hour: 0, " in dashboard.get("metrics?period=day").html


def test_the_charts_of_a_class_follow(
    dashboard: Visitor, db: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MINUTE_S", 0.5)
    html = dashboard.get("metrics/a%26b%3Ci%3E?period=day").html
    [feed] = map(unescape, re.findall(r'data-feed="(class[^"]*)"', html))
    with Listener(dashboard.root, f"?{urlencode({'feed': feed})}") as listener:
        wait_for(lambda: "Jobs failed: 0 since" in heard(listener, f"{feed}:runs"))
        run(db, add_executions(keys, {"a&b<i>": tally(40, failed=1)}, datetime.now(UTC)))
        wait_for(lambda: "Jobs failed: 1 since" in heard(listener, f"{feed}:runs"))
        assert "<dd>2</dd>" in heard(listener, f"{feed}:tiles")
        assert 'class="heat"' in heard(listener, f"{feed}:durations")
        assert ': 1"' in heard(listener, f"{feed}:histogram")
        for table in ("runs_table", "durations_table", "histogram_table"):
            assert ">1</td>" in heard(listener, f"{feed}:{table}"), table
    assert html.count(f'data-live="{escape(feed)}:') == 7
