"""``travel`` under ``fake``: a clock that a test turns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyworkers import Worker
from pyworkers.enqueueing import clock
from pyworkers.errors import BadArgumentError, Snooze
from pyworkers.testing import Fake, fake

HOUR = 3600.0
worker = Worker("redis://127.0.0.1:1/0")
ran: list[Any] = []


@worker.job
def remind(name: str) -> None:
    ran.append(name)


@worker.job
def again(left: int) -> None:
    ran.append(left)
    if left:
        again.enqueue_in(HOUR, left - 1)


@worker.job
def snooze(times: list[float]) -> None:
    raise Snooze(HOUR)


@worker.job(expires_in=60)
def short() -> None:
    ran.append("short")


@pytest.fixture
def queue() -> Iterator[Fake]:
    ran.clear()
    with fake() as queue:
        yield queue


def test_due_jobs_count_as_enqueued_in_the_order_of_their_times(queue: Fake) -> None:
    remind.enqueue_in(2 * HOUR, "second")
    remind.enqueue_in(HOUR, "first")
    remind.enqueue_in(3 * HOUR, "third")
    remind.enqueue("now")
    queue.travel(hours=1.9)
    assert [(job.args[0], job.at is None) for job in queue.jobs] == [
        ("second", False),
        ("third", False),
        ("now", True),
        ("first", True),
    ]
    assert (queue.drain(scheduled=False), ran) == (2, ["now", "first"])
    queue.travel(minutes=7)
    assert (queue.drain(scheduled=False), ran) == (1, ["now", "first", "second"])
    assert (queue.drain(), ran[-1]) == (1, "third")


def test_delays_are_counted_from_the_time_of_the_clock(queue: Fake) -> None:
    again.enqueue(2)
    assert queue.drain(scheduled=False) == 1
    for left in (1, 0):
        queue.travel(hours=1)
        assert queue.drain(scheduled=False) == 1
        assert ran[-1] == left
    assert queue.jobs == []


def test_a_job_that_is_enqueued_later_expires_later(queue: Fake) -> None:
    short.enqueue()
    queue.travel(days=1)
    short.enqueue()
    assert queue.drain() == 2
    assert ran == ["short"]


def test_a_snoozed_job_is_due_when_the_clock_says_so(queue: Fake) -> None:
    snooze.enqueue([])
    assert [queue.drain(scheduled=False) for _ in range(2)] == [1, 0]
    queue.travel(hours=1)
    assert queue.drain(scheduled=False) == 1


def test_a_due_job_counts_against_max_waiting(queue: Fake) -> None:
    limited = remind.options(max_waiting=1)
    limited.enqueue_in(HOUR, "a")
    queue.travel(hours=1)
    assert limited.try_enqueue("b") is None


def test_a_time_instead_of_a_duration(queue: Fake) -> None:
    there = datetime.now(UTC) + timedelta(days=400)
    remind.enqueue_at(there, "then")
    queue.travel(to=there - timedelta(hours=1))
    assert queue.drain(scheduled=False) == 0
    queue.travel(to=there)
    assert queue.drain(scheduled=False) == 1
    assert queue.now() >= there.timestamp()


def test_invalid_journeys(queue: Fake) -> None:
    with pytest.raises(ValueError, match="cannot be moved back by 60 s"):
        queue.travel(minutes=-1)
    with pytest.raises(ValueError, match="cannot be moved back"):
        queue.travel(to=1.0)
    with pytest.raises(BadArgumentError, match="no time zone"):
        queue.travel(to=datetime(2030, 1, 1))
    for arguments in ({}, {"to": time.time() + 60, "hours": 1}):
        with pytest.raises(TypeError, match="either a duration or a time"):
            queue.travel(**arguments)
    with pytest.raises(TypeError, match="hour"):
        queue.travel(hour=1)  # type: ignore[call-arg]
    assert queue.now() <= time.time()


def test_after_the_test_the_clock_is_that_of_the_system() -> None:
    with fake() as outer:
        outer.travel(days=2)
        with fake():
            assert clock.time() <= time.time()
        assert clock.time() >= time.time() + 24 * HOUR
    assert clock.time is time.time


def test_the_clock_goes_on_from_a_frozen_time(queue: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    queue.travel(hours=1)
    assert queue.now() == clock.time() == 1000.0 + HOUR
