"""Overview: the counts, what is wrong, a live graph, the history of days, the servers."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Day
from pyworkers.api.stats import DAY, read_history
from pyworkers.web import drawing
from pyworkers.web.live.overview import context_of
from pyworkers.web.live.stream import reader_of
from pyworkers.web.rendering import render
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing

_DAYS = (7, 30, 90)


async def show(request: Request) -> Response:
    """The page."""
    reader, site = reader_of(request), site_of(request)
    stats = await reader.read()
    problems = await reader.problems(stats)
    asked = request.query_params.get("days", "")
    days = next((choice for choice in _DAYS if str(choice) == asked), 30)
    history = await site.read(read_history(site.keys, days))
    return await render(
        request,
        "overview.html",
        title="Overview",
        days=days,
        choices=_DAYS,
        history=history,
        by_day=Listing(request, DAY.shown("date", "done", "failed"), history, stats.now),
        history_chart=history_chart(history),
        highest=max(day.processed for day in history),
        **context_of(request, stats, problems, reader.samples),
    )


def history_chart(days: Sequence[Day]) -> Markup:
    """The bars of these days, the latest of which comes first in the list and is the rightmost bar."""
    drawn = [[("failed", day.failed), ("done", day.done)] for day in reversed(days)]
    done = sum(day.done for day in days)
    failed = sum(day.failed for day in days)
    return drawing.bars(drawn, f"Jobs by day: {done} done and {failed} failed in {len(days)} days.")


ROUTES = [Route("/", show)]
