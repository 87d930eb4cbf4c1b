"""Tables: Markdown from texts that know nothing of Markdown.

Used by the pages of the reference. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; a newline in a cell is a line break."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def code(text: object) -> str:
    """A code span; the empty text stays empty."""
    written = str(text)
    if not written:
        return ""
    fence = "``" if "`" in written else "`"
    space = " " if "`" in written else ""
    return f"{fence}{space}{written}{space}{fence}"


def plain(text: str) -> str:
    """The text with no meaning in Markdown and HTML, but for code spans."""
    outside = [part if number % 2 else _escaped(part) for number, part in enumerate(text.split("`"))]
    return "`".join(outside)


def _escaped(text: str) -> str:
    for mark in "\\*_<[":
        text = text.replace(mark, "&lt;" if mark == "<" else f"\\{mark}")
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
