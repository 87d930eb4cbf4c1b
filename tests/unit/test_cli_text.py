"""Texts for the terminal: columns stay columns."""

from __future__ import annotations

import pytest

from pyworkers.cli.text import duration, fit, table, width


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
