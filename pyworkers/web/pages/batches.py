"""Batches: all batches with their progress, and one batch with its callbacks and members; deletes batches."""

from __future__ import annotations

import time

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import BatchSet, read_batch, read_batch_page, read_members
from pyworkers.web import names
from pyworkers.web.acting import done, perform
from pyworkers.web.cursors import cursor_of
from pyworkers.web.live.batches import STATES, context_of, listing, members_feed, members_of
from pyworkers.web.paging import ROWS, first_of, pager
from pyworkers.web.rendering import address, render
from pyworkers.web.security import form_of
from pyworkers.web.showing import cut
from pyworkers.web.site import site_of


async def show(request: Request) -> Response:
    """The table of all batches."""
    site = site_of(request)
    page = await site.read(read_batch_page(site.keys, first_of(request), ROWS))
    place = pager(request, "batches", total=page.total)
    batches = listing(request, page.batches, time.time(), f"batches?{place.first}")
    return await render(request, "batches.html", title="Batches", batches=batches, pager=place)


async def show_one(request: Request) -> Response:
    """One batch: its numbers, its callbacks, and its members in one state; or the word that it is gone."""
    site, batch = site_of(request), names.decode(request.path_params["id"])
    view = await site.read(read_batch(site.keys, batch))
    if view is None:
        text = "There is no such batch: it has expired, or was deleted."
        return await render(request, "error.html", json="", title=f"Batch {batch}", text=text)
    asked = request.query_params.get("state", "")
    state = asked if asked in STATES else _state_of_interest(view.status.dead, view.status.failed)
    cursor = cursor_of(request)
    page = await site.read(read_members(site.keys, batch, state, cursor, ROWS))
    return await render(
        request,
        "batch.html",
        title=f"Batch {batch}",
        **context_of(request, view, time.time()),
        states=STATES,
        members_feed=members_feed(batch, state, cursor),
        **members_of(request, batch, state, page),
    )


def _state_of_interest(dead: int, failed: int) -> str:
    return "dead" if dead else "failed" if failed else "waiting"


async def change(request: Request) -> Response:
    """Delete a batch."""
    batch = names.decode(request.path_params["id"])
    if form_of(request).get("action") != "delete":
        raise HTTPException(400, "This action is unknown.")
    entries = BatchSet(site_of(request).admin)
    deleted = await perform(request, "batch.delete", batch, lambda: entries.delete(batch))
    short = cut(batch, 100)
    text = f"The batch {short} is deleted." if deleted else f"The batch {short} was gone already."
    return done(request, address(request, "batches"), text)


ROUTES = [
    Route("/batches", show),
    Route("/batches/{id}", show_one),
    Route("/batches/{id}", change, methods=["POST"]),
]
