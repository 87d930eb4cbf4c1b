"""Problems: everything that delays or endangers jobs now, by cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.causes import ACTIONS, Cause
from pyworkers.api.problems import PROBLEM, Severity, problems_in, read_unsafe
from pyworkers.api.schemas import array
from pyworkers.web.buttons import forms
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.live.reader import reader_of
from pyworkers.web.rendering import macro, render
from pyworkers.web.several import sites_of

_MOST = 200
"""The problems of one cause that are listed."""


async def show(request: Request) -> Response:
    """The page."""
    found = await sites_of(request).each(request, _causes)
    return await render(
        request, "problems.html", title="Problems", causes=located(request, found), most=_MOST,
        actions=ACTIONS,
    )  # fmt: skip


async def _causes(request: Request) -> list[Cause]:
    reader = reader_of(request)
    stats = await reader.read()
    await reader.causes(stats)
    await reader.read_muted(stats)
    return reader.known_causes(stats)


class CauseAt(NamedTuple):
    """A cause of problems, with its Redis in a list of all, and the macros whose links lead there."""

    cause: Cause
    redis: str
    line: Callable[..., Markup]
    one: Callable[..., Markup]
    queue: Callable[..., Markup]


def located(request: Request, found: Mapping[str, Sequence[Cause]]) -> list[CauseAt]:
    """The causes at each Redis, by its name, in the order of their severity."""
    sites, causes = sites_of(request), []
    for name, some in found.items():
        at = sites.at(request, name)
        line, one = (macro(at, "problem_macros.html", each) for each in ("line", "one"))
        queue = macro(at, "macros.html", "name_link")
        causes += [CauseAt(cause, name if sites.parts else "", line, one, queue) for cause in some]
    return sorted(causes, key=lambda one: one.cause.severity is not Severity.ERROR)


async def _problems(ask: CheckedRequest) -> list[dict[str, Any]]:
    reader = reader_of(ask.request)
    stats = await reader.read()
    unsafe = await ask.site.read(read_unsafe(ask.keys))
    above = reader.above(stats)
    return [problem.as_dict() for problem in (*problems_in(stats), *above, *unsafe)]


ROUTES = [Route("/problems", show), forms("/problems", ACTIONS)]
RESOURCES = (
    Resource(
        "/problems",
        "What delays or endangers jobs now.",
        _problems,
        array(PROBLEM.schema),
        actions=ACTIONS,
        rows="",
        order=lambda row: row["severity"] != Severity.ERROR.value,
    ),
)
