"""How many jobs are fetched ahead: some while several end in a millisecond, none otherwise."""

from __future__ import annotations

import pytest

from pyworkers.server.pool.lookahead import LookAhead


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
        ((0,), 1, 2),
        ((0,), 0, 0),
        ((1,), 10, 0),
        ((5,), 10, 0),
        ((1000,), 200, 0),
        ((0, 1), 10, 17),
        # Many of these end in a millisecond, if so many run at once.
        ((10,), 500, 100),
        ((10,), 80, 0),
        ((100,), 500, 0),
        ((2,), 1000, 1000),
    ],
)
def test_jobs_are_fetched_ahead_only_if_several_end_in_a_millisecond(
    lengths_ms: tuple[int, ...], room: int, jobs: int
) -> None:
    assert after(*lengths_ms).jobs(room) == pytest.approx(jobs, abs=3 if jobs in (17, 100, 1000) else 0)


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
