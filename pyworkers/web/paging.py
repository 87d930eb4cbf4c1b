"""Paging: the rank or cursor at which a page of a list begins, and the addresses of its neighbours.

In a list of all Redis servers, a rank is that in their sorted rows.

Pure, but for the request that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from pyworkers.web.names import number_in
from pyworkers.web.rendering import address
from pyworkers.web.several import is_of_all, page_of_all, sites_of
from pyworkers.web.site import site_of

T = TypeVar("T")
ROWS = 50
"""The rows of one page."""
# More digits are no rank of a list that Redis can hold.
_MOST_DIGITS = 12
# A cursor is Redis' own (SSCAN, HSCAN, SCAN), a number of 64 bits.
_MOST_CURSORS = 2**64


@dataclass(frozen=True, slots=True)
class Pager:
    """Where a page is in its list. ``here``, ``previous`` and ``next`` are addresses; empty at the ends."""

    first: int
    shown: int
    total: int
    here: str
    previous: str
    next: str

    @property
    def text(self) -> str:
        """``51 to 100 of 1,003``."""
        if not self.shown:
            return f"0 of {self.total:,}"
        return f"{self.first + 1:,} to {self.first + self.shown:,} of {self.total:,}"


def first_of(request: Request) -> int:
    """The rank that the address names; 0 for anything that is none."""
    return rank_in(request.query_params.get("first", ""))


def span(request: Request, first: int | None = None) -> tuple[int, int]:
    """The first rank and the number of rows to read; in a list of all, also the rows of the pages before.

    ``first``: where the page begins; None: at the rank that the address names.
    """
    first = first_of(request) if first is None else first
    return (0, first + ROWS) if is_of_all(request) else (first, ROWS)


def rows_of(
    request: Request, found: Mapping[str, Sequence[T]], order: Callable[[T], Any], first: int | None = None
) -> dict[str, list[T]]:
    """The rows of the page, by Redis, of those that each has in its ``span``."""
    first = first_of(request) if first is None else first
    return page_of_all(found, order, first if sites_of(request).parts else 0, ROWS)


def own_of(request: Request, name: str) -> str | None:
    """The value of a parameter of the address; in a list of all for this Redis, as ``from.archive``.

    None if only others have one: this one has no more rows.
    """
    if not is_of_all(request):
        return request.query_params.get(name, "")
    given = {key: value for key, value in request.query_params.items() if key.startswith(f"{name}.")}
    return given.get(f"{name}.{site_of(request).settings.name}") if given else ""


def owns(request: Request, name: str, values: Mapping[str, str]) -> dict[str, str]:
    """The parameter with these values, by Redis, as ``own_of`` reads it; without empty ones."""
    is_all = bool(sites_of(request).parts)
    return {f"{name}.{redis}" if is_all else name: value for redis, value in values.items() if value}


def rank_in(asked: str) -> int:
    """The rank in a text; 0 for anything that is none."""
    return number_in(asked, _MOST_DIGITS) or 0


def pager(request: Request, *segments: str, total: int, **query: object) -> Pager:
    """The place of this page in a list of ``total`` rows, at the address of these segments and this query."""
    first = first_of(request)
    before, after = max(0, min(first, total) - ROWS), first + ROWS
    return Pager(
        first,
        max(0, min(ROWS, total - first)),
        total,
        address(request, *segments, **query, first=first or None),
        address(request, *segments, **query, first=before or None) if first else "",
        address(request, *segments, **query, first=after) if after < total else "",
    )


def number_of(request: Request, name: str = "cursor") -> int:
    """The number that the address names, such as a cursor; 0, the beginning, for anything that is none."""
    return cursor_in(request.query_params.get(name, ""))


def cursor_in(asked: str) -> int:
    """The number in a text; 0 for anything that is none."""
    found = number_in(asked, len(str(_MOST_CURSORS))) or 0
    return found if found < _MOST_CURSORS else 0
