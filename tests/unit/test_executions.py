"""Execution metrics: what is counted, and under which keys Sidekiq 7 and 8 look for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pyworkers.protocol.histogram import BOUNDS_MS, Executions, Tally
from pyworkers.protocol.keys import Keys
from pyworkers.store.counters import add_executions
from tests.helpers.tallies import tally

# The 21st at 1:43, as in the key names seen from real Sidekiqs (protocol.md, Counters).
NOW = datetime(2026, 11, 21, 1, 43, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ms", "bucket"), [(0, 0), (19, 0), (20, 1), (29, 1), (30, 2), (334_999, 24), (335_000, 25), (10**9, 25)]
)
def test_a_duration_belongs_to_the_first_bound_above_it(ms: int, bucket: int) -> None:
    executions = Executions()
    executions.add("A", ms, False)
    tally = executions.take()["A"]
    assert [place for place, number in enumerate(tally.buckets) if number] == [bucket]
    assert len(tally.buckets) == len(BOUNDS_MS) + 1 == 26


def test_a_failed_job_counts_without_its_duration() -> None:
    executions = Executions()
    executions.add("A", 100, False)
    executions.add("A", 5000, True)
    tally = executions.take()["A"]
    assert (tally.processed, tally.failed, tally.total_ms, sum(tally.buckets)) == (2, 1, 100, 1)


def test_what_was_not_written_is_written_with_the_next_beat() -> None:
    executions = Executions()
    executions.add("A", 1, False)
    assert executions.take()["A"].processed == 1
    executions.add("A", 2, False)
    assert executions.take()["A"].processed == 2
    executions.sent()
    assert executions.take() == {}
    executions.add("B", 3, True)
    assert {name: tally.processed for name, tally in executions.take().items()} == {"B": 1}
    assert {name: tally.processed for name, tally in executions.totals().items()} == {"A": 2, "B": 1}


def commands(keys: Keys, tallies: dict[str, Tally], now: datetime) -> list[tuple[Any, ...]]:
    """The commands that add these tallies, with texts instead of bytes."""
    call = add_executions(keys, tallies, now)
    return [
        tuple(part.decode() if isinstance(part, bytes) else part for part in sent.parts)
        for sent in call.commands
    ]


def test_the_keys_are_those_of_both_sidekiqs() -> None:
    found = commands(Keys("app:"), {"Ok|Job": tally(10, 12, 1000, failed=3)}, NOW)
    hashes = ["app:j|20261121|1:43", "app:j|261121|1:43", "app:j|261121|1:4"]
    histograms = ["app:Ok_Job-21-01:43", "app:h|Ok_Job-21-1:43"]
    durations = f"app:pyworkers:durations:Ok_Job:{int(NOW.timestamp() // 3600)}"
    for key in hashes:
        assert [command[2:] for command in found if command[:2] == ("HINCRBY", key)] == [
            ("Ok_Job|p", 6), ("Ok_Job|f", 3), ("Ok_Job|ms", 1022),
        ]  # fmt: skip
    for key in histograms:
        expected = ("BITFIELD", key, "OVERFLOW", "SAT", "INCRBY", "u16", "#0", 2, "INCRBY", "u16", "#10", 1)
        assert [command for command in found if command[:2] == ("BITFIELD", key)] == [expected]
    hour = ("BITFIELD", durations, "OVERFLOW", "SAT", "INCRBY", "u32", "#0", 2, "INCRBY", "u32", "#10", 1)
    assert [command for command in found if command[:2] == ("BITFIELD", durations)] == [hour]
    lives = {command[1]: command[2] for command in found if command[0] == "EXPIRE"}
    assert lives == dict.fromkeys([*hashes[:2], *histograms], 8 * 3600) | {
        hashes[2]: 72 * 3600,
        durations: 25 * 3600,
    }


def test_minutes_below_ten() -> None:
    early = datetime(2026, 1, 2, 13, 7, tzinfo=UTC)
    found = commands(Keys(), {"A": tally(1)}, early)
    assert {command[1] for command in found} == {
        "j|20260102|13:7", "j|260102|13:07", "j|260102|13:0", "A-02-13:7", "h|A-2-13:7",
        f"pyworkers:durations:A:{int(early.timestamp() // 3600)}",
    }  # fmt: skip


def test_nothing_is_written_of_durations_where_all_jobs_failed() -> None:
    found = commands(Keys(), {"A": tally(failed=1)}, NOW)
    assert {command[0] for command in found} == {"HINCRBY", "EXPIRE"}
    assert {command[2] for command in found if command[0] == "HINCRBY"} == {"A|p", "A|f"}
