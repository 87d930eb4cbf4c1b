"""Errors in groups, against real servers: over both places, page by page, and what selects a group's jobs."""

from __future__ import annotations

import json
import time
from collections import Counter
from math import inf

import pytest
import redis
from click.testing import CliRunner

from pyworkers.api.browse.errors import read_errors
from pyworkers.cli import main
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.store.admin import Admin
from tests.helpers.records import raw_job
from tests.store.conftest import Cli

TIMEOUT = "Timeout: no answer in # s"


def failed(number: int, error: str = "Timeout", text: str = "", **fields: object) -> bytes:
    message = text or f"no answer in {number} s"
    return raw_job(
        f"{error}{number}", error_class=error, error_message=message, failed_at=100.0 + number, **fields
    )


@pytest.fixture
def admin(redis_url: str, namespace: str) -> Admin:
    return Admin(RedisConfig(redis_url, namespace))


def test_the_jobs_of_both_places_are_grouped(admin: Admin, keys: Keys, db: redis.Redis) -> None:
    db.zadd(keys.retry, {failed(number): 5000.0 + number for number in range(3)})
    db.zadd(keys.dead, {failed(number, queue="other"): 10.0 + number for number in range(10, 14)})
    large = failed(1, "Large", "m" * 3_000_000, args=["a" * 100_000])
    db.zadd(keys.dead, {large: inf, b"[]": 1.0, raw_job("none"): 2.0})
    page = admin.run(read_errors(keys, budget_s=inf))
    assert (page.read, page.looked_at, page.total, page.cursor) == (10, 10, 10, "")
    first, *others = page.groups
    assert (first.error, first.error_class, first.retries, first.dead) == (TIMEOUT, "Timeout", 3, 4)
    assert (first.first, first.last, set(first.queues)) == (20.0, 102.0, {"q", "other"})
    assert sorted((one.error[:12], one.count, one.last) for one in others) == [
        ("", 1, 2.0),
        ("Large: mmmmm", 1, None),
        ("unreadable: ", 1, 1.0),
    ]


def test_a_group_has_the_deployments_after_which_its_jobs_failed(
    admin: Admin, keys: Keys, db: redis.Redis
) -> None:
    now = time.time()
    for label, days in {"v1": 30, "v2": 20, "v3": 10, "later": -1}.items():
        minute = time.gmtime(now - days * 86_400)
        db.hset(
            keys.marks(time.strftime("%Y%m%d", minute)), time.strftime("%Y-%m-%dT%H:%M:00Z", minute), label
        )

    def dead(error: str, first_days: float, last_days: float) -> dict[bytes, float]:
        raw = raw_job(error, error_class=error, failed_at=now - first_days * 86_400)
        return {raw: now - last_days * 86_400}

    db.zadd(keys.dead, dead("Old", 40, 35) | dead("Long", 25, 5) | dead("New", 2, 1) | {b"[]": inf})
    page = admin.run(read_errors(keys, budget_s=inf))
    assert {group.error_class: group.versions for group in page.groups} == {
        "Old": (),
        "Long": ("v3", "v1"),
        "New": ("v3",),
        "": (),
    }
    assert page.deploy is not None
    assert page.deploy.label == "v3"


def test_the_command_shows_versions_if_there_are_deployments(cli: Cli, keys: Keys, db: redis.Redis) -> None:
    now = time.time()
    db.zadd(keys.dead, {raw_job("a", error_class="Late", failed_at=now - 60): now - 50})
    head, line = cli("errors").stdout.splitlines()
    assert "versions" not in head.lower()
    minute = time.gmtime(now - 86_400)
    mark = time.strftime("%Y-%m-%dT%H:%M:00Z", minute)
    db.hset(keys.marks(time.strftime("%Y%m%d", minute)), mark, "v2.7")
    head, line = cli("errors").stdout.splitlines()
    assert "versions" in head.lower()
    assert " v2.7 " in line


def test_each_page_reads_a_part_and_all_of_them_every_job_once(
    admin: Admin, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.retry, {failed(number): number for number in range(600)})
    db.zadd(keys.dead, {failed(number, "Refused"): number for number in range(1500)})
    counts: Counter[str] = Counter()
    cursor, pages = "", 0
    while True:
        page = admin.run(read_errors(keys, cursor, budget_s=0.0))
        assert page.read <= 500
        counts.update({group.error: group.count for group in page.groups})
        pages += 1
        if not (cursor := page.cursor):
            break
        assert page.looked_at == counts.total()
    assert (pages, page.looked_at, page.total) == (6, 2100, 2100)
    assert counts == {TIMEOUT: 600, "Refused: no answer in # s": 1500}
    invalid, first = (admin.run(read_errors(keys, text, budget_s=inf)) for text in ("x~y", ""))
    assert invalid == first


def test_a_command_shows_groups_and_another_retries_one(
    redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    db.zadd(keys.dead, {failed(number): number for number in range(3)} | {failed(1, "Other", "<b>\x1b"): 9})
    where = ["--url", redis_url, "--namespace", namespace]
    shown = CliRunner().invoke(main, ["errors", *where]).stdout
    assert TIMEOUT in shown
    assert "\x1b" not in shown
    [first, second] = json.loads(CliRunner().invoke(main, ["errors", "--json", *where]).stdout)
    assert (first["error"], first["dead"], second["error"]) == (TIMEOUT, 3, "Other: <b>?")
    retried = CliRunner().invoke(main, ["dead", "retry", "--error-like", TIMEOUT, "--yes", *where])
    assert retried.exit_code == 0, retried.output
    assert [db.zcard(keys.dead), db.llen(keys.queue("q"))] == [1, 3]
