"""``pyworkers limits``, ``LimitSet`` and ``Worker.limits``: limits in use, as people see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis as redis_py

from pyworkers import Worker
from pyworkers.api import LimitSet, LimitStats
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.limits import Ask, Limit
from pyworkers.store.calls import run
from pyworkers.store.flow import limits
from pyworkers.store.flow.limits import Asked
from pyworkers.store.transport.connections import connect
from tests.store.conftest import Cli

STRIPE = Limit("stripe", rate=10, per=60)
FAIR = Limit("tenant", concurrency=1, by=lambda tenant: tenant)


@pytest.fixture
def redis(redis_url: str, namespace: str) -> Iterator[redis_py.Redis]:
    """A server has asked for two jobs of each of two tenants."""
    connection = connect(RedisConfig(redis_url, namespace))
    keys = Keys(namespace)
    for number in range(4):
        tenant, raw = "ab"[number % 2], b'{"jid":"j%d"}' % number
        connection.lpush(keys.inprogress("q", "me:1:a"), raw)
        ask = Ask(f"j{number}", f"run {number}", (STRIPE.want([tenant]), FAIR.want([tenant])))
        run(connection, limits.ask(keys, "me:1:a", [Asked(ask, "q", raw)]))
    yield connection
    connection.close()


@pytest.mark.usefixtures("redis")
def test_each_limit_is_shown_with_its_use(cli: Cli, redis_url: str, namespace: str) -> None:
    assert cli("limits").output.splitlines() == [
        "limit     allows     in use  waiting",
        "stripe    10 in 1m        2        0",
        "tenant:a  1 at once       1        1",
        "tenant:b  1 at once       1        1",
    ]
    assert json.loads(cli("limits", "--json").output)[:2] == [
        {"name": "stripe", "by": None, "rate": 10, "per": 60.0, "used": 2, "waiting": 0},
        {"name": "tenant", "by": "a", "concurrency": 1, "used": 1, "waiting": 1},
    ]
    worker = Worker(redis_url, namespace=namespace)
    assert worker.limits()[1] == LimitStats("tenant:a", 1, 0.0, 1, 1)


@pytest.mark.usefixtures("redis")
def test_reset_is_for_every_value_of_by(cli: Cli, redis_url: str, namespace: str) -> None:
    assert json.loads(cli("limits", "reset", "tenant", "--json").output) == {
        "action": "reset",
        "name": "tenant",
        "reset": 2,
    }
    # The jobs that waited are called.
    assert [limit.used for limit in LimitSet(redis_url, namespace=namespace)] == [2, 0, 0]
    assert cli("limits", "reset", "stripe").output == "stripe is reset\n"


def test_there_may_be_no_limits(cli: Cli) -> None:
    assert cli("limits").output == "No limits: no job with limits has asked for one.\n"
    assert json.loads(cli("limits", "--json").output) == []
    result = cli("limits", "reset", "stripe")
    assert (result.exit_code, result.output) == (1, "stripe is not in use\n")


def test_a_foreign_value_among_the_limits_is_not_shown(cli: Cli, redis_url: str, namespace: str) -> None:
    connection = connect(RedisConfig(redis_url, namespace))
    stored: dict[Any, Any] = {"a": "x", "b": "1 y", "c": "", b"\xff": b"2 0"}
    connection.hset(Keys(namespace).limits, mapping=stored)
    result = cli("limits")
    assert (result.exit_code, len(result.output.splitlines())) == (0, 2)
