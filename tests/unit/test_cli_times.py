"""Times on the command line: for people, or exact in UTC."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest

from pyworkers.cli.output.times import Times, distance

NOW = 1_795_225_197.5


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (0.9, "now"),
        (-0.9, "now"),
        (1, "in 1 s"),
        (-59.9, "59 s ago"),
        (60, "in 1 min"),
        (-3599, "59 min ago"),
        (7200, "in 2 h"),
        (-86_400, "24 h ago"),
        (-172_799, "47 h ago"),
        (172_800, "in 2 d"),
        (-4e9, "46296 d ago"),
        (math.inf, ""),
        (math.nan, ""),
    ],
)
def test_a_distance_has_one_unit(seconds: float, words: str) -> None:
    assert distance(seconds) == words


def test_a_table_shows_how_far_away_a_time_is_or_the_time_in_utc() -> None:
    assert Times().cell(NOW + 200, NOW) == "in 3 min"
    assert Times(utc=True).cell(NOW + 200, NOW) == "2026-11-21T01:43:17.500Z"
    assert Times().cell(None, NOW) == Times(utc=True).cell(None, NOW) == ""


@pytest.mark.usefixtures("kolkata")
def test_a_time_by_itself_is_local_with_its_distance() -> None:
    assert Times().full(NOW - 7200, NOW) == "2026-11-21 05:09:57+05:30 (2 h ago)"
    assert Times(utc=True).full(NOW - 7200, NOW) == "2026-11-20T23:39:57.500Z"


@pytest.mark.parametrize("moment", [1e300, -1e300, math.inf, -math.inf, math.nan])
def test_a_time_outside_of_the_calendar_is_a_number(moment: float) -> None:
    assert Times(utc=True).cell(moment, NOW) == f"{moment:g}"
    assert Times().full(moment, NOW) == f"{moment:g}"
    assert Times().cell(moment, NOW)
