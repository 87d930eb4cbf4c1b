"""The head start: the first job of an idle group gets it, and those that follow soon do not."""

from __future__ import annotations

import time

import pytest

from pyworkers.server.fetching.source import CpuYield


@pytest.mark.parametrize(
    ("times_s", "expected"),
    [
        ([100.0], [True]),
        ([100.0, 100.01, 100.02], [True, True, True]),
        ([100.0, 100.001, 100.002, 100.003], [True, False, False, False]),
        # A steady stream is never idle, however long it lasts.
        ([100 + n * 0.004 for n in range(5)], [True, False, False, False, False]),
        ([100.0, 100.001, 100.007], [True, False, True]),
    ],
)
def test_a_head_start_is_due_after_five_milliseconds_without_a_job(
    times_s: list[float], expected: list[bool]
) -> None:
    cpu_yield = CpuYield()
    assert [cpu_yield.due(at) for at in times_s] == expected


def test_it_leaves_the_cpu_to_others() -> None:
    used, started = time.thread_time(), time.monotonic()
    for _ in range(100):
        CpuYield().give()
    # At least 100 times 0.05 ms have passed, most of it asleep.
    passed = time.monotonic() - started
    assert passed >= 0.005
    assert time.thread_time() - used < passed
