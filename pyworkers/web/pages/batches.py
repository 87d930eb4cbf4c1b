"""Batches: all batches with their progress, and one batch with its callbacks and members; deletes batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import (
    BatchCallback,
    BatchView,
    Member,
    MemberPage,
)
from pyworkers.api.batches import (
    ACTIONS,
    BATCH,
    BATCH_VIEW,
    CALLBACK,
    MEMBER,
    MEMBERS,
    STATES,
    BatchNode,
    read_batch,
    read_batch_page,
    read_graph,
    read_members,
)
from pyworkers.api.columns import page_of
from pyworkers.api.parameters import Parameter, by_cursor, paging
from pyworkers.protocol.flow.plans import BatchStatus
from pyworkers.web import graphing, names
from pyworkers.web.buttons import act
from pyworkers.web.json.resources import CheckedRequest, Resource, found
from pyworkers.web.live.reader import Feed, Reader
from pyworkers.web.paging import ROWS, cursor_in, number_of, pager, rank_in, rows_of, span
from pyworkers.web.rendering import address, fragment, linkable, render
from pyworkers.web.several import sites_of
from pyworkers.web.showing import shown
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, joined, link

_COLUMNS = BATCH.shown("id", "kind", "state", "share", "waiting", "failed", "dead", "gone", "created_at")
_FACTS = BATCH.shown(
    "description", "kind", "tags", "state", "share", "waiting", "failed", "dead", "gone_by_kind", "forgotten",
    "created_at", "parent", "complete_at", "success_at", "death_at", "cancel_at", "reason", "reason_jid",
)  # fmt: skip
_MOST_TAGS = 20
_GONE = '<p class="flash failed" role="status">This batch is gone: it has expired, or was deleted.</p>'


async def show(request: Request) -> Response:
    """The table of all batches."""
    sites, now = sites_of(request), time.time()
    tag = request.query_params.get("tag", "")
    pages = await sites.each(
        request, lambda at: site_of(at).read(read_batch_page(site_of(at).keys, *span(at), tag))
    )
    place = pager(request, "batches", total=sum(page.total for page in pages.values()), tag=tag or None)
    # To look for a tag each second would cost too much.
    feed = "" if tag else f"batches?{place.first}"
    rows = rows_of(request, {name: page.batches for name, page in pages.items()}, _order)
    tables = {name: listing(sites.at(request, name), some, now, feed) for name, some in rows.items()}
    batches = joined(request, tables, _order)
    return await render(request, "batches.html", title="Batches", batches=batches, pager=place, tag=tag)


def _order(batch: BatchStatus) -> tuple[bool, float]:
    return _latest_first(partial(getattr, batch))


def _latest_first(moment: Callable[[str], float | None]) -> tuple[bool, float]:
    """Those that changed last come first, and those that have succeeded last, as in the list of one Redis.

    ``moment`` reads a time of a batch by its name.
    """
    names = ("created_at", "complete_at", "success_at", "death_at", "cancel_at")
    return moment("success_at") is not None, -max(moment(name) or 0.0 for name in names)


async def show_one(request: Request) -> Response:
    """One batch: its numbers, its callbacks, and its members in one state; or the word that it is gone."""
    site, batch = site_of(request), names.decode(request.path_params["id"])
    view = await site.read(read_batch(site.keys, batch))
    if view is None:
        text = "There is no such batch: it has expired, or was deleted."
        return await render(request, "error.html", json="", title=f"Batch {batch}", text=text)
    asked = request.query_params.get("state", "")
    state = asked if asked in STATES else _state_of_interest(view.status.dead, view.status.failed)
    cursor = number_of(request)
    graph = await site.read(read_graph(site.keys, batch))
    page = await site.read(read_members(site.keys, batch, state, cursor, ROWS))
    return await render(
        request,
        "batch.html",
        title=f"Batch {batch}",
        **context_of(request, view, time.time()),
        **graph_of(request, graph, time.time()),
        states=STATES,
        actions=ACTIONS,
        members_feed=members_feed(batch, state, cursor),
        **members_of(request, batch, state, page),
    )


def _state_of_interest(dead: int, failed: int) -> str:
    return "dead" if dead else "failed" if failed else "waiting"


async def change(request: Request) -> Response:
    """Act on the batch."""
    return await act(request, ACTIONS, address(request, "batches"))


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the batches of one page of the list; ``parameters``: its first rank."""
    begin, most = span(request, rank_in(parameters))
    watched = reader.watch(f"batches?{begin}+{most}", lambda keys: read_batch_page(keys, begin, most))
    return listing(request, watched.value.batches, 0).live() if watched.value else {}


def listing(
    request: Request, batches: Sequence[BatchStatus], now: float, feed: str = ""
) -> Listing[BatchStatus]:
    """The table of these batches."""
    return Listing(
        request, _COLUMNS, batches, now, key=lambda batch: names.part(batch.id), feed=feed,
        html={"id": partial(_named, request)},
    )  # fmt: skip


def context_of(request: Request, view: BatchView, now: float) -> dict[str, Any]:
    """What the templates of one batch need."""

    def job(callback: BatchCallback) -> Markup:
        # Before the event, there is no such job.
        return shown(callback.jid) if callback.fired_at is None else link(request, "jobs", callback.jid)

    def described(batch: BatchStatus) -> Markup:
        return shown(batch.description, 1000)

    cells: dict[str, Callable[[BatchStatus], Markup]] = {
        "description": described,
        "tags": partial(_tags, request),
    }
    return {
        "view": view,
        "about": Listing(request, _FACTS, [view.status], now, html=cells),
        "callbacks": Listing(request, CALLBACK.shown(), view.callbacks, now, html={"jid": job}),
    }


def graph_of(request: Request, graph: BatchNode | None, now: float) -> dict[str, Any]:
    """What the template shows of the graph of a batch; nothing if the batch has just been deleted."""
    if graph is None:
        return {"picture": "", "listed": ""}
    addressed = partial(address, request)
    return {
        "picture": graphing.picture(graph, now, addressed),
        "listed": graphing.listed(graph, now, addressed),
    }


def _named(request: Request, batch: BatchStatus) -> Markup:
    described = Markup("<br>{}").format(shown(batch.description, 100)) if batch.description else ""
    tags = Markup("<br>{}").format(_tags(request, batch)) if batch.tags else ""
    return Markup("<span>{}{}{}</span>").format(link(request, "batches", batch.id), described, tags)


def _tags(request: Request, batch: BatchStatus) -> Markup:
    """The first tags, each with the batches that have it."""
    form, plain = Markup('<a class="tag" href="{}">{}</a>'), Markup('<span class="tag">{}</span>')
    return Markup(" ").join(
        form.format(address(request, "batches", tag=tag), shown(tag, 60))
        if linkable(tag)
        else plain.format(shown(tag, 60))
        for tag in batch.tags[:_MOST_TAGS]
    )


def parts_of_one(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The facts and the callbacks of one batch; ``parameters``: its name, as it is in the address."""
    feed, batch = f"batch?{parameters}", names.decode(parameters)
    watched = reader.watch(feed, partial(read_batch, batch=batch))
    if not watched.known or reader.last is None:
        return {}
    if watched.value is None:
        return {f"{feed}:about": _GONE}
    context = context_of(request, watched.value, reader.last.now)
    graph = reader.watch(f"graph?{parameters}", partial(read_graph, batch=batch))
    drawn = graph_of(request, graph.value, reader.last.now)
    return {
        f"{feed}:about": fragment(request, "live/batch.html", **context),
        f"{feed}:callbacks": fragment(request, "live/callbacks.html", **context),
        **({f"{feed}:graph": str(drawn["picture"])} if graph.value else {}),
    }


def parts_of_members(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """One page of the members of a batch in one state; ``parameters`` as in ``members_feed``."""
    state, _, rest = parameters.partition("/")
    cursor, _, name = rest.partition("/")
    if state not in STATES:
        return {}
    batch, first = names.decode(name), cursor_in(cursor)
    feed = members_feed(batch, state, first)
    watched = reader.watch(feed, lambda keys: read_members(keys, batch, state, first, ROWS))
    if watched.value is None:
        return {}
    context = members_of(request, batch, state, watched.value)
    return {f"{feed}:members": fragment(request, "live/members.html", **context)}


def members_feed(batch: str, state: str, cursor: int) -> str:
    """The name of the feed of one page of members."""
    return f"members?{state}/{cursor}/{names.encode(batch)}"


def members_of(request: Request, batch: str, state: str, page: MemberPage) -> dict[str, Any]:
    """What the template of a page of members needs."""
    following = address(request, "batches", batch, state=state, cursor=page.cursor) if page.cursor else ""

    def named(member: Member) -> Markup:
        return link(request, "batches" if member.is_batch else "jobs", member.id)

    members = Listing(request, MEMBER.shown(), page.members, 0.0, html={"id": named})
    return {"state": state, "members": members, "next": following}


async def _batches(ask: CheckedRequest) -> dict[str, Any]:
    first = ask.given["first"]
    page = await ask.site.read(read_batch_page(ask.keys, first, ask.given["count"], ask.given["tag"] or ""))
    return {"first": first, "total": page.total, "batches": [about.as_dict() for about in page.batches]}


async def _batch(ask: CheckedRequest) -> dict[str, Any]:
    return found(await ask.site.read(read_batch(ask.keys, ask.names["id"])), "batch").as_dict()


async def _members(ask: CheckedRequest) -> dict[str, Any]:
    given = ask.given
    found(await ask.site.read(read_batch(ask.keys, ask.names["id"])), "batch")
    steps = read_members(ask.keys, ask.names["id"], given["state"], given["cursor"], given["count"])
    return MEMBERS.as_dict(await ask.site.read(steps))


FEEDS: Mapping[str, Feed] = {"batches": parts, "batch": parts_of_one, "members": parts_of_members}
ROUTES = [
    Route("/batches", show),
    Route("/batches/{id}", show_one),
    Route("/batches/{id}", change, methods=["POST"]),
]
RESOURCES = (
    Resource(
        "/batches",
        "The batches, the last changed one first.",
        _batches,
        page_of("Batches", "batches", BATCH).schema,
        [*paging(), Parameter("tag", "Only batches with this tag, of the 10,000 that changed last.")],
        rows="batches",
        order=lambda row: _latest_first(row.get),
    ),
    Resource(
        "/batches/{id}",
        "One batch, with its callbacks.",
        _batch,
        BATCH_VIEW,
        actions=ACTIONS,
        sought=True,
    ),
    Resource(
        "/batches/{id}/members",
        "Members of a batch that are not done.",
        _members,
        MEMBERS.schema,
        [
            Parameter("state", "In this state.", default="waiting", choices=STATES),
            *by_cursor(),
        ],
        rows="members",
        sought=True,
    ),
)
