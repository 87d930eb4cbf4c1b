"""Tables: the rows of a page and their live cells, from the columns that ``api`` declares.

Runs in the event loop of the dashboard. The macro ``table`` of macros.html writes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from markupsafe import Markup, escape
from starlette.requests import Request

from pyworkers.api.columns import Column, Kind, Word
from pyworkers.web.rendering import address, linkable
from pyworkers.web.showing import duration, number, shown

R = TypeVar("R")
_UNKNOWN = escape("\N{EN DASH}")


class Listing(Generic[R]):
    """The rows of a table at one time. ``key`` names a row in the live cells, ``feed`` what changes them."""

    def __init__(
        self,
        request: Request,
        columns: Sequence[Column[R]],
        rows: Sequence[R],
        now: float,
        *,
        key: Callable[[R], str] = lambda _row: "",
        feed: str = "",
    ) -> None:
        self.columns, self.feed = columns, feed
        self._request, self._rows, self._now, self._key = request, rows, now, key

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[tuple[R, str, list[tuple[Column[R], Markup]]]]:
        """Each record, its name in the live cells, and its cells."""
        for row in self._rows:
            yield row, self._key(row), [(column, self._cell(column, row)) for column in self.columns]

    def live(self) -> dict[str, str]:
        """The cells that change, by their name in the page: the row, a colon, and the column."""
        changing = [column for column in self.columns if column.live]
        return {
            f"{self._key(row)}:{column.name}": str(self._cell(column, row))
            for row in self._rows
            for column in changing
        }

    def _cell(self, column: Column[R], row: R) -> Markup:
        return cell(self._request, column, row, self._now)


def cell(request: Request, column: Column[R], row: R, now: float) -> Markup:
    """One value as HTML; a dash if it is unknown."""
    value = column.of(row, now)
    if column.place:
        return link(request, column.place, value)
    return escape(_SHOWN[column.kind](value)) if column.kind is not Kind.WORDS else words(request, value)


def link(request: Request, place: str, name: str) -> Markup:
    """A name that leads to its page, if an address can hold it."""
    if linkable(name):
        return Markup('<a href="{}">{}</a>').format(address(request, place, name), shown(name))
    return shown(name) if name else Markup("(empty name)")


def words(request: Request, found: Sequence[Word]) -> Markup:
    """Words about a record, e.g. its state."""
    return Markup(", ").join(_word(request, word) for word in found)


def _word(request: Request, word: Word) -> Markup:
    titled = Markup(' title="{}"').format(word.meaning) if word.meaning else ""
    toned = Markup(' class="{}"').format(word.tone) if word.tone else ""
    text = (
        Markup("<span{}{}>{}</span>").format(toned, titled, word.text)
        if toned or titled
        else escape(word.text)
    )
    return Markup("{} {}").format(text, link(request, word.place, word.name)) if word.name else text


def _seconds(value: float) -> str | Markup:
    return duration(value) if value else _UNKNOWN


def _rate(value: float | None) -> str:
    return number(None if value is None else round(value))


_SHOWN: Mapping[Kind, Callable[[Any], str | Markup]] = {
    Kind.TEXT: shown,
    Kind.COUNT: number,
    Kind.RATE: _rate,
    Kind.SECONDS: _seconds,
}
