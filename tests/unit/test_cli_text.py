"""Texts for the terminal: nothing in them steers it, and columns stay columns."""

from __future__ import annotations

import pytest

from pyworkers.cli.text import duration, fit, printable, table, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 語", "plain é 語"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\r\nb\tc\x00", r"a\r\nb\tc\x00"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202ecba", r"abc\u202ecba"),
        ("\u200b\u2028", r"\u200b\u2028"),
        ("\udce9", r"\xe9"),
        ("\ud800", r"\ud800"),
        ("\x7f", r"\x7f"),
        ("\U000e0001", r"\U000e0001"),
    ],
)
def test_what_is_no_visible_character_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_every_character_of_unicode_is_printable_afterwards() -> None:
    assert all(printable(chr(code)).isprintable() for code in range(0x110000))


@pytest.mark.parametrize(
    ("text", "cells", "fitted"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc…"),
        ("語語語", 5, "語語…"),
        ("語語語", 4, "語… "),
        ("ab", 0, ""),
    ],
)
def test_a_text_fits_into_its_cells(text: str, cells: int, fitted: str) -> None:
    assert fit(text, cells) == fitted
    assert width(fit(text, cells)) == cells


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.85, "850ms"),
        (12.9, "12s"),
        (60, "1m"),
        (200, "3m20s"),
        (18_420, "5h7m"),
        (1_047_600, "12d3h"),
        (-61, "-1m1s"),
    ],
)
def test_time_spans(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_columns_are_aligned_by_cells() -> None:
    rows = [("語", "10"), ("x", "5")]
    assert list(table(("a", "n"), rows, right=(1,))) == ["a    n", "語  10", "x    5"]


def test_a_table_begins_before_its_last_row_is_known() -> None:
    rows = iter([("x",)] * 100 + [("longer",)] * 10)
    lines = table(("a",), rows)
    assert next(lines) == "a"
    assert next(rows) == ("longer",)
    assert list(lines)[-1] == "longer"
