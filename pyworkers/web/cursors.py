"""Cursors: where a page of an unordered list begins, and the link to the next page.

Pure, but for the request that it reads. A cursor is Redis' own (SSCAN, HSCAN, SCAN), a number of 64 bits.
"""

from __future__ import annotations

from starlette.requests import Request

from pyworkers.web.numbers import number_in

_MOST = 2**64
_MOST_DIGITS = len(str(_MOST))


def number_of(request: Request, name: str) -> int:
    """The number that the address names; 0 for anything that is none."""
    return cursor_in(request.query_params.get(name, ""))


def cursor_in(asked: str) -> int:
    """The number in a text; 0 for anything that is none."""
    found = number_in(asked, _MOST_DIGITS) or 0
    return found if found < _MOST else 0


def cursor_of(request: Request) -> int:
    """The cursor that the address names; 0, the beginning, for anything that is none."""
    return number_of(request, "cursor")
