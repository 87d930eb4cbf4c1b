"""Scheduling: which policy a worker chooses by the length of its jobs."""

from __future__ import annotations

import os
import sys

import pytest

from pyworkers.worker.scheduling import Scheduling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="SCHED_BATCH is Linux's")


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The policies that are set; the process begins with the usual one."""
    found: list[int] = []
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_setscheduler", lambda _, policy, __: found.append(policy))
    return found


@pytest.mark.parametrize(
    ("lengths_ms", "policies"),
    [
        ([0] * 5, []),
        ([0] * 50, [os.SCHED_BATCH]),
        ([2] * 50, []),
        ([0] * 50 + [100], [os.SCHED_BATCH, os.SCHED_OTHER]),
        ([0] * 50 + [1] * 10, [os.SCHED_BATCH]),
        ([0] * 50 + [100] + [0] * 50, [os.SCHED_BATCH, os.SCHED_OTHER, os.SCHED_BATCH]),
    ],
)
def test_the_policy_follows_the_mean(chosen: list[int], lengths_ms: list[int], policies: list[int]) -> None:
    scheduling = Scheduling()
    for length_ms in lengths_ms:
        scheduling.ended(length_ms)
    assert chosen == policies


def test_a_policy_that_was_chosen_for_the_server_is_kept(
    chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_IDLE)
    scheduling = Scheduling()
    for _ in range(50):
        scheduling.ended(0)
    assert chosen == []


def test_a_refused_change_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_getscheduler", lambda _: os.SCHED_OTHER)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    scheduling = Scheduling()
    for _ in range(50):
        scheduling.ended(0)
