"""Limits: all limits with their use, and one limit with who holds it; frees slots, and resets limits."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import LimitSet, read_limit, read_limit_page
from pyworkers.protocol.limits import name_of
from pyworkers.web import names
from pyworkers.web.acting import done, perform
from pyworkers.web.cursors import cursor_of
from pyworkers.web.live.limits import HOLDERS, holders, listing
from pyworkers.web.paging import ROWS
from pyworkers.web.rendering import address, render
from pyworkers.web.security import form_of
from pyworkers.web.showing import cut
from pyworkers.web.site import site_of


async def show(request: Request) -> Response:
    """The table of limits."""
    site = site_of(request)
    cursor = cursor_of(request)
    page = await site.read(read_limit_page(site.keys, cursor, ROWS))
    following = address(request, "limits", cursor=page.cursor) if page.cursor else ""
    limits = listing(request, page.limits, time.time(), f"limits?{cursor}")
    return await render(
        request, "limits.html", title="Limits", limits=limits, total=page.total, next=following
    )


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
        cells=listing(request, [view.stats], now).first(), holders=holders(request, view, now),
    )  # fmt: skip


async def change(request: Request) -> Response:
    """Free a slot of a limit, or reset it."""
    key, form = names.decode(request.path_params["key"]), form_of(request)
    limits, name = LimitSet(site_of(request).admin), name_of(key)
    if form.get("action") == "release":
        member = names.decode(form.get("member", ""))
        freed = await perform(
            request, "limit.release", f"{key} {member}", lambda: limits.release(key, member)
        )
        text = "The slot is free." if freed else "The slot was free already."
    elif form.get("action") == "reset":
        count = await perform(request, "limit.reset", name, lambda: limits.reset(name))
        text = f"{cut(name, 100)} is reset." if count else f"{cut(name, 100)} was not in use."
    else:
        raise HTTPException(400, "This action is unknown.")
    return done(request, address(request, "limits", key), text)


ROUTES = [
    Route("/limits", show),
    Route("/limits/{key}", show_one),
    Route("/limits/{key}", change, methods=["POST"]),
]
