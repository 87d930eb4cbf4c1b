"""The live parts of the overview: the counts, the graph, the problems, the servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.requests import Request

from pyworkers.api import Problem, Stats
from pyworkers.api.processes import SERVER
from pyworkers.web import drawing
from pyworkers.web.live.samples import KEPT, Rates, Samples
from pyworkers.web.rendering import fragment
from pyworkers.web.tables import Listing

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

_MOST_SERVERS = 20
_COLUMNS = SERVER.shown("identity", "state", "busy", "concurrency", "rss_kb", "beat")
PARTS = ("tiles", "graph", "problems", "servers")


def parts(reader: Reader, request: Request, _parameters: str) -> dict[str, str]:
    """Each part as HTML."""
    if reader.last is None:
        return {}
    context = context_of(request, reader.last, reader.known_problems, reader.samples)
    return {name: fragment(request, f"live/{name}.html", **context) for name in PARTS}


def context_of(request: Request, stats: Stats, problems: list[Problem], samples: Samples) -> dict[str, Any]:
    """The values that the templates of the parts show."""
    busiest = sorted(stats.servers, key=lambda server: (not server.silent(stats.now), -server.busy))
    return {
        "stats": stats,
        "now": stats.now,
        "problems": problems,
        "servers": Listing(request, _COLUMNS, busiest[:_MOST_SERVERS], stats.now),
        "more_servers": max(0, len(busiest) - _MOST_SERVERS),
        "latest": samples.latest,
        "graph": graph(samples.rates),
        "collected": len(samples.rates),
        "graph_length": KEPT,
        "graph_top": round(
            max((max(rate.done, rate.failed, rate.enqueued) for rate in samples.rates), default=0)
        ),
    }


def graph(rates: list[Rates]) -> Markup:
    """The lines of done, failed and enqueued over the last two minutes."""
    drawn = [
        drawing.Curve("enqueued", [rate.enqueued for rate in rates]),
        drawing.Curve("done", [rate.done for rate in rates]),
        drawing.Curve("failed", [rate.failed for rate in rates]),
    ]
    latest = rates[-1] if rates else Rates()
    past = "two minutes" if len(rates) >= KEPT else f"{len(rates)} seconds"
    label = (
        f"Jobs a second over the last {past}. Now {latest.done:.0f} done, {latest.failed:.0f} failed, "
        f"{latest.enqueued:.0f} enqueued."
    )
    return drawing.lines(drawn, label, KEPT)
