"""``pyworkers limits``, ``LimitSet`` and ``Worker.limits``: limits in use, as people see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis as redis_py

from pyworkers import Worker
from pyworkers.api import LimitSet, LimitStats
from pyworkers.api.limits import read_limit_page
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.limits import Ask, Limit, QueueLimit
from pyworkers.store.admin import Admin
from pyworkers.store.calls import run
from pyworkers.store.flow import limits
from pyworkers.store.flow.limits import AskedJob
from pyworkers.store.transport.connections import connect, connect_async
from tests.helpers.owner import Owner
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
        run(connection, limits.ask(keys, "me:1:a", [AskedJob(ask, "q", raw)]))
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
        "done": 2,
    }
    # The jobs that waited are called.
    assert [limit.used for limit in LimitSet(redis_url, namespace=namespace)] == [2, 0, 0]
    assert cli("limits", "reset", "stripe").output == "stripe is reset\n"
    # It is not in use until another job asks.
    assert [limit.key for limit in LimitSet(redis_url, namespace=namespace)] == ["tenant:a", "tenant:b"]


async def test_the_limits_of_a_queue_count_its_jobs(cli: Cli, redis_url: str, namespace: str) -> None:
    keys = Keys(namespace)
    connection = connect_async(RedisConfig(redis_url, namespace))
    async with connection:
        for queue in ("pay", "a:b/c"):
            await connection.lpush(keys.queue(queue), *(f"j{n}" for n in range(9)))
            for identity in ("me:1:a", "you:2:b"):
                owner = Owner(connection, keys, identity)
                await owner.renew(30, [queue])
                limit = QueueLimit(rate=6, per_s=60, max_running=5)
                await owner.take(queue, limit, 2)
    assert [*LimitSet(redis_url, namespace=namespace)] == [
        LimitStats("queue/a:b/c", 6, 60.0, 4, 5),
        LimitStats("queue/pay", 6, 60.0, 4, 5),
        LimitStats("running/a:b/c", 5, 0.0, 4, 5),
        LimitStats("running/pay", 5, 0.0, 4, 5),
    ]
    assert json.loads(cli("limits", "--json").output)[0] == {
        "name": "queue/a:b/c", "by": None, "rate": 6, "per": 60.0, "used": 4, "waiting": 5,
    }  # fmt: skip
    assert cli("limits", "reset", "queue/pay").exit_code == 0
    assert [limit.used for limit in LimitSet(redis_url, namespace=namespace)] == [4, 4, 4]
    assert cli("limits", "reset", "queue/a").exit_code == 1


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


def test_who_holds_a_limit_and_the_release_of_a_slot(
    redis: redis_py.Redis, cli: Cli, redis_url: str, namespace: str
) -> None:
    limits_, keys = LimitSet(redis_url, namespace=namespace), Keys(namespace)
    view = limits_.find("tenant:a")
    assert view is not None
    [holder] = view.holders
    assert (holder.identity, holder.jid, holder.member) == ("me:1:a", "0", "me:1:a|run 0")
    assert holder.since is not None
    assert view.as_dict()["holders"] == [holder.as_dict()]
    assert [row.split()[:2] for row in cli("limits", "show", "tenant:a").output.splitlines()[-1:]] == [
        ["me:1:a", "0"]
    ]
    assert json.loads(cli("limits", "show", "tenant:a", "--json").output) == view.as_dict()
    # The job that waited is called.
    assert redis.llen(keys.queue("q")) == 0
    assert cli("limits", "release", "tenant:a", holder.member).output == "A slot of tenant:a is free\n"
    assert redis.llen(keys.queue("q")) == 1
    assert not limits_.release("tenant:a", holder.member)
    assert cli("limits", "release", "tenant:a", holder.member).exit_code == 1
    stripe = limits_.find("stripe")
    assert stripe is not None
    assert sorted(holder.jid for holder in stripe.holders) == ["0", "1"]
    assert limits_.find("none") is None
    assert cli("limits", "show", "none").exit_code == 1


def test_the_jobs_of_a_queue_with_max_running_hold_it(
    redis_url: str, namespace: str, db: redis_py.Redis
) -> None:
    keys = Keys(namespace)
    db.hset(keys.limits, "running/pay", "5 0.0")
    db.hset(keys.owners, mapping={"me:1:a": "[]", "you:2:b": "[]"})
    db.lpush(keys.inprogress("pay", "me:1:a"), '{"jid":"j1"}', "no job", '{"jid":5}')
    db.set(keys.inprogress("pay", "you:2:b"), "no list")
    view = LimitSet(redis_url, namespace=namespace).find("running/pay")
    assert view is not None
    assert sorted(holder.jid for holder in view.holders) == ["", "", "j1"]
    assert {(holder.member, holder.identity, holder.since) for holder in view.holders} == {
        ("", "me:1:a", None)
    }


def test_many_limits_are_read_page_by_page(redis_url: str, namespace: str, db: redis_py.Redis) -> None:
    keys, admin = Keys(namespace), Admin(RedisConfig(redis_url, namespace))
    db.hset(keys.limits, mapping={f"tenant:{number}": "5 0.0" for number in range(1000)})
    found, cursor = [], 0
    while True:
        page = admin.run(read_limit_page(keys, cursor, 50))
        assert len(page.limits) < 200
        assert page.total == 1000
        found += [limit.key for limit in page.limits]
        if not (cursor := page.cursor):
            break
    assert set(found) == {f"tenant:{number}" for number in range(1000)}


def test_limits_of_another_program(redis_url: str, namespace: str, db: redis_py.Redis) -> None:
    keys, limits_ = Keys(namespace), LimitSet(redis_url, namespace=namespace)
    bad = {"a": "5", "b": "5 .", "c": "x 5.0", b"\xff/:\n": "5 0.0", "d": "5 0.0", "e": "5 9.9.9"}
    db.hset(keys.limits, mapping=bad)  # type: ignore[arg-type]
    db.set(keys.limit("d"), "no set")
    db.set(keys.limit_waiting("d"), "no set")
    assert [limit.key for limit in limits_] == ["d", "\udcff/:\n"]
    db.zadd(keys.limit("\udcff/:\n").encode(errors="surrogateescape"), {b"\xfe|\xfd \xfc": 5})
    view, odd = limits_.find("d"), limits_.find("\udcff/:\n")
    assert view is not None and odd is not None
    assert (view.holders, limits_.release("d", "x")) == ((), False)
    assert odd.as_dict()["holders"][0]["jid"] == "\\xfc"
    assert limits_.release("\udcff/:\n", odd.holders[0].member)
    db.delete(keys.limits)
    db.set(keys.limits, "no hash")
    assert [*limits_] == []
