"""Errors: the failed jobs of ``retries`` and ``dead`` in groups of one error, and what can be done with each.

Runs in the event loop of the dashboard. The forms post to the lists, which count the jobs and ask before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.browse.actions import moves_of
from pyworkers.api.browse.errors import ERROR, ERRORS, PLACES, ErrorGroup, ErrorPage, read_errors
from pyworkers.api.browse.filter import Filter
from pyworkers.api.deploys import Deploy
from pyworkers.api.parameters import Parameter
from pyworkers.web import drawing
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.lists.asking import query_of
from pyworkers.web.paging import own_of, owns
from pyworkers.web.rendering import address, render
from pyworkers.web.several import page_of_all, sites_of
from pyworkers.web.showing import cut, number, shown, visible
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, joined, link

_COLUMNS = ERROR.shown(
    "error", "count", "retries", "dead", "first", "last", "hours", "versions", "classes", "queues"
)
# Most programs have fewer failed jobs than are read in it.
_BUDGET_S = 1.0
_MOST = 200
"""The groups of a page; a list of more has as many errors as jobs, and its groups tell nothing."""
_MOST_NAMES = 3
_CURSOR = Parameter("cursor", "Where the reading goes on: the cursor of the answer before.")


async def show(request: Request) -> Response:
    """The page: the groups of as many jobs as are read at once, the largest group first."""
    sites, now = sites_of(request), time.time()
    pages = await sites.each(request, _read)
    groups = page_of_all({name: page.groups for name, page in pages.items()}, _order, 0, _MOST)
    # People mark a deployment of a program in one of its Redis servers.
    deploy = max((page.deploy for page in pages.values() if page.deploy), default=None)
    tables = {name: _listing(sites.at(request, name), some, deploy, now) for name, some in groups.items()}
    new = [(name, group) for name, some in groups.items() for group in some if _is_new(group, deploy)]
    found = _sum(list(pages.values()))
    following = owns(request, "from", {name: page.cursor for name, page in pages.items()})
    return await render(
        request,
        "errors.html",
        title="Errors",
        found=found,
        most=_MOST,
        deploy=deploy,
        new=[_link(sites.at(request, name), group) for name, group in new[:_MOST_NAMES]],
        number_new=len(new),
        rows=joined(request, tables, _order),
        moves={place.word: moves_of(place) for place in PLACES},
        query=_query,
        next=address(request, "errors", **following) if following else "",
        again=address(request, "errors") if "from" in request.url.query else "",
    )


async def _read(request: Request) -> ErrorPage:
    """The groups of one Redis."""
    site, cursor = site_of(request), own_of(request, "from")
    if cursor is None:
        return ErrorPage((), 0, 0, 0, "")
    return await site.read(read_errors(site.keys, cursor, budget_s=_BUDGET_S))


def _sum(pages: Sequence[ErrorPage]) -> ErrorPage:
    """What several pages have together."""
    groups = tuple(group for page in pages for group in page.groups)
    read, looked_at, total = (
        sum(getattr(page, name) for page in pages) for name in ("read", "looked_at", "total")
    )
    return ErrorPage(groups, read, looked_at, total, "")


def _order(group: ErrorGroup) -> int:
    return -group.count


def _listing(
    request: Request, groups: Sequence[ErrorGroup], deploy: Deploy | None, now: float
) -> Listing[ErrorGroup]:
    """The table of these groups. ``deploy``: the last deployment; without one, no versions are shown."""
    columns = [column for column in _COLUMNS if deploy or column.name != "versions"]
    html: Mapping[str, Callable[[ErrorGroup], Markup]] = {
        "error": lambda group: _error(request, group, deploy),
        "retries": lambda group: _jobs(request, group, "retries", group.retries),
        "dead": lambda group: _jobs(request, group, "dead", group.dead),
        "hours": _hours,
        "versions": _versions,
        "classes": lambda group: _some(request, "metrics", group.classes),
        "queues": lambda group: _some(request, "queues", group.queues),
    }
    return Listing(request, columns, groups, now, html=html)


def _is_new(group: ErrorGroup, deploy: Deploy | None) -> bool:
    return bool(group.error and deploy and group.first and group.first >= deploy.at)


def _query(group: ErrorGroup) -> dict[str, str]:
    """What selects the jobs of a group in a list; empty for those without an error, which nothing selects."""
    return query_of(Filter(error_like=group.error))


def _error(request: Request, group: ErrorGroup, deploy: Deploy | None) -> Markup:
    """The error, which leads to its jobs; and whether it is new since the last deployment."""
    if not group.error:
        return Markup("no error")
    text = _link(request, group)
    return text + Markup(' <span class="tag bad">new</span>') if _is_new(group, deploy) else text


def _link(request: Request, group: ErrorGroup) -> Markup:
    href = address(request, "retries" if group.retries else "dead", **_query(group))
    return Markup('<a href="{}">{}</a>').format(href, shown(group.text, 160))


def _jobs(request: Request, group: ErrorGroup, place: str, jobs: int) -> Markup:
    """A number of jobs, which leads to them."""
    if not jobs or not group.error:
        return Markup(number(jobs))
    form = '<a href="{}" aria-label="{} in {}: {}">{}</a>'
    href = address(request, place, **_query(group))
    return Markup(form).format(href, number(jobs), place, visible(cut(group.error, 80)), number(jobs))


def _some(request: Request, place: str, found: Sequence[str]) -> Markup:
    """The first names, which lead to their pages."""
    named = Markup(", ").join(link(request, place, name) for name in found[:_MOST_NAMES])
    return named + (", …" if len(found) > _MOST_NAMES else "")


def _versions(group: ErrorGroup) -> Markup:
    """The first version, and the last one if it is another."""
    first_and_last = dict.fromkeys((*group.versions[-1:], *group.versions[:1]))
    return Markup(" to ").join(shown(label, 24) for label in first_and_last)


def _hours(group: ErrorGroup) -> Markup:
    """The failures of the last day, by hour."""
    label = f"{number(sum(group.hours))} in the last day, {number(group.hours[-1])} in the last hour"
    return drawing.small(group.hours, label)


async def _errors(ask: CheckedRequest) -> dict[str, Any]:
    return (
        await ask.site.read(read_errors(ask.keys, ask.given["cursor"] or "", budget_s=_BUDGET_S))
    ).as_dict()


ROUTES = [Route("/errors", show)]
RESOURCES = (
    Resource(
        "/errors",
        "The failed jobs of retries and dead, grouped by their errors, the largest group first.",
        _errors,
        ERRORS.schema,
        [_CURSOR],
        rows="errors",
        order=lambda row: -row["count"],
    ),
)
