"""Problems: everything that delays or endangers jobs now, by cause."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.causes import ACTIONS
from pyworkers.api.problems import PROBLEM, problems_in, read_unsafe
from pyworkers.api.schemas import array
from pyworkers.api.stats import Stats, read_stats
from pyworkers.web.buttons import act
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.live.stream import reader_of
from pyworkers.web.rendering import own_address, render

_MOST = 200
"""The problems of one cause that are listed."""


async def show(request: Request) -> Response:
    """The page."""
    reader = reader_of(request)
    stats = await reader.read()
    await reader.causes(stats)
    await reader.read_muted(stats)
    causes = reader.known_causes(stats)
    return await render(
        request, "problems.html", title="Problems", causes=causes, most=_MOST, actions=ACTIONS
    )


async def change(request: Request) -> Response:
    """Mute a cause, or show it again."""
    return await act(request, ACTIONS, own_address(request))


async def _problems(ask: CheckedRequest) -> list[dict[str, Any]]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    unsafe = await ask.site.read(read_unsafe(ask.keys))
    above = reader_of(ask.request).above(stats)
    return [problem.as_dict() for problem in (*problems_in(stats), *above, *unsafe)]


ROUTES = [Route("/problems", show), Route("/problems", change, methods=["POST"])]
RESOURCES = (
    Resource(
        "/problems",
        "What delays or endangers jobs now.",
        _problems,
        array(PROBLEM.schema),
        actions=ACTIONS,
        rows="",
    ),
)
