"""Scheduled, Retries, Dead: the jobs of each set."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.browse.places import SETS, Place
from pyworkers.web.lists import pages


async def show(request: Request) -> Response:
    """The jobs of one set."""
    return await pages.show(request, _place(request))


async def change(request: Request) -> Response:
    """Run, reschedule, kill or delete jobs of the set."""
    return await pages.change(request, _place(request))


def _place(request: Request) -> Place:
    return Place(request.url.path.rstrip("/").rpartition("/")[2])


ROUTES = [
    route for word in SETS for route in (Route(f"/{word}", show), Route(f"/{word}", change, methods=["POST"]))
]
