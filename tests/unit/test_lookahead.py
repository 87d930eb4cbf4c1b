"""How many jobs are fetched ahead: some while jobs end in each millisecond, none otherwise."""

from __future__ import annotations

import pytest

from pyworkers.server.pool.handout import LookAhead


def after(*lengths_ms: int, times: int = 300) -> LookAhead:
    ahead = LookAhead()
    for _ in range(times):
        for elapsed_ms in lengths_ms:
            ahead.ended(elapsed_ms)
    return ahead


@pytest.mark.parametrize(
    ("lengths_ms", "room", "jobs"),
    [
        ((0,), 10, 20),
        # Few workers: those that run in a millisecond, and ten workers' number at most.
        ((0,), 1, 5),
        ((0,), 3, 15),
        ((0,), 5, 20),
        ((0,), 11, 22),
        ((0,), 0, 0),
        ((1000,), 200, 0),
        ((0, 1), 10, 17),
        # Longer ones: those that end in twelve milliseconds; the mean is a little above what it approaches.
        ((1,), 10, 20),
        ((2,), 1, 0),
        ((5,), 10, 20),
        ((10,), 9, 0),
        ((10,), 80, 95),
        ((10,), 500, 599),
        ((100,), 500, 60),
        ((2,), 1000, 2000),
    ],
)
def test_jobs_are_fetched_ahead_only_if_some_end_in_each_millisecond(
    lengths_ms: tuple[int, ...], room: int, jobs: int
) -> None:
    assert after(*lengths_ms).jobs(room) == pytest.approx(jobs, abs=3 if jobs == 17 else 0)


@pytest.mark.parametrize(
    ("lengths_ms", "room", "ahead", "rest_ms"),
    [
        # As long as the jobs ahead last.
        ((6,), 10, 5, 3.0),
        ((10,), 500, 150, 3.0),
        ((10,), 500, 40, 0.0),
        # At most so long.
        ((6,), 10, 20, 6.0),
        ((10,), 500, 600, 6.0),
        # No worker has a next job, or there is no worker.
        ((6,), 10, 0, 0.0),
        ((6,), 10, -4, 0.0),
        ((6,), 0, 5, 0.0),
        # Too short for a timer.
        ((0,), 10, 20, 0.0),
    ],
)
def test_outcomes_may_wait_while_each_worker_has_a_next_job(
    lengths_ms: tuple[int, ...], room: int, ahead: int, rest_ms: float
) -> None:
    assert after(*lengths_ms).rest_s(room, ahead) * 1000 == pytest.approx(rest_ms, abs=0.01)


def test_nothing_is_fetched_ahead_of_jobs_of_unknown_length() -> None:
    assert LookAhead().jobs(10) == 0
    assert after(0, times=20).jobs(10) == 0


def test_a_reset_forgets_that_jobs_were_short() -> None:
    ahead = after(0)
    ahead.reset()
    assert ahead.jobs(10) == 0


def test_one_long_job_among_short_ones_ends_it() -> None:
    ahead = after(0)
    ahead.ended(10_000)
    assert ahead.jobs(10) == 0
