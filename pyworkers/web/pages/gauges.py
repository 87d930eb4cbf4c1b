"""Gauges: the charts of busy jobs and latencies over the last hours, on Overview and the pages of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.routing import Route

from pyworkers.api.columns import Column
from pyworkers.api.deploys import read_deploys
from pyworkers.api.gauges import GAUGES, Gauges, read_gauges
from pyworkers.api.metrics import Window
from pyworkers.api.parameters import Parameter
from pyworkers.api.schemas import MAYBE_NUMBER, NUMBER, array, record
from pyworkers.web import drawing
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.pages.metrics import marks_of
from pyworkers.web.showing import cut, duration, milliseconds, utc, visible
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
_MOST_QUEUES = 5
_MOST_SAID = 3
# Above an hour, parts of an hour say little.
_HOUR_S, _DAY_S = 3600.0, 86_400.0
_EDGES_S = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1200, _HOUR_S, 2 * _HOUR_S, 6 * _HOUR_S, 12 * _HOUR_S, _DAY_S)
_LONGEST: Column[Gauges] = Column("longest", title="Longest wait", only_shown=True)
_LATENCY: Column[Gauges] = Column("latency", title="Latency", only_shown=True)


def window_of(request: Request, default: Window = Window.QUARTER) -> Window:
    """The window that an address asks for."""
    return next((one for one in Window if one.value == request.query_params.get("range")), default)


def words_of(window: Window) -> dict[str, Any]:
    """The values of a template for the links to all windows, and for the words about one."""
    return {
        "window": window.value,
        "windows": [(one.value, words) for one, (words, _) in WINDOWS.items()],
        "window_words": WINDOWS[window][0],
        "part_words": WINDOWS[window][1],
    }


def of_all(request: Request, parts: Sequence[Gauges], marks: Sequence[drawing.Mark]) -> dict[str, Any]:
    """The values of a template for the charts of all servers and of the queues with the longest waits."""
    queues = _slowest(parts)
    return {
        "busy_chart": _busy_chart(parts, marks),
        "latency_chart": _latency_chart(parts, queues, marks),
        "slowest": [(f"q{place}", link(request, "queues", name)) for place, name in enumerate(queues, 1)],
        "by_gauge": Listing(
            request,
            (*GAUGES.shown("at", "busy", "concurrency"), _LONGEST),
            [part for part in reversed(parts) if part.busy is not None],
            parts[-1].at,
            html={"longest": partial(_longest, request)},
        ),
    }


async def of_queue(request: Request, queue: str) -> dict[str, Any]:
    """The values of a template for the chart of one queue."""
    site, window = site_of(request), window_of(request, Window.TWO_HOURS)
    parts = await site.read(read_gauges(site.keys, window))
    deploys = await site.read(read_deploys(site.keys, parts[0].at, parts[-1].at + _DAY_S))

    def latency(part: Gauges) -> Markup:
        wait = part.latency_s(queue)
        return UNKNOWN if wait is None else escape(waited(wait))

    return {
        **words_of(window),
        "ranged": "range" in request.query_params,
        "latency_chart": _latency_chart(parts, [queue], marks_of(deploys, [part.at for part in parts])),
        "by_gauge": Listing(
            request,
            (*GAUGES.shown("at"), _LATENCY),
            [part for part in reversed(parts) if part.busy is not None],
            parts[-1].at,
            html={"latency": latency},
        ),
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
    """A wait: ``1.5 s``, ``5.58 min``, ``3 h``."""
    return milliseconds(seconds * 1000) if seconds < _HOUR_S else duration(seconds)


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


ROUTES: list[Route] = []
RESOURCES = (
    Resource(
        "/gauges",
        "Busy jobs and latencies of queues over the last hours, in the same parts as the runs.",
        _gauges,
        array(GAUGES.schema),
        [RANGE],
    ),
    Resource(
        "/queues/{name}/latency",
        "The latency of one queue over the last hours, in such parts; null if unknown.",
        _latency,
        array(record("QueueLatency", {"at": NUMBER, "latency_s": MAYBE_NUMBER})),
        [RANGE],
    ),
)
