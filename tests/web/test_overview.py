"""The overview: counts, problems, history and servers."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
import redis

from pyworkers.api import Stats
from pyworkers.api.metrics import MetricsPart
from pyworkers.protocol.keys import Keys
from pyworkers.store.counters import minute_of, ten_minutes_of
from pyworkers.web import drawing
from pyworkers.web.live.samples import Rates, Samples
from pyworkers.web.navigation import GROUPS, NAVIGATION
from pyworkers.web.pages.metrics import Runs, runs_charts
from pyworkers.web.pages.overview import graph_of, graphs
from tests.helpers.records import raw_job, register
from tests.helpers.support import wait_for
from tests.web.acting import act
from tests.web.document import Document
from tests.web.following import events
from tests.web.visitor import Visitor


def test_an_empty_redis(dashboard: Visitor) -> None:
    page = dashboard.get()
    assert "Waiting 0" in page.text
    assert "No server runs." in page.text


@pytest.mark.parametrize(
    ("path", "group", "label"),
    [(path, group.label, label) for group in GROUPS for path, label in group.pages],
)
def test_each_page_and_its_group_are_the_current_ones_in_the_navigation(
    dashboard: Visitor, path: str, group: str, label: str
) -> None:
    page = dashboard.get(path).html
    assert re.findall(r'aria-current="(page|true)">(.*?) ?<', page) == [("true", group), ("page", label)]


def test_the_groups_lead_to_all_pages_also_from_one_without_a_place_of_its_own(dashboard: Visitor) -> None:
    assert re.findall(r'aria-current="true">(.*?) ?<', dashboard.get("jobs/1").html) == ["Jobs"]
    found = [Document(dashboard.root, dashboard.get(group.pages[0][0]).html) for group in GROUPS]
    linked = {urlsplit(link).path for page in found for link in page.links}
    assert linked >= {f"/{path}" for path, _ in NAVIGATION}


def test_counts_problems_history_and_servers(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    today = datetime.now(UTC).date().isoformat()
    db.mset({keys.stat("processed"): 1234, keys.stat("failed"): 34, keys.stat("processed", today): 50})
    db.sadd(keys.queues, "mail")
    db.sadd(keys.paused, "later")
    db.lpush(keys.queue("mail"), raw_job("j", enqueued_at=time.time() - 7200))
    db.zadd(keys.dead, {raw_job("d"): 1.0})
    register(db, keys, "web:1:a", {"queues": ["q"], "concurrency": 5}, beat=time.time(), busy=3)
    page = dashboard.get()
    for words in (
        "Waiting 1",
        "Oldest job 2 h in mail",
        "Dead 1",
        "Done 1,200",
        "Failed 34",
        "Queue mail has 1 waiting job (oldest: 2 h), and no server takes jobs from it",
        "Each problem, to mute it",
        "Queue later is paused: no job of it starts",
        "web:1:a running 3 5",
        f"{today} 50 0",
    ):
        assert words in page.text
    assert "The last 7 days" in dashboard.get("?days=7").text
    assert "The last 30 days" in dashboard.get("?days=x").text


def test_failures_are_those_of_the_last_hour_with_their_change(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    now = datetime.now(UTC)
    db.mset({keys.stat("processed"): 1234, keys.stat("failed"): 34})
    for minutes_ago, failed in ((0, 7), (70, 3), (200, 50)):
        name = ten_minutes_of(now - timedelta(minutes=minutes_ago))
        db.hset(keys.executions(name), mapping={"Add|f": failed, "Add|p": 100})
    page = dashboard.get()
    text = page.text
    assert re.search(r'href="/errors">[\d,]+</a>', page.html)
    found = re.search(r"Failed in the last hour (\d+) (\d+) more than in the hour before", text)
    assert found and int(found[1]) - int(found[2]) in range(4) and 7 <= int(found[1]) <= 10
    assert "Since ever: Done 1,200 · Failed 34" in text


def test_the_navigation_and_the_title_have_the_counts(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    assert "<title>Dead · pyworkers</title>" in dashboard.get("dead").html
    db.zadd(keys.dead, {raw_job("d"): 1.0, raw_job("e"): 2.0})
    db.sadd(keys.queues, "mail")
    db.lpush(keys.queue("mail"), *[raw_job("j")] * 12)
    # What is wrong with the Redis of the tests counts, too.
    [count] = re.findall(r"<title>\((\d+)\) Overview · pyworkers</title>", dashboard.get().html)
    page = dashboard.get("dead")
    assert "Queues 12 Running Scheduled Retries Dead 2" in page.text
    assert "<title>(2) Dead · pyworkers</title>" in page.html
    assert f"<title>({count}) Audit · pyworkers</title>" in dashboard.get("audit").html
    with events(dashboard, "") as parts:
        found = next(parts)
        assert (found["nav:queues"], found["nav:running"], found["nav:dead"]) == ("12", "", "2")
        assert found["nav:problems"] == f'<span class="bad">{count}</span>'


def test_problems_are_shown_by_cause(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    for number in range(3):
        register(
            db, keys, f"web:{number}:a", {"queues": [f"q{number}", f"r{number}"]}, beat=time.time() - 125
        )
        for queue in (f"q{number}", f"r{number}"):
            db.sadd(keys.queues, queue)
            db.lpush(keys.queue(queue), *[raw_job("j")] * (number + 1))
    for number in range(5):
        db.sadd(keys.paused, f"p{number}")
    page = dashboard.get().text
    assert "3 servers are silent since 2 min: web:" in page
    assert "6 queues with waiting jobs are not served because of it: q2 3, r2 3, q1 2, …" in page
    assert "5 queues are paused: p" in page and "no server takes jobs" not in page
    problems = dashboard.get("problems").text
    assert problems.count("wrote its last heartbeat") == 3
    assert problems.count("no job of it starts") == 5


def test_a_muted_cause_is_off_the_overview_until_it_grows(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    db.sadd(keys.paused, "one")
    assert "Queue one is paused" in dashboard.get().text
    assert "paused is muted for an hour." in act(dashboard, "problems", action="mute", code="paused")
    assert db.ttl(keys.web_muted("paused")) > 3500
    overview = dashboard.get().text
    assert "Queue one" not in overview and "1 muted" in overview
    assert "problem.mute" in dashboard.get("audit").text
    db.sadd(keys.paused, "two")
    assert "2 queues are paused" in dashboard.get().text
    db.srem(keys.paused, "two")
    assert "paused is shown again." in act(dashboard, "problems", action="unmute", code="paused")
    assert "Queue one is paused" in dashboard.get().text


def test_hostile_servers_and_queues(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    db.sadd(keys.paused, "<b>\u202e")
    register(db, keys, "<i>:1:a", {"queues": ["<u>"]}, beat="x", busy="many", rss="1e999")
    db.hset(keys.owners, b"\xff<s>", "no list")
    db.set(keys.schedule, "of another type")
    page = dashboard.get()
    assert "silent" in page.text
    for markup in ("<b>", "<i>", "<u>", "<s>"):
        assert markup not in page.html


def stats_of(now: float, enqueued: int, busy: int, processed: int, failed: int = 0) -> Stats:
    return Stats(processed, failed, enqueued, busy, 0, 0, 0, 1, now=now)


def test_the_rates_of_each_second() -> None:
    samples = Samples()
    for stats in (
        stats_of(100, 10, 0, 0),
        # Ten jobs are enqueued, five run, three of which have failed.
        stats_of(101, 15, 0, 5, 3),
        # The counters are a second late: nothing was enqueued.
        stats_of(102, 5, 0, 5, 3),
        stats_of(103, 5, 0, 15, 3),
        # Read again at once by a page.
        stats_of(103.1, 5, 0, 15, 3),
    ):
        samples.add(stats)
    assert samples.rates == [Rates(2, 3, 10), Rates(0, 0, 0), Rates(10, 0, 0)]


def test_a_gap_counts_by_second() -> None:
    samples = Samples()
    samples.add(stats_of(100, 0, 0, 0))
    samples.add(stats_of(110, 0, 0, 50))
    assert samples.rates == [Rates(5, 0, 5)] * 10
    assert samples.change("processed") == (50, 10)
    samples.add(stats_of(10_000, 0, 0, 50))
    assert samples.change("processed") is None
    assert samples.latest == Rates()
    assert len(samples.rates) == 120


def test_a_graph_of_less_than_two_minutes_says_so(dashboard: Visitor) -> None:
    assert "Collecting: 0 of 120 s" in dashboard.get().text
    assert "over the last 3 seconds. Now 2 done" in graphs([Rates(2, 0, 0)] * 3)["graph"].svg
    assert "over the last two minutes. Now 2 done" in graphs([Rates(2, 0, 0)] * 120)["graph"].svg
    with events(dashboard, "overview") as parts:
        first = r"Collecting: [1-9][0-9]* of 120 s"
        wait_for(lambda: re.search(first, next(parts)["graph"]), message="the first seconds")


def test_the_seconds_before_the_first_look_have_the_means_of_their_minutes() -> None:
    samples = Samples()
    minutes = [MetricsPart(60.0 * n, 60 * n, 6 * n) for n in range(4)]
    samples.add(stats_of(200, 0, 0, 0))
    samples.add(stats_of(202, 0, 0, 8))
    samples.begin(minutes, 202.0)
    samples.begin([], 202.0)
    rates = samples.rates
    assert len(rates) == 120
    assert (rates[0], rates[37]) == (Rates(0.9, 0.1, None), Rates(0.9, 0.1, None))
    assert (rates[38], rates[97]) == (Rates(1.8, 0.2, None), Rates(1.8, 0.2, None))
    # The last minute has 22 seconds so far.
    assert rates[98:] == [Rates(162 / 22, 18 / 22, None)] * 20 + [Rates(4, 0, 4)] * 2
    samples.add(stats_of(322, 0, 0, 8))
    assert samples.rates == [Rates()] * 120


def test_the_graph_begins_with_what_redis_has(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    now = datetime.now(UTC)
    for minutes in range(-1, 5):
        minute = minute_of(now - timedelta(minutes=minutes))
        db.hset(keys.executions(minute), mapping={"Add|p": 6000, "Add|f": 600})
    # One of these deployments is in the last two minutes, however long this test waits.
    for minutes in range(10):
        stamp = f"{now + timedelta(minutes=minutes):%Y-%m-%dT%H:%M}:00Z"
        db.hset(keys.marks(stamp[:10].replace("-", "")), stamp, "tonight")
    html = dashboard.get().html
    live = html[html.index('id="now"') : html.index('id="hours"')]
    assert live.count('<line class="deploy"') >= 2 and "a second; deploy tonight" in live
    with events(dashboard, "overview") as parts:
        assert "a second; deploy tonight" in next(parts)["graph"]
    drawn = re.findall(r'<polyline class="line (\w+)"[^>]*points="([^"]*)"', html)
    assert {kind: len(points.split()) for kind, points in drawn[:3]} == {
        "enqueued": 0,
        "done": 120,
        "failed": 120,
    }
    assert "90.0 done, 10.0 failed a second" in html and "Collecting: 0 of 120 s" in html


def test_failures_have_their_own_scale() -> None:
    second = graphs([Rates(100, 2, 0)] * 3)
    assert (second["graph"].top, second["failed_graph"].top) == (100, 2)
    by_day = runs_charts([Runs(100, 2)] * 3, "in 3 days", (), ())
    assert [(kind, total, chart.top) for kind, (total, chart) in by_day.items()] == [
        ("done", 300, 100),
        ("failed", 6, 2),
    ]


def test_the_table_of_the_graph_has_the_means_of_ten_seconds() -> None:
    found = graph_of([Rates(1, 0, 0)] * 5 + [Rates(2, 0.5, 4)] * 5 + [Rates(4, 0, 0)] * 5)
    assert found["by_ten"] == [("0 to 10", Rates(3, 0.25, 2)), ("10 to 15", Rates(1, 0, 0))]


@pytest.mark.parametrize("values", [[], [0], [1, 5, 2]])
def test_a_chart_fits_into_its_frame(values: list[float]) -> None:
    drawn = drawing.lines([drawing.Curve("done", values)], 'a "<b>', 4).svg
    assert 'aria-label="a &#34;&lt;b&gt;"' in drawn
    assert 'viewBox="0 0 3 100"' in drawn
    bars = [drawing.Bar([("done", value)]) for value in values]
    assert drawing.bars(bars, "").svg.count("<rect") == sum(map(bool, values))


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 1), (1, 1), (1.5, 2), (2, 2), (3, 5), (7, 10), (101, 200), (9_999, 10_000)]
)
def test_the_scale_of_a_chart_ends_at_a_round_number(highest: float, top: float) -> None:
    assert drawing.edge(highest) == top


def test_the_runs_of_the_last_hours_are_drawn_at_once(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    now = datetime.now(UTC)
    ago = now - timedelta(hours=50)
    db.hset(keys.executions(minute_of(now)), mapping={"Add|p": 7, "a|b|p": 2, "Add|f": 3, "Add|ms": 9})
    db.hset(keys.executions(ten_minutes_of(ago)), mapping={"Add|p": 100})
    quarter, days = dashboard.get(), dashboard.get("?range=72h")
    assert 'data-says="6 done"' in quarter.html and 'data-says="3 failed"' in quarter.html
    assert "6 by minute (<span data-zone>UTC</span>)" in quarter.html
    assert "3, on their own scale" in quarter.text
    begin = ago.replace(minute=ago.minute // 30 * 30)
    assert f'data-says="100 done" data-at="{begin:%Y-%m-%dT%H:%M}:00Z"' in days.html
    assert "72 hours" in days.text and days.html.count('<rect class="place"') >= 2 * 144


def test_a_quiet_server_and_one_that_stops_have_the_same_words_everywhere(
    dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    register(db, keys, "web:1:a", {"queues": ["q"]}, beat=time.time(), quiet="true")
    register(
        db,
        keys,
        "web:2:b",
        {"queues": ["q"]},
        beat=time.time(),
        look=0,
        quiet="true",
        stops_at=time.time() + 7230,
    )
    db.set(keys.lease("web:2:b"), "x")
    overview, servers = dashboard.get().text, dashboard.get("servers").text
    assert "it is quiet, or it is stopping" in overview and "stop it if it stays" in overview
    assert all("web:1:a quiet" in text for text in (overview, servers))
    assert all("web:2:b stopping , 2h left" in text for text in (overview, servers))
    assert overview.count("takes no more jobs") == 1
    assert "stopping , 2h left" in dashboard.get("servers/web~3A2~3Ab").text
