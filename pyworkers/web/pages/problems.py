"""Problems: everything that delays or endangers jobs now, by cause."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.problems import PROBLEM, problems_in, read_unsafe
from pyworkers.api.schemas import array
from pyworkers.api.stats import Stats, read_stats
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.live.stream import reader_of
from pyworkers.web.rendering import render

_MOST = 200
"""The problems of one cause that are listed."""


async def show(request: Request) -> Response:
    """The page."""
    reader = reader_of(request)
    causes = await reader.causes(await reader.read())
    return await render(request, "problems.html", title="Problems", causes=causes, most=_MOST)


async def _problems(ask: CheckedRequest) -> list[dict[str, Any]]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    unsafe = await ask.site.read(read_unsafe(ask.keys))
    return [problem.as_dict() for problem in (*problems_in(stats), *unsafe)]


ROUTES = [Route("/problems", show)]
RESOURCES = (Resource("/problems", "What delays or endangers jobs now.", _problems, array(PROBLEM.schema)),)
