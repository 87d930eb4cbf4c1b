"""The page that a master and a worker share: one writes, the other reads, in another process or not."""

from __future__ import annotations

import os

import pytest

from pyworkers.ipc.page import Page, open_page


def test_what_one_side_writes_the_other_reads() -> None:
    masters, fd = open_page(3)
    workers = Page(fd, 3)
    os.close(fd)
    assert masters.claims() == [0, 0, 0]
    workers.claim(0, 7)
    workers.claim(2, 2**60)
    assert masters.claims() == [7, 0, 2**60]
    assert list(workers.requests()) == []
    masters.request(2**60, interrupt=True)
    masters.request(7, interrupt=False)
    assert list(workers.requests()) == [(7, False), (2**60, True)]
    assert not workers.leaving
    masters.leave()
    assert workers.leaving
    for page in (masters, workers):
        page.close()


@pytest.mark.parametrize("offset_s", [0.0, 1.5, -0.000001, 10**9, -(10**9)])
def test_redis_clock_may_be_ahead_or_behind(offset_s: float) -> None:
    page, fd = open_page(1)
    os.close(fd)
    page.set_clock(offset_s)
    assert (page.clock_offset_s, page.claims(), page.leaving) == (offset_s, [0], False)
    page.close()


def test_a_delivery_that_the_worker_has_not_claimed_cannot_be_requested() -> None:
    page, fd = open_page(1)
    os.close(fd)
    page.claim(0, 1)
    page.request(2, interrupt=False)
    assert list(page.requests()) == []
    page.close()


def test_an_answer_says_which_delivery_runs() -> None:
    page, fd = open_page(2)
    os.close(fd)
    assert (page.answers, page.running) == (0, 0)
    page.answer(8)
    page.answer(9)
    assert (page.answers, page.running, page.claims()) == (2, 9, [0, 0])
    page.close()


def test_a_forked_process_shares_it() -> None:
    page, fd = open_page(1)
    os.close(fd)
    if (pid := os.fork()) == 0:
        page.claim(0, 9)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert page.claims() == [9]
    page.close()


def test_a_busy_group_is_noted_and_no_longer() -> None:
    masters, fd = open_page(1)
    workers = Page(fd, 1)
    os.close(fd)
    assert not workers.busy
    masters.set_busy(True)
    assert (workers.busy, workers.stopping, workers.leaving, workers.claims()) == (True, False, False, [0])
    masters.set_busy(False)
    assert not workers.busy
    for page in (masters, workers):
        page.close()
