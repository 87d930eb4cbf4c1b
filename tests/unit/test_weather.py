"""What the parts of a master log about Redis, and what is derived for the whole server."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.server import weather as weather_module
from pyworkers.server.weather import Weather, Weathers


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def _note(self, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))

    warning = info = _note

    def events(self) -> list[str]:
        return [event for event, _ in self.lines]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    log = Log()
    monkeypatch.setattr(weather_module, "log", log)
    yield log


def error(kind: type[PyworkersError], code: str) -> PyworkersError:
    found = kind(f"{code} it says")
    found.code = code
    return found


AWAY = error(RedisUnavailableError, "UNREACHABLE")
LOADING = error(RedisUnavailableError, "LOADING")
LOGIN = error(RedisUnavailableError, "WRONGPASS")
FULL = error(StoreError, "OOM")
WRONG = error(StoreError, "WRONGTYPE")


def test_a_trouble_is_said_once_then_every_minute_then_its_end(log: Log) -> None:
    clock = Clock()
    weather = Weather(clock, random.Random(), part="scheduler")
    for _ in range(200):
        weather.down(AWAY)
        clock.now += 1
    weather.down(LOADING)
    weather.up()
    weather.up()
    assert log.events() == ["redis.down"] * 4 + ["redis.up"]
    assert log.lines[0][1] == {"error": "UNREACHABLE it says", "code": "UNREACHABLE", "part": "scheduler"}
    assert log.lines[-1][1] == {"after_s": 200.0, "part": "scheduler"}


def test_a_refused_login_is_named_though_redis_was_away_before(log: Log) -> None:
    weather = Weather(Clock(), random.Random())
    for met in (AWAY, LOGIN, AWAY, LOGIN):
        weather.down(met)
    assert [fields["code"] for _, fields in log.lines] == ["UNREACHABLE", "WRONGPASS"]


def test_a_redis_that_answers_is_never_called_down(log: Log) -> None:
    weathers = Weathers(Clock(), random.Random())
    weathers.of("heartbeat").down(FULL)
    weathers.of_queue("q").down(WRONG)
    assert not weathers.is_down
    assert weathers.troubles == {"heartbeat": ["OOM"], "fetcher q": ["WRONGTYPE"]}
    weathers.of("heartbeat").up()
    assert log.events() == ["redis.refused", "queue.broken", "redis.accepted"]


def test_two_kinds_of_trouble_in_turn_do_not_flap(log: Log) -> None:
    weather = Weathers(Clock(), random.Random()).of_queue("q")
    for _ in range(10):
        weather.down(AWAY)
        weather.down(WRONG)
    weather.up()
    assert sorted(log.events()) == ["queue.broken", "queue.mended", "redis.down", "redis.up"]


def test_the_server_is_up_again_when_its_last_part_is(log: Log) -> None:
    weathers = Weathers(Clock(), random.Random())
    parts = [weathers.of("heartbeat"), weathers.of_queue("q")]
    for part in parts:
        part.down(AWAY)
    parts[0].up()
    assert weathers.is_down
    assert weathers.of("heartbeat") is parts[0]
    parts[1].up()
    assert not weathers.is_down


def test_the_pause_grows_until_a_success(log: Log) -> None:
    weather = Weather(Clock(), random.Random())
    first, *others = [weather.down(LOGIN) for _ in range(12)]
    assert first <= 0.05
    assert 2.5 <= others[-1] <= 5
    weather.up()
    assert weather.down(LOGIN) <= 0.05
