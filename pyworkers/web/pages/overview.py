"""Overview: the counts, what is wrong, a live graph, the history of days, the servers.

Of several Redis servers, it has the sums, with the part of each below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from statistics import fmean
from typing import Any, NamedTuple

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Day, ProcessView, Stats
from pyworkers.api.columns import REDIS, Kind
from pyworkers.api.deploys import Deploy, merged_deploys
from pyworkers.api.metrics import PART, Window, read_window
from pyworkers.api.parameters import Parameter
from pyworkers.api.problems import span
from pyworkers.api.processes import SERVER
from pyworkers.api.schemas import array, record
from pyworkers.api.stats import DAY, MOST_DAYS, STATS, read_history, read_stats
from pyworkers.api.thresholds import above_of_all
from pyworkers.web import drawing
from pyworkers.web.json.merging import with_redis
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.live.reader import Feed, Reader, reader_of, readers_of
from pyworkers.web.live.samples import KEPT, OLDEST, Rates, Samples
from pyworkers.web.pages import gauges
from pyworkers.web.pages.metrics import Charts, Runs, marks_of, runs_charts, with_versions
from pyworkers.web.pages.problems import located
from pyworkers.web.rendering import address, fragment, render
from pyworkers.web.several import COUNTS, page_of_all, sites_of
from pyworkers.web.showing import duration, number
from pyworkers.web.site import site_of
from pyworkers.web.tables import UNKNOWN, Listing, joined, link

_DAYS = (7, 30, 90)
_MOST_SERVERS = 20
_MOST_CAUSES = 3
_COLUMNS = SERVER.shown("identity", "state", "busy", "concurrency", "rss_kb", "beat")
_TILES = ("enqueued", "busy", "retries", "dead", "scheduled")
# The counts that lead to a page.
_LISTS = {"enqueued": "queues", "busy": "running"} | {name: name for name in ("scheduled", "retries", "dead")}
_EVER = ("done", "failed")
_PARTS = ("tiles", "graph", "graph_table", "problems", "servers")
Known = Mapping[str, tuple[Reader, Stats]]
"""The readers, each with the counts that it has read last, by the names of their Redis servers."""


class _Read(NamedTuple):
    """What one Redis has."""

    stats: Stats
    history: Sequence[Day]
    hours: gauges.Hours


async def show(request: Request) -> Response:
    """The page."""
    sites, asked = sites_of(request), request.query_params.get("days", "")
    days = next((choice for choice in _DAYS if str(choice) == asked), 30)
    window = gauges.window_of(request.query_params)
    found = await sites.each(request, partial(_read, days, window))
    history = [
        Day(some[0].date, sum(day.processed for day in some), sum(day.failed for day in some))
        for some in zip(*(one.history for one in found.values()), strict=False)
    ]
    hours = gauges.summed_hours([one.hours for one in found.values()])
    readers, now = readers_of(request), max(one.stats.now for one in found.values())
    return await render(
        request,
        "overview.html",
        title="Overview",
        rows_of_redis=await sites.rows(request) if sites.parts else (),
        counts_of_redis=COUNTS,
        days=len(history),
        choices=_DAYS,
        by_day=Listing(request, DAY.shown("date", "done", "failed"), history, now),
        runs_of_days=_charts_of_days(history, with_versions(request, hours.deploys)),
        **gauges.of_all(request, window, hours),
        # Of those that have answered this request, though one may be away by now.
        **_context(request, {name: (readers[name], one.stats) for name, one in found.items()}),
    )


async def _read(days: int, window: Window, request: Request) -> _Read:
    site, reader = site_of(request), reader_of(request)
    stats = await reader.read()
    await reader.causes(stats)
    history = await site.read(read_history(site.keys, days))
    hours = await site.read(gauges.read_hours(site.keys, window, days))
    if len(reader.samples.rates) < KEPT:
        is_by_minute = window is Window.QUARTER
        runs = hours.runs if is_by_minute else await site.read(read_window(site.keys, Window.QUARTER))
        reader.samples.begin(runs, stats.now)
    reader.note_deploys(hours.deploys)
    return _Read(stats, history, hours)


def _known(request: Request) -> Known:
    """Those that answer, and have been read."""
    sites = sites_of(request)
    return {
        name: (reader, reader.last)
        for name, reader in readers_of(request).items()
        if reader.last is not None and sites.by_name[name].away_since is None
    }


def _charts_of_days(days: Sequence[Day], deploys: Sequence[Deploy]) -> Charts:
    """The charts of these days, the latest of which comes first in the list and is the rightmost bar."""
    past = days[::-1]
    starts = [datetime.combine(day.date, datetime.min.time(), UTC).timestamp() for day in past]
    runs = [Runs(day.done, day.failed, name=f"{day.date}: ") for day in past]
    ticks = drawing.some_of([day.date.isoformat() for day in past], 3)
    return runs_charts(runs, f"in {len(days)} days", ticks, marks_of(deploys, starts))


def parts(_reader: Reader, request: Request, _parameters: str) -> dict[str, str]:
    """Each live part as HTML."""
    known = _known(request)
    if not known:
        return {}
    context = _context(request, known)
    return {name: fragment(request, f"live/{name}.html", **context) for name in _PARTS}


def _context(request: Request, known: Known) -> dict[str, Any]:
    """The values that the templates of the parts show."""
    causes = {name: reader.known_causes(stats) for name, (reader, stats) in known.items()}
    shown = {name: [cause for cause in some if not cause.muted] for name, some in causes.items()}
    located_causes = located(request, shown)
    deploys = merged_deploys(reader.deploys for reader, _ in known.values())
    began = max(stats.now for _, stats in known.values()) - KEPT + 1
    marks = marks_of(with_versions(request, deploys), [began + second for second in range(KEPT)])
    return {
        **tiles_of(request, known),
        "causes": located_causes[:_MOST_CAUSES],
        "more_causes": max(0, len(located_causes) - _MOST_CAUSES),
        "muted_causes": sum(map(len, causes.values())) - len(located_causes),
        **_servers(request, {name: stats for name, (_, stats) in known.items()}),
        **graph_of(rates_of_all([reader.samples.rates for reader, _ in known.values()]), marks),
    }


def _servers(request: Request, known: Mapping[str, Stats]) -> dict[str, Any]:
    """The values of the template of the servers, the busiest first."""
    sites, now = sites_of(request), max(stats.now for stats in known.values())

    def order(server: ProcessView) -> tuple[bool, int]:
        return not server.silent(now), -server.busy

    servers = {name: sorted(stats.servers, key=order) for name, stats in known.items()}
    rows = page_of_all(servers, order, 0, _MOST_SERVERS)
    tables = {
        name: Listing(sites.at(request, name), _COLUMNS, some, known[name].now) for name, some in rows.items()
    }
    return {
        "servers": joined(request, tables, order),
        "more_servers": sum(map(len, servers.values())) - sum(map(len, rows.values())),
    }


def rates_of_all(found: Sequence[list[Rates]]) -> list[Rates]:
    """The sums of the rates at all, by second from the latest one back."""
    seconds = zip_longest(*(reversed(rates) for rates in found), fillvalue=Rates())
    sums = [
        Rates(
            sum(rates.done for rates in some),
            sum(rates.failed for rates in some),
            _sum([rates.enqueued for rates in some]),
        )
        for some in seconds
    ]
    return sums[::-1]


def _sum(values: Sequence[float | None]) -> float | None:
    """None if one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def graph_of(rates: Sequence[Rates], marks: Sequence[drawing.Mark] = ()) -> dict[str, Any]:
    """The values of the template of the graph; ``rates`` by second, the latest last."""
    return {
        "latest": rates[-1] if rates else Rates(),
        **graphs(rates, marks),
        "by_ten": [(f"{ago} to {ago + seconds}", rate) for ago, seconds, rate in _by_ten(rates)],
        "collected": sum(rate.enqueued is not None for rate in rates),
        "graph_length": KEPT,
    }


def _by_ten(rates: Sequence[Rates]) -> Iterator[tuple[int, int, Rates]]:
    """The means of ten seconds each, the latest first: how many seconds ago, of how many seconds."""
    for end in range(len(rates), 0, -10):
        some = rates[max(0, end - 10) : end]
        done, failed = (fmean(getattr(rate, kind) for rate in some) for kind in ("done", "failed"))
        enqueued = [rate.enqueued for rate in some if rate.enqueued is not None]
        yield len(rates) - end, len(some), Rates(done, failed, fmean(enqueued) if enqueued else None)


class Tile(NamedTuple):
    """A number of the overview, with the words below it: how it changes, or the part of each Redis."""

    title: str
    value: Markup
    under: Markup = Markup("")
    above: str = ""
    """The threshold that it exceeds, in words."""


def tiles_of(request: Request, known: Known) -> dict[str, Any]:
    """The values of the template of the numbers."""
    every = [stats for _, stats in known.values()]
    names = dict.fromkeys((*_EVER, *(name for stats in every for name in stats.incidents())))
    return {
        "tiles": list(_tiles(request, known)),
        "ever": [
            (STATS.columns[name].title, sum(STATS.columns[name].of(stats, stats.now) for stats in every))
            for name in names
        ],
    }


def _tiles(request: Request, known: Known) -> Iterator[Tile]:
    """The numbers on which a person acts: the counts of now, and the failures of the last hour."""
    hours = {name: reader.failed_in_hours(stats) for name, (reader, stats) in known.items()}
    failed = {name: of_hour[0] for name, of_hour in hours.items() if of_hour}
    above = _above(request, known, failed)
    waiting, running, *others = (_count(request, known, name) for name in _TILES)
    yield waiting._replace(above=above.get("waiting", ""))
    yield running
    yield _oldest(request, known)._replace(above=above.get("oldest", ""))
    if failed:
        value = _linked(address(request, "errors"), sum(failed.values()))
        changes = (_more_than(*of_hour) for of_hour in hours.values() if of_hour)
        under = _by_name(failed) if sites_of(request).parts else next(changes)
        yield Tile("Failed in the last hour", value, under, above.get("failed", ""))
    yield from others


def _above(request: Request, known: Known, failed: Mapping[str, int]) -> dict[str, str]:
    """The thresholds that are exceeded, in words, by what they count."""
    found: dict[str, str] = {}
    for name, (reader, stats) in known.items():
        for measure, words in above_of_all(reader.thresholds, stats, failed.get(name)).items():
            said = f"{name}: {words}" if sites_of(request).parts else words
            found[measure] = " ".join(filter(None, (found.get(measure, ""), said)))
    return found


def _count(request: Request, known: Known, name: str) -> Tile:
    counts = {redis: getattr(stats, name) for redis, (_, stats) in known.items()}
    changes = (escape(_changed(reader.samples, name, number)) for reader, _ in known.values())
    under = _by_name(counts) if sites_of(request).parts else next(changes)
    value = _linked(address(request, _LISTS[name]), sum(counts.values()))
    return Tile(STATS.columns[name].title, value, under)


def _linked(href: str, count: int) -> Markup:
    return Markup('<a href="{}">{}</a>').format(href, number(count))


def _by_name(counts: Mapping[str, int]) -> Markup:
    """The part of each Redis: ``default 12, archive 3``."""
    return escape(", ".join(f"{name} {number(count)}" for name, count in counts.items()))


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


def _oldest(request: Request, known: Known) -> Tile:
    title, sites = STATS.columns["oldest"].title, sites_of(request)
    found = [
        (stats.oldest.latency_s(stats.now), name, stats.oldest.name)
        for name, (_, stats) in known.items()
        if stats.oldest is not None
    ]
    if not found:
        return Tile(title, UNKNOWN)
    age_s, name, queue = max(found)
    place = link(sites.at(request, name), "queues", queue)
    change = _changed(known[name][0].samples, OLDEST, duration)
    more = f" of {name}" if sites.parts else f"; {change}" if change else ""
    return Tile(title, escape(span(age_s)), Markup("in {}{}").format(place, more))


def graphs(rates: Sequence[Rates], marks: Sequence[drawing.Mark] = ()) -> dict[str, drawing.Chart]:
    """The lines over the last two minutes: of done and enqueued, and of failed, which has its own scale."""
    latest = rates[-1] if rates else Rates()
    past = "two minutes" if len(rates) >= KEPT else f"{len(rates)} seconds"
    enqueued = "" if latest.enqueued is None else f", {latest.enqueued:.0f} enqueued"
    said = {
        "graph": (("enqueued", "done"), f"{latest.done:.0f} done{enqueued}"),
        "failed_graph": (("failed",), f"{latest.failed:.0f} failed"),
    }
    places = {KEPT - ago - seconds: _said(ago, seconds, rate) for ago, seconds, rate in _by_ten(rates)}
    return {
        name: drawing.lines(
            [drawing.Curve(kind, [getattr(rate, kind) for rate in rates]) for kind in kinds],
            f"Jobs a second over the last {past}. Now {now}.",
            KEPT,
            ("2 min ago", "1 min ago", "now"),
            places,
            marks,
        )
        for name, (kinds, now) in said.items()
    }


def _said(ago: int, seconds: int, rate: Rates) -> drawing.Bar:
    """The words at ten seconds of the graph."""
    enqueued = "" if rate.enqueued is None else f", {rate.enqueued:,.1f} enqueued"
    words = f"{rate.done:,.1f} done, {rate.failed:,.1f} failed{enqueued} a second"
    return drawing.Bar((), f"{ago} to {ago + seconds} s ago: {words}", width=seconds)


async def _stats(ask: CheckedRequest) -> dict[str, Any]:
    """The counts; of several Redis servers the sums, and the rows of all, each with its Redis."""
    sites = sites_of(ask.request)

    async def read(at: Request) -> dict[str, Any]:
        stats: Stats = await site_of(at).read(read_stats(site_of(at).keys))
        return stats.as_dict()

    found = await sites.each(ask.request, read)
    if not sites.parts:
        return found[sites.own]
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
ROUTES = [Route("/", show)]
RESOURCES = (
    Resource(
        "/stats",
        "All counts: jobs by state, queues, groups and servers.",
        _stats,
        STATS.schema,
        whole=record("Stats", {name: with_redis(STATS.schema["properties"][name]) for name in _MEMBERS}),
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
