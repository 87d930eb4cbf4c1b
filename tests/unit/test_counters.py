"""What is counted: runs and failures as Sidekiq does, crashes and interruptions apart."""

from __future__ import annotations

import pytest

from pyworkers.protocol.keys import Keys
from pyworkers.protocol.outcome import DONE, EXPIRED, REQUEUE, Fate, Outcome, Report, done_member
from pyworkers.server.counters import Counters


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (DONE, {"processed": 1}),
        (done_member(26, 150), {"processed": 1}),
        (Outcome(Fate.RETRY, failed=True), {"processed": 1, "failed": 1}),
        (Outcome(Fate.DEAD, failed=True), {"processed": 1, "failed": 1}),
        (Outcome(Fate.DISCARD, failed=True), {"processed": 1, "failed": 1}),
        (Outcome(Fate.RETRY, failed=True, crashed=True), {"crashed": 1}),
        (Outcome(Fate.DEAD, failed=True, crashed=True), {"crashed": 1}),
        (Outcome(Fate.DEAD), {}),
        (Outcome(Fate.SNOOZE), {}),
        (EXPIRED, {"expired": 1}),
        (REQUEUE, {}),
    ],
)
def test_an_outcome_counts_as(outcome: Outcome, counts: dict[str, int]) -> None:
    counters = Counters()
    counters.add("q", Report(outcome))
    assert counters.take() == counts
    counters.add("q", Report(outcome, job_class="Add"))
    assert counters.take() == counts
    assert counters.take() == {}
    counters.add("q", Report(outcome, job_class="Add"), 3)
    assert counters.take() == {name: 3 * number for name, number in counts.items()}


def test_interruptions_are_neither_runs_nor_failures() -> None:
    counters = Counters()
    counters.interrupted(0)
    assert counters.take() == {}
    counters.interrupted(3)
    assert counters.take() == {"interrupted": 3}
    counters.recovered(2)
    counters.suspected()
    assert counters.take() == {"recovered": 2, "interrupted": 2, "suspects": 1}
    assert counters.incidents == {"recovered": 2, "interrupted": 5, "suspects": 1}


def test_our_own_counters_do_not_look_like_sidekiqs() -> None:
    keys = Keys("app:")
    assert keys.stat("failed", "2026-11-21") == "app:stat:failed:2026-11-21"
    assert keys.stat("crashed", "2026-11-21") == "app:pyworkers:stat:crashed:2026-11-21"


def test_runs_and_failures_are_counted_by_queue() -> None:
    counters = Counters()
    for outcome in (DONE, DONE, Outcome(Fate.RETRY, failed=True), Outcome(Fate.SNOOZE), EXPIRED):
        counters.add("q", Report(outcome, job_class="Add"))
    counters.add("other", Report(DONE, job_class="Add"))
    assert counters.take_runs() == {"q|p": 3, "q|f": 1, "other|p": 1}
    assert counters.take_runs() == {}
    assert counters.take() == {"processed": 4, "failed": 1, "expired": 1}
