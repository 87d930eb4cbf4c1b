"""Audit: who did what by the dashboard; the last thousand actions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.audit import read_audit
from pyworkers.web.paging import ROWS, first_of, pager
from pyworkers.web.rendering import render
from pyworkers.web.site import site_of


async def show(request: Request) -> Response:
    """A page of the actions, the latest first."""
    site = site_of(request)
    found = await site.read(read_audit(site.keys, first_of(request), ROWS))
    place = pager(request, "audit", total=found.total)
    return await render(request, "audit.html", title="Audit", actions=found.actions, place=place)


ROUTES = [Route("/audit", show)]
