"""Gauges: the charts of the last hours, on Overview and the pages of queues: runs, latencies, busy jobs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.routing import Route

from pyworkers.api.columns import Column
from pyworkers.api.deploys import Deploy, merged_deploys, read_deploys
from pyworkers.api.gauges import GAUGES, Gauges, read_gauges, summed_gauges
from pyworkers.api.metrics import PART, MetricsPart, Window, read_window, summed_parts
from pyworkers.api.parameters import Parameter
from pyworkers.api.problems import span
from pyworkers.api.schemas import MAYBE_NUMBER, NUMBER, array, record
from pyworkers.api.target import Steps
from pyworkers.protocol.keys import Keys
from pyworkers.web import drawing
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.live.reader import MINUTE_S, Feed, Reader, news_of, readers_of
from pyworkers.web.pages.metrics import charts_of_parts, marks_of, with_versions
from pyworkers.web.rendering import fragment
from pyworkers.web.showing import cut, milliseconds, utc, visible
from pyworkers.web.site import site_of
from pyworkers.web.tables import UNKNOWN, Listing, link

WINDOWS: Mapping[Window, tuple[str, str]] = {
    Window.QUARTER: ("15 minutes", "minute"),
    Window.TWO_HOURS: ("2 hours", "minute"),
    Window.DAY: ("24 hours", "ten minutes"),
    Window.THREE_DAYS: ("72 hours", "half an hour"),
}
"""Each window in words, and its parts."""
RANGE = Parameter(
    "range",
    "The last minutes or hours.",
    default=Window.QUARTER.value,
    choices=tuple(window.value for window in Window),
)
_PARTS = ("runs", "runs_table", "gauges", "gauges_table")
_MOST_QUEUES = 5
_MOST_SAID = 3
# Above an hour, parts of an hour say little.
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_EDGES_S = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, _HOUR_S, 2 * _HOUR_S, 6 * _HOUR_S, 12 * _HOUR_S, _DAY_S)
_LONGEST: Column[Gauges] = Column("longest", title="Longest wait", only_shown=True)
_LATENCY: Column[Gauges] = Column("latency", title="Latency", only_shown=True)


class Hours(NamedTuple):
    """What the charts of the overview show: two lists of equal parts, and deployments, also older ones."""

    runs: Sequence[MetricsPart]
    gauges: Sequence[Gauges]
    deploys: Sequence[Deploy]


def window_of(given: Mapping[str, str], default: Window = Window.QUARTER) -> Window:
    """The window that these parameters of an address or of a feed ask for."""
    return next((one for one in Window if one.value == given.get("range")), default)


def read_hours(keys: Keys, window: Window, days: int = 0) -> Steps[Hours]:
    """Read the charts of one Redis; the deployments of this many days at least."""
    runs = yield from read_window(keys, window)
    return Hours(runs, *(yield from _read_gauges(keys, window, days)))


def _read_gauges(keys: Keys, window: Window, days: int = 0) -> Steps[tuple[list[Gauges], list[Deploy]]]:
    """Read the gauges of a window, with the deployments."""
    found = yield from read_gauges(keys, window)
    since, last = min(found[0].at, found[-1].at - days * _DAY_S), found[-1].at
    return found, (yield from read_deploys(keys, since, last + _DAY_S))


def summed_hours(found: Sequence[Hours]) -> Hours:
    """The charts of several Redis servers as one."""
    runs = summed_parts(one.runs for one in found)
    gauges = summed_gauges(one.gauges for one in found)
    return Hours(runs, gauges, merged_deploys(one.deploys for one in found))


def words_of(window: Window) -> dict[str, Any]:
    """The values of a template for the links to all windows, and for the words about one."""
    return {
        "window": window.value,
        "windows": [(one.value, words) for one, (words, _) in WINDOWS.items()],
        "window_words": WINDOWS[window][0],
        "part_words": WINDOWS[window][1],
    }


def of_all(request: Request, window: Window, hours: Hours) -> dict[str, Any]:
    """The charts of the runs, of busy jobs, and of the queues with the longest waits, with their tables."""
    runs, gauges = hours.runs, hours.gauges
    marks = marks_of(with_versions(request, hours.deploys), [part.at for part in gauges])
    queues = _slowest(gauges)
    return {
        **words_of(window),
        "hours_feed": _feed("hours", window),
        "runs": charts_of_parts(runs, marks),
        "busy_chart": _busy_chart(gauges, marks),
        "latency_chart": _latency_chart(gauges, queues, marks),
        "slowest": [(f"q{place}", link(request, "queues", name)) for place, name in enumerate(queues, 1)],
        "noted": _noted(gauges),
        "by_part": Listing(request, PART.shown("at", "done", "failed"), runs[::-1], time.time()),
        "by_gauge": Listing(
            request,
            (*GAUGES.shown("at", "busy", "concurrency"), _LONGEST),
            [part for part in reversed(gauges) if part.busy is not None],
            time.time(),
            html={"longest": partial(_longest, request)},
        ),
    }


def parts_of_all(_reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The charts of the overview of one Redis, or of all, once a minute; ``parameters``: their range."""
    window = window_of(dict(parse_qsl(parameters)))
    feed = _feed("hours", window)
    found = news_of(request, feed, partial(read_hours, window=window))
    if not found:
        return {}
    for name, hours in found.items():
        readers_of(request)[name].note_deploys(hours.deploys)
    context = of_all(request, window, summed_hours([*found.values()]))
    return {f"{feed}:{name}": fragment(request, f"live/{name}.html", **context) for name in _PARTS}


def parts_of_queue(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The chart of a queue, once a minute; ``parameters``: its range and the queue."""
    given = dict(parse_qsl(parameters, errors="surrogateescape"))
    window, queue = window_of(given), given.get("queue", "")
    watched = reader.watch(f"latency?{window.value}", partial(_read_gauges, window=window), MINUTE_S)
    if watched.value is None or not watched.is_news():
        return {}
    context = {**words_of(window), **_chart_of(request, queue, *watched.value)}
    feed = _feed("latency", window, queue=queue)
    return {
        feed: fragment(request, "live/latency.html", **context),
        f"{feed}:table": fragment(request, "live/gauges_table.html", **context),
    }


def _feed(kind: str, window: Window, **parameters: str) -> str:
    """The name of a feed."""
    return f"{kind}?{urlencode({'range': window.value, **parameters}, errors='surrogateescape')}"


def _noted(parts: Sequence[Gauges]) -> bool:
    """True if a server has noted gauges."""
    return any(part.busy is not None for part in parts)


def _chart_of(
    request: Request, queue: str, parts: Sequence[Gauges], deploys: Sequence[Deploy]
) -> dict[str, Any]:
    """The chart of one queue, with its table."""
    marks = marks_of(with_versions(request, deploys), [part.at for part in parts])

    def latency(part: Gauges) -> Markup:
        wait = part.latency_s(queue)
        return UNKNOWN if wait is None else escape(waited(wait))

    return {
        "latency_chart": _latency_chart(parts, [queue], marks),
        "noted": _noted(parts),
        "by_gauge": Listing(
            request,
            (*GAUGES.shown("at"), _LATENCY),
            [part for part in reversed(parts) if part.busy is not None],
            time.time(),
            html={"latency": latency},
        ),
    }


async def of_queue(request: Request, queue: str) -> dict[str, Any]:
    """The values of a template for the chart of one queue."""
    site, window = site_of(request), window_of(request.query_params, Window.TWO_HOURS)
    parts, deploys = await site.read(_read_gauges(site.keys, window))
    return {
        **words_of(window),
        "ranged": "range" in request.query_params,
        "latency_feed": _feed("latency", window, queue=queue),
        **_chart_of(request, queue, parts, deploys),
    }


def _slowest(parts: Sequence[Gauges]) -> list[str]:
    """The queues with the longest waits of all parts, the longest first."""
    highest: dict[str, float] = {}
    for part in parts:
        for queue, wait in part.latencies_s.items():
            highest[queue] = max(wait, highest.get(queue, 0.0))
    return sorted(highest, key=lambda queue: -highest[queue])[:_MOST_QUEUES]


def _busy_chart(parts: Sequence[Gauges], marks: Sequence[drawing.Mark]) -> drawing.Chart:
    curves = [
        drawing.Curve("of", [part.concurrency for part in parts]),
        drawing.Curve("busy", [part.busy for part in parts]),
    ]
    label = f"Busy jobs of all servers since {utc(parts[0].at)[11:16]} UTC: {_words_of_busy(parts[-1])}."
    places = [drawing.Bar([], _words_of_busy(part), utc(part.at)) for part in parts]
    return drawing.steps(curves, places, label, _ticks(parts), marks)


def _words_of_busy(part: Gauges) -> str:
    return "unknown" if part.busy is None else f"{part.busy:,.4g} of {part.concurrency:,} busy"


def _latency_chart(
    parts: Sequence[Gauges], queues: Sequence[str], marks: Sequence[drawing.Mark]
) -> drawing.Chart:
    curves = [
        drawing.Curve(f"q{place}", [part.latency_s(queue) for part in parts])
        for place, queue in enumerate(queues, 1)
    ]
    top = edge_s(max((value for curve in curves for value in curve.values if value is not None), default=0.0))
    places = [drawing.Bar([], _words_of_waits(part, queues), utc(part.at)) for part in parts]
    label = f"Latency since {utc(parts[0].at)[11:16]} UTC: {_words_of_waits(parts[-1], queues)}."
    chart = drawing.steps(curves, places, label, _ticks(parts), marks, top)
    return replace(chart, words=[waited(top), waited(top / 2), "0"])


def _words_of_waits(part: Gauges, queues: Sequence[str]) -> str:
    """The longest waits of these queues in words."""
    if part.busy is None:
        return "unknown"
    if len(queues) == 1:
        wait = part.latency_s(queues[0])
        return "unknown" if wait is None else waited(wait) if wait else "no job waited"
    waits = [(part.latencies_s[queue], queue) for queue in queues if queue in part.latencies_s]
    said = [f"{visible(cut(queue, 40))} {waited(wait)}" for wait, queue in sorted(waits, reverse=True)]
    return ", ".join(said[:_MOST_SAID]) or "no job waited"


def _ticks(parts: Sequence[Gauges]) -> Sequence[str]:
    return drawing.clocks([part.at for part in parts])


def _longest(request: Request, part: Gauges) -> Markup:
    if not part.queue:
        return UNKNOWN if part.left_out else escape("no job waited")
    return Markup("{} in {}").format(
        waited(part.latencies_s[part.queue]), link(request, "queues", part.queue)
    )


def waited(seconds: float) -> str:
    """A wait: ``1.5 s``, ``5.58 min``, ``90 min``."""
    return milliseconds(seconds * 1000) if seconds < _HOUR_S else span(seconds)


def edge_s(highest: float) -> float:
    """A round length of time that is not below the highest one, in seconds."""
    for edge in _EDGES_S:
        if highest <= edge:
            return float(edge)
    return drawing.edge(highest / _DAY_S) * _DAY_S


async def _gauges(ask: CheckedRequest) -> list[dict[str, Any]]:
    parts = await ask.site.read(read_gauges(ask.keys, Window(ask.given["range"])))
    return [part.as_dict() for part in parts]


async def _latency(ask: CheckedRequest) -> list[dict[str, Any]]:
    parts = await ask.site.read(read_gauges(ask.keys, Window(ask.given["range"])))
    return [{"at": part.at, "latency_s": part.latency_s(ask.names["name"])} for part in parts]


FEEDS: Mapping[str, Feed] = {"hours": parts_of_all, "latency": parts_of_queue}
ROUTES: list[Route] = []
RESOURCES = (
    Resource(
        "/gauges",
        "Busy jobs and latencies of queues over the last hours, in the same parts as the runs.",
        _gauges,
        array(GAUGES.schema),
        [RANGE],
        rows="",
        order=itemgetter("at"),
    ),
    Resource(
        "/queues/{name}/latency",
        "The latency of one queue over the last hours, in such parts; null if unknown.",
        _latency,
        array(record("QueueLatency", {"at": NUMBER, "latency_s": MAYBE_NUMBER})),
        [RANGE],
        rows="",
        order=itemgetter("at"),
    ),
)
