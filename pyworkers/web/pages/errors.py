"""Errors: the failed jobs of ``retries`` and ``dead`` in groups of one error, and what can be done with each.

Runs in the event loop of the dashboard. The forms post to the lists, which count the jobs and ask before.
"""

from __future__ import annotations

import time
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.browse.actions import moves_of
from pyworkers.api.browse.errors import ERROR, ERRORS, PLACES, ErrorGroup, read_errors
from pyworkers.api.browse.filter import Filter
from pyworkers.api.deploys import Deploy, read_deploys
from pyworkers.api.parameters import Parameter
from pyworkers.web import drawing
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.lists.asking import query_of
from pyworkers.web.rendering import address, own_address, render
from pyworkers.web.showing import cut, number, shown, visible
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing

_COLUMNS = ERROR.shown(
    "error", "count", "retries", "dead", "first", "last", "hours", "of_classes", "of_queues"
)
# Most programs have fewer failed jobs than are read in it.
_BUDGET_S = 1.0
_MOST = 200
"""The groups of a page; a list of more has as many errors as jobs, and its groups tell nothing."""
# Each day of it is one command.
_DEPLOYED_S = 7 * 86_400
_CURSOR = Parameter("cursor", "Where the reading goes on: the cursor of the answer before.")


async def show(request: Request) -> Response:
    """The page: the groups of as many jobs as are read at once, the largest group first."""
    site, now = site_of(request), time.time()
    found = await site.read(read_errors(site.keys, request.query_params.get("from", ""), budget_s=_BUDGET_S))
    deploys = await site.read(read_deploys(site.keys, now - _DEPLOYED_S, now))
    last = deploys[0] if deploys else None
    html = {
        "error": lambda group: _error(request, group, last),
        "retries": lambda group: _jobs(request, group, "retries", group.retries),
        "dead": lambda group: _jobs(request, group, "dead", group.dead),
        "hours": _hours,
    }
    return await render(
        request,
        "errors.html",
        title="Errors",
        found=found,
        most=_MOST,
        deploy=last,
        rows=Listing(request, _COLUMNS, found.groups[:_MOST], now, html=html),
        moves={place.word: moves_of(place) for place in PLACES},
        query=_query,
        next=address(request, "errors", **{"from": found.cursor}) if found.cursor else "",
        again=address(request, "errors") if request.query_params.get("from") else "",
        here=own_address(request),
    )


def _query(group: ErrorGroup) -> dict[str, str]:
    """What selects the jobs of a group in a list; empty for those without an error, which nothing selects."""
    return query_of(Filter(error_like=group.error))


def _error(request: Request, group: ErrorGroup, last: Deploy | None) -> Markup:
    """The error, which leads to its jobs; and whether it is new since the last deployment."""
    if not group.error:
        return Markup("no error")
    place = "retries" if group.retries else "dead"
    link = Markup('<a href="{}">{}</a>').format(
        address(request, place, **_query(group)), shown(group.error, 160)
    )
    is_new = last is not None and group.first is not None and group.first >= last.at
    return link + Markup(' <span class="tag bad">new</span>') if is_new else link


def _jobs(request: Request, group: ErrorGroup, place: str, jobs: int) -> Markup:
    """A number of jobs, which leads to them."""
    if not jobs or not group.error:
        return Markup(number(jobs))
    form = '<a href="{}" aria-label="{} in {}: {}">{}</a>'
    href = address(request, place, **_query(group))
    return Markup(form).format(href, number(jobs), place, visible(cut(group.error, 80)), number(jobs))


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
        ERRORS,
        [_CURSOR],
        rows="errors",
    ),
)
