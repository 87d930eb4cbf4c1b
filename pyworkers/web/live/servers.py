"""The live parts of the pages of servers: the cells that change, and the word that a server is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from markupsafe import Markup, escape
from starlette.requests import Request

from pyworkers.api import ProcessView, ServerView
from pyworkers.api.processes import PROCESS, STATE_WORDS, state_of
from pyworkers.web import names
from pyworkers.web.paging import ROWS, rank_in
from pyworkers.web.rendering import macro
from pyworkers.web.showing import number, shown
from pyworkers.web.tables import Listing, link, words

if TYPE_CHECKING:
    from pyworkers.web.live.reader import Reader

_COLUMNS = PROCESS.shown(
    "identity", "condition", "takes", "busy", "by_state", "rss_kb", "restarted", "started_at", "version"
)
_BEAT = PROCESS.shown("beat")
_NOTICES = {
    "gone": "This server is gone: it has stopped or crashed.",
    "lost": "The lease of this server has expired: it has crashed, or it cannot reach Redis. "
    "Its jobs run again on the others.",
}


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the servers of one page of the list."""
    stats = reader.last
    if stats is None:
        return {}
    first = rank_in(parse_qs(parameters).get("first", [""])[-1])
    rows = sorted(stats.servers, key=lambda server: server.identity)[first : first + ROWS]
    return listing(request, [_view(about, stats.lost) for about in rows], stats.now).live()


def parts_of_one(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of one server; ``parameters`` is its name, as it stands in the address."""
    stats, identity = reader.last, names.decode(parameters)
    if stats is None:
        return {}
    found = next((about for about in stats.servers if about.identity == identity), None)
    if found is None:
        gone = {"condition": words(request, [STATE_WORDS["gone"]]), "notice": notice("gone", Markup(""))}
        return {f"{parameters}:{cell}": str(html) for cell, html in gone.items()}
    view = _view(found, stats.lost)
    table = listing(request, [view], stats.now)
    seen = table.first()["beat"]
    return table.live() | {f"{parameters}:notice": str(notice(state_of(view, stats.now), seen))}


def listing(request: Request, views: Sequence[ServerView], now: float, feed: str = "") -> Listing[ServerView]:
    """The table of these servers."""
    queues = macro(request, "server_macros.html", "queue_list")
    html: Mapping[str, Callable[[ServerView], Markup]] = {
        "identity": partial(_named, request),
        "takes": lambda view: queues(view.about.queues, view.active),
        "busy": lambda view: escape(f"{number(view.about.busy)} of {number(view.about.concurrency)}"),
        "version": _version,
    }
    return Listing(
        request, (*_COLUMNS, *(() if feed else _BEAT)), views, now, feed=feed, html=html,
        key=lambda view: names.encode(view.about.identity),
    )  # fmt: skip


def _named(request: Request, view: ServerView) -> Markup:
    seen = round(view.about.beat, 3) or None
    return link(request, "servers", view.about.identity, seen=seen)


def _version(view: ServerView) -> Markup:
    about = view.about
    if not about.version:
        return escape("unknown")
    return shown(f"{'pyworkers ' if about.look is not None else ''}{about.version}", 40)


def notice(state: str, seen: Markup) -> Markup:
    """The words about a server that does not run, with the time of its last sign; else empty."""
    if state not in _NOTICES:
        return Markup("")
    last = Markup(" It was last seen {}.").format(seen) if seen else ""
    return Markup('<p class="flash failed" role="status">{}{}</p>').format(_NOTICES[state], last)


def _view(about: ProcessView, lost: Sequence[str]) -> ServerView:
    return ServerView(about, registered=True, leased=False if about.identity in lost else None)
