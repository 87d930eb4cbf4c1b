"""Queues: all queues with their sizes; pause, resume and clear them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import QueueStats, Stats
from pyworkers.api.browse.actions import JobAction, Order
from pyworkers.api.browse.places import Place
from pyworkers.api.browse.tasks import Task
from pyworkers.api.columns import Column, Word
from pyworkers.api.queue import ACTIONS, CLEAR, SWITCHES
from pyworkers.api.queuestats import QUEUE, read_queue, read_trends
from pyworkers.api.schemas import array
from pyworkers.api.stats import read_stats
from pyworkers.api.thresholds import above_of_queue
from pyworkers.web import drawing, names
from pyworkers.web.buttons import act
from pyworkers.web.json.resources import Change, Changed, CheckedRequest, Resource, found, number_done
from pyworkers.web.live.reader import Feed, Reader, reader_of
from pyworkers.web.names import number_in
from pyworkers.web.pages.tasks import begin_if_long, to_task
from pyworkers.web.rendering import address, linkable, render
from pyworkers.web.security import form_of
from pyworkers.web.several import is_of_all, page_of_all, sites_of
from pyworkers.web.showing import counted, number
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, cell, joined, words

_ORDERS = (
    ("name", "by name"),
    ("size", "most waiting"),
    ("latency", "longest wait"),
    ("rate", "most jobs/min"),
)

PER_PAGE = 50
_TREND_MINUTES = 30
_TREND: Column[QueueStats] = Column(
    "trend", title="Last 30 min", only_shown=True, value=lambda _queue, _now: ""
)


async def show(request: Request) -> Response:
    """One page of the table of all queues."""
    sites, selection = sites_of(request), ShownQueues.parse(request.url.query)
    stats = await sites.each(request, lambda at: reader_of(at).read())
    now = max(one.now for one in stats.values())
    order = selection.by(now)
    found = {name: sorted(selection.of(one), key=order) for name, one in stats.items()}
    rows = page_of_all(found, order, (selection.page - 1) * PER_PAGE, PER_PAGE)

    async def read(at: Request) -> Listing[QueueStats]:
        site = site_of(at)
        name = site.settings.name
        trends = await site.read(
            read_trends(site.keys, [row.name for row in rows[name]], now, _TREND_MINUTES)
        )
        return listing(at, reader_of(at), selection, rows[name], stats[name].now, trends)

    matching = sum(map(len, found.values()))
    pages = max(1, -(-matching // PER_PAGE))
    return await render(
        request,
        "queues.html",
        title="Queues",
        actions=ACTIONS,
        selection=selection,
        orders=_ORDERS,
        total=sum(len(one.queues) for one in stats.values()),
        queues=joined(request, await sites.each(request, read), order),
        previous=_address(request, selection.page - 1) if selection.page > 1 else "",
        next=_address(request, selection.page + 1) if selection.page < pages else "",
        text=f"Page {selection.page} of {pages}, {counted(matching, 'queue')}",
    )


async def change(request: Request) -> Response:
    """Act on a queue. A long one is cleared by a task, whose page shows how far it is."""
    form = form_of(request)
    queue = names.decode(form.get("name", ""))
    if form.get("action") == CLEAR.word and (task := await _clearing(request, queue)):
        return to_task(request, task)
    return await act(request, ACTIONS, _address(request, ShownQueues.parse(request.url.query).page))


async def _clearing(request: Request, queue: str) -> Task | None:
    """The task that clears a long queue; None for a short one."""
    if not linkable(queue):
        return None
    site = site_of(request)
    facts = await site.read(read_queue(site.keys, queue))
    return await begin_if_long(request, Order(Place.of_queue(queue), JobAction.DELETE), facts.size)


def _address(request: Request, page: int) -> str:
    return f"{address(request, 'queues')}?{ShownQueues.parse(request.url.query).query(page)}"


@dataclass(frozen=True, slots=True)
class ShownQueues:
    """The rows of one page: those whose names contain ``match``, in this order."""

    match: str = ""
    order: str = "name"
    page: int = 1

    @classmethod
    def parse(cls, query: str) -> ShownQueues:
        """The selection in the query of an address; unknown values mean the first page."""
        given = {name: values[-1] for name, values in parse_qs(query, errors="surrogateescape").items()}
        order = given.get("order", "name")
        return cls(
            given.get("match", "")[:200],
            order if order in ("size", "latency", "rate") else "name",
            min(number_in(given.get("page", ""), 9) or 1, 1_000_000),
        )

    def query(self, page: int | None = None) -> str:
        """The selection as the query of an address."""
        given = {"match": self.match, "order": self.order, "page": str(page or self.page)}
        return urlencode(given, errors="surrogateescape")

    def of(self, stats: Stats) -> list[QueueStats]:
        """The queues that match."""
        return [queue for queue in stats.queues if self.match.lower() in queue.name.lower()]

    def by(self, now: float) -> Callable[[QueueStats], Any]:
        """What the queues are sorted by."""
        if self.order == "size":
            return lambda queue: -queue.size
        if self.order == "latency":
            return lambda queue: -queue.latency_s(now)
        if self.order == "rate":
            return lambda queue: -(queue.rate_per_min or 0.0)
        return lambda queue: queue.name


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the rows, as HTML."""
    stats = reader.last
    if stats is None:
        return {}
    selection = ShownQueues.parse(parameters)
    first = 0 if is_of_all(request) else (selection.page - 1) * PER_PAGE
    rows = sorted(selection.of(stats), key=selection.by(stats.now))[first : selection.page * PER_PAGE]
    return listing(request, reader, selection, rows, stats.now).live()


def listing(
    request: Request,
    reader: Reader,
    selection: ShownQueues,
    queues: Sequence[QueueStats],
    now: float,
    trends: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> Listing[QueueStats]:
    """The table of these queues. ``trends``: their runs by minute, read when the page is loaded."""

    thresholds = reader.thresholds

    def toned(name: str, measure: str, queue: QueueStats) -> Markup:
        shown = cell(request, QUEUE.columns[name], queue, now)
        is_high = measure in above_of_queue(thresholds, queue, now)
        return Markup('<span class="bad">{}</span>').format(shown) if is_high else shown

    def state(queue: QueueStats) -> Markup:
        above = [Word(text, "bad") for text in above_of_queue(thresholds, queue, now).values()]
        return words(request, [*above, *queue.words()])

    def rate(queue: QueueStats) -> Markup:
        shown, failed = (
            cell(request, QUEUE.columns["rate_per_min"], queue, now),
            round(queue.failed_per_min or 0),
        )
        form = '{} <a class="bad" href="{}">({} failed)</a>'
        return Markup(form).format(shown, address(request, "errors"), number(failed)) if failed else shown

    def trend(queue: QueueStats) -> Markup:
        return drawing.spark(trends.get(queue.name, ()), "Runs by minute")

    toned_cells = {
        "size": partial(toned, "size", "waiting"),
        "latency_s": partial(toned, "latency_s", "oldest"),
    }
    return Listing(
        request,
        (*QUEUE.shown(), _TREND),
        queues,
        now,
        key=lambda queue: names.encode(queue.name),
        feed=f"queues?{selection.query()}",
        queue_of=lambda queue: queue.name,
        html={
            "trend": trend,
            "rate_per_min": rate,
            **({**toned_cells, "state": state} if thresholds else {}),
        },
    )


async def _queues(ask: CheckedRequest) -> list[dict[str, Any]]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    return [queue.as_dict(stats.now) for queue in stats.queues]


async def _queue(ask: CheckedRequest) -> dict[str, Any]:
    stats: Stats = await ask.site.read(read_stats(ask.keys))
    named = (queue for queue in stats.queues if queue.name == ask.names["name"])
    return found(next(named, None), "queue").as_dict(stats.now)


async def _clear(ask: CheckedRequest) -> Changed:
    if task := await _clearing(ask.request, ask.names["name"]):
        return {"done": 0, "task": task.id}
    return await number_done(ask.request, CLEAR, ask.names)


FEEDS: Mapping[str, Feed] = {"queues": parts}
ROUTES = [Route("/queues", show), Route("/queues", change, methods=["POST"])]
RESOURCES = (
    Resource("/queues", "All queues.", _queues, array(QUEUE.schema), rows="", order=itemgetter("name")),
    Resource(
        "/queues/{name}",
        "One queue.",
        _queue,
        QUEUE.schema,
        actions=[
            *SWITCHES,
            Change(CLEAR.word, "Delete all waiting jobs, more than 10,000 by a task.", _clear),
        ],
        sought=True,
    ),
)
