"""The pages that show several Redis servers in one table: two real ones, and a third one that is away."""

from __future__ import annotations

import html
import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
import redis

from pyworkers.api import CronSet
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import run
from pyworkers.store.counters import add_executions
from pyworkers.store.measures.deploys import mark
from pyworkers.store.measures.gauges import MINUTE
from pyworkers.web import app
from pyworkers.web.live.samples import Rates
from pyworkers.web.pages.overview import rates_of_all
from tests.helpers.records import raw_job
from tests.helpers.support import wait_for
from tests.helpers.tallies import tally
from tests.integrations.web import served
from tests.interop.browser import Page
from tests.web.acting import fields
from tests.web.conftest import fill_each
from tests.web.events import Listener
from tests.web.test_gauges import heard, note, spaced
from tests.web.test_queues import rows_of
from tests.web.test_running import runs
from tests.web.visitor import Visitor

AWAY = "redis://127.0.0.1:1/0"
PAGES = (
    "queues", "running", "scheduled", "retries", "dead", "errors", "finished", "servers",
    "cron", "locks", "limits", "batches", "metrics",
)  # fmt: skip
REASON = "Redis attic is unreachable: "


@contextmanager
def visited(keys: Keys, url: str, archive: str) -> Iterator[Visitor]:
    """A visitor of a dashboard of two Redis servers, and of one that is away."""
    urls = {"archive": archive, "attic": AWAY}
    others = {name: RedisConfig(other, keys.namespace) for name, other in urls.items()}
    with served(app(url, namespace=keys.namespace, token="", others=others)) as root:
        yield Visitor(f"{root}/")


@pytest.fixture
def visitor(one_redis_url: str, second_redis_url: str, keys: Keys) -> Iterator[Visitor]:
    """Of a dashboard with the shop in two Redis servers."""
    fill_each(keys, one_redis_url, second_redis_url)
    with visited(keys, one_redis_url, second_redis_url) as visitor:
        yield visitor


@pytest.fixture
def reader(both_shops: Keys, one_redis_url: str, second_redis_url: str) -> Iterator[Visitor]:
    """The same of a shop that other tests read as well."""
    with visited(both_shops, one_redis_url, second_redis_url) as visitor:
        yield visitor


def tables_of(visitor: Visitor, path: str) -> Iterator[list[list[str]]]:
    """The rows of a page, and of those to which a scan of keys goes on: other tests have keys there, too."""
    following = [path]
    while following:
        page = visitor.get(following[0])
        if rows := rows_of(page):
            yield rows
        following = re.findall(r'<a rel="next" href="/([^"]*[?;]scanned=[^"]*)"', page.html)
        following = [html.unescape(link) for link in following]


def redis_of_rows(visitor: Visitor, path: str) -> set[str]:
    """The names in the column Redis of the page."""
    found = set()
    for head, *rows in tables_of(visitor, path):
        place = head.index("Redis")
        found |= {row[place] for row in rows if len(row) == len(head)}
    return found


def test_each_list_has_the_rows_of_all_and_names_the_one_that_is_away(visitor: Visitor) -> None:
    # First: the servers of the shop are silent after a minute, which is one problem more.
    problems = visitor.get("problems")
    assert REASON in problems.text
    assert re.findall(r'<span class="tag">(\w+)</span>', problems.html).count("archive") == 3
    for path in PAGES:
        assert redis_of_rows(visitor, path) == {"default", "archive"}, path
        page = visitor.get(path)
        assert REASON in page.text, path
        # A row leads to the pages of its Redis, and the list of that one has no column.
        assert any("/redis/archive/" in link for link in page.links), path
        assert REASON not in visitor.get(f"redis/archive/{path}").text
        heads = [head for head, *_ in tables_of(visitor, f"redis/archive/{path}")]
        assert heads and all("Redis" not in head for head in heads), path
    overview = visitor.get("")
    assert REASON in overview.text
    assert "4,370 default 2,185, archive 2,185" in overview.text
    # The page of one queue is that of one Redis.
    assert (
        '<a href="/redis/default/queues" aria-current="true">default</a>' in visitor.get("queues/mail").html
    )


def test_the_page_of_a_class_has_the_runs_of_all(
    visitor: Visitor, one_redis_url: str, second_redis_url: str, keys: Keys
) -> None:
    for url in (one_redis_url, second_redis_url):
        with redis.Redis.from_url(url) as db:
            run(db, add_executions(keys, {"Both": tally(*[40] * 9, failed=1)}, datetime.now(UTC)))
            run(db, mark(keys, "v1.4"))
    page = visitor.get("metrics/Both")
    assert "Processed 20 Failed 2 Mean 40 ms" in page.text
    assert REASON in page.text
    assert "Deploy v1.4" in page.text
    assert '<a href="/metrics/Both" aria-current="true">All</a>' in page.html
    assert '<a href="/redis/archive/metrics/Both">archive</a>' in page.html
    there = visitor.get("redis/archive/metrics/Both")
    assert "Processed 10 Failed 1" in there.text and REASON not in there.text
    assert '<a href="/redis/archive/metrics/Both" aria-current="true">archive</a>' in there.html
    assert '<a href="/metrics/Both">All</a>' in there.html


def test_the_page_of_a_tag_has_the_jobs_of_all_and_cancels_those_of_one(
    visitor: Visitor, one_redis_url: str, second_redis_url: str, keys: Keys
) -> None:
    urls = {"default": one_redis_url, "archive": second_redis_url}
    for name, url in urls.items():
        with redis.Redis.from_url(url) as db:
            db.zadd(keys.schedule, {raw_job(f"{name}-job", tags=["seven"]): 4e9})
            raw = raw_job(f"{name}-run", queue="mail", tags=["seven"])
            run_at = {"queue": "mail", "payload": raw.decode(), "run_at": time.time() - 5}
            runs(db, keys, f"{name}:1:a", {"7.1": json.dumps(run_at)})
    # A search ends after 50 ms, whatever it has found.
    wait_for(lambda: visitor.get("tags/seven").text.count("Running 1 job Scheduled 1 job") == 2)
    page = visitor.get("tags/seven")
    assert REASON in page.text
    for name in urls:
        assert f"Jobs with this tag on {name}" in page.text
        assert f"{visitor.root}redis/{name}/scheduled?tag=seven" in page.links
        assert f"{visitor.root}redis/{name}/jobs/{name}-run" in page.links
        assert f"{visitor.root}redis/{name}/tags/seven" in page.links
    assert redis_of_rows(visitor, "tags/seven") == {"default", "archive"}
    [button] = [form for form in page.posts if form.hidden.get("redis") == "archive"]
    question = visitor.press(button, "ask")
    [answer] = [form for form in question.posts if "cancel" in form.buttons.values()]
    assert "Jobs with the tag seven are cancelled: 1 job removed" in visitor.press(answer).text
    left = []
    for url in urls.values():
        with redis.Redis.from_url(url) as db:
            left.append(db.zcount(keys.schedule, 4e9, 4e9))
    assert left == [1, 0]
    assert REASON not in visitor.get("redis/archive/tags/seven").text


def test_jobs_are_in_one_order_and_each_page_goes_on_in_each_redis(reader: Visitor) -> None:
    seen: list[tuple[str, str]] = []
    path, sizes = "scheduled", []
    while path:
        page = reader.get(path)
        jobs = re.findall(r'name="job" value="(\w+)\|([^"]+)"', page.html)
        seen += jobs
        sizes.append(len(jobs))
        path = next((link for link in page.links if "first." in link and "#" not in link), "")
    assert sizes == [50, 46]
    assert len(set(seen)) == 96
    # The two shops have the same times.
    assert [sum(name == "archive" for name, _ in some) for some in (seen[:50], seen[50:])] == [25, 23]


def test_each_page_leads_to_the_page_before(visitor: Visitor, one_redis_url: str, keys: Keys) -> None:
    def linked(page: Page, rel: str) -> str:
        [found] = re.findall(rf'rel="{rel}" href="(.*?)"', page.html) or [""]
        return html.unescape(found)

    def jobs_of(page: Page) -> list[tuple[str, str]]:
        return re.findall(r'name="job" value="(\w+)\|([^"]+)"', page.html)

    with redis.Redis.from_url(one_redis_url) as db:
        # Behind those of both.
        later = {f'{{"class":"Later","jid":"{number}","args":[]}}': 4e9 + number for number in range(60)}
        db.zadd(keys.schedule, later)
    pages = [visitor.get("scheduled")]
    while following := linked(pages[-1], "next"):
        pages.append(visitor.get(following))
    assert [len(jobs_of(page)) for page in pages] == [50, 50, 50, 6]
    page = pages[-1]
    for known in pages[-2::-1]:
        page = visitor.get(linked(page, "prev"))
        assert jobs_of(page) == jobs_of(known)
        assert re.findall(r"\d+ to \d+ of 156", page.text) == re.findall(r"\d+ to \d+ of 156", known.text)
    assert linked(page, "prev") == ""
    # In the list of one Redis, it means nothing.
    assert linked(visitor.get("redis/default/scheduled?before=50"), "next")
    # From there it goes on as before.
    assert jobs_of(visitor.get(linked(page, "next"))) == jobs_of(pages[1])


def test_a_search_finds_jobs_of_all(reader: Visitor) -> None:
    path = "dead?class=ChargeCard"
    wait_for(lambda: "looked at 18 of 18 jobs" in reader.get(path).text)
    assert redis_of_rows(reader, path) == {"default", "archive"}


def test_selected_jobs_are_changed_at_the_redis_of_each(
    visitor: Visitor, one_redis_url: str, second_redis_url: str, keys: Keys
) -> None:
    jobs = re.findall(r'name="job" value="((\w+)\|[^"]+)"', visitor.get("retries").html)
    chosen = [next(html.unescape(at) for at, name in jobs if name == one) for one in ("default", "archive")]
    sent: Any = [*fields(visitor, action="run").items(), *(("job", at) for at in chosen)]
    answer = visitor.ask("retries", sent)
    assert "default: " in answer.text and "archive: " in answer.text
    for url in (one_redis_url, second_redis_url):
        with redis.Redis.from_url(url) as db:
            assert db.zcard(keys.retry) == 17


def test_a_queue_is_cleared_at_its_redis_after_a_question_and_that_is_undone(
    visitor: Visitor, one_redis_url: str, second_redis_url: str, keys: Keys
) -> None:
    def waiting() -> list[int]:
        sizes = []
        for url in (one_redis_url, second_redis_url):
            with redis.Redis.from_url(url) as db:
                sizes.append(db.llen(keys.queue("billing")))
        return sizes

    named = {"redis": "archive", "name": "billing"}
    [form] = [
        one
        for one in visitor.get("queues").forms
        if named.items() <= one.hidden.items() and "clear" in one.buttons.values()
    ]
    question = visitor.press(form, "ask")
    [form] = [one for one in question.forms if "clear" in one.buttons.values()]
    cleared = visitor.press(form)
    assert waiting() == [18, 0]
    [form] = [one for one in cleared.forms if "undo" in one.buttons.values()]
    assert "/redis/archive/undo/" in form.action
    back = visitor.press(form)
    assert "18 jobs put back." in back.text and back.path == "/queues"
    assert waiting() == [18, 18]


def test_a_cron_entry_is_added_at_the_redis_that_is_chosen(
    visitor: Visitor, second_redis_url: str, keys: Keys
) -> None:
    entry = {"name": "of-archive", "class": "Sweep", "schedule": "0 3 * * *", "redis": "archive"}
    answer = visitor.ask("cron", fields(visitor, action="add", **entry))
    assert ["of-archive", "archive"] in [row[:2] for row in rows_of(answer.page)]
    assert CronSet(second_redis_url, namespace=keys.namespace).find("of-archive") is not None
    # What was done is in the audit of that Redis, and in the page of all.
    head, first, *_ = rows_of(visitor.get("audit"))
    assert dict(zip(head, first, strict=True))["Redis"] == "archive"


def test_the_overview_has_the_charts_of_all(
    visitor: Visitor, one_redis_url: str, second_redis_url: str, keys: Keys
) -> None:
    waits = [{"mail": 7200.0, "same": 5.0}, {"reports": 60.0, "same": 9.0}]
    # One moment for both: a minute may end between the two Redis servers.
    now = time.time()
    minute = datetime.fromtimestamp(now, UTC)
    for url, waiting in zip((one_redis_url, second_redis_url), waits, strict=True):
        with redis.Redis.from_url(url) as db:
            db.delete(keys.gauges(MINUTE))
            note(db, keys, {5: (3, 10, waiting)}, now=now)
            db.hset(keys.marks(f"{minute:%Y%m%d}"), f"{minute:%Y-%m-%dT%H:%M}:00Z", "tonight")
    page = visitor.get("")
    chart = spaced(page.html)
    assert 'data-says="mail 2 h, reports 1 min, same 9 s"' in chart and 'data-says="6 of 20 busy"' in chart
    # The same deployment in both is one line in each of the six charts.
    of_one = visitor.get("redis/archive/").html
    assert chart.count("tonight", chart.index('id="hours"')) > 0
    assert chart.count("tonight", chart.index('id="hours"')) == of_one.count(
        "tonight", of_one.index('id="hours"')
    )
    hours = "hours?range=15m"
    with Listener(visitor.root, f"?{urlencode({'feed': ['overview', hours]}, doseq=True)}") as listener:
        wait_for(lambda: "Jobs a second" in heard(listener, "graph"))
        wait_for(lambda: 'data-says="6 of 20 busy"' in heard(listener, f"{hours}:gauges"))


def test_errors_are_new_since_the_deployment_that_is_marked_in_one(
    one_redis_url: str, second_redis_url: str, keys: Keys
) -> None:
    with redis.Redis.from_url(one_redis_url) as db:
        run(db, mark(keys, "v3"))
    now = time.time()
    with redis.Redis.from_url(second_redis_url) as db:
        for jid, at in (("old", now - 3600), ("late", now)):
            db.zadd(keys.dead, {raw_job(jid, error_class=jid, error_message="bad", failed_at=at): now})
    with visited(keys, one_redis_url, second_redis_url) as visitor:
        text = visitor.get("errors").text
    assert "1 error on this page is new since the deployment v3" in text
    assert "late: bad new" in text


def test_the_rates_of_a_second_are_summed_from_the_latest_back() -> None:
    rates = [[Rates(1.0, 0.0, 5.0)], [Rates(7.0, 7.0, 7.0), Rates(2.0, 1.0, 0.0)], []]
    assert rates_of_all(rates) == [Rates(7.0, 7.0, 7.0), Rates(3.0, 1.0, 5.0)]


def test_a_queue_has_its_page_where_it_is(visitor: Visitor, second_redis_url: str, keys: Keys) -> None:
    with redis.Redis.from_url(second_redis_url) as db:
        db.lpush(keys.queue("reports/of archive"), '{"class":"Report","jid":"1","args":[]}')
    page = visitor.get("queues/reports~2Fof~20archive?class=Report")
    assert page.url == f"{visitor.root}redis/archive/queues/reports~2Fof~20archive?class=Report"
    assert "Report" in page.text
    # A queue of several, and one of none, are those of the first.
    assert [visitor.get(f"queues/{name}").url for name in ("mail", "nowhere")] == [
        f"{visitor.root}queues/{name}" for name in ("mail", "nowhere")
    ]


def test_alarms_are_one_page_for_all(reader: Visitor) -> None:
    for path in ("alarms", "redis/default/alarms", "redis/archive/alarms"):
        page = reader.get(path)
        assert page.url == f"{reader.root}alarms"
        assert '<a href="/alarms" aria-current="true">All</a>' in page.html


def test_a_redis_that_is_not_known_is_refused(reader: Visitor) -> None:
    answer = reader.ask("queues", fields(reader, action="pause", name="mail", redis="nowhere"))
    assert answer.status == 404
    assert "Nothing was done." in answer.text
