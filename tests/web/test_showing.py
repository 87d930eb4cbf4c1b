"""Texts, times and numbers on pages."""

from __future__ import annotations

import pytest

from pyworkers.web.showing import (
    clock,
    compact,
    counted,
    distance,
    duration,
    moment,
    number,
    shown,
    size,
    visible,
)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain ä 💥", "plain ä 💥"),
        ("\x1b[31m\x00", "\\u001b[31m\\u0000"),
        ("a\u202eb", "a\\u202eb"),
        ("a\nb", "a\\u000ab"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
        ("  ", "\\u0020\\u0020"),
        (" a ", " a "),
        ("", ""),
    ],
)
def test_an_invisible_character_is_shown_by_its_number(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_a_long_text_is_cut_and_markup_is_escaped() -> None:
    assert shown("<b>" + "x" * 300, most=5) == "<bdi>&lt;b&gt;xx…</bdi>"
    assert shown("<b>", most=0) == "<bdi>&lt;b&gt;</bdi>"
    assert shown(10**30) == f"<bdi>{10**30}</bdi>"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "now"),
        (59.9, "in 59 s"),
        (-60, "1 min ago"),
        (-7200, "2 h ago"),
        (129_600, "in 36 h"),
        (1e9, "in 11,574 d"),
    ],
)
def test_how_far_away_a_moment_is(seconds: float, words: str) -> None:
    assert distance(seconds) == words


def test_a_time_of_another_day_has_its_name() -> None:
    noon = 1_795_953_600.0
    assert ">12:00</time>" in clock(noon, noon + 3600)
    assert ">Sat 12:00</time>" in clock(noon - 86_400, noon)


@pytest.mark.parametrize("seconds", [float("inf"), float("-inf"), float("nan"), 1e300, -1e300, 1e18])
def test_times_outside_of_the_calendar_are_shown_as_numbers(seconds: float) -> None:
    assert "<time" not in moment(seconds, 0)
    assert isinstance(duration(seconds), str)


def test_numbers() -> None:
    assert number(1_234_567) == "1,234,567"
    assert number(2**63) == "9,223,372,036,854,775,808"
    assert number(-12345 * 10**400) == "-1.234e+404"
    assert number(None) == "\N{EN DASH}"
    assert size(1_500_000) == "1.5\u202fMB"
    assert moment(None, 0) == ""


def test_counts_in_little_room() -> None:
    values = (0, 9_999, 12_345, 999_999, 1_234_567, 45_600_000, 7_890_000_000_000)
    assert [compact(value) for value in values] == ["0", "9,999", "12k", "999k", "1.2M", "45M", "7,890G"]


def test_a_number_of_things() -> None:
    assert [counted(count, "job") for count in (0, 1, 2000)] == ["0 jobs", "1 job", "2,000 jobs"]
