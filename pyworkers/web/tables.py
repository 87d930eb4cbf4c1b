"""Tables: the rows of a page and their live cells, from the columns that ``api`` declares.

Runs in the event loop of the dashboard. The macro ``table`` of macros.html writes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from markupsafe import Markup, escape
from starlette.requests import Request

from pyworkers.api.columns import REDIS, Column, Kind, Word
from pyworkers.api.problems import span
from pyworkers.protocol.status import Progress
from pyworkers.web.navigation import is_joined
from pyworkers.web.rendering import address, linkable
from pyworkers.web.security.guard import place_of
from pyworkers.web.several import ALL, path_of, sites_of
from pyworkers.web.showing import both, milliseconds, moment, number, shown, size

R = TypeVar("R")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
UNKNOWN = escape("\N{EN DASH}")


class Sort(NamedTuple):
    """How a table is sorted by a column: the address of the other order, and the order of now."""

    href: str
    now: str = ""
    """``ascending``, ``descending``, or empty."""


TableRow = tuple[R, str, list[tuple[Column[R], Markup]], str]


class Listing(Generic[R]):
    """The rows of a table at one time. ``key`` names a row in the live cells, ``feed`` what changes them.

    ``ended``: by column, the live part that is there if a row without news has ended. ``html``: the cells
    of columns of which the page shows more than the value. ``sorts``: the columns by which it can be sorted.
    ``queue_of``: the queue of a row, for people who may act on some queues alone; None: they see no button.
    """

    def __init__(
        self,
        request: Request,
        columns: Sequence[Column[R]],
        rows: Sequence[R],
        now: float,
        *,
        key: Callable[[R], str] = lambda _row: "",
        feed: str = "",
        ended: Mapping[str, str] = _NOTHING,
        html: Mapping[str, Callable[[R], Markup]] = _NOTHING,
        sorts: Mapping[str, Sort] = _NOTHING,
        queue_of: Callable[[R], str] | None = None,
    ) -> None:
        self.columns, self.feed, self.ended = columns, feed, ended
        self._request, self._rows, self._now, self._key = request, rows, now, key
        self._html = html
        self.sorts = sorts
        self.queue_of = queue_of

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> Iterator[TableRow[R]]:
        """Each record, its name in the live cells, its cells, and the name of its Redis in a list of all."""
        for row in self._rows:
            yield row, self._key(row), [(column, self._cell(column, row)) for column in self.columns], ""

    def first(self) -> dict[str, Markup]:
        """The cells of the first record, by the names of the columns."""
        return {column.name: self._cell(column, self._rows[0]) for column in self.columns}

    def facts(self) -> Iterator[tuple[Column[R], Markup]]:
        """The cells of the first record, without unknown ones; times are exact as well."""
        for column in self.columns:
            value = column.of(self._rows[0], self._now)
            if column.is_unknown(value) or value in ((), []):
                continue
            is_moment = column.kind is Kind.MOMENT and column.name not in self._html
            yield column, both(value, self._now) if is_moment else self._cell(column, self._rows[0])

    def live(self) -> dict[str, str]:
        """The cells that change, by their name in the page: the row, a colon, and the column."""
        changing = [column for column in self.columns if column.live]
        return {
            f"{self._key(row)}:{column.name}": str(self._cell(column, row))
            for row in self._rows
            for column in changing
        }

    def _cell(self, column: Column[R], row: R) -> Markup:
        make = self._html.get(column.name)
        return make(row) if make else cell(self._request, column, row, self._now)


class Joined(Listing[R]):
    """The rows of several Redis servers in one table, each with the name of its Redis, in this ``order``.

    A live cell has the name that it has in the table of its Redis, after the name of the Redis and a slash.
    """

    def __init__(self, request: Request, parts: Mapping[str, Listing[R]], order: Callable[[R], Any]) -> None:
        one = next(iter(parts.values()))
        self.columns = (*one.columns[:1], REDIS, *one.columns[1:])
        self.feed = f"{ALL}{one.feed}" if one.feed else ""
        self.ended, self.sorts, self.queue_of = one.ended, one.sorts, one.queue_of
        self._parts, self._order = parts, order
        sites, path = sites_of(request), path_of(request)
        page = path if is_joined(path) else place_of(request)
        form = Markup('<a href="{}">{}</a>')
        self._names = {name: form.format(sites.list_address(request, name, page), name) for name in parts}

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def rows(self) -> Iterator[TableRow[R]]:
        """As ``rows`` of one Redis, in the order of all."""
        found = [(name, *one) for name, part in self._parts.items() for one in part.rows()]
        for name, row, key, cells, _ in sorted(found, key=lambda one: self._order(one[1])):
            yield row, key, [cells[0], (REDIS, self._names[name]), *cells[1:]], name


def joined(request: Request, parts: Mapping[str, Listing[R]], order: Callable[[R], Any]) -> Listing[R]:
    """The table of what all Redis servers have that a page shows; of a single one its own."""
    if not sites_of(request).parts:
        [only] = parts.values()
        return only
    return Joined(request, parts, order)


def cell(request: Request, column: Column[R], row: R, now: float) -> Markup:
    """One value as HTML."""
    value = column.of(row, now)
    if column.is_unknown(value):
        is_text = column.kind in (Kind.TEXT, Kind.CODE, Kind.PROGRESS) and not column.place
        return escape(column.empty or ("" if is_text else UNKNOWN))
    html = _html(request, column, value, now)
    tone = column.tone(value) if column.tone else ""
    return Markup('<span class="{}">{}</span>').format(tone, html) if tone else html


def _html(request: Request, column: Column[Any], value: Any, now: float) -> Markup:
    if column.place:
        return link(request, column.place, value)
    if column.kind is Kind.WORDS:
        return words(request, value)
    if column.kind is Kind.MOMENT:
        return moment(value, now)
    if column.kind in (Kind.BAR, Kind.SHARE):
        return _share(column, *value)
    return escape(_SHOWN[column.kind](value))


def link(request: Request, place: str, name: str, **query: object) -> Markup:
    """A name that leads to its page, if an address can hold it."""
    if linkable(name):
        return Markup('<a href="{}">{}</a>').format(address(request, place, name, **query), shown(name))
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
    if not word.name:
        return text
    name = link(request, word.place, word.name) if word.place else shown(word.name)
    return Markup("{} {}").format(text, name)


def _seconds(value: float) -> str | Markup:
    return span(value) if value else UNKNOWN


def _progress(progress: Progress) -> Markup:
    """A bar if the total is known, the numbers, and the text."""
    done, total = progress.done, progress.total
    form = '<progress value="{:g}" max="{:g}" aria-label="Progress"></progress>'
    bar = Markup(form).format(max(0, done), total) if total is not None and total > 0 else Markup("")
    numbers = f"{done:g}" if total is None else f"{done:g} of {total:g}"
    text = shown(progress.text, 60) if progress.text else Markup("")
    parts = (bar, Markup('<span class="of">{}</span>').format(numbers), text)
    return Markup(" ").join(part for part in parts if part)


def _share(column: Column[Any], part: int, whole: int) -> Markup:
    bar = Markup("")
    if whole > 0:
        form = '<progress value="{}" max="{}" aria-label="{}"></progress> '
        bar = Markup(form).format(min(max(part, 0), whole), whole, column.about)
    if column.kind is Kind.BAR:
        return bar
    return Markup('{}<span class="of">{} of {}</span>').format(bar, number(part), number(whole))


_SHOWN: Mapping[Kind, Callable[[Any], str | Markup]] = {
    Kind.TEXT: shown,
    Kind.TEXTS: lambda texts: shown(", ".join(texts)),
    Kind.CODE: lambda text: Markup("<code>{}</code>").format(shown(text)),
    Kind.COUNT: number,
    Kind.NUMBER: number,
    Kind.RATE: lambda rate: number(round(rate)),
    Kind.SECONDS: _seconds,
    Kind.TOOK: lambda seconds: milliseconds(seconds * 1000),
    Kind.MILLISECONDS: milliseconds,
    Kind.PROGRESS: _progress,
    Kind.MEMORY: lambda kb: size(kb * 1024),
}
