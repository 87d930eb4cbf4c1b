"""Faults while people look: Redis goes and comes back, keys have other types, two people act at once."""

from __future__ import annotations

import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import compress
from urllib.parse import urlsplit

import pytest
import redis

from pyworkers import Client
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.helpers.records import raw_job
from tests.helpers.redises import OwnRedis
from tests.helpers.support import wait_for
from tests.integrations.web import served
from tests.web import hostile
from tests.web.test_hostile_requests import PAGES
from tests.web.visitor import Visitor

# Each key becomes another type than it is, whichever that is: Redis refuses commands of all others alike.
TYPES: dict[bytes, Callable[[redis.Redis, bytes], object]] = {
    b"list": lambda db, key: db.rpush(key, "xhostile", "{}"),
    b"hash": lambda db, key: db.hset(key, mapping={"xhostile": "{}", "info": "{}"}),
}


def addresses(visitor: Visitor) -> list[str]:
    """The pages that are linked from others, two of each kind."""
    waiting = ["/", *(path for path in PAGES if "{" not in path)]
    found: list[str] = []
    kinds: Counter[object] = Counter()
    while waiting:
        path = waiting.pop(0)
        parts = urlsplit(path)
        names = parts.path.strip("/").split("/")
        kind = (
            names[0],
            len(names),
            *names[2:],
            *sorted(one.partition("=")[0] for one in parts.query.split("&")),
        )
        kinds[kind] += 1
        if kinds[kind] > 2 or path in found or names[0] in ("static", "api", "events"):
            continue
        found.append(path)
        for link in visitor.ask(path).page.links:
            goal = urlsplit(link)
            waiting.append(f"{goal.path}?{goal.query}" if goal.query else goal.path)
    return found


@pytest.mark.independent
def test_keys_of_another_type(dashboard: Visitor, db: redis.Redis, keys: Keys) -> None:
    hostile.fill(db, keys)
    pages = addresses(dashboard)
    found = list(db.scan_iter(f"{keys.namespace}*", count=1000))
    with db.pipeline(transaction=False) as pipeline:
        for key in found:
            pipeline.type(key)
        types = dict(zip(found, pipeline.execute(), strict=True))
    for kind in TYPES:
        _check_with(kind, [key for key in found if types[key] != kind], pages, dashboard, db, keys)
        db.delete(*db.scan_iter(f"{keys.namespace}*", count=1000))
        hostile.fill(db, keys)


def _check_with(
    kind: bytes, stored: list[bytes], pages: list[str], dashboard: Visitor, db: redis.Redis, keys: Keys
) -> None:
    """Give these keys another type: first those that are named, then the indexes as well."""
    indexes = {
        keys.queues,
        keys.processes,
        keys.owners,
        keys.batches,
        keys.limits,
        keys.locks,
        keys.cron_entries,
        # The page Errors is made of these.
        keys.retry,
        keys.dead,
    }
    named = [key for key in stored if key.decode(errors="replace") not in indexes]
    _replace(db, named, kind)
    answers = {page: dashboard.ask(page) for page in pages}
    failed = {page: answer.text for page, answer in answers.items() if answer.status not in (200, 404)}
    assert failed == {}, kind
    # 503: Redis refuses the index that the page is made of, and the page says so.
    _replace(db, stored, kind)
    assert {dashboard.ask(page).status for page in pages} <= {200, 404, 503}, kind


def _replace(db: redis.Redis, stored: Sequence[bytes], kind: bytes) -> None:
    with db.pipeline(transaction=False) as pipeline:
        for key in stored:
            pipeline.delete(key)
        for key in compress(stored, pipeline.execute()):
            TYPES[kind](pipeline, key)
        pipeline.execute()


@pytest.mark.fault("Q1")
def test_redis_is_killed_and_started_while_people_look(own_redis: OwnRedis) -> None:
    with Client(own_redis.url) as client:
        client.enqueue("q", "Work", [1])
    seen: Counter[int] = Counter()
    ended = threading.Event()
    with served(app(own_redis.url, token="")) as root, ThreadPoolExecutor(8) as people:
        pages = addresses(Visitor(f"{root}/"))

        def look(number: int) -> None:
            visitor = Visitor(f"{root}/")
            for page in itertools.cycle(pages[number % len(pages) :] + pages[: number % len(pages)]):
                if ended.is_set():
                    return
                seen[visitor.ask(page).status] += 1

        looks = [people.submit(look, number) for number in range(8)]
        try:
            for _ in range(2):
                wait_for(lambda: seen[200] > 0, message="a page")
                own_redis.kill()
                wait_for(lambda: seen[503] > 0, message="a page without Redis")
                own_redis.start()
                seen.clear()
            wait_for(lambda: seen[200] > 50, message="pages again")
        finally:
            ended.set()
        for result in looks:
            result.result()
        assert seen.keys() <= {200, 404, 503}
        assert all(Visitor(f"{root}/").ask(page).status in (200, 404) for page in pages)


@pytest.mark.fault("Q2")
@pytest.mark.parametrize("place", ["scheduled", "retries", "dead"])
def test_many_people_act_on_the_same_jobs_at_once(
    dashboard: Visitor, db: redis.Redis, keys: Keys, place: str
) -> None:
    key = {"scheduled": keys.schedule, "retries": keys.retry, "dead": keys.dead}[place]
    db.zadd(key, {raw_job(f"j{number}"): 2e9 + number for number in range(20)})
    [form] = [form for form in dashboard.get(place).posts if form.boxes]
    rows = {value for _, value in form.boxes}
    assert len(rows) == 20
    actions = ("run", "delete", "kill") if place != "dead" else ("run", "delete")

    def act(action: str, row: str) -> int:
        answer = dashboard.ask(form.action, {**form.hidden, "one": f"{action}|{row}"})
        return answer.status

    with ThreadPoolExecutor(8) as people:
        statuses = list(people.map(lambda pair: act(*pair), itertools.product(actions, rows)))
    assert set(statuses) == {200}
    # Deleted, or in one place; of two people who act on one job, one is told that it is gone.
    raws = [*db.lrange(keys.queue("q"), 0, -1), *db.zrange(keys.dead, 0, -1), *db.zrange(key, 0, -1)]
    assert Counter(json.loads(raw)["jid"] for raw in {*raws}) == Counter(
        json.loads(raw)["jid"] for raw in raws
    )
    assert db.zcard(key) == 0
