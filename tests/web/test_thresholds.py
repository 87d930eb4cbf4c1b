"""Thresholds: counts above the numbers that are set have a colour and words on all pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import escape

import pytest
import redis

from contrib.pictures import shop
from pyworkers.config.fields import RedisConfig
from pyworkers.config.thresholds import Threshold
from pyworkers.errors import ConfigError
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from tests.integrations.web import served
from tests.web.acting import act, fields
from tests.web.programs import Program
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
    with pytest.raises(ConfigError, match="must be like"):
        app(thresholds=[text])


# Those that people set


def test_people_set_change_and_remove_thresholds(visitor: Visitor, db: redis.Redis, keys: Keys) -> None:
    page = visitor.get("thresholds")
    assert "re* seconds that the oldest job waits 60 configuration" in page.text
    assert "all together failures of an hour 100,000 configuration" in page.text
    text = act(visitor, "thresholds", action="set", match=" images ", measure="waiting", above="1500")
    assert "The threshold images waiting > 1500 is set." in text
    assert "images waiting jobs 1,500 dashboard" in text
    assert text.count("configuration, replaced") == 2
    assert "1,840 waiting, above 1,500" in red(visitor.get("queues").html)
    problems = visitor.get("problems").text
    assert "set in [web] thresholds of the configuration, and on the page Thresholds" in problems
    # The form of a row changes its number.
    form = next(
        form for form in visitor.get("thresholds").posts if form.hidden.get("row") == "images~20waiting"
    )
    text = visitor.press(form, above="2000").text
    assert "The threshold images waiting > 2000 is set." in text
    assert db.hgetall(keys.thresholds) == {b"images waiting": b"2000"}
    assert "images" not in red(visitor.get("queues").html)
    remove = next(form for form in visitor.get("thresholds").posts if "remove" in form.buttons.values())
    assert "The threshold images waiting is removed." in visitor.press(remove).text
    assert "1,840 waiting, above 1,000" in red(visitor.get("queues").html)
    audit = visitor.get("audit").text
    assert "threshold.set images waiting > 2000 done" in audit and "threshold.remove" in audit


def test_a_threshold_of_all_queues_is_set_with_none_in_the_configuration(
    dashboard: Visitor, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    shop.fill(db, keys, one_redis_url)
    assert "There are no thresholds." in dashboard.get("thresholds").text
    act(dashboard, "thresholds", action="set", match="", measure="waiting", above="5")
    assert "above 5" in red(dashboard.get("").html)
    assert "the waiting jobs: above 5 ( set on the page Thresholds )" in dashboard.get("problems").text


@pytest.mark.parametrize(
    ("field", "text"),
    [("above", "-1"), ("above", ""), ("above", "9" * 5000), ("measure", "busy"), ("match", "x" * 10_000)],
)
def test_a_refused_form_keeps_its_fields(dashboard: Visitor, field: str, text: str) -> None:
    typed = {"match": "<b>", "measure": "oldest", "above": "7", field: text}
    page = dashboard.ask("thresholds", fields(dashboard, action="set", **typed)).page
    assert "a threshold" in page.text and len(page.text) < 5_000
    assert f'name="match" value="{escape(typed["match"])}"' in page.html
    assert "There are no thresholds." in page.text


def test_programs_set_and_remove_thresholds(visitor: Visitor, db: redis.Redis, keys: Keys) -> None:
    program = Program.with_token(visitor.root)
    assert program.done("/thresholds", "set", threshold="images waiting > 3") == 1
    rows = program.get("/thresholds")
    assert [(row["threshold"], row["origin"], row["replaced"]) for row in rows[:2]] == [
        ("failed > 100000", "configuration", False),
        ("waiting > 1000", "configuration", False),
    ]
    own = {"threshold": "images waiting > 3", "match": "images", "measure": "waiting", "above": 3}
    assert {**own, "origin": "dashboard", "replaced": False} in rows
    [high] = [one for one in program.get("/problems") if one["queue"] == "images" and one["code"] == "high"]
    assert (high["message"], high["fix"]) == ("has 1,840 waiting, above 3", "set on the page Thresholds")
    assert program.act("/thresholds", "set", threshold="x").status == 400
    assert program.done("/thresholds", "remove", threshold="images waiting") == 1
    assert program.act("/thresholds", "remove", threshold="images waiting").status == 409
    db.hset(keys.thresholds, mapping={f"q{number} waiting": 1 for number in range(50)})
    assert "50 thresholds are set" in program.act("/thresholds", "set", threshold="q waiting > 1").error


def test_the_first_of_several_redis_servers_has_those_for_all(
    one_redis_url: str, second_redis_url: str, keys: Keys, db: redis.Redis
) -> None:
    with redis.Redis.from_url(second_redis_url) as second:
        shop.fill(second, keys, second_redis_url)
    others = {"archive": RedisConfig(second_redis_url, keys.namespace)}
    with served(app(one_redis_url, namespace=keys.namespace, token="", others=others)) as root:
        visitor, program = Visitor(f"{root}/"), Program.with_token(f"{root}/redis/archive/")
        assert visitor.get("redis/archive/thresholds").url == f"{root}/thresholds"
        act(
            visitor, "thresholds", action="set", match="images", measure="waiting", above="7", redis="archive"
        )
        assert program.done("/thresholds", "set", threshold="reports waiting > 2") == 1
        assert len(program.get("/thresholds")) == len(db.hgetall(keys.thresholds)) == 2
        for path in ("queues", "redis/archive/queues"):
            assert "1,840 waiting, above 7" in red(visitor.get(path).html)
        assert "above 7" not in visitor.get("redis/default/queues").text
