"""The live parts of the page of all queues: the cells of each row that it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

from markupsafe import Markup, escape
from starlette.requests import Request

from pyworkers.api import QueueStats, Stats
from pyworkers.web import names
from pyworkers.web.numbers import number_in
from pyworkers.web.rendering import address, linkable
from pyworkers.web.showing import duration, number, shown

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

PER_PAGE = 50


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of one page: those whose names contain ``match``, in this order."""

    match: str = ""
    order: str = "name"
    page: int = 1

    @classmethod
    def parse(cls, query: str) -> Selection:
        """The selection in the query of an address; unknown values are those of the first page."""
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

    def of(self, stats: Stats) -> tuple[list[QueueStats], int]:
        """The queues of this page, and the number of all that match."""
        found = [queue for queue in stats.queues if self.match.lower() in queue.name.lower()]
        if self.order == "size":
            found.sort(key=lambda queue: -queue.size)
        elif self.order == "latency":
            found.sort(key=lambda queue: -queue.latency_s(stats.now))
        elif self.order == "rate":
            found.sort(key=lambda queue: -(queue.rate_per_min or 0.0))
        first = (self.page - 1) * PER_PAGE
        return found[first : first + PER_PAGE], len(found)


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the rows, as HTML."""
    stats = reader.last
    if stats is None:
        return {}
    rows, _ = Selection.parse(parameters).of(stats)
    servers = servers_by_queue(stats)
    return {
        f"{names.encode(queue.name)}:{cell}": str(html)
        for queue in rows
        for cell, html in cells(request, queue, stats.now, servers.get(queue.name, 0)).items()
    }


def cells(request: Request, queue: QueueStats, now: float, servers: int) -> dict[str, Markup]:
    """The cells of a row that change, by name."""
    rate = queue.rate_per_min
    return {
        "size": escape(number(queue.size)),
        "latency": escape(duration(queue.latency_s(now)) if queue.size else "\N{EN DASH}"),
        "rate": escape(number(None if rate is None else round(rate))),
        "running": escape(number(queue.in_progress)),
        "servers": escape(number(servers)),
        "state": state_of(request, queue),
    }


def state_of(request: Request, queue: QueueStats) -> Markup:
    """Whether its jobs run; of an ordered queue also where, as a link."""
    if queue.paused:
        return Markup('<span class="warn">paused</span>')
    if not queue.served:
        return Markup('<span class="{}">not served</span>').format("bad" if queue.size else "note")
    if queue.active:
        name = shown(queue.active)
        if linkable(queue.active):
            name = Markup('<a href="{}">{}</a>').format(address(request, "servers", queue.active), name)
        held = Markup(', <span class="warn">held by its head</span>') if queue.head else ""
        return Markup("in order, on {}{}").format(name, held)
    return Markup("runs")


def servers_by_queue(stats: Stats) -> dict[str, int]:
    """The number of servers with a recent heartbeat that take jobs from each queue."""
    found: dict[str, int] = {}
    for server in stats.servers:
        if server.takes(stats.now):
            for queue in server.queues:
                found[queue] = found.get(queue, 0) + 1
    return found
