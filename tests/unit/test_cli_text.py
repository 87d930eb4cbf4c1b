"""Texts for the terminal: columns stay columns."""

from __future__ import annotations

import pytest

from pyworkers.cli.params import parse_duration
from pyworkers.cli.text import duration, exact_duration, fit, width


@pytest.mark.parametrize(
    ("text", "cells", "fitted"),
    [
        ("abc", 5, "abc  "),
        ("abcdef", 4, "abc…"),
        ("語語語", 5, "語語…"),
        ("語語語", 4, "語… "),
        ("ab", 0, ""),
        ("e\u0301e\u0301e\u0301", 2, "e\u0301…"),
        ("☎\ufe0f☎", 2, "☎\ufe0f☎"),
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250ms"), (0.0, "0ms"), (2.5, "2.5s"), (0.0001, "0.0001s"), (5400, "1h30m"),
     (90_000.1, "1d1h0.1s"), (1e300, f"{10**300}s")],
)  # fmt: skip
def test_a_time_span_of_a_condition_is_exact(seconds: float, text: str) -> None:
    assert exact_duration(seconds) == text
    assert parse_duration(text) == seconds
