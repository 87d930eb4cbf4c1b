"""The number of workers of a group that follows its jobs."""

from __future__ import annotations

import asyncio
import time

import pytest

from pyworkers.server.pool.scale import Scale
from tests.helpers.support import async_wait_for

SIZES = [2, 2, 1]


class Group:
    """Workers that are needed, and the changes that the scale wanted."""

    def __init__(self, idle_s: float = 0.06) -> None:
        self.needed = 0
        self.changes: list[int] = []
        self.scale = Scale(idle_s, lambda: self.needed, lambda: self.changes.append(len(self.scale.sizes)))


async def test_a_fixed_number_does_not_follow_the_jobs() -> None:
    group = Group()
    group.scale.set(SIZES, None)
    assert group.scale.sizes == SIZES
    assert not group.scale.grow()


async def test_workers_are_added_one_by_one_up_to_all() -> None:
    group = Group(60)
    group.scale.set(SIZES, 0)
    assert group.scale.sizes == []
    assert [group.scale.grow() for _ in range(4)] == [True, True, True, False]
    assert group.scale.sizes == SIZES
    group.scale.close()
    assert group.scale.most == 0


@pytest.mark.parametrize(("least", "needed", "left"), [(0, 0, 0), (1, 0, 1), (0, 2, 2)])
async def test_workers_without_a_job_end(least: int, needed: int, left: int) -> None:
    group = Group()
    group.scale.set(SIZES, least)
    while group.scale.grow():
        pass
    group.needed = needed
    await async_wait_for(lambda: group.changes == [left])
    group.scale.close()


async def test_a_new_time_without_a_job_counts_at_once() -> None:
    group = Group(3600)
    group.scale.set(SIZES, 0)
    assert group.scale.grow()
    group.scale.end_idle_after(0.06)
    await async_wait_for(lambda: group.changes == [0])
    group.scale.close()


async def test_an_unrelated_reload_does_not_begin_the_time_anew() -> None:
    group = Group()
    group.scale.set(SIZES, 0)
    assert group.scale.grow()
    deadline = time.monotonic() + 5
    while not group.changes and time.monotonic() < deadline:
        group.scale.end_idle_after(0.06)
        group.scale.set(SIZES, 0)
        # Many reloads within the time for which a worker may stay.
        await asyncio.sleep(0.005)
    assert group.changes == [0]
    group.scale.close()


async def test_where_nothing_is_announced_all_workers_stay() -> None:
    group = Group()
    group.scale.set(SIZES, 0)
    assert group.scale.fill()
    assert not group.scale.fill()
    assert group.scale.sizes == SIZES
