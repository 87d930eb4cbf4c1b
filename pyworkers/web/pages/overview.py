"""Overview: the counts, what is wrong, a live graph, the history of days, the servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from statistics import fmean
from typing import Any, NamedTuple

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from pyworkers.api import Day, Stats
from pyworkers.api.causes import Cause
from pyworkers.api.columns import REDIS, Kind
from pyworkers.api.deploys import Deploy
from pyworkers.api.metrics import PART, Window, read_window
from pyworkers.api.parameters import Parameter
from pyworkers.api.problems import span
from pyworkers.api.processes import SERVER
from pyworkers.api.schemas import array, record
from pyworkers.api.stats import DAY, MOST_DAYS, STATS, read_history, read_stats
from pyworkers.api.thresholds import above_of_all
from pyworkers.web import drawing
from pyworkers.web.json.merging import with_redis
from pyworkers.web.json.resources import CheckedRequest, Resource, Whole
from pyworkers.web.live.reader import Feed, Reader
from pyworkers.web.live.samples import KEPT, OLDEST, Rates, Samples
from pyworkers.web.live.stream import reader_of
from pyworkers.web.pages import gauges
from pyworkers.web.pages.metrics import marks_of, with_versions
from pyworkers.web.pages.problems import CauseAt, located
from pyworkers.web.rendering import address, fragment, render
from pyworkers.web.several import sites_of
from pyworkers.web.showing import duration, number
from pyworkers.web.site import site_of
from pyworkers.web.tables import UNKNOWN, Listing, link

_DAYS = (7, 30, 90)
MOST_SERVERS = 20
_MOST_CAUSES = 3
COLUMNS = SERVER.shown("identity", "state", "busy", "concurrency", "rss_kb", "beat")
TILES = ("enqueued", "busy", "retries", "dead", "scheduled")
# The counts that lead to a page.
LISTS = {"enqueued": "queues", "busy": "running"} | {name: name for name in ("scheduled", "retries", "dead")}
EVER = ("done", "failed")
PARTS = ("tiles", "graph", "graph_table", "problems", "servers")


async def show(request: Request) -> Response:
    """The page."""
    reader, site = reader_of(request), site_of(request)
    stats = await reader.read()
    causes = await reader.causes(stats)
    days, window = days_of(request), gauges.window_of(request.query_params)
    history = await site.read(read_history(site.keys, days))
    hours = await site.read(gauges.read_hours(site.keys, window, days))
    return await render(
        request,
        "overview.html",
        title="Overview",
        of_all=False,
        **days_charts(request, history, stats.now, hours.deploys),
        **gauges.of_all(request, window, hours),
        rows_of_redis=(),
        **context_of(request, reader, stats, causes),
    )


def days_of(request: Request) -> int:
    """The number of days that the address asks for."""
    asked = request.query_params.get("days", "")
    return next((choice for choice in _DAYS if str(choice) == asked), 30)


def days_charts(
    request: Request, history: Sequence[Day], now: float, deploys: Sequence[Deploy]
) -> dict[str, Any]:
    """The chart and the table of the days."""
    return {
        "days": len(history),
        "choices": _DAYS,
        "history": history,
        "by_day": Listing(request, DAY.shown("date", "done", "failed"), history, now),
        "history_chart": history_chart(history, with_versions(request, deploys)),
    }


def history_chart(days: Sequence[Day], deploys: Sequence[Deploy]) -> drawing.Chart:
    """The bars of these days, the latest of which comes first in the list and is the rightmost bar."""
    drawn = [
        drawing.Bar(
            [("failed", day.failed), ("done", day.done)],
            f"{day.date}: {day.done:,} done, {day.failed:,} failed",
        )
        for day in reversed(days)
    ]
    done = sum(day.done for day in days)
    failed = sum(day.failed for day in days)
    label = f"Jobs by day: {done} done and {failed} failed in {len(days)} days."
    starts = [datetime.combine(day.date, datetime.min.time(), UTC).timestamp() for day in reversed(days)]
    ticks = drawing.some_of([day.date.isoformat() for day in reversed(days)], 3)
    return drawing.bars(drawn, label, ticks, marks_of(deploys, starts))


def parts(reader: Reader, request: Request, _parameters: str) -> dict[str, str]:
    """Each part as HTML."""
    if reader.last is None:
        return {}
    context = context_of(request, reader, reader.last, reader.known_causes(reader.last))
    return {name: fragment(request, f"live/{name}.html", **context) for name in PARTS}


def context_of(request: Request, reader: Reader, stats: Stats, causes: list[Cause]) -> dict[str, Any]:
    """The values that the templates of the parts show."""
    shown = [cause for cause in causes if not cause.muted]
    busiest = sorted(stats.servers, key=lambda server: (not server.silent(stats.now), -server.busy))
    return {
        **tiles_of(request, reader, stats),
        **problems_of(located(request, {sites_of(request).own: shown}), len(causes)),
        "servers": Listing(request, COLUMNS, busiest[:MOST_SERVERS], stats.now),
        "more_servers": max(0, len(busiest) - MOST_SERVERS),
        **graph_of(reader.samples.rates),
    }


def graph_of(rates: Sequence[Rates]) -> dict[str, Any]:
    """The values of the template of the graph; ``rates`` by second, the latest last."""
    return {
        "latest": rates[-1] if rates else Rates(),
        "graph": graph(rates),
        "by_ten": [(f"{ago} to {ago + seconds}", rate) for ago, seconds, rate in _by_ten(rates)],
        "collected": len(rates),
        "graph_length": KEPT,
    }


def _by_ten(rates: Sequence[Rates]) -> Iterator[tuple[int, int, Rates]]:
    """The means of ten seconds each, the latest first: how many seconds ago, of how many seconds."""
    for end in range(len(rates), 0, -10):
        some = rates[max(0, end - 10) : end]
        done, failed, enqueued = (
            fmean(getattr(rate, kind) for rate in some) for kind in ("done", "failed", "enqueued")
        )
        yield len(rates) - end, len(some), Rates(done, failed, enqueued)


def problems_of(shown: Sequence[CauseAt], total: int) -> dict[str, Any]:
    """The values of the template of the problems: those that are not muted, of this many."""
    return {
        "causes": shown[:_MOST_CAUSES],
        "more_causes": max(0, len(shown) - _MOST_CAUSES),
        "muted_causes": total - len(shown),
    }


class Tile(NamedTuple):
    """A number of the overview, with the words below it: how it changes."""

    title: str
    value: Markup
    under: Markup = Markup("")
    above: str = ""
    """The threshold that it exceeds, in words."""


def tiles_of(request: Request, reader: Reader, stats: Stats) -> dict[str, Any]:
    """The values of the template of the numbers."""
    names = (*EVER, *stats.incidents())
    return {
        "tiles": list(_tiles(request, reader, stats)),
        "ever": [(STATS.columns[name].title, STATS.columns[name].of(stats, stats.now)) for name in names],
    }


def _tiles(request: Request, reader: Reader, stats: Stats) -> Iterator[Tile]:
    """The numbers on which a person acts: the counts of now, and the failures of the last hour."""
    failed = reader.failed_in_hours(stats)
    waiting, running, *others = (_count(request, stats, reader.samples, name) for name in TILES)
    above = above_of_all(reader.thresholds, stats, failed and failed[0])
    yield waiting._replace(above=above.get("waiting", ""))
    yield running
    yield _oldest(request, reader, stats)._replace(above=above.get("oldest", ""))
    if failed is not None:
        form = Markup('<a href="{}">{}</a>')
        value, change = form.format(address(request, "errors"), number(failed[0])), _more_than(*failed)
        yield Tile("Failed in the last hour", value, change, above.get("failed", ""))
    yield from others


def _count(request: Request, stats: Stats, samples: Samples, name: str) -> Tile:
    form = Markup('<a href="{}">{}</a>')
    value = form.format(address(request, LISTS[name]), number(getattr(stats, name)))
    return Tile(STATS.columns[name].title, value, escape(_changed(samples, name, number)))


def _changed(samples: Samples, name: str, spelled: Callable[[int], str]) -> str:
    """How a count has changed; empty if that is not known yet."""
    change = samples.change(name)
    if change is None:
        return ""
    difference, seconds = change
    sign, past = "+" if difference > 0 else "\N{MINUS SIGN}", duration(seconds)
    return f"{sign}{spelled(abs(difference))} in {past}" if difference else f"no change in {past}"


def _more_than(failed: int, before: int) -> Markup:
    if failed == before:
        return escape("as many as in the hour before")
    words = f"{number(abs(failed - before))} {'more' if failed > before else 'fewer'} than in the hour before"
    return Markup('<span class="{}">{}</span>').format("bad" if failed > before else "good", words)


def _oldest(request: Request, reader: Reader, stats: Stats) -> Tile:
    oldest, title = stats.oldest, STATS.columns["oldest"].title
    if oldest is None:
        return Tile(title, UNKNOWN)
    queue, change = link(request, "queues", oldest.name), _changed(reader.samples, OLDEST, duration)
    under = Markup("in {}{}").format(queue, f"; {change}" if change else "")
    return Tile(title, escape(span(oldest.latency_s(stats.now))), under)


def graph(rates: Sequence[Rates]) -> drawing.Chart:
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
    places = {KEPT - ago - seconds: _said(ago, seconds, rate) for ago, seconds, rate in _by_ten(rates)}
    return drawing.lines(drawn, label, KEPT, ("2 min ago", "1 min ago", "now"), places)


def _said(ago: int, seconds: int, rate: Rates) -> drawing.Bar:
    """The words at ten seconds of the graph."""
    words = f"{rate.done:,.1f} done, {rate.failed:,.1f} failed, {rate.enqueued:,.1f} enqueued a second"
    return drawing.Bar((), f"{ago} to {ago + seconds} s ago: {words}", width=seconds)


async def _stats(ask: CheckedRequest) -> dict[str, Any]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    return stats.as_dict()


async def _stats_of_all(ask: CheckedRequest) -> dict[str, Any]:
    """The sums of the counts, and the rows of all, each with its Redis."""

    async def read(at: Request) -> dict[str, Any]:
        stats: Stats = await site_of(at).read(read_stats(site_of(at).keys))
        return stats.as_dict()

    found = await sites_of(ask.request).each(ask.request, read)
    return {name: _of_all(name, {redis: one[name] for redis, one in found.items()}) for name in _MEMBERS}


def _of_all(name: str, values: Mapping[str, Any]) -> Any:
    """A member of the counts, by its values at each Redis."""
    kind = STATS.columns[name].kind
    if kind is Kind.COUNT:
        return sum(values.values())
    if kind is Kind.RECORD:
        known = [{REDIS.name: redis, **one} for redis, one in values.items() if one]
        return max(known, key=itemgetter("age_s"), default=None)
    if kind is Kind.RECORDS:
        return [{REDIS.name: redis, **row} for redis, rows in values.items() for row in rows]
    return [one for some in values.values() for one in some]


async def _history(ask: CheckedRequest) -> list[dict[str, Any]]:
    days = await ask.site.read(read_history(ask.keys, ask.given["days"]))
    return [day.as_dict() for day in days]


async def _runs(ask: CheckedRequest) -> list[dict[str, Any]]:
    parts = await ask.site.read(read_window(ask.keys, Window(ask.given["range"])))
    return [part.as_dict() for part in parts]


_MEMBERS = STATS.schema["required"]
FEEDS: Mapping[str, Feed] = {"overview": parts}
ROUTES: list[BaseRoute] = []
"""Its address is the address of ``summed``."""
RESOURCES = (
    Resource(
        "/stats",
        "All counts: jobs by state, queues, groups and servers.",
        _stats,
        STATS.schema,
        whole=Whole(
            _stats_of_all,
            record("Stats", {name: with_redis(STATS.schema["properties"][name]) for name in _MEMBERS}),
        ),
    ),
    Resource(
        "/history",
        "The counts of each day, the latest first.",
        _history,
        array(DAY.schema),
        [Parameter("days", "How many days.", "integer", 30, 1, MOST_DAYS)],
        rows="",
        order=lambda row: -int(row["date"].replace("-", "")),
    ),
    Resource(
        "/runs",
        "The runs and failures of the last hours in minutes, ten minutes (24h) or half hours (72h).",
        _runs,
        array(PART.schema),
        [gauges.RANGE],
        rows="",
        order=itemgetter("at"),
    ),
)
