"""Appearance: the page on which a person chooses theme and time zone. It changes nothing but cookies."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers.web import appearance
from pyworkers.web.rendering import address, render

_LONGEST = 64


async def show(request: Request) -> Response:
    """The form; keeps what its address has, and shows the result."""
    query = request.query_params
    zone = query.get("zone", appearance.zone_of(request)).strip()[:_LONGEST]
    refused = "" if not zone or appearance.is_zone(zone) else "This is not a time zone, such as Europe/Paris."
    if "theme" in query and not refused:
        answer = RedirectResponse(address(request, "appearance"), status_code=303)
        theme = query["theme"]
        appearance.keep(request, answer, theme if theme in appearance.THEMES else "", zone)
        return answer
    return await render(
        request,
        "appearance.html",
        title="Appearance",
        themes=appearance.THEMES,
        typed_zone=zone,
        refused=refused,
        json="",
    )


ROUTES = [Route("/appearance", show)]
