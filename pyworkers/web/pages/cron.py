"""Cron: all entries with their last run, and one entry with its slots and runs; changes of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

import simplejson
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import CronJob, CronRun
from pyworkers.api.browse.masking import masked
from pyworkers.api.columns import page_of
from pyworkers.api.cron import ACTIONS, ADD, CHANGE, REMOVE
from pyworkers.api.cronjob import CRON, CRON_VIEW, RUN, SLOTS, outcome, read_cron_job, read_cron_page
from pyworkers.api.parameters import paging
from pyworkers.errors import BadArgumentError, DuplicateJobError, QueueFullError
from pyworkers.protocol.cron import MISFIRES
from pyworkers.web import names
from pyworkers.web.acting import carry_out
from pyworkers.web.buttons import act, said
from pyworkers.web.flash import Flash
from pyworkers.web.json.resources import CheckedRequest, Resource, found
from pyworkers.web.live.reader import Feed, Reader
from pyworkers.web.pages.enqueue import json_of
from pyworkers.web.paging import first_of, pager, rank_in, rows_of, span
from pyworkers.web.rendering import address, fragment, linkable, own_address, render
from pyworkers.web.security import Form, form_of, viewer_of
from pyworkers.web.several import sites_of
from pyworkers.web.showing import moment, shown
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, cell, joined, link, words

_TEXTS = ("schedule", "timezone", "misfire", "queue")
_REFUSALS = (BadArgumentError, DuplicateJobError, QueueFullError)
_COLUMNS = CRON.shown("name", "schedule", "class", "queue", "next", "last_run", "state")
_GONE = '<span class="bad">gone: it was removed, or no running server declares it</span>'


async def show(request: Request, refusal: str = "") -> Response:
    """The table of all entries; after a ``refusal``, with the fields of the entry that was not added."""
    sites, feed, now = sites_of(request), f"cron?{first_of(request)}", time.time()
    pages = await sites.each(
        request, lambda at: site_of(at).read(read_cron_page(site_of(at).keys, *span(at)))
    )
    rows = rows_of(request, {name: page.jobs for name, page in pages.items()}, _order)
    tables = {name: listing(sites.at(request, name), some, now, feed) for name, some in rows.items()}
    return await render(
        request,
        "cron.html",
        title="Cron",
        jobs=joined(request, tables, _order),
        redis_names=list(pages) if sites.parts else (),
        pager=pager(request, "cron", total=sum(page.total for page in pages.values())),
        actions=ACTIONS,
        misfires=MISFIRES,
        typed=form_of(request) if refusal else {},
        refused=refusal,
    )


def _order(job: CronJob) -> str:
    return job.name


async def show_one(request: Request, refusal: str = "") -> Response:
    """One entry: its next slots, its runs, and its fields; or the word that it is gone.

    After a ``refusal``, the fields are those that were refused.
    """
    site, name = site_of(request), names.decode(request.path_params["name"])
    job = await site.read(read_cron_job(site.keys, name))
    if job is None:
        text = "There is no such entry: it was removed, or no running server declares it."
        return await render(request, "error.html", json="", title=f"Cron {name}", text=text, **_said(refusal))
    args = simplejson.dumps(masked(list(job.entry.args), site.settings.mask), ensure_ascii=False)
    return await render(
        request,
        "cron_entry.html",
        title=f"Cron {name}",
        job=job,
        operate=viewer_of(request).operates(job.entry.queue),
        state=state(request, job),
        runs=runs(request, job, time.time()),
        args=args,
        slots=[(slot, _local(job, slot)) for slot in job.next_slots(SLOTS)],
        actions=ACTIONS,
        misfires=MISFIRES,
        typed=form_of(request) if refusal else {field: getattr(job.entry, field) for field in _TEXTS},
        refused=refusal,
    )


async def add(request: Request) -> Response:
    """Add an entry, or act on one of the table."""
    form = form_of(request)
    if form.get("action") != ADD.word:
        return await _act(request, names.decode(form.get("name", "")), own_address(request))
    about = {"name": form.get("name", "").strip(), "schedule": "", "job_class": form.get("class", "").strip()}
    try:
        outcome = await carry_out(request, ADD, {**about, **_fields(form)})
    except _REFUSALS as error:
        return await show(request, str(error))
    return said(request, outcome, address(request, "cron"))


async def change_one(request: Request) -> Response:
    """Act on the entry, and return to its page."""
    name = names.decode(request.path_params["name"])
    return await _act(request, name, address(request, "cron", name))


async def _act(request: Request, name: str, back: str) -> Response:
    """Do what the form asks for; the form of a change that is refused is shown again."""
    form = form_of(request)
    word = form.get("action")
    if word != CHANGE.word:
        to = address(request, "cron") if word == REMOVE.word else back
        return await act(request, ACTIONS, to, refused=back)
    try:
        outcome = await carry_out(request, CHANGE, {"name": name, **_fields(form)})
    except _REFUSALS as error:
        return await show_one(request, str(error))
    return said(request, outcome, back)


def _said(refusal: str) -> dict[str, Any]:
    """The sentence of a page that is shown at once, with what was typed; nothing without a refusal."""
    return {"flash": Flash(refusal, True)} if refusal else {}


def _fields(form: Form) -> dict[str, Any]:
    """The fields of an entry that the form has; an empty one stays as it is. Raises BadArgumentError."""
    found: dict[str, Any] = {field: text for field in _TEXTS if (text := form.get(field, "").strip())}
    if text := form.get("args", "").strip():
        found["args"] = json_of(text, "arguments", list, "[7]")
    return found


def _local(job: CronJob, slot: int) -> str:
    """The slot by the clock of the entry."""
    try:
        return datetime.fromtimestamp(slot, ZoneInfo(job.entry.timezone)).isoformat(" ")
    except (ValueError, OverflowError, OSError):
        return ""


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The cells of the entries of one page of the list; ``parameters``: its first index."""
    begin, most = span(request, rank_in(parameters))
    watched = reader.watch(f"cron?{begin}+{most}", lambda keys: read_cron_page(keys, begin, most))
    if watched.value is None or reader.last is None:
        return {}
    return listing(request, watched.value.jobs, reader.last.now).live()


def listing(request: Request, jobs: Sequence[CronJob], now: float, feed: str = "") -> Listing[CronJob]:
    """The table of these entries."""
    html: Mapping[str, Callable[[CronJob], Markup]] = {
        "name": partial(_named, request),
        "schedule": _schedule,
        "last_run": partial(_last_run, request, now=now),
    }
    return Listing(
        request, _COLUMNS, jobs, now, key=key_of, feed=feed, html=html,
        queue_of=lambda job: job.entry.queue,
    )  # fmt: skip


def runs(request: Request, job: CronJob, now: float) -> Listing[CronRun]:
    """The table of the runs of an entry."""
    return Listing(request, RUN.shown(), job.runs, now)


def _named(request: Request, job: CronJob) -> Markup:
    return shown(job.name) if job.state == "shadowed" else link(request, "cron", job.name)


def _schedule(job: CronJob) -> Markup:
    about = shown(job.entry.schedule, 100), shown(job.entry.timezone, 60)
    return Markup("<span><code>{}</code> {}</span>").format(*about)


def _last_run(request: Request, job: CronJob, now: float) -> Markup:
    run = job.last_run
    if run is None:
        return Markup("none")
    job_page = Markup('<a href="{}">job</a>').format(address(request, "jobs", run.jid))
    return Markup("{} {} {}").format(
        words(request, outcome(run)), moment(run.slot, now), job_page if linkable(run.jid) else shown(run.jid)
    )


def parts_of_one(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """The state and the runs of one entry; ``parameters``: its name, as it is in the address."""
    feed, read = f"entry?{parameters}", partial(read_cron_job, name=names.decode(parameters))
    watched = reader.watch(feed, read)
    if not watched.known or reader.last is None:
        return {}
    job = watched.value
    if job is None:
        return {f"{feed}:state": _GONE}
    return {
        f"{feed}:state": state(request, job),
        f"{feed}:runs": fragment(request, "live/cron_runs.html", runs=runs(request, job, reader.last.now)),
    }


def state(request: Request, job: CronJob) -> Markup:
    """The state of an entry as a word."""
    return cell(request, CRON.columns["state"], job, 0.0)


def key_of(job: CronJob) -> str:
    """The name of a row in the live parts; a shadowed entry has the name of another one."""
    return f"{names.part(job.name)}{'/shadowed' if job.shadowed else ''}"


async def _entries(ask: CheckedRequest) -> dict[str, Any]:
    first = ask.given["first"]
    page = await ask.site.read(read_cron_page(ask.keys, first, ask.given["count"]))
    return {"first": first, "total": page.total, "cron": [job.as_dict() for job in page.jobs]}


async def _entry(ask: CheckedRequest) -> dict[str, Any]:
    job = found(await ask.site.read(read_cron_job(ask.keys, ask.names["name"])), "cron entry")
    return CRON_VIEW.as_dict(job, time.time())


FEEDS: Mapping[str, Feed] = {"cron": parts, "entry": parts_of_one}
ROUTES = [
    Route("/cron", show),
    Route("/cron", add, methods=["POST"]),
    Route("/cron/{name}", show_one),
    Route("/cron/{name}", change_one, methods=["POST"]),
]
RESOURCES = (
    Resource(
        "/cron",
        "The cron entries, by name.",
        _entries,
        page_of("CronEntries", "cron", CRON).schema,
        paging(),
        [ADD],
        rows="cron",
        order=itemgetter("name"),
    ),
    Resource(
        "/cron/{name}",
        "One cron entry, with its next slots and its last runs.",
        _entry,
        CRON_VIEW.schema,
        actions=ACTIONS,
        sought=True,
    ),
)
