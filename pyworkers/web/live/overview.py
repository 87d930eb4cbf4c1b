"""The live parts of the overview: the counts, the graph, the problems, the servers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.requests import Request

from pyworkers.api import Problem, Stats
from pyworkers.api.processes import SERVER
from pyworkers.api.stats import STATS
from pyworkers.web import drawing
from pyworkers.web.live.samples import KEPT, Rates, Samples
from pyworkers.web.rendering import address, fragment
from pyworkers.web.showing import duration, number
from pyworkers.web.tables import UNKNOWN, Listing, link

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

_MOST_SERVERS = 20
_COLUMNS = SERVER.shown("identity", "state", "busy", "concurrency", "rss_kb", "beat")
_TILES = ("enqueued", "busy", "oldest", "scheduled", "retries", "dead", "done", "failed")
# The counts that lead to a page.
_LISTS = {"enqueued": "queues", "busy": "running"} | {name: name for name in ("scheduled", "retries", "dead")}
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
        "counts": counts(request, stats),
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


def counts(request: Request, stats: Stats) -> Listing[Stats]:
    """The tiles."""
    html = {"oldest": partial(_oldest, request), **{name: partial(_linked, request, name) for name in _LISTS}}
    return Listing(request, STATS.shown(*_TILES, *stats.incidents()), [stats], stats.now, html=html)


def _linked(request: Request, name: str, stats: Stats) -> Markup:
    count = number(getattr(stats, name))
    return Markup('<a href="{}">{}</a>').format(address(request, _LISTS[name]), count)


def _oldest(request: Request, stats: Stats) -> Markup:
    oldest = stats.oldest
    if oldest is None:
        return UNKNOWN
    age, queue = duration(oldest.latency_s(stats.now)), link(request, "queues", oldest.name)
    return Markup('{} <span class="under">in {}</span>').format(age, queue)


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
