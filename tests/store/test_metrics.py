"""The metrics by class: what servers write is what is read, of an hour and of a day."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
import redis

from pyworkers.api import Metrics, Period
from pyworkers.api.metrics import read_class_metrics, read_metrics
from pyworkers.protocol.keys import Keys
from pyworkers.store.counters import add_executions, ten_minutes_of
from pyworkers.store.measures.metrics import Span, percentile
from tests.helpers.tallies import tally
from tests.store.conftest import Cli, Run


@pytest.mark.parametrize("minute", range(20))
def test_the_hashes_of_an_hour_are_its_60_minutes_once(minute: int) -> None:
    now = datetime(2026, 3, 1, 0, minute, 30, tzinfo=UTC)
    covered = []
    for _, name in Span(Period.HOUR, now).hashes():
        day, _, clock = name.partition("|")
        hour, _, rest = clock.partition(":")
        first = int(rest) * 10 if len(rest) == 1 else int(rest)
        covered += [(day, int(hour), first + more) for more in range(10 if len(rest) == 1 else 1)]
    minutes = [now - timedelta(minutes=back) for back in range(59, -1, -1)]
    expected = [(f"{at:%y%m%d}", at.hour, at.minute) for at in minutes]
    # The last ten minutes may be to come.
    assert covered[:60] == expected
    assert len(covered) == 60


def test_an_hour_is_24_keys_at_most() -> None:
    nows = [datetime(2026, 3, 1, 0, minute, tzinfo=UTC) for minute in range(60)]
    assert max(len(list(Span(Period.HOUR, now).hashes())) for now in nows) <= 24
    assert len(list(Span(Period.DAY, nows[59]).hashes())) == 144


def test_the_counts_and_percentiles_of_each_class(run_work: Run, keys: Keys) -> None:
    now = datetime.now(UTC)
    for ago_min, tallies in (
        (0, {"Slow": tally(*[10] * 50, *[1000] * 50), "Quick": tally(5, failed=2)}),
        (30, {"Slow": tally(400_000)}),
        (200, {"Slow": tally(10), "Early|er": tally(5)}),
    ):
        run_work(add_executions(keys, tallies, now - timedelta(minutes=ago_min)))
    found = run_work(read_metrics(keys))
    slow, quick = found.classes
    assert (slow.job_class, slow.processed, slow.failed, slow.total_ms) == ("Slow", 101, 0, 450_500)
    assert 15 <= slow.percentile_ms(0.4) < 20
    assert 750 <= slow.percentile_ms(0.6) < 1100
    assert slow.percentile_ms(1) == 335_000
    assert (quick.job_class, quick.processed, quick.failed, quick.mean_ms) == ("Quick", 3, 2, 5)
    day = run_work(read_metrics(keys, Period.DAY))
    assert {one.job_class: one.processed for one in day.classes} == {"Slow": 102, "Quick": 3, "Early_er": 1}
    assert [sum(one.histogram) for one in day.classes] == [102, 1, 1]
    page = run_work(read_metrics(keys, Period.DAY, first=1, count=1, match="E"))
    assert (page.total, [one.job_class for one in page.classes]) == (1, [])
    [early] = run_work(read_metrics(keys, Period.DAY, match="early")).classes
    assert early.as_dict()["class"] == "Early_er"


def test_one_class_has_the_parts_of_the_period(run_work: Run, keys: Keys) -> None:
    now = datetime.now(UTC)
    run_work(add_executions(keys, {"A": tally(5, failed=1)}, now - timedelta(minutes=10)))
    for period, parts in ((Period.HOUR, 60), (Period.DAY, None)):
        found = run_work(read_class_metrics(keys, "A", period))
        assert (found.processed, found.failed, sum(found.histogram)) == (2, 1, 1)
        assert [(part.processed, part.failed) for part in found.parts if part.processed] == [(2, 1)]
        assert len(found.parts) == (parts or len(found.parts))
    assert run_work(read_class_metrics(keys, "\udcff")).processed == 0


def test_other_types_and_bytes_are_left_out(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    now = datetime.now(UTC)
    run_work(add_executions(keys, {"A": tally(5)}, now))
    span = Span(Period.HOUR, now)
    first = keys.executions(next(span.hashes())[1])
    db.delete(first)
    db.set(first, "x")
    # Read also if the next minute begins meanwhile: the span of the read then has other minutes at its ends.
    middle = keys.executions(ten_minutes_of(now - timedelta(minutes=30)))
    db.hset(middle, mapping={b"\xff|p": 7, "odd": 1, "|p": 1, "A|p": "many", "A|x": 1})
    histogram = span.histograms(keys, "A")
    db.delete(histogram[0])
    db.lpush(histogram[0], "x")
    db.set(histogram[1], b"\xff" * 1000)
    found = {one.job_class: one for one in run_work(read_metrics(keys)).classes}
    assert found["\udcff"].processed == 7
    assert found["A"].processed == 1
    assert found["A"].as_dict()["p99_ms"] is not None


def test_the_command_shows_what_programs_read(cli: Cli, run_work: Run, keys: Keys) -> None:
    assert cli("metrics").output == "No job ran in the last hour.\n"
    run_work(add_executions(keys, {"Add\x1b": tally(5, failed=1)}, datetime.now(UTC)))
    head, row = cli("metrics", "--day").output.splitlines()
    assert head.split()[:3] == ["class", "processed", "failed"]
    assert row.split()[:3] == [r"Add\x1b", "2", "1"]
    [found] = json.loads(cli("metrics", "--json").output)["classes"]
    assert (found["processed"], found["failed"], found["total_ms"]) == (2, 1, 5)


@pytest.mark.parametrize(
    ("buckets", "share", "ms"),
    [
        ([], 0.5, None),
        ([0] * 26, 0.5, None),
        ([10] + [0] * 25, 0.5, 10.0),
        ([0, 4] + [0] * 24, 0.75, 27.5),
        ([0] * 25 + [1], 0.5, 335_000.0),
        ([1] + [0] * 24 + [1], 0.5, 20.0),
    ],
)
def test_a_percentile(buckets: list[int], share: float, ms: float | None) -> None:
    assert percentile(buckets, share) == ms


def test_fetch_takes_the_name_of_a_period(redis_url: str, namespace: str) -> None:
    assert Metrics.fetch("day", redis_url, namespace=namespace).classes == []
    with pytest.raises(ValueError, match="year"):
        Metrics.fetch("year", redis_url, namespace=namespace)
