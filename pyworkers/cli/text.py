"""Texts for the terminal: escaped, so that no payload can control it, and cut to fit a column.

Pure.
"""

from __future__ import annotations

import json
import unicodedata

from pyworkers.text import length_of, printable, printable_lines

_UNITS_S = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))

__all__ = ["duration", "fit", "printable", "printable_json", "printable_lines", "width"]

_ELLIPSIS = "…"


def printable_json(text: str) -> str:
    """The same JSON value with every invisible character escaped; the text is JSON without white space."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def width(text: str) -> int:
    """The number of terminal cells of a printable text."""
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def fit(text: str, cells: int) -> str:
    """A printable text cut or padded to a number of cells."""
    used = width(text)
    if used > cells:
        text, used = _cut(text, cells)
    return text + " " * (cells - used)


def duration(seconds: float) -> str:
    """A time span for people: 850ms, 12s, 3m20s, 5h7m, 12d3h."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    whole = int(seconds)
    for unit, smaller, size, part in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{whole}s"


def exact_duration(seconds: float) -> str:
    """A time span without a loss: ``1d1h0.5s``, as an option takes it; below a second in whole ms."""
    if seconds < 1 and seconds * 1000 % 1 == 0:
        return duration(seconds)
    return "".join(length_of(seconds, _UNITS_S))


def _cells(char: str) -> int:
    # Marks, e.g. the one that makes an emoji of a letter, and the parts of a Hangul syllable after its first.
    if unicodedata.category(char) in ("Mn", "Me") or "\u1160" <= char <= "\u11ff":
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _cut(text: str, cells: int) -> tuple[str, int]:
    if cells < 1:
        return "", 0
    used = 0
    for place, char in enumerate(text):
        if used + _cells(char) > cells - 1:
            return text[:place] + _ELLIPSIS, used + 1
        used += _cells(char)
    return text, used
