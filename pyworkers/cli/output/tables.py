"""Tables for the terminal: aligned columns, shortened where the terminal is too narrow.

Run by the commands. Elsewhere, e.g. in a pipe, every text is complete. Escapes nothing: the texts of the rows
are printable.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import click

from pyworkers.cli.text import fit, width

_ROWS_MEASURED = 100
_GAP = "  "
# Two wide characters, or three others, and the ellipsis.
_NARROWEST = 4


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column. ``cut`` is its place in the order in which columns are shortened, from 1; 0: never."""

    title: str
    cut: int = 0
    right: bool = False


def show(columns: Sequence[TableColumn], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: as wide as the terminal at most, or complete if stdout is none."""
    for line in lines(columns, rows, terminal_cells()):
        click.echo(line)


def terminal_cells() -> int | None:
    """The columns of the terminal; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def lines(
    columns: Sequence[TableColumn], rows: Iterable[Sequence[str]], cells: int | None = None
) -> Iterator[str]:
    """The header and the rows, two blanks between columns; at most ``cells`` wide.

    The first hundred rows decide how wide a column is, so that not all rows need to be in memory.
    """
    rows = iter(rows)
    first = [tuple(column.title for column in columns), *islice(rows, _ROWS_MEASURED)]
    widths = [max(map(width, texts)) for texts in zip(*first, strict=True)]
    if cells is not None:
        _shorten(widths, columns, cells)
    for row in chain(first, rows):
        line = _line(columns, row, widths, cells is not None)
        yield line if cells is None or width(line) <= cells else fit(line, cells).rstrip()


def _shorten(widths: list[int], columns: Sequence[TableColumn], cells: int) -> None:
    """Take what is too wide from the least important column, then from the next one …"""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - cells
    order = sorted((column.cut, place) for place, column in enumerate(columns) if column.cut)
    for _, place in order:
        spare = widths[place] - max(_NARROWEST, width(columns[place].title))
        taken = max(0, min(excess, spare))
        widths[place] -= taken
        excess -= taken


def _line(columns: Sequence[TableColumn], row: Sequence[str], widths: Sequence[int], cut: bool) -> str:
    texts = (_cell(*cell, cut) for cell in zip(columns, row, widths, strict=True))
    return _GAP.join(texts).rstrip()


def _cell(column: TableColumn, text: str, cells: int, cut: bool) -> str:
    used = width(text)
    if used > cells:
        return fit(text, cells) if cut and column.cut else text
    blanks = " " * (cells - used)
    return blanks + text if column.right else text + blanks
