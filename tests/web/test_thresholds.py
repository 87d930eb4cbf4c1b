"""Thresholds: counts above the numbers of the configuration have a colour and words on all pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
import redis

from contrib.pictures import shop
from pyworkers.config.thresholds import Threshold
from pyworkers.errors import ConfigError
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.integrations.web import served
from tests.web.visitor import Visitor

THRESHOLDS = (
    "waiting > 1000",
    "failed > 100000",
    "images waiting > 1000",
    "images waiting > 5",
    "re* oldest > 60",
)


@pytest.fixture
def visitor(one_redis_url: str, namespace: str, db: redis.Redis, keys: Keys) -> Iterator[Visitor]:
    """The dashboard of the shop with these thresholds."""
    shop.fill(db, keys, one_redis_url)
    dashboard = app(one_redis_url, namespace=namespace, token="", thresholds=THRESHOLDS)
    with served(dashboard) as root:
        yield Visitor(f"{root}/")


def red(html: str) -> str:
    """The texts of a page that are red, each in brackets."""
    return " ".join(re.findall(r'class="(?:under )?bad"[^>]*>([^<]+)<', html))


def test_counts_above_a_threshold_have_a_colour_and_words_on_all_pages(visitor: Visitor) -> None:
    overview = visitor.get("")
    assert "above 1,000" in red(overview.html) and "above 100,000" not in overview.text
    assert "2 queues are above their thresholds: images 1,840, reports 7" in overview.text
    assert "the waiting jobs: above 1,000" in visitor.get("problems").text
    queues = visitor.get("queues")
    assert "1,840 waiting, above 1,000" in red(queues.html)
    assert "a job that waits for 90 min, above 60 s" in red(queues.html)
    assert "2,185 high" in red(queues.html)
    assert "<title>(2,185 high) Queues" in queues.html
    codes = [problem["code"] for problem in json.loads(visitor.get("api/problems").html)]
    assert codes.count("high") == 2 and "high:waiting" in codes


def test_without_thresholds_nothing_is_high(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    shop.fill(db, keys, one_redis_url)
    assert "high" not in dashboard.get("queues").text and "above" not in dashboard.get("").text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("waiting > 10000", Threshold("", "waiting", 10_000)),
        ("a b* oldest>5", Threshold("a b*", "oldest", 5)),
        ("failed failed > 0", Threshold("failed", "failed", 0)),
    ],
)
def test_a_threshold_is_read(text: str, expected: Threshold) -> None:
    assert Threshold.parse(text) == expected


@pytest.mark.parametrize("text", ["", "waiting", "busy > 1", "oldest > 5m", "waiting > -1", "waiting < 5"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be as"):
        app(thresholds=[text])
