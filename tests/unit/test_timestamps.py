"""Times in all the forms in which they are found in Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from pyworkers.errors import BadArgumentError
from pyworkers.protocol import timestamps


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (1795225197.5, 1795225197.5),
        (1795225197, 1795225197.0),
        (1795225197500, 1795225197.5),
        ("1795225197.5", 1795225197.5),
        ("1795225197500", 1795225197.5),
        ("2026-11-21 04:00:00 UTC", 1795233600.0),
        ("2026-11-21T04:00:00Z", 1795233600.0),
        ("2026-11-21T05:00:00+01:00", 1795233600.0),
        ("2026-11-21T04:00:00", 1795233600.0),
        (None, None),
        (True, None),
        ("", None),
        ("yesterday", None),
        ([1], None),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        ("1e999", None),
    ],
)
def test_read(value: object, seconds: float | None) -> None:
    assert timestamps.read(value) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-11-21 01:39:57 UTC", 1795225197.0),
        ("1795225197500", 1795225197.5),
        (1795225197, 1795225197.0),
        (1795225197.5, None),
        (1795225197500, None),
        (None, None),
        ("yesterday", None),
        (True, None),
    ],
)
def test_rewritten(value: object, seconds: float | None) -> None:
    assert timestamps.rewritten(value) == seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (60, 60.0),
        ("60", 60.0),
        (0, 0.0),
        (-1, None),
        ("x", None),
        (True, None),
        (float("nan"), None),
        (1e12, None),
    ],
)
def test_seconds(value: object, seconds: float | None) -> None:
    assert timestamps.seconds(value) == seconds


@pytest.mark.parametrize(
    ("at", "score"),
    [
        (1795225197, 1795225197.0),
        (0, 0.0),
        (datetime(2026, 11, 21, 4, tzinfo=UTC), 1795233600.0),
        (datetime(2026, 11, 21, 5, tzinfo=timezone(timedelta(hours=1))), 1795233600.0),
        (datetime(1960, 1, 1, tzinfo=UTC), 0.0),
        (datetime.max.replace(tzinfo=UTC), timestamps.LATEST),
    ],
)
def test_due(at: datetime | float, score: float) -> None:
    assert timestamps.due(at) == timestamps.due(score) == score


@pytest.mark.parametrize(
    "at", [True, -1, float("nan"), float("inf"), timestamps.LATEST + 1, "tomorrow", None]
)
def test_due_refuses_what_is_no_moment(at: float) -> None:
    with pytest.raises(BadArgumentError, match="is not a time"):
        timestamps.due(at)


def test_due_refuses_a_naive_datetime() -> None:
    with pytest.raises(BadArgumentError, match="has no time zone"):
        timestamps.due(datetime(2026, 11, 21, 4))
