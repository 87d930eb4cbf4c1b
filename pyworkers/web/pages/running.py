"""Running: the running jobs of all servers, the longest first; cancel one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Work, WorkPage
from pyworkers.api.parameters import Parameter, paging
from pyworkers.api.processes import request_numbers
from pyworkers.api.running import ACTIONS, STACK, WORK, WORKS, read_works
from pyworkers.web import names
from pyworkers.web.buttons import act
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.lists.showing import args_text, class_of, href_of, jid_of
from pyworkers.web.live.reader import Feed, Reader
from pyworkers.web.paging import first_of, pager, rows_of, span
from pyworkers.web.rendering import own_address, render
from pyworkers.web.security import form_of
from pyworkers.web.several import ALL, sites_of
from pyworkers.web.showing import expandable, number
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, joined

_MOST_BYTES = 20_000


async def show(request: Request) -> Response:
    """A page of the running jobs, of all servers or of one."""
    sites, mask = sites_of(request), site_of(request).settings.mask
    asked = request.query_params.get("server", "")
    identity = names.decode(asked)
    if identity and not names.is_key(identity):
        raise HTTPException(404, "No server can have this name.")

    async def read(at: Request) -> WorkPage:
        site = site_of(at)
        await site.read(request_numbers(site.keys))
        return await site.read(read_works(site.keys, *span(at), identity))

    pages = await sites.each(request, read)
    rows = rows_of(request, {name: page.works for name, page in pages.items()}, _order)
    shown_pages = {name: replace(page, works=rows[name]) for name, page in pages.items()}
    works = WorkPage(
        first_of(request), sum(page.total for page in pages.values()),
        [work for some in rows.values() for work in some],
        all(page.complete for page in pages.values()), time.time(),
    )  # fmt: skip
    tables = {
        name: listing(sites.at(request, name), page, mask, with_limit=_has_limit(works))
        for name, page in shown_pages.items()
    }
    return await render(
        request, "running.html", title="Running", works=works, total=total(works.total),
        rows=joined(request, tables, _order), identity=identity,
        place=pager(request, "running", total=works.total, server=asked),
        work_actions=ACTIONS, feed=f"{ALL}running" if sites.parts else "running",
    )  # fmt: skip


def _order(work: Work) -> float:
    return work.run_at


def _has_limit(page: WorkPage) -> bool:
    return any(work.limit_at is not None for work in page.works)


async def change(request: Request) -> Response:
    """Act on a running job, and return to the page with its button; a stack is on the page of the job."""
    form = form_of(request)
    jid = names.decode(form.get("jid", "")) if form.get("action") == STACK.word else ""
    of_job = sites_of(request).address(request, site_of(request).settings.name, "jobs", jid)
    return await act(request, ACTIONS, of_job if jid else own_address(request))


def parts(reader: Reader, request: Request, _parameters: str) -> dict[str, str]:
    """The cells of the longest running jobs.

    A job that a page shows, and that has no cells here, has ended: the longest come first, so it leaves by
    its end alone. The part ``running:all`` says so; it is missing if more jobs run than are put in order.
    """
    works = reader.watch("running", read_works).value
    if works is None:
        return {}
    found = {"running:total": str(total(works.total)), **({"running:all": ""} if works.complete else {})}
    return found | listing(request, works).live()


def listing(
    request: Request,
    page: WorkPage,
    mask: Collection[str] = (),
    *,
    with_server: bool = True,
    with_limit: bool | None = None,
) -> Listing[Work]:
    """The table of these jobs; by default with the ends of their times if one of them has an end."""
    chosen = [
        "class",
        "arguments",
        "queue",
        "run_at",
        "progress",
        "identity",
        "thread",
        "rss_kb",
        "limit_at",
        "jid",
    ]
    if not with_server:
        chosen.remove("identity")
    if not (_has_limit(page) if with_limit is None else with_limit):
        chosen.remove("limit_at")
    return Listing(
        request, WORK.shown(*chosen), page.works, page.at, key=key_of, ended={"progress": "running:all"},
        html=_html(request, mask), queue_of=lambda work: work.queue,
    )  # fmt: skip


def held(
    request: Request, page: WorkPage, mask: Collection[str] = (), columns: Sequence[str] = ()
) -> Listing[Work]:
    """A table that is not live, as of the jobs that a server was running; when they began is not known.

    ``columns``: what it has between the queue and the id.
    """
    shown_columns = WORK.shown("class", "arguments", "queue", *columns, "jid")
    return Listing(request, shown_columns, page.works, page.at, html=_html(request, mask))


def _html(request: Request, mask: Collection[str]) -> Mapping[str, Callable[[Work], Markup]]:
    return {
        "class": lambda work: class_of(request, work, href_of(request, work.jid)),
        "arguments": partial(_arguments, mask),
        "jid": lambda work: jid_of(work, href_of(request, work.jid)),
    }


def _arguments(mask: Collection[str], work: Work) -> Markup:
    """The arguments; of a large job its size: fifty of them would make the page late."""
    args = args_text(work, mask) if work.length <= _MOST_BYTES else f"({work.length:,} bytes)"
    return Markup("<code>{}</code>").format(expandable(args))


def key_of(work: Work) -> str:
    """The name of a run in the live parts."""
    return "/".join(map(names.encode, (work.identity, work.thread, work.jid)))


def total(count: int) -> Markup:
    """How many jobs run now."""
    return Markup("{} {} now.").format(number(count), "job runs" if count == 1 else "jobs run")


async def _running(ask: CheckedRequest) -> dict[str, Any]:
    await ask.site.read(request_numbers(ask.keys))
    given = ask.given
    page = await ask.site.read(read_works(ask.keys, given["first"], given["count"], given["server"] or ""))
    return page.as_dict()


FEEDS: Mapping[str, Feed] = {"running": parts}
ROUTES = [Route("/running", show), Route("/running", change, methods=["POST"])]
RESOURCES = (
    Resource(
        "/running",
        "The running jobs, the longest first.",
        _running,
        WORKS.schema,
        [*paging(), Parameter("server", "Only the jobs of the server with this identity.")],
        ACTIONS,
        rows="works",
        order=itemgetter("run_at"),
    ),
)
