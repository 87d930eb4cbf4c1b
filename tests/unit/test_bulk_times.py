"""When the jobs of a bulk enqueue are due: each at its own time, or spread evenly, from every producer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pyworkers import AsyncClient, Client, Worker
from pyworkers.errors import BadArgumentError
from pyworkers.testing import fake

LATE = 4e9
ROWS = [[1], [2], [3], [4]]
Enqueue = Callable[..., list[str]]


@pytest.fixture(params=["client", "async client", "worker", "job", "job in a loop", "with middleware"])
def enqueue(request: pytest.FixtureRequest) -> Enqueue:
    worker = Worker()

    @worker.job(queue="q")
    def send(n: int) -> None: ...

    def in_loop(**when: Any) -> list[str]:
        return asyncio.run(AsyncClient().enqueue_bulk("q", "send", ROWS, **when))

    def passed(**when: Any) -> list[str]:
        client = Client(middleware=[lambda draft, call_next: call_next(draft)])
        return client.enqueue_bulk("q", "send", ROWS, **when)

    calls: dict[str, Enqueue] = {
        "client": lambda **when: Client().enqueue_bulk("q", "send", (row for row in ROWS), **when),
        "async client": in_loop,
        "worker": lambda **when: worker.enqueue_bulk("q", "send", ROWS, **when),
        "job": lambda **when: send.enqueue_bulk(ROWS, **when),
        "job in a loop": lambda **when: asyncio.run(send.aenqueue_bulk(ROWS, **when)),
        "with middleware": passed,
    }
    return calls[request.param]


def test_each_job_has_its_own_time(enqueue: Enqueue) -> None:
    times = [LATE, datetime.fromtimestamp(LATE + 9, UTC), 5, LATE + 1]
    with fake() as jobs:
        jids = enqueue(at=times)
        # A time in the past is now.
        assert [(job.jid, job.args, job.at) for job in jobs.jobs] == [
            (jid, row, at) for jid, row, at in zip(jids, ROWS, [LATE, LATE + 9, None, LATE + 1], strict=True)
        ]
        assert ["enqueued_at" in job.data for job in jobs.jobs] == [False, False, True, False]


def test_jobs_are_spread_evenly(enqueue: Enqueue) -> None:
    with fake() as jobs:
        before = time.time()
        enqueue(spread=timedelta(seconds=60))
        first, *others = [job.at for job in jobs.jobs]
        assert first is None
        begin = (others[0] or 0.0) - 15
        assert before <= begin <= time.time()
        assert others == pytest.approx([begin + 15, begin + 30, begin + 45])
        jobs.clear()
        enqueue(spread=60, at=LATE)
        assert [job.at for job in jobs.jobs] == [LATE, LATE + 15, LATE + 30, LATE + 45]


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        ({"at": [LATE]}, "at has 1 times for 4 jobs"),
        ({"at": [LATE] * 4, "spread": 60}, "a list of times excludes delay and spread"),
        ({"at": [LATE, LATE, LATE, "soon"]}, "'soon' is not a time"),
        ({"spread": -1}, "-1 is not a delay"),
    ],
)
def test_times_that_cannot_be_used(enqueue: Enqueue, when: dict[str, Any], reason: str) -> None:
    with fake() as jobs:
        with pytest.raises(BadArgumentError, match=reason):
            enqueue(**when)
        jobs.assert_none()


def test_more_jobs_than_are_sent_at_a_time() -> None:
    with fake() as jobs:
        Client().enqueue_bulk("q", "send", [[n] for n in range(2500)], at=[LATE + n for n in range(2500)])
        assert [(job.args, job.at) for job in jobs.jobs] == [([n], LATE + n) for n in range(2500)]
