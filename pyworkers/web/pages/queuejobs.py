"""Jobs of a queue: what waits, the job that is popped next first."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.browse.places import Place
from pyworkers.api.queue import SWITCHES
from pyworkers.web import names
from pyworkers.web.buttons import act
from pyworkers.web.lists import pages
from pyworkers.web.rendering import own_address
from pyworkers.web.security import form_of


async def show(request: Request) -> Response:
    """The jobs of one queue."""
    return await pages.show(request, _place(request))


async def change(request: Request) -> Response:
    """Delete, kill or run first jobs of the queue; pause or resume it."""
    if form_of(request).get("action") in [action.word for action in SWITCHES]:
        return await act(request, SWITCHES, own_address(request))
    return await pages.change(request, _place(request))


def _place(request: Request) -> Place:
    return Place.of_queue(names.decode(request.path_params["name"]))


ROUTES = [Route("/queues/{name}", show), Route("/queues/{name}", change, methods=["POST"])]
