"""Locks: the locks of unique jobs, page by page or by a text; releases them."""

from __future__ import annotations

import time
from functools import partial
from operator import itemgetter
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Lock
from pyworkers.api.locks import ACTIONS, LOCK, LOCKS, LockPage, read_lock_page
from pyworkers.api.parameters import Parameter, by_cursor
from pyworkers.web.buttons import forms
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.paging import ROWS, cursor_in, number_of, own_of, owns
from pyworkers.web.rendering import address, render
from pyworkers.web.several import sites_of
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, joined

_LONGEST = 500


async def show(request: Request) -> Response:
    """Some of the locks, and how far this page has come."""
    sites, text = sites_of(request), request.query_params.get("text", "")[:_LONGEST]
    pages = await sites.each(request, partial(_read, text))
    scanned = number_of(request, "scanned") + sum(page.scanned for page in pages.values())
    cursors = owns(request, "cursor", {name: str(page.cursor or "") for name, page in pages.items()})
    tables = {name: _listing(sites.at(request, name), page) for name, page in pages.items()}
    return await render(
        request,
        "locks.html",
        title="Locks",
        locks=joined(request, tables, lambda lock: lock.key),
        actions=ACTIONS,
        text=text,
        cursor="cursor" in request.url.query,
        scanned=scanned,
        next=address(request, "locks", text=text, **cursors, scanned=scanned) if cursors else "",
    )


async def _read(text: str, request: Request) -> LockPage:
    site, cursor = site_of(request), own_of(request, "cursor")
    if cursor is None:
        return LockPage(0, 0, [])
    return await site.read(read_lock_page(site.keys, cursor_in(cursor), ROWS, text))


def _listing(request: Request, page: LockPage) -> Listing[Lock]:
    locks = [Lock(stored, site_of(request).admin) for stored in page.locks]
    return Listing(request, LOCK.shown(), locks, time.time())


async def _locks(ask: CheckedRequest) -> dict[str, Any]:
    given = ask.given
    page = await ask.site.read(read_lock_page(ask.keys, given["cursor"], given["count"], given["text"] or ""))
    rows = [Lock(stored, ask.admin).as_dict() for stored in page.locks]
    return {"cursor": page.cursor, "scanned": page.scanned, "locks": rows}


ROUTES = [Route("/locks", show), forms("/locks", ACTIONS)]
RESOURCES = (
    Resource(
        "/locks",
        "The locks of unique jobs, in no order.",
        _locks,
        LOCKS,
        [*by_cursor(), Parameter("text", "With this text in their key, or with this jid.")],
        ACTIONS,
        rows="locks",
        order=itemgetter("key"),
    ),
)
