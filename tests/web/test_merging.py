"""The JSON and CSV of several Redis servers in one list: two real ones, and a third one that is away."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
import redis
from openapi_spec_validator import OpenAPIV31SpecValidator
from starlette.applications import Starlette

from contrib.pictures import shop
from pyworkers import Client
from pyworkers.api import Queue
from pyworkers.api.browse.lookup import read_job
from pyworkers.api.target import admin_of
from pyworkers.config.fields import RedisConfig
from pyworkers.config.stores import Stores
from pyworkers.errors import RedisUnavailableError
from pyworkers.http.hosts import Hosts
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import run
from pyworkers.store.counters import add_executions
from pyworkers.web import app
from pyworkers.web.application import assemble
from pyworkers.web.pages import job
from pyworkers.web.security.access import Local
from pyworkers.web.site import Site, SiteSettings
from tests.helpers.records import raw_job
from tests.helpers.support import wait_for
from tests.helpers.tallies import tally
from tests.integrations.web import served
from tests.web import hostile
from tests.web.conftest import fill_each
from tests.web.programs import Program
from tests.web.test_joined import AWAY
from tests.web.test_openapi import Walker
from tests.web.visitor import Visitor

LISTS = (
    "problems", "queues", "scheduled", "retries", "dead", "errors", "finished", "running", "servers", "audit",
    "batches", "limits", "locks", "cron", "metrics", "deploys", "history", "runs", "gauges",
    "queues/mail/jobs", "queues/mail/latency",
)  # fmt: skip


def dashboard_of(url: str, namespace: str, **others: str) -> Starlette:
    more = {name: RedisConfig(other, namespace) for name, other in others.items()}
    return app(url, namespace=namespace, token="", others=more)


@contextmanager
def configured(urls: Sequence[str], namespace: str, **elsewhere: str) -> Iterator[Program]:
    """A program that uses the dashboard of a configuration, whose other queues are in the first Redis."""
    others = dict(zip(("default", "archive"), (RedisConfig(url, namespace) for url in urls), strict=True))
    stores, token = Stores(others, elsewhere), "x" * 24
    sites = {
        name: Site(admin_of(one), SiteSettings(stores=stores, name=name)) for name, one in others.items()
    }
    with served(assemble(sites, Local(token), Hosts(()))) as root:
        yield Program(root, Authorization=f"Bearer {token}")


@pytest.fixture
def root(both_shops: Keys, one_redis_url: str, second_redis_url: str) -> Iterator[str]:
    """Of a dashboard with the shop in two Redis servers, which is only read."""
    whole = dashboard_of(one_redis_url, both_shops.namespace, archive=second_redis_url, attic=AWAY)
    with served(whole) as root:
        yield f"{root}/"


@pytest.fixture
def program(root: str) -> Program:
    return Program(root)


def rows_in(answer: dict[str, Any]) -> list[dict[str, Any]]:
    [rows] = [value for value in answer.values() if isinstance(value, list) and value and "redis" in value[0]]
    return rows


def pages_of(program: Program, path: str) -> list[dict[str, Any]]:
    """The answers of a list up to its end."""
    found = [program.get(path)]
    while cursor := found[-1]["cursor"]:
        found.append(program.get(f"{path}{'&' if '?' in path else '?'}cursor={quote(cursor)}"))
    return found


def file_of(program: Program, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(program.ask("GET", path).body.decode(), newline="")))


def test_each_list_has_the_rows_of_all_and_names_the_one_that_is_away(program: Program) -> None:
    for path in LISTS:
        if path == "deploys":
            # The shop has none.
            assert set(program.get(f"/{path}")["away"]) == {"attic"}
            continue
        answer = program.get(f"/{path}")
        assert {row["redis"] for row in rows_in(answer)} == {"default", "archive"}, path
        assert "Redis cannot be reached" in answer["away"]["attic"], path
        rows = file_of(program, f"/{path}?format=csv")
        assert {row["redis"] for row in rows} == {"default", "archive", "attic"}, path
        assert sum("Redis cannot be reached" in row["away"] for row in rows) == 1, path
        assert {row["redis"] for row in rows if row["away"]} == {"attic"}, path


def test_the_counts_of_all_are_sums_and_their_rows_say_where_they_are(root: str, program: Program) -> None:
    names = ("default", "archive")
    ones = [Program(f"{root}redis/{name}/").get("/stats") for name in names]
    found = program.get("/stats")
    assert set(found["away"]) == {"attic"}
    for count in ("processed", "enqueued", "busy", "retries", "dead", "processes"):
        assert found[count] == sum(one[count] for one in ones) > 0
    for rows, name in (("queues", "name"), ("groups", "name"), ("servers", "identity")):
        having = [(redis, row[name]) for redis, one in zip(names, ones, strict=True) for row in one[rows]]
        assert [(row["redis"], row[name]) for row in found[rows]] == having != []
    assert found["oldest"]["redis"] in names
    assert found["oldest"]["age_s"] >= max(one["oldest"]["age_s"] for one in ones)
    assert found["lost"] == [*ones[0]["lost"], *ones[1]["lost"]]


def test_a_class_has_the_runs_of_all(
    root: str, program: Program, one_redis_url: str, second_redis_url: str, both_shops: Keys
) -> None:
    durations = ([40] * 99, [4000] * 99)
    for url, some in zip((one_redis_url, second_redis_url), durations, strict=True):
        with redis.Redis.from_url(url) as db:
            # Of a class that the shop does not have.
            run(db, add_executions(both_shops, {"Both": tally(*some, failed=2)}, datetime.now(UTC)))
    for path in ("/metrics/Both", "/metrics/Both?period=day"):
        found = program.get(path)
        assert (found["processed"], found["failed"], found["total_ms"]) == (202, 4, 99 * 4040)
        assert found["p50_ms"] < 50 < 3000 < found["p95_ms"]
        assert (sum(found["histogram"]), set(found["away"])) == (198, {"attic"})
        for name, part in (("parts", "processed"), ("durations", "jobs")):
            starts = [one["at"] for one in found[name]]
            assert starts == sorted(set(starts))
            assert sum(one[part] for one in found[name]) == {"parts": 202, "durations": 198}[name]
    alone = Program(f"{root}redis/archive/").get("/metrics/Both")
    assert (alone["processed"], "away" in alone) == (101, False)


def test_a_queue_that_two_have_has_the_jobs_of_both(program: Program) -> None:
    pages = pages_of(program, "/queues/mail/jobs?count=10")
    assert {len(page["jobs"]) for page in pages[:-1]} == {10}
    jobs = [(job["redis"], job["index"]) for page in pages for job in page["jobs"]]
    assert len(set(jobs)) == len(jobs) == pages[0]["total"] > 20
    assert [index for _, index in jobs] == sorted(index for _, index in jobs)
    assert program.get("/queues/nowhere/jobs")["jobs"] == []


def test_nothing_answers_while_all_are_away(namespace: str) -> None:
    with served(dashboard_of(AWAY, namespace, attic=AWAY)) as root:
        for path in ("/stats", "/metrics/Both", "/runs", "/queues/mail/jobs"):
            assert Program(root).ask("GET", path).status == 503


def test_a_list_with_ranks_goes_on_in_each_redis_in_one_order(program: Program) -> None:
    pages = pages_of(program, "/scheduled?count=40")
    assert [len(page["jobs"]) for page in pages] == [40, 40, 16]
    jobs = [job for page in pages for job in page["jobs"]]
    assert len({(job["redis"], job["jid"]) for job in jobs}) == 96
    assert [job["score"] for job in jobs] == sorted(job["score"] for job in jobs)
    assert [page["away"] != {} for page in pages] == [True, False, False]
    # A page is as long as asked for, also if all its rows are of one Redis.
    servers = [row["identity"] for page in pages_of(program, "/servers?count=1") for row in page["servers"]]
    assert servers == sorted(servers) and len(servers) == program.get("/servers")["total"]
    assert len(file_of(program, "/scheduled?format=csv")) == 96 + 1
    assert len(file_of(program, "/scheduled?format=csv&count=40")) == 40 + 1


def test_batches_that_have_succeeded_come_last(
    program: Program, one_redis_url: str, second_redis_url: str, both_shops: Keys
) -> None:
    for url in (one_redis_url, second_redis_url):
        with redis.Redis.from_url(url) as db:
            # The first one in Redis. No other test looks at their order.
            db.zadd(both_shops.batches, {"Ba11ad00": time.time() + 3600})
    states = [batch["state"] for page in pages_of(program, "/batches?count=1") for batch in page["batches"]]
    assert states == ["dead", "dead", "succeeded", "succeeded"]


def test_lists_with_cursors_and_searches_go_on_in_each_redis(program: Program) -> None:
    found = [job for page in pages_of(program, "/dead?class=ChargeCard") for job in page["jobs"]]
    every = [job for page in pages_of(program, "/dead") for job in page["jobs"]]
    assert found and len(found) == sum(job["class"] == "ChargeCard" for job in every)
    assert {job["redis"] for job in found} == {"default", "archive"}
    for path, rows, name in (
        ("/locks", "locks", "key"),
        ("/finished", "jobs", "jid"),
        ("/limits", "limits", "name"),
    ):
        together, singly = (
            {(row["redis"], row[name]) for page in pages_of(program, f"{path}{query}") for row in page[rows]}
            for query in ("", "" if path == "/finished" else "?count=1")
        )
        assert together == singly != set(), path


def test_one_thing_is_found_in_the_redis_that_has_it(
    one_redis_url: str, second_redis_url: str, keys: Keys, namespace: str
) -> None:
    with redis.Redis.from_url(second_redis_url) as db:
        shop.fill(db, keys, second_redis_url)
        jid = json.loads(db.zrange(keys.retry, 0, 0)[0])["jid"]
    found = {
        "queues/mail": ("name", "mail"),
        f"jobs/{jid}": ("jid", jid),
        "batches/B4c0ffee": ("id", "B4c0ffee"),
    }
    with served(dashboard_of(one_redis_url, namespace, archive=second_redis_url)) as root:
        program = Program(root)
        for path, (member, value) in found.items():
            answer = program.look_up(f"/{path}").value
            assert (answer["redis"], answer[member]) == ("archive", value)
            assert program.look_up(f"/{path}x").status == 404
        waiting = program.ask("GET", "/batches/B4c0ffee/members?format=csv&state=dead").body.decode()
        assert sorted(waiting.splitlines()[1:]) == ["dead0,false", "dead1,false"]
    with served(dashboard_of(one_redis_url, namespace, archive=second_redis_url, attic=AWAY)) as root:
        assert Program(root).look_up("/jobs/nowhere").status == 503
        assert "the Redis attic is unreachable" in Program(root).ask("GET", "/queues/nowhere").error
        assert Program(root).get("/queues/mail")["redis"] == "archive"


def _away(*_args: Any) -> Any:
    raise RedisUnavailableError("away")


def test_a_search_goes_on_in_each_redis(
    one_redis_url: str, second_redis_url: str, keys: Keys, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has it in the place that is searched first, behind more jobs than one step looks at."""
    many = {raw_job(f"{number:05}"): number for number in range(12_000)}
    with redis.Redis.from_url(one_redis_url) as db:
        db.zadd(keys.dead, many | {raw_job("first"): -1})
    with redis.Redis.from_url(second_redis_url) as db:
        db.zadd(keys.schedule, many | {raw_job("last"): 12_000})
    monkeypatch.setattr(job, "read_job", partial(read_job, budget_s=-1))
    with served(dashboard_of(one_redis_url, namespace, archive=second_redis_url)) as root:
        program = Program(root)
        answer = program.look_up("/jobs/last").value
        assert (answer["redis"], answer["place"]) == ("archive", "scheduled")
        assert program.look_up("/jobs/unknown").status == 404
        assert "redis must be one of" in program.ask("GET", "/jobs/1?redis=nowhere").error
        # The first one is away at first. It is searched when it is back, behind the long search of the other.
        reads: list[Callable[..., Any]] = [_away, *[partial(read_job, budget_s=-1)] * 100]
        monkeypatch.setattr(job, "read_job", lambda *args: reads.pop(0)(*args))
        assert program.look_up("/jobs/first").value["redis"] == "default"
        reads.insert(0, _away)
        assert program.look_up("/jobs/unknown").status == 404
    with served(dashboard_of(AWAY, namespace, archive=second_redis_url)) as root:
        assert Program(root).look_up("/jobs/last").value["redis"] == "archive"
        # The one that is away may have it. It is before the one at which the search goes on.
        assert Program(root).look_up("/jobs/unknown").status == 503


def test_a_change_is_done_at_the_redis_that_it_names(
    one_redis_url: str, second_redis_url: str, keys: Keys, dashboard: Visitor
) -> None:
    fill_each(keys, one_redis_url, second_redis_url)
    others = {"archive": second_redis_url, "attic": AWAY}
    with served(dashboard_of(one_redis_url, keys.namespace, **others)) as root:
        _check_changes(Program.with_token(root), (one_redis_url, second_redis_url), keys)
    # With one Redis, there is no such field.
    alone = Program.with_token(dashboard.root).act("/queues/mail", "pause", redis="default")
    assert (alone.status, "'redis' is unknown" in alone.error) == (400, True)


def _check_changes(program: Program, urls: Sequence[str], keys: Keys) -> None:
    jobs = [job["at"] for job in program.get("/retries")["jobs"] if job["redis"] == "archive"]
    assert program.done("/retries", "delete", jobs=jobs[:2], redis="archive") == 2
    assert program.done("/queues/mail", "pause", redis="archive") == 1
    sizes, paused = [], []
    for url in urls:
        with redis.Redis.from_url(url) as db:
            sizes.append(db.zcard(keys.retry))
            paused.append(db.sismember(keys.paused, "mail"))
    assert (sizes, paused) == ([18, 16], [0, 1])
    latest = program.get("/audit")["actions"][:2]
    assert [(row["redis"], row["action"]) for row in latest] == [
        ("archive", "queue.pause"), ("archive", "jobs.delete"),
    ]  # fmt: skip
    deletion = f"/undo/{latest[1]['undo']}"
    assert program.get(deletion) | {"redis": "archive", "kept": 2} == program.get(deletion)
    assert program.done(deletion, "undo", redis="archive") == 2
    unknown = program.act("/queues/mail", "pause", redis="nowhere")
    assert (unknown.status, unknown.error) == (400, "redis must be one of default, archive, attic.")
    away = program.act("/queues/mail", "pause", redis="attic")
    assert (away.status, away.error) == (503, "Not done: Redis does not answer.")


def test_a_change_that_names_no_redis_is_done_at_the_one_that_has_the_thing(
    one_redis_url: str, second_redis_url: str, keys: Keys, namespace: str
) -> None:
    with redis.Redis.from_url(second_redis_url) as there, redis.Redis.from_url(one_redis_url) as here:
        shop.fill(there, keys, second_redis_url)
        with served(dashboard_of(one_redis_url, namespace, archive=second_redis_url)) as root:
            program = Program.with_token(root)
            assert program.done("/queues/mail", "pause") == 1
            job = program.get("/retries")["jobs"][0]
            assert program.done(f"/jobs/{job['jid']}", "kill", place="retries", at=job["at"]) == 1
            assert program.done("/batches/B4c0ffee", "cancel") > 0
            assert b"mail" in there.smembers(keys.paused) and there.zcard(keys.retry) == 17
            # What none has is changed at the first one; a list does not say where its things are.
            assert program.done("/queues/nowhere", "pause") == 1
            assert here.smembers(keys.paused) == {b"nowhere"}
            unsaid = program.act("/retries", "delete", jobs=[job["at"]])
            assert (unsaid.status, unsaid.error) == (400, "redis is missing.")
        with served(dashboard_of(one_redis_url, namespace, archive=second_redis_url, attic=AWAY)) as root:
            program = Program.with_token(root)
            for path in ("/queues/elsewhere", "/jobs/elsewhere"):
                given = {"place": "dead", "at": "1"} if "jobs" in path else {}
                away = program.act(path, "delete" if "jobs" in path else "pause", **given)
                assert (away.status, "Not done" in away.error) == (503, True), away.body


def test_a_queue_that_several_have_is_changed_in_the_redis_of_the_configuration(
    one_redis_url: str, second_redis_url: str, namespace: str
) -> None:
    urls = (one_redis_url, second_redis_url)
    for url in urls:
        with Client(url, namespace=namespace) as client:
            client.enqueue("mail", "Send", [1])
    with Client(second_redis_url, namespace=namespace) as client:
        # Of another program: the configuration does not name it.
        client.enqueue("foreign", "Send", [1])

    def paused() -> list[list[str]]:
        names = ("mail", "foreign")
        return [[name for name in names if Queue(name, url, namespace=namespace).paused] for url in urls]

    with configured(urls, namespace, mail="archive") as program:
        assert program.get("/queues/mail")["redis"] == "archive"
        assert program.done("/queues/mail", "pause") == 1
        assert paused() == [[], ["mail"]]
        assert program.done("/queues/mail", "resume") == 1
    with configured(urls, namespace) as program:
        assert program.get("/queues/mail")["redis"] == "default"
        assert program.done("/queues/mail", "pause") == program.done("/queues/foreign", "pause") == 1
        assert paused() == [["mail"], ["foreign"]]
    with configured((AWAY, second_redis_url), namespace) as program:
        reply = program.act("/queues/mail", "pause")
        assert (reply.status, reply.error) == (503, "Not done: Redis does not answer.")
    with configured((one_redis_url, AWAY), namespace, mail="archive") as program:
        assert program.act("/queues/mail", "resume").status == 503
    assert paused() == [["mail"], ["foreign"]]
    with configured((one_redis_url, AWAY), namespace) as program:
        assert program.done("/queues/mail", "resume") == 1


def test_a_change_of_a_name_that_several_have_needs_its_redis(
    one_redis_url: str, second_redis_url: str, keys: Keys, namespace: str
) -> None:
    fill_each(keys, one_redis_url, second_redis_url)
    with served(dashboard_of(one_redis_url, namespace, archive=second_redis_url)) as root:
        program = Program.with_token(root)
        for path in ("/queues/mail", "/cron/sweep%20baskets"):
            reply = program.act(path, "pause")
            text = "redis is missing: default and archive have this name."
            assert (reply.status, reply.error) == (400, text), path
            assert program.done(path, "pause", redis="archive") == 1
    assert not Queue("mail", one_redis_url, namespace=namespace).paused
    with served(dashboard_of(one_redis_url, namespace, attic=AWAY)) as root:
        # The one that is away may have it, too.
        reply = Program.with_token(root).act("/queues/mail", "pause")
        assert (reply.status, reply.error) == (503, "Not done: Redis does not answer.")


def test_a_cursor_of_no_answer_and_an_index_are_refused(program: Program) -> None:
    for cursor in ("7", "first.nowhere=1", "first.default=x", "after.default=1", "name.default=1"):
        reply = program.ask("GET", f"/retries?cursor={quote(cursor)}")
        assert reply.status == 400, cursor
    reply = program.ask("GET", "/retries?first=50")
    assert (reply.status, "known are count, class" in reply.error) == (400, True)


def test_pages_link_the_json_and_the_file_of_all(root: str) -> None:
    visitor = Visitor(root)
    for path in ("queues", "retries?class=A", "redis/archive/queues"):
        page = visitor.get(path)
        [in_json, in_csv] = [link for link in page.links if "/api/" in link]
        assert ("/redis/archive" in in_json) == ("archive" in path)
        assert visitor.get(in_json.removeprefix(visitor.root)).text
        assert "format=csv" in in_csv
    assert f"{visitor.root}api/redis" in visitor.get("").links


def test_hostile_data_of_two_are_as_described(
    one_redis_url: str, second_redis_url: str, keys: Keys, namespace: str
) -> None:
    whole = dashboard_of(one_redis_url, namespace, archive=second_redis_url)
    merged = [
        resource for resource in whole.state.resources if resource.order or resource.sought or resource.whole
    ]
    for url in (one_redis_url, second_redis_url):
        with redis.Redis.from_url(url) as db:
            hostile.fill(db, keys)
    with served(whole) as root:
        OpenAPIV31SpecValidator(Program(root).get("/openapi.json")).validate()
        walker = Walker(Program(root), merged)
        wait_for(lambda: Program(root).ask("GET", "/queues").status == 200)
        walker.walk([b"default", *sorted(hostile.NAMES, key=len)[:20]])
        assert walker.problems == []
