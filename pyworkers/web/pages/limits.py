"""Limits: all limits with their use, and one limit with who holds it; frees slots, and resets limits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import LimitHolder, LimitView
from pyworkers.api.limits import (
    ACTIONS,
    HOLDER,
    LIMIT,
    LIMIT_VIEW,
    LIMITS,
    RELEASE,
    RESET,
    LimitPage,
    read_limit,
    read_limit_page,
)
from pyworkers.api.parameters import by_cursor
from pyworkers.protocol.limits import LimitStats, name_of
from pyworkers.web import names
from pyworkers.web.buttons import forms
from pyworkers.web.json.resources import CheckedRequest, Resource, found
from pyworkers.web.live.reader import Feed, Reader
from pyworkers.web.paging import ROWS, cursor_in, number_of, own_of, owns
from pyworkers.web.rendering import address, render
from pyworkers.web.several import sites_of
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, joined, link

HOLDERS = 100
"""The holders of a limit that are shown."""


async def show(request: Request) -> Response:
    """The table of limits."""
    sites, now = sites_of(request), time.time()
    pages = await sites.each(request, _read)
    cursors = owns(request, "cursor", {name: str(page.cursor or "") for name, page in pages.items()})
    # Each Redis has its own cursor, of which a feed has one.
    feed = "" if sites.parts else f"limits?{number_of(request)}"
    tables = {name: listing(sites.at(request, name), page.limits, now, feed) for name, page in pages.items()}
    return await render(
        request, "limits.html", title="Limits", limits=joined(request, tables, lambda limit: limit.key),
        total=sum(page.total for page in pages.values()),
        next=address(request, "limits", **cursors) if cursors else "",
    )  # fmt: skip


async def _read(request: Request) -> LimitPage:
    site, cursor = site_of(request), own_of(request, "cursor")
    page = await site.read(read_limit_page(site.keys, cursor_in(cursor or ""), ROWS))
    return page if cursor is not None else page._replace(cursor=0, limits=[])


async def show_one(request: Request) -> Response:
    """One limit, and who holds it; or the word that it is not in use."""
    site, key = site_of(request), names.decode(request.path_params["key"])
    view = await site.read(read_limit(site.keys, key, HOLDERS))
    now = time.time()
    if view is None:
        text = "This limit is not in use: no job has asked for it, or it was reset."
        return await render(request, "error.html", json="", title=f"Limit {key}", text=text)
    return await render(
        request, "limit.html", title=f"Limit {key}", limit=view.stats, name=name_of(key),
        reset=RESET, release=RELEASE,
        cells=listing(request, [view.stats], now).first(), holders=holders(request, view, now),
    )  # fmt: skip


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the limits of one page of the list; ``parameters``: its cursor."""
    cursor = cursor_in(parameters)
    watched = reader.watch(f"limits?{cursor}", lambda keys: read_limit_page(keys, cursor, ROWS))
    return listing(request, watched.value.limits, 0).live() if watched.value else {}


def parts_of_one(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The numbers of one limit, and its holders; ``parameters``: its key, as it is in the address.

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


async def _limits(ask: CheckedRequest) -> dict[str, Any]:
    page = await ask.site.read(read_limit_page(ask.keys, ask.given["cursor"], ask.given["count"]))
    rows = [limit.as_dict() for limit in page.limits]
    return {"cursor": page.cursor, "total": page.total, "limits": rows}


async def _limit(ask: CheckedRequest) -> dict[str, Any]:
    return found(await ask.site.read(read_limit(ask.keys, ask.names["key"])), "limit").as_dict()


FEEDS: Mapping[str, Feed] = {"limits": parts, "limit": parts_of_one}
ROUTES = [
    Route("/limits", show),
    Route("/limits/{key}", show_one),
    forms("/limits/{key}", ACTIONS),
]
RESOURCES = (
    Resource(
        "/limits", "The limits in use.", _limits, LIMITS, by_cursor(), rows="limits", order=itemgetter("name")
    ),
    Resource(
        "/limits/{key}",
        "One limit, and who holds it.",
        _limit,
        LIMIT_VIEW,
        actions=ACTIONS,
        sought=True,
    ),
)
