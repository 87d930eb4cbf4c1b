"""Texts for the terminal: escaped, so that no payload can control it, and cut to fit a column.

Pure.
"""

from __future__ import annotations

import json
import unicodedata

from pyworkers.text import duration, exact_duration, printable, printable_lines

__all__ = ["duration", "exact_duration", "fit", "printable", "printable_json", "printable_lines", "width"]

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
