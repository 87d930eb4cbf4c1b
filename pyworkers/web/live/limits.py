"""The live parts of the pages of limits: use, waiting jobs, and the holders of one that still hold it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request

from pyworkers.api import LimitHolder, read_limit, read_limit_page
from pyworkers.protocol.limits import LimitStats
from pyworkers.web import names
from pyworkers.web.cursors import cursor_in
from pyworkers.web.paging import ROWS
from pyworkers.web.rendering import macro
from pyworkers.web.showing import moment, number

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

HOLDERS = 100
"""The holders of a limit that are shown."""


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the limits of one page of the list; ``parameters``: its cursor."""
    cursor = cursor_in(parameters)
    watched = reader.watch(f"limits?{cursor}", lambda keys: read_limit_page(keys, cursor, ROWS))
    return _cells(request, *watched.value.limits) if watched.value else {}


def parts_of_one(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The numbers of one limit, and its holders; ``parameters``: its key, as it stands in the address.

    A holder that a page shows, and that has no part here, holds it no more. The part ``limit?KEY:all`` says
    so; it is missing for a rate, whose later starts come first, and if more hold it than are read.
    """
    feed = f"limit?{parameters}"
    watched = reader.watch(feed, partial(read_limit, key=names.decode(parameters), most=HOLDERS))
    view = watched.value
    if not watched.known or reader.last is None:
        return {}
    if view is None:
        return {f"{feed}:all": ""}
    now, are_all = reader.last.now, not view.stats.per_s and len(view.holders) < HOLDERS
    since = {part_of(view.stats, holder): str(moment(holder.since, now)) for holder in view.holders}
    return _cells(request, view.stats) | since | ({f"{feed}:all": ""} if are_all else {})


def part_of(limit: LimitStats, holder: LimitHolder) -> str:
    """The name of a holder in the live parts."""
    return f"{names.part(limit.key)}/{names.part(holder.member or f'{holder.identity} {holder.jid}')}"


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
