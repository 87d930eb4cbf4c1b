"""Limits under ``fake`` and ``inline``: a clock to turn."""

from __future__ import annotations

import pytest

from pyworkers import Worker
from pyworkers.testing import fake, inline

worker = Worker("redis://nowhere:1")
stripe = worker.limit("stripe", rate=2, per=60)
fair = worker.limit("tenant", rate=1, per=60, by=lambda tenant: tenant)
slots = worker.limit("slots", concurrency=1)
ran: list[object] = []


@worker.job(limits=[stripe, slots])
def charge(number: int) -> None:
    ran.append(number)


@worker.job(limits=[fair])
def tenant(name: str) -> None:
    ran.append(name)


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def test_a_drain_runs_what_a_rate_allows_until_the_clock_is_turned() -> None:
    with fake() as queue:
        charge.enqueue_bulk([(n,) for n in range(5)])
        assert (queue.drain(), ran) == (2, [0, 1])
        assert [job.at is not None and job.at > queue.now() for job in queue.jobs] == [True] * 3
        assert queue.drain() == 0
        queue.travel(seconds=60)
        assert (queue.drain(), ran) == (2, [0, 1, 2, 3])
        queue.travel(seconds=30)
        assert queue.drain() == 0
        queue.travel(seconds=31)
        assert (queue.drain(), ran) == (1, [0, 1, 2, 3, 4])


def test_each_value_of_by_has_a_rate_of_its_own() -> None:
    with fake() as queue:
        tenant.enqueue_bulk([("a",), ("b",), ("a",)])
        assert (queue.drain(), ran) == (2, ["a", "b"])
        queue.clear()
        tenant.enqueue("a")
        assert queue.drain() == 1


def test_inline_puts_nothing_off() -> None:
    with inline():
        charge.enqueue_bulk([(n,) for n in range(5)])
    assert ran == [0, 1, 2, 3, 4]
