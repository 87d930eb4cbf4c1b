"""Audit: who did what by the dashboard; the last thousand actions."""

from __future__ import annotations

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.audit import AUDIT_ACTION, read_audit
from pyworkers.api.browse.undo import DELETION, UNDO, read_deletions
from pyworkers.api.parameters import paging
from pyworkers.api.schemas import page_of
from pyworkers.web.buttons import act
from pyworkers.web.json.resources import CheckedRequest, Resource, found
from pyworkers.web.paging import ROWS, first_of, pager
from pyworkers.web.rendering import address, render
from pyworkers.web.showing import both
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing

_COLUMNS = AUDIT_ACTION.shown("action", "target", "result", "who", "source", "at")


async def show(request: Request) -> Response:
    """A page of the actions, the latest first."""
    site = site_of(request)
    page = await site.read(read_audit(site.keys, first_of(request), ROWS))
    place = pager(request, "audit", total=page.total)
    undoable = await site.read(read_deletions(site.keys)) if any(one.undo for one in page.actions) else {}
    now = time.time()
    actions = Listing(request, _COLUMNS, page.actions, now, html={"at": lambda action: both(action.at, now)})
    return await render(request, "audit.html", title="Audit", actions=actions, place=place, undoable=undoable)


async def _audit(ask: CheckedRequest) -> dict[str, Any]:
    return (await ask.site.read(read_audit(ask.keys, ask.given["first"], ask.given["count"]))).as_dict()


async def undo(request: Request) -> Response:
    """Put deleted jobs back."""
    return await act(request, [UNDO], address(request, "audit"))


async def _deletion(ask: CheckedRequest) -> dict[str, Any]:
    known = await ask.site.read(read_deletions(ask.keys))
    return DELETION.as_dict(found(known.get(ask.names["deletion"]), "deletion"))


ROUTES = [Route("/audit", show), Route("/undo/{deletion}", undo, methods=["POST"])]
RESOURCES = (
    Resource(
        "/undo/{deletion}",
        "A deletion that can be undone, for ten minutes: when it began, and its jobs that are kept or not.",
        _deletion,
        DELETION.schema,
        actions=[UNDO],
    ),
    Resource(
        "/audit",
        "The last thousand actions, the latest first.",
        _audit,
        page_of("Audit", "actions", AUDIT_ACTION.schema),
        paging(),
        rows="actions",
    ),
)
