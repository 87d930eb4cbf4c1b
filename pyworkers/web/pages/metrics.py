"""Metrics: by class, how many jobs ran and failed and how long they took, over an hour or a day."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import ClassMetrics
from pyworkers.api.columns import Column
from pyworkers.api.deploys import ACTIONS, DEPLOY, DEPLOYS, Deploy, merged_deploys, read_deploys, versions_of
from pyworkers.api.metrics import (
    BOUNDS_MS,
    CLASS_METRICS,
    DURATIONS,
    METRICS,
    PART,
    PERCENTILES,
    DurationsPart,
    Metrics,
    MetricsPart,
    Period,
    read_class_metrics,
    read_metrics,
    summed,
)
from pyworkers.api.parameters import Parameter, paging
from pyworkers.api.target import Steps
from pyworkers.protocol.keys import Keys
from pyworkers.web import drawing, names, tables
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.live.reader import Feed, Reader, news_of, readers_of
from pyworkers.web.names import number_in
from pyworkers.web.navigation import NAVIGATION
from pyworkers.web.paging import ROWS, rows_of, span
from pyworkers.web.rendering import address, fragment, render
from pyworkers.web.several import sites_of
from pyworkers.web.showing import milliseconds, utc
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing

_PERIOD = Parameter(
    "period", "The last hour or day.", default="hour", choices=tuple(period.value for period in Period)
)


_PLACES = ("scheduled", "retries", "dead", "finished")
"""The lists that the page of a class leads to."""
_PARTS = (
    "tiles", "runs", "runs_table", "durations", "durations_table", "histogram", "histogram_table",
)  # fmt: skip
_OfClass = tuple[ClassMetrics, list[Deploy]]
_TREND: Column[ClassMetrics] = Column("trend", title="Over time", only_shown=True)


async def show(request: Request) -> Response:
    """One page of the table of classes, those that took most time first."""
    sites, period = sites_of(request), _period(request.query_params)
    match = request.query_params.get("match", "")[:200]
    page = number_in(request.query_params.get("page", ""), 6) or 1
    first = (page - 1) * ROWS

    async def read(at: Request) -> Metrics:
        site, (begin, most) = site_of(at), span(at, first)
        return await site.read(read_metrics(site.keys, period, first=begin, count=most, match=match))

    found = await sites.each(request, read)
    rows = rows_of(request, {name: one.classes for name, one in found.items()}, _order, first)
    shown = {
        name: _listing(sites.at(request, name), period, rows[name], one.now) for name, one in found.items()
    }
    total = sum(one.total for one in found.values())
    pages = max(1, -(-total // ROWS))

    def link(number: int) -> str:
        return address(request, "metrics", period=period.value, match=match, page=number)

    return await render(
        request,
        "metrics.html",
        title="Metrics",
        period=period.value,
        match=match,
        classes=tables.joined(request, shown, _order),
        previous=link(page - 1) if page > 1 else "",
        next=link(page + 1) if page < pages else "",
        text=f"Page {page} of {pages}, {total:,} {'class' if total == 1 else 'classes'}",
    )


def _order(row: ClassMetrics) -> float:
    return -row.total_ms


def _listing(
    request: Request, period: Period, classes: Sequence[ClassMetrics], now: float
) -> Listing[ClassMetrics]:
    def linked(row: ClassMetrics) -> Markup:
        return tables.link(request, "metrics", row.job_class, period=period.value)

    html: Mapping[str, Callable[[ClassMetrics], Markup]] = {"class": linked, "trend": partial(_trend, period)}
    return Listing(request, (*CLASS_METRICS.shown(), _TREND), classes, now, html=html)


async def show_class(request: Request) -> Response:
    """The page of one class: its histogram, and its runs over the period."""
    sites, period = sites_of(request), _period(request.query_params)
    name = names.decode(request.path_params["name"])

    async def read(at: Request) -> _OfClass:
        return await site_of(at).read(_read_class_with_deploys(site_of(at).keys, name, period))

    found = (await sites.each(request, read)).values()
    return await render(
        request,
        "metrics_class.html",
        title=name,
        name=name,
        places=[(place, title) for place, title in NAVIGATION if place in _PLACES],
        feed=_feed(name, period),
        **_charts(request, period, list(found)),
    )


def _read_class_with_deploys(keys: Keys, name: str, period: Period) -> Steps[_OfClass]:
    """What the charts of a class show of one Redis."""
    found = yield from read_class_metrics(keys, name, period)
    return found, (yield from read_deploys(keys, found.parts[0].at, time.time()))


def _feed(name: str, period: Period) -> str:
    """The name of the feed of a class."""
    return f"class?{urlencode({'period': period.value, 'class': name}, errors='surrogateescape')}"


def _charts(request: Request, period: Period, known: Sequence[_OfClass]) -> dict[str, Any]:
    """The numbers and the charts of a class of all Redis servers, with their tables."""
    found = summed([one for one, _ in known])
    deploys = with_versions(request, merged_deploys(deploys for _, deploys in known))
    return {
        "found": found,
        "period": period.value,
        "percentiles": PERCENTILES,
        "runs": charts_of_parts(found.parts, marks_of(deploys, [part.at for part in found.parts])),
        "part_words": "minute" if period is Period.HOUR else "ten minutes",
        "by_run": Listing(
            request,
            PART.shown("at", "done", "failed"),
            [part for part in reversed(found.parts) if part.processed],
            time.time(),
        ),
        "histogram_chart": _histogram_chart(found),
        **_durations(request, found, deploys),
        "buckets": list(zip(bucket_names(), found.histogram, strict=True)),
    }


def parts_of_class(_reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The live parts of the page of a class, once a minute; ``parameters``: its period and its name."""
    given = dict(parse_qsl(parameters, errors="surrogateescape"))
    period, name = _period(given), given.get("class", "")
    feed, read = _feed(name, period), partial(_read_class_with_deploys, name=name, period=period)
    known = news_of(request, feed, read)
    if not known:
        return {}
    context = _charts(request, period, [*known.values()])
    return {f"{feed}:{part}": fragment(request, f"live/class_{part}.html", **context) for part in _PARTS}


def _trend(period: Period, row: ClassMetrics) -> Markup:
    return drawing.spark(row.trend, f"Runs by {'ten minutes' if period is Period.HOUR else 'hour'}")


def _period(given: Mapping[str, str]) -> Period:
    return Period.DAY if given.get("period") == "day" else Period.HOUR


def bucket_names() -> list[str]:
    """The buckets of a histogram in words: ``20 to 30 ms``."""
    bounds = list(map(milliseconds, BOUNDS_MS))
    between = [f"{low} to {high}" for low, high in pairwise(bounds)]
    return [f"below {bounds[0]}", *between, f"from {bounds[-1]}"]


class RunsChart(NamedTuple):
    """The runs of one end over time."""

    total: int
    chart: drawing.Chart


Charts = dict[str, RunsChart]
"""By ``done`` and ``failed``."""


class Runs(NamedTuple):
    """What was done and what failed in one part of a chart, and the words for it."""

    done: int
    failed: int
    at: str = ""
    """When the part begins, in ISO 8601."""
    name: str = ""
    """Its name, if it is not said by its begin."""


def runs_charts(
    parts: Sequence[Runs], past: str, ticks: Sequence[str], marks: Sequence[drawing.Mark]
) -> Charts:
    """A chart of what was done, and one of what failed, which has its own scale; and the sum of each."""
    charts: Charts = {}
    for kind in ("done", "failed"):
        numbers = [getattr(part, kind) for part in parts]
        bars = [
            drawing.Bar([(kind, number)], f"{part.name}{number:,} {kind}", part.at)
            for number, part in zip(numbers, parts, strict=True)
        ]
        label = f"Jobs {kind}: {sum(numbers)} {past}."
        charts[kind] = RunsChart(sum(numbers), drawing.bars(bars, label, ticks, marks))
    return charts


def charts_of_parts(parts: Sequence[MetricsPart], marks: Sequence[drawing.Mark]) -> Charts:
    """The charts of the parts of a period, of which there is one at least."""
    runs = [Runs(part.done, part.failed, utc(part.at)) for part in parts]
    past = f"since {utc(parts[0].at)[11:16]} UTC"
    return runs_charts(runs, past, drawing.clocks([part.at for part in parts]), marks)


def with_versions(request: Request, deploys: Sequence[Deploy]) -> list[Deploy]:
    """These deployments, and when the servers that were seen last have got their versions."""
    seen = (reader.last for reader in readers_of(request).values())
    return merged_deploys([deploys, *(versions_of(stats.servers) for stats in seen if stats)])


def marks_of(deploys: Sequence[Deploy], starts: Sequence[float]) -> list[drawing.Mark]:
    """The lines of deployments, the latest first, in a chart of parts of equal length, by their starts."""
    if len(starts) < 2:
        return []
    length = starts[1] - starts[0]
    marks = [drawing.Mark((one.at - starts[0]) / length, one.label, one.at) for one in deploys]
    return [mark for mark in marks if 0 <= mark.place < len(starts)]


def _durations(request: Request, found: ClassMetrics, deploys: Sequence[Deploy]) -> dict[str, Any]:
    """The charts of durations over time, and their table."""
    parts = found.durations
    marks = marks_of(deploys, [part.at for part in parts])
    ticks = drawing.clocks([part.at for part in parts])
    curves = [
        drawing.Curve(name, [part.percentile_ms(share) for part in parts]) for name, share in PERCENTILES
    ]
    used = [place for place, jobs in enumerate(found.histogram) if jobs] or [0]
    rows = slice(used[0], used[-1] + 1)
    bounds = bucket_names()[rows]
    label = f"Durations over time: {found.processed - found.failed} jobs."
    return {
        "percentiles_chart": drawing.steps(
            curves, [_place(part, _percentiles_of(part)) for part in parts], label, ticks, marks
        ),
        "heat_chart": drawing.heat(
            [part.histogram[rows] for part in parts],
            [_place(part, _most_of(part)) for part in parts],
            f"Jobs by time and duration, from {bounds[0]} up.",
            [bounds[-1], bounds[0]],
            ticks,
            marks,
        ),
        "by_part": Listing(
            request,
            DURATIONS.shown("at", "jobs", *(f"{name}_ms" for name, _ in PERCENTILES)),
            [part for part in reversed(parts) if part.jobs],
            parts[-1].at,
        ),
    }


def _place(part: DurationsPart, words: str) -> drawing.Bar:
    return drawing.Bar([], words, utc(part.at))


def _percentiles_of(part: DurationsPart) -> str:
    known = ((name, part.percentile_ms(share)) for name, share in PERCENTILES)
    return ", ".join(f"{name} {milliseconds(ms)}" for name, ms in known if ms is not None) or "no job"


def _most_of(part: DurationsPart) -> str:
    """The three most frequent durations of a part, in their order."""
    buckets = list(zip(bucket_names(), part.histogram, strict=True))
    most = sorted(buckets, key=lambda bucket: bucket[1])[-3:]
    return (
        ", ".join(f"{name}: {jobs:,}" for name, jobs in buckets if jobs and (name, jobs) in most) or "no job"
    )


def _histogram_chart(found: ClassMetrics) -> drawing.Chart:
    words = ", ".join(
        f"{name} {milliseconds(ms)}"
        for name, share in PERCENTILES
        if (ms := found.percentile_ms(share)) is not None
    )
    buckets = zip(bucket_names(), found.histogram, strict=True)
    bars = [drawing.Bar([("enqueued", jobs)], f"{name}: {jobs:,}") for name, jobs in buckets]
    return drawing.bars(bars, f"Jobs by duration: {words or 'none'}.", drawing.some_of(bucket_names(), 3))


async def _metrics(ask: CheckedRequest) -> dict[str, Any]:
    given = ask.given
    period, paged = Period(given["period"]), {"first": given["first"], "count": given["count"]}
    found = await ask.site.read(read_metrics(ask.keys, period, **paged, match=given["class"] or ""))
    return found.as_dict()


async def _of_class(ask: CheckedRequest) -> dict[str, Any]:
    """The metrics of a class, of all Redis servers that the address shows."""
    name, period = ask.names["class"], Period(ask.given["period"])

    async def read(at: Request) -> ClassMetrics:
        return await site_of(at).read(read_class_metrics(site_of(at).keys, name, period))

    return summed(list((await sites_of(ask.request).each(ask.request, read)).values())).as_dict()


async def _deploys(ask: CheckedRequest) -> list[dict[str, Any]]:
    now, past_s = time.time(), 86_400.0 * ask.given["days"]
    found = await ask.site.read(read_deploys(ask.keys, now - past_s, now + 60))
    return [DEPLOY.as_dict(one) for one in found]


FEEDS: Mapping[str, Feed] = {"class": parts_of_class}
ROUTES = [Route("/metrics", show), Route("/metrics/{name}", show_class)]
RESOURCES = (
    Resource(
        "/metrics",
        "The classes whose jobs ran, those with most time first.",
        _metrics,
        METRICS.schema,
        [_PERIOD, *paging(), Parameter("class", "Only classes whose name contains this text.")],
        rows="classes",
        order=lambda row: -row["total_ms"],
    ),
    Resource(
        "/metrics/{class}",
        "One class, in parts of the period.",
        _of_class,
        CLASS_METRICS.schema,
        [_PERIOD],
        whole=CLASS_METRICS.schema,
    ),
    Resource(
        "/deploys",
        "The marked deployments, at most a hundred, the latest first.",
        _deploys,
        DEPLOYS,
        [Parameter("days", "Of this many days.", kind="integer", default=30, least=1, most=90)],
        actions=ACTIONS,
        rows="",
        order=lambda row: -row["at"],
    ),
)
