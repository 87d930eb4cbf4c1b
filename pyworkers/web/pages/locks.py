"""Locks: the locks of unique jobs, page by page or by a text; releases them."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Lock
from pyworkers.api.locks import ACTIONS, LOCK, LOCKS, read_lock_page
from pyworkers.api.parameters import Parameter, by_cursor
from pyworkers.web.buttons import act
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.paging import ROWS, cursor_of, number_of
from pyworkers.web.rendering import address, own_address, render
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing

_LONGEST = 500


async def show(request: Request) -> Response:
    """Some of the locks, and how far this page has come."""
    site, text = site_of(request), request.query_params.get("text", "")[:_LONGEST]
    cursor = cursor_of(request)
    page = await site.read(read_lock_page(site.keys, cursor, ROWS, text))
    scanned = number_of(request, "scanned") + page.scanned
    following = (
        address(request, "locks", text=text, cursor=page.cursor, scanned=scanned) if page.cursor else ""
    )
    locks = [Lock(stored, site.admin) for stored in page.locks]
    return await render(
        request,
        "locks.html",
        title="Locks",
        locks=Listing(request, LOCK.shown(), locks, time.time()),
        actions=ACTIONS,
        text=text,
        cursor=cursor,
        scanned=scanned,
        next=following,
    )


async def change(request: Request) -> Response:
    """Release a lock, if the job that the viewer saw still holds it."""
    return await act(request, ACTIONS, own_address(request))


async def _locks(ask: CheckedRequest) -> dict[str, Any]:
    given = ask.given
    page = await ask.site.read(read_lock_page(ask.keys, given["cursor"], given["count"], given["text"] or ""))
    rows = [Lock(stored, ask.admin).as_dict() for stored in page.locks]
    return {"cursor": page.cursor, "scanned": page.scanned, "locks": rows}


ROUTES = [Route("/locks", show), Route("/locks", change, methods=["POST"])]
RESOURCES = (
    Resource(
        "/locks",
        "The locks of unique jobs, in no order.",
        _locks,
        LOCKS,
        [*by_cursor(), Parameter("text", "With this text in their key, or with this jid.")],
        ACTIONS,
        rows="locks",
    ),
)
