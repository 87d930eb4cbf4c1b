"""What the parts of a master log about Redis, and what is derived for the whole server."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.server import health as health_module
from pyworkers.server.health import Health, ServerHealth, ShortageError, shortages_translated


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
    monkeypatch.setattr(health_module, "log", log)
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
    health = Health(clock, random.Random(), part="scheduler")
    for _ in range(200):
        health.failed(AWAY)
        clock.now += 1
    health.failed(LOADING)
    health.ok()
    health.ok()
    assert log.events() == ["redis.down"] * 4 + ["redis.up"]
    assert log.lines[0][1] == {"error": "UNREACHABLE it says", "code": "UNREACHABLE", "part": "scheduler"}
    assert log.lines[-1][1] == {"after_s": 200.0, "part": "scheduler"}


def test_a_refused_login_is_named_though_redis_was_away_before(log: Log) -> None:
    health = Health(Clock(), random.Random())
    for met in (AWAY, LOGIN, AWAY, LOGIN):
        health.failed(met)
    assert [fields["code"] for _, fields in log.lines] == ["UNREACHABLE", "WRONGPASS"]


def test_a_redis_that_answers_is_never_called_down(log: Log) -> None:
    health = ServerHealth(Clock(), random.Random())
    health.of("heartbeat").failed(FULL)
    health.of_queue("q").failed(WRONG)
    assert not health.is_down
    assert health.troubles == {"heartbeat": ["OOM"], "fetcher q": ["WRONGTYPE"]}
    health.of("heartbeat").ok()
    assert log.events() == ["redis.refused", "queue.broken", "redis.accepted"]


def test_a_shortage_is_said_once_for_each_code_then_its_end(log: Log) -> None:
    clock = Clock()
    health = ServerHealth(clock, random.Random())
    for number in (errno.EMFILE, errno.ENOSPC) * 100:
        with pytest.raises(ShortageError) as met, shortages_translated():
            raise OSError(number, os.strerror(number))
        health.of("sweep").failed(met.value)
        clock.now += 10
    assert not health.is_down
    assert health.troubles == {"sweep": ["ENOSPC"]}
    health.of("sweep").ok()
    assert log.events() == ["resource.missing"] * 2 + ["resource.returned"]
    assert log.lines[0][1] == {
        "error": "[Errno 24] Too many open files",
        "code": "EMFILE",
        "part": "sweep",
    }


@pytest.mark.parametrize("error", [RuntimeError("another"), ValueError("no"), StoreError("no")])
def test_other_errors_are_no_shortage(error: Exception) -> None:
    with pytest.raises(type(error)) as met, shortages_translated():
        raise error
    assert met.value is error


def test_two_kinds_of_trouble_in_turn_do_not_flap(log: Log) -> None:
    health = ServerHealth(Clock(), random.Random()).of_queue("q")
    for _ in range(10):
        health.failed(AWAY)
        health.failed(WRONG)
    health.ok()
    assert sorted(log.events()) == ["queue.broken", "queue.mended", "redis.down", "redis.up"]


def test_the_server_is_up_again_when_its_last_part_is(log: Log) -> None:
    health = ServerHealth(Clock(), random.Random())
    parts = [health.of("heartbeat"), health.of_queue("q")]
    for part in parts:
        part.failed(AWAY)
    parts[0].ok()
    assert health.is_down
    assert health.of("heartbeat") is parts[0]
    parts[1].ok()
    assert not health.is_down


def test_the_pause_grows_until_a_success(log: Log) -> None:
    health = Health(Clock(), random.Random())
    first, *others = [health.failed(LOGIN) for _ in range(12)]
    assert first <= 0.05
    assert 2.5 <= others[-1] <= 5
    health.ok()
    assert health.failed(LOGIN) <= 0.05
