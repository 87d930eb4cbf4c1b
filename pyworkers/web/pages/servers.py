"""Servers: all servers of all languages, and one of them; quiet, stop and reload them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qs

from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import ProcessView, ServerView
from pyworkers.api.groups import by_state
from pyworkers.api.parameters import paging
from pyworkers.api.processes import (
    ACTIONS,
    ACTIONS_ON_ALL,
    PROCESS,
    PROCESSES,
    STATE_WORDS,
    WORKER,
    ProcessPage,
    read_process,
    read_processes,
    request_numbers,
    state_of,
)
from pyworkers.api.running import CANCEL, read_held, read_works
from pyworkers.web import names
from pyworkers.web.buttons import act, ask
from pyworkers.web.json.resources import CheckedRequest, Resource, found
from pyworkers.web.live.reader import Feed, Reader
from pyworkers.web.pages import running
from pyworkers.web.paging import ROWS, first_of, pager, rank_in, rows_of, span
from pyworkers.web.rendering import address, macro, own_address, render
from pyworkers.web.security import form_of, viewer_of
from pyworkers.web.several import is_of_all, sites_of
from pyworkers.web.showing import number, shown, visible
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, joined, link, words

_WORKER_COLUMNS = WORKER.shown("pid", "group", "state", "rss_kb", "jobs_done", "started_at")
_COLUMNS = PROCESS.shown(
    "identity", "condition", "queues", "busy", "by_state", "rss_kb", "restarted", "started_at", "version"
)
_BEAT = PROCESS.shown("beat")
# In these states, a server has stopped to say what it runs.
_OVER = ("gone", "lost", "silent")
_NOTICES = {
    "gone": "This server is gone: it has stopped or crashed.",
    "lost": "The lease of this server has expired: it has crashed, or it cannot reach Redis. "
    "Its jobs run again on the others.",
}


async def show(request: Request) -> Response:
    """The table of all servers; or the question before an action on all of them."""
    sites = sites_of(request)
    word = request.query_params.get("confirm")
    action = next((action for action in ACTIONS_ON_ALL if action.word == word), None)
    if action is not None and viewer_of(request).role == "operate":
        return await ask(request, action, {}, address(request, "servers"))
    pages, feed = await sites.each(request, _page), f"servers?first={first_of(request)}"
    rows = rows_of(request, {name: page.servers for name, page in pages.items()}, _order)
    tables = {
        name: listing(sites.at(request, name), rows[name], page.at, feed) for name, page in pages.items()
    }
    return await render(
        request, "servers.html", title="Servers", servers=joined(request, tables, _order),
        actions=ACTIONS, all_actions=() if sites.parts else ACTIONS_ON_ALL,
        place=pager(request, "servers", total=sum(page.total for page in pages.values())),
    )  # fmt: skip


async def _page(request: Request) -> ProcessPage:
    site = site_of(request)
    await site.read(request_numbers(site.keys))
    return await site.read(read_processes(site.keys, *span(request)))


def _order(view: ServerView) -> str:
    return view.about.identity


async def show_one(request: Request) -> Response:
    """One server; or the word that it is gone, and since when."""
    site, identity = site_of(request), _identity(request)
    await site.read(request_numbers(site.keys))
    page = await site.read(read_works(site.keys, 0, ROWS, identity))
    view = await site.read(read_process(site.keys, identity))
    if view is None:
        # Not 404: other pages link servers that Redis names, and they may be gone by now.
        left = await site.read(read_held(site.keys, identity))
        return await render(
            request, "server_gone.html", title=identity or "No server", seen=_seen(request), json="",
            works=left, rows=running.held(request, left, site.settings.mask),
        )  # fmt: skip
    place = pager(request, "servers", identity, total=len(view.workers))
    state, cells = state_of(view, page.at), listing(request, [view], page.at).first()
    works = running.listing(request, page, site.settings.mask, with_server=False)
    is_over = state in _OVER
    if is_over and not page.works:
        page = await site.read(read_held(site.keys, identity))
        works = running.held(request, page, site.settings.mask)
    return await render(
        request, "server.html", title=identity, view=view, about=view.about, works=page,
        rows=works, is_over=is_over,
        workers=_workers(request, view, page.at), place=place, actions=ACTIONS, work_actions=[CANCEL],
        state=state, notice=notice(state, cells["beat"]), cells=cells, by_state=by_state, at=page.at,
    )  # fmt: skip


def _workers(request: Request, view: ServerView, now: float) -> Listing[Any]:
    """One page of the worker processes of a server."""
    first = first_of(request)
    some = view.workers[first : first + ROWS]
    return Listing(request, _WORKER_COLUMNS, some, now, html={"pid": lambda worker: escape(worker.pid)})


async def change(request: Request) -> Response:
    """Signal one server, or all of them."""
    if "identity" in form_of(request):
        return await act(request, ACTIONS, address(request, "servers", first=first_of(request) or None))
    return await act(request, ACTIONS_ON_ALL, address(request, "servers"))


async def change_one(request: Request) -> Response:
    """Signal this server, or cancel a job that it runs."""
    _identity(request)
    return await act(request, (*ACTIONS, CANCEL), own_address(request))


def _identity(request: Request) -> str:
    """The name in the address. Raises HTTPException for one that no key can have."""
    identity = names.decode(request.path_params["identity"])
    if not names.is_key(identity):
        raise HTTPException(404, f"No server can be called {visible(identity)}.")
    return identity


def _seen(request: Request) -> float | None:
    """The last heartbeat that the page showed before, from its address."""
    try:
        seconds = float(request.query_params.get("seen", ""))
    except ValueError:
        return None
    return seconds if 0 < seconds < 1e11 else None


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the servers of one page of the list."""
    stats = reader.last
    if stats is None:
        return {}
    first = rank_in(parse_qs(parameters).get("first", [""])[-1])
    shown_from = 0 if is_of_all(request) else first
    rows = sorted(stats.servers, key=lambda server: server.identity)[shown_from : first + ROWS]
    return listing(request, [_view(about, stats.lost) for about in rows], stats.now).live()


def parts_of_one(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of one server; ``parameters`` is its name, as it is in the address."""
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
        "queues": lambda view: queues(view.about.queues, view.active),
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


async def _servers(ask: CheckedRequest) -> dict[str, Any]:
    await ask.site.read(request_numbers(ask.keys))
    return (await ask.site.read(read_processes(ask.keys, ask.given["first"], ask.given["count"]))).as_dict()


async def _server(ask: CheckedRequest) -> dict[str, Any]:
    view = await ask.site.read(read_process(ask.keys, ask.names["identity"]))
    return PROCESS.as_dict(found(view, "server"))


FEEDS: Mapping[str, Feed] = {"servers": parts, "server": parts_of_one}
ROUTES = [
    Route("/servers", show),
    Route("/servers", change, methods=["POST"]),
    Route("/servers/{identity}", show_one),
    Route("/servers/{identity}", change_one, methods=["POST"]),
]
RESOURCES = (
    Resource(
        "/servers",
        "The servers, by identity.",
        _servers,
        PROCESSES.schema,
        paging(),
        ACTIONS_ON_ALL,
        rows="servers",
        order=itemgetter("identity"),
    ),
    Resource(
        "/servers/{identity}",
        "One server.",
        _server,
        PROCESS.schema,
        actions=ACTIONS,
        sought=True,
    ),
)
