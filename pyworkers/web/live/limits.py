"""The live parts of the pages of limits: use, waiting jobs, and the holders of one that still hold it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request

from pyworkers.api import LimitHolder, LimitView, read_limit, read_limit_page
from pyworkers.api.limits import HOLDER, LIMIT
from pyworkers.protocol.limits import LimitStats
from pyworkers.web import names
from pyworkers.web.cursors import cursor_in
from pyworkers.web.paging import ROWS
from pyworkers.web.tables import Listing, link

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

HOLDERS = 100
"""The holders of a limit that are shown."""


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the limits of one page of the list; ``parameters``: its cursor."""
    cursor = cursor_in(parameters)
    watched = reader.watch(f"limits?{cursor}", lambda keys: read_limit_page(keys, cursor, ROWS))
    return listing(request, watched.value.limits, 0).live() if watched.value else {}


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
    cells = listing(request, [view.stats], now).live() | holders(request, view, now).live()
    return cells | ({f"{feed}:all": ""} if are_all else {})


def listing(
    request: Request, limits: Sequence[LimitStats], now: float, feed: str = ""
) -> Listing[LimitStats]:
    """The table of these limits."""
    return Listing(request, LIMIT.shown(), limits, now, key=lambda limit: names.part(limit.key), feed=feed)


def holders(request: Request, view: LimitView, now: float) -> Listing[LimitHolder]:
    """The table of who holds a limit. A start of a rate does not end."""
    ended = {} if view.stats.per_s else {"since": f"limit?{names.encode(view.stats.key)}:all"}
    return Listing(
        request,
        HOLDER.shown("jid", "identity", "since"),
        view.holders,
        now,
        key=partial(_part_of, view.stats),
        ended=ended,
        html={"identity": lambda holder: link(request, "servers", holder.identity, seen=int(now))},
    )


def _part_of(limit: LimitStats, holder: LimitHolder) -> str:
    """The name of a holder in the live parts."""
    return f"{names.part(limit.key)}/{names.part(holder.member or f'{holder.identity} {holder.jid}')}"
