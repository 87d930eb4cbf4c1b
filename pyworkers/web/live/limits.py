"""The live parts of the pages of limits: how much of each is in use, and how many jobs wait for it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request

from pyworkers.api import read_limit, read_limit_page
from pyworkers.protocol.limits import LimitStats
from pyworkers.web import names
from pyworkers.web.cursors import cursor_in
from pyworkers.web.paging import ROWS
from pyworkers.web.rendering import macro
from pyworkers.web.showing import number

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the limits of one page of the list; ``parameters``: its cursor."""
    cursor = cursor_in(parameters)
    watched = reader.watch(f"limits?{cursor}", lambda keys: read_limit_page(keys, cursor, ROWS))
    return _cells(request, *watched.value.limits) if watched.value else {}


def parts_of_one(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The numbers of one limit; ``parameters``: its key, as it stands in the address."""
    read = partial(read_limit, key=names.decode(parameters), most=1)
    watched = reader.watch(f"limit?{parameters}", read)
    return _cells(request, watched.value.stats) if watched.value else {}


def _cells(request: Request, *limits: LimitStats) -> dict[str, str]:
    bar = macro(request, "limit_macros.html", "limit_bar")
    return {
        f"{names.part(limit.key)}:{cell}": html
        for limit in limits
        for cell, html in (
            ("bar", bar(limit)),
            ("used", number(limit.used)),
            ("waiting", number(limit.waiting)),
        )
    }
