"""The pages that show several Redis servers in one table: two real ones, and a third one that is away."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
import redis

from contrib.pictures import shop
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.flow.finished import FinishedFacts
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.integrations.web import served
from tests.web.test_finished import keep
from tests.web.test_queues import rows_of
from tests.web.visitor import Visitor

AWAY = "redis://127.0.0.1:1/0"
REASON = "Redis attic is unreachable: "


@pytest.fixture
def visitor(one_redis_url: str, second_redis_url: str, keys: Keys) -> Iterator[Visitor]:
    """Of a dashboard with the shop in two Redis servers."""
    for url in (one_redis_url, second_redis_url):
        with redis.Redis.from_url(url) as db:
            shop.fill(db, keys, url)
            keep(db, keys, FinishedFacts("done", time.time()), {"jid": "finished-job"})
    urls = {"archive": second_redis_url, "attic": AWAY}
    others = {name: RedisConfig(url, keys.namespace) for name, url in urls.items()}
    with served(app(one_redis_url, namespace=keys.namespace, token="", others=others)) as root:
        yield Visitor(f"{root}/")


def redis_of_rows(visitor: Visitor, path: str) -> set[str]:
    """The names in the column Redis of the page."""
    head, *rows = rows_of(visitor.get(path))
    place = head.index("Redis")
    return {row[place] for row in rows if len(row) == len(head)}


def test_each_list_has_the_rows_of_all_and_names_the_one_that_is_away(visitor: Visitor) -> None:
    for path in ("queues", "running", "errors", "finished", "servers"):
        assert redis_of_rows(visitor, path) == {"default", "archive"}, path
        page = visitor.get(path)
        assert REASON in page.text, path
        # A row leads to the pages of its Redis, and the list of that one has no column.
        assert any("/redis/archive/" in link for link in page.links), path
        assert REASON not in visitor.get(f"redis/archive/{path}").text
        assert "Redis" not in rows_of(visitor.get(f"redis/archive/{path}"))[0], path
    problems = visitor.get("problems")
    assert REASON in problems.text
    assert re.findall(r'<span class="tag">(\w+)</span>', problems.html).count("archive") == 3
