"""Paging: the rank or cursor at which a page of a list begins, and the addresses of its neighbours.

Pure, but for the request that it reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from pyworkers.web.names import number_in
from pyworkers.web.rendering import address

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


def number_of(request: Request, name: str) -> int:
    """The number that the address names; 0 for anything that is none."""
    return cursor_in(request.query_params.get(name, ""))


def cursor_in(asked: str) -> int:
    """The number in a text; 0 for anything that is none."""
    found = number_in(asked, len(str(_MOST_CURSORS))) or 0
    return found if found < _MOST_CURSORS else 0


def cursor_of(request: Request) -> int:
    """The cursor that the address names; 0, the beginning, for anything that is none."""
    return number_of(request, "cursor")
