"""Finished: the last jobs that have ended, by class, queue and end; enqueues one of them again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.browse.masking import masked
from pyworkers.api.columns import Column
from pyworkers.api.finished import (
    ACTIONS,
    FINISHED,
    FINISHED_PAGE,
    FinishedFilter,
    FinishedJob,
    FinishedPage,
    FinishedPlace,
    read_finished,
)
from pyworkers.api.parameters import BadRequestError, Parameter
from pyworkers.errors import BadArgumentError
from pyworkers.protocol.status import JobState
from pyworkers.web.buttons import forms
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.lists.asking import typed
from pyworkers.web.lists.showing import args_text, class_of, href_of
from pyworkers.web.paging import ROWS, own_of, owns
from pyworkers.web.rendering import address, render
from pyworkers.web.several import sites_of
from pyworkers.web.showing import expandable, milliseconds, size
from pyworkers.web.site import Site, site_of
from pyworkers.web.tables import Listing, joined

_FILTERS = {"class": "job_class", "queue": "queue", "state": "state", "jid": "jid"}
_STATES = [state.value for state in JobState if state.final]
_END = ("ended_at", "duration", "attempts", "worker", "result_bytes", "error")
_COLUMNS = FINISHED.shown("class", "args", "state", "queue", *_END)
# A job that was retried by hand has ended more than once.
_MOST_ENDS = 5


async def show(request: Request) -> Response:
    """Some of the finished jobs, the latest first."""
    sites, query = sites_of(request), request.query_params
    given = {name: typed(query.get(name, "")) for name in _FILTERS}
    asked = FinishedFilter(**{_FILTERS[name]: value for name, value in given.items()})
    pages = await sites.each(request, partial(_read, asked))
    jobs = {name: _listing(sites.at(request, name), _COLUMNS, page.jobs) for name, page in pages.items()}
    following = owns(request, "after", {name: page.next for name, page in pages.items()})
    looked_at = [FinishedPlace.read(page.next).ms / 1000 for page in pages.values() if page.next]
    return await render(
        request,
        "finished.html",
        title="Finished",
        jobs=joined(request, jobs, lambda job: -(job.facts.at or 0.0)),
        is_kept=any(page.lists for page in pages.values()),
        actions=ACTIONS,
        given=given,
        filtered=any(given.values()),
        states=_STATES,
        goes_on=any(name.startswith("after") for name in query),
        back_to=max(looked_at, default=None),
        next=address(request, "finished", **given, **following) if following else "",
    )


async def _read(asked: FinishedFilter, request: Request) -> FinishedPage:
    """What one Redis has from the place in the address on; from the beginning if the place is invalid."""
    site, after = site_of(request), own_of(request, "after")
    if after is None:
        return FinishedPage((), "", ())
    try:
        return await site.read(read_finished(site.keys, asked, after, ROWS))
    except BadArgumentError:
        return await site.read(read_finished(site.keys, asked, "", ROWS))


async def read_ends(site: Site, jid: str) -> FinishedPage:
    """What is kept of the ends of one job, the latest first; with a ``next``, there may be more."""
    return await site.read(read_finished(site.keys, FinishedFilter(jid=jid), count=_MOST_ENDS))


def ends_of(request: Request, jobs: Sequence[FinishedJob]) -> Listing[FinishedJob]:
    """The table of the ends of one job."""
    return _listing(request, FINISHED.shown("state", *_END), jobs)


def _listing(
    request: Request, columns: Sequence[Column[FinishedJob]], jobs: Sequence[FinishedJob]
) -> Listing[FinishedJob]:
    html: Mapping[str, Callable[[FinishedJob], Markup]] = {
        "class": lambda job: class_of(request, job, href_of(request, job.jid)),
        "args": partial(_args, site_of(request).settings.mask),
        "error": lambda job: expandable(job.facts.error),
        "duration": lambda job: escape(milliseconds(job.facts.duration_s * 1000)),
        "result_bytes": lambda job: _result(job.facts.result_bytes),
    }
    return Listing(request, columns, jobs, time.time(), html=html, queue_of=lambda job: job.queue)


def _args(mask: tuple[str, ...], job: FinishedJob) -> Markup:
    return Markup("<code>{}</code>").format(expandable(args_text(job, mask)) if job.has_args else "")


def _result(length: int | None) -> Markup:
    return escape("" if length is None else size(length))


async def _finished(ask: CheckedRequest) -> Mapping[str, Any]:
    given = ask.given
    asked = FinishedFilter(**{field: given[name] or "" for name, field in _FILTERS.items()})
    try:
        page = await ask.site.read(read_finished(ask.keys, asked, given["after"] or "", ROWS))
    except BadArgumentError as error:
        raise BadRequestError(error.message) from error
    return _masked(page, ask.site.settings.mask)


def _masked(page: FinishedPage, mask: tuple[str, ...]) -> Mapping[str, Any]:
    found = page.as_dict()
    for job in found["jobs"]:
        job["args"] = masked(job["args"], mask)
    return found


ROUTES = [Route("/finished", show), forms("/finished", ACTIONS)]
RESOURCES = (
    Resource(
        "/finished",
        "The last jobs that have ended, the latest first, of classes, queues and servers with keep.",
        _finished,
        FINISHED_PAGE.schema,
        [
            Parameter("class", "Only jobs of this class."),
            Parameter("queue", "Only jobs of this queue."),
            Parameter("state", f"Only jobs that ended so: {', '.join(_STATES)}."),
            Parameter("jid", "Only the job with this id."),
            Parameter("after", "Go on behind this place: next of an earlier answer."),
        ],
        ACTIONS,
        rows="jobs",
        order=lambda row: -(row["ended_at"] or 0.0),
    ),
)
