"""Summed: the overview of several Redis servers: their counts as sums with each part, problems and servers.

Runs in the event loop of the dashboard. With one Redis, the overview is ``overview``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Day, ProcessView, Stats
from pyworkers.api.metrics import Window
from pyworkers.api.problems import span
from pyworkers.api.stats import STATS, read_history
from pyworkers.api.thresholds import above_of_all
from pyworkers.web.live.reader import Feed, Reader, readers_at
from pyworkers.web.live.samples import Rates
from pyworkers.web.live.stream import reader_of
from pyworkers.web.pages import gauges, overview
from pyworkers.web.pages.overview import Tile
from pyworkers.web.pages.problems import located
from pyworkers.web.rendering import address, fragment, render
from pyworkers.web.several import COUNTS, page_of_all, sites_of
from pyworkers.web.showing import number
from pyworkers.web.site import site_of
from pyworkers.web.tables import UNKNOWN, Listing, joined, link


class _Read(NamedTuple):
    """What one Redis has."""

    at: float
    history: Sequence[Day]
    hours: gauges.Hours


async def show(request: Request) -> Response:
    """The page; the page of one Redis if there are no others."""
    sites = sites_of(request)
    if not sites.parts:
        return await overview.show(request)
    days, window = overview.days_of(request), gauges.window_of(request.query_params)
    found = list((await sites.each(request, partial(_read, days, window))).values())
    now = max(one.at for one in found)
    history = [
        Day(some[0].date, sum(day.processed for day in some), sum(day.failed for day in some))
        for some in zip(*(one.history for one in found), strict=False)
    ]
    hours = gauges.summed_hours([one.hours for one in found])
    return await render(
        request,
        "overview.html",
        title="Overview",
        of_all=True,
        rows_of_redis=await sites.rows(request),
        counts_of_redis=COUNTS,
        **gauges.of_all(request, window, hours),
        **overview.days_charts(request, history, now, hours.deploys),
        **_context(request),
    )


async def _read(days: int, window: Window, request: Request) -> _Read:
    site, reader = site_of(request), reader_of(request)
    stats = await reader.read()
    await reader.causes(stats)
    history = await site.read(read_history(site.keys, days))
    return _Read(stats.now, history, await site.read(gauges.read_hours(site.keys, window, days)))


def parts(_reader: Reader, request: Request, _parameters: str) -> dict[str, str]:
    """Each live part as HTML."""
    context = _context(request)
    return {name: fragment(request, f"live/{name}.html", **context) for name in overview.PARTS}


def _context(request: Request) -> dict[str, Any]:
    """The values of the templates of the parts, from what the readers of those that answer have read."""
    sites = sites_of(request)
    there = {
        name: (reader, reader.last)
        for name, reader in readers_at(request).items()
        if reader.last is not None and sites.by_name[name].away_since is None
    }
    stats = {name: last for name, (_, last) in there.items()}
    causes = {name: reader.known_causes(last) for name, (reader, last) in there.items()}
    shown = {name: [cause for cause in some if not cause.muted] for name, some in causes.items()}
    rows = page_of_all(
        {name: sorted(one.servers, key=_busiest) for name, one in stats.items()},
        _busiest,
        0,
        overview.MOST_SERVERS,
    )
    tables = {
        name: Listing(sites.at(request, name), overview.COLUMNS, some, stats[name].now)
        for name, some in rows.items()
    }
    names = dict.fromkeys((*overview.EVER, *(name for one in stats.values() for name in one.incidents())))
    return {
        "tiles": list(_tiles(request, there)),
        "ever": [
            (STATS.columns[name].title, sum(STATS.columns[name].of(one, one.now) for one in stats.values()))
            for name in names
        ],
        "servers": joined(request, tables, _busiest) if tables else (),
        "more_servers": sum(len(one.servers) for one in stats.values()) - sum(map(len, rows.values())),
        **overview.problems_of(located(request, shown), sum(map(len, causes.values()))),
        **overview.graph_of(rates_of_all([reader.samples.rates for reader, _ in there.values()])),
    }


def rates_of_all(found: Sequence[list[Rates]]) -> list[Rates]:
    """The sums of the rates at all, by second from the latest one back."""
    seconds = zip_longest(*(reversed(rates) for rates in found), fillvalue=Rates())
    sums = [
        Rates(
            sum(rates.done for rates in some),
            sum(rates.failed for rates in some),
            sum(rates.enqueued for rates in some),
        )
        for some in seconds
    ]
    return sums[::-1]


def _busiest(server: ProcessView) -> int:
    return -server.busy


def _tiles(request: Request, there: Mapping[str, tuple[Reader, Stats]]) -> Iterator[Tile]:
    """The sums, each with its parts below."""
    above: dict[str, str] = {}
    failed: dict[str, int] = {}
    for name, (reader, stats) in there.items():
        hours = reader.failed_in_hours(stats)
        failed |= {name: hours[0]} if hours else {}
        for measure, text in above_of_all(reader.thresholds, stats, hours and hours[0]).items():
            above[measure] = " ".join(filter(None, (above.get(measure, ""), f"{name}: {text}")))
    waiting, running, *others = (
        _summed(request, column, {name: getattr(stats, column) for name, (_, stats) in there.items()})
        for column in overview.TILES
    )
    yield waiting._replace(above=above.get("waiting", ""))
    yield running
    yield _oldest(request, there)._replace(above=above.get("oldest", ""))
    if failed:
        total = escape(number(sum(failed.values())))
        yield Tile("Failed in the last hour", total, _by_name(failed), above.get("failed", ""))
    yield from others


def _summed(request: Request, name: str, counts: Mapping[str, int]) -> Tile:
    form = Markup('<a href="{}">{}</a>')
    value = form.format(address(request, overview.LISTS[name]), number(sum(counts.values())))
    return Tile(STATS.columns[name].title, value, _by_name(counts))


def _by_name(counts: Mapping[str, int]) -> Markup:
    """The part of each Redis: ``default 12, archive 3``."""
    return escape(", ".join(f"{name} {number(count)}" for name, count in counts.items()))


def _oldest(request: Request, there: Mapping[str, tuple[Reader, Stats]]) -> Tile:
    title = STATS.columns["oldest"].title
    found = [
        (stats.oldest.latency_s(stats.now), name, stats.oldest.name)
        for name, (_, stats) in there.items()
        if stats.oldest is not None
    ]
    if not found:
        return Tile(title, UNKNOWN)
    age_s, name, queue = max(found)
    place = link(sites_of(request).at(request, name), "queues", queue)
    return Tile(title, escape(span(age_s)), Markup("in {} of {}").format(place, name))


FEEDS: Mapping[str, Feed] = {"summed": parts}
ROUTES = [Route("/", show)]
