"""Cron: all entries with their last run, and one entry with its slots and runs; changes of both."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import simplejson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import CronJob, CronSet, read_cron_job, read_cron_page
from pyworkers.api.browse.masking import masked
from pyworkers.errors import BadArgumentError, DuplicateJobError, QueueFullError
from pyworkers.protocol.cron import MISFIRES
from pyworkers.web import names
from pyworkers.web.acting import done, perform
from pyworkers.web.live.cron import listing, runs, state
from pyworkers.web.paging import ROWS, first_of, pager
from pyworkers.web.rendering import address, own_address, render
from pyworkers.web.security import Form, form_of
from pyworkers.web.showing import cut
from pyworkers.web.site import site_of

_SLOTS = 10
_TEXTS = ("schedule", "timezone", "misfire", "queue")
_REFUSALS = (BadArgumentError, DuplicateJobError, QueueFullError)


async def show(request: Request, refusal: str = "") -> Response:
    """The table of all entries; after a ``refusal``, with the fields of the entry that was not added."""
    site = site_of(request)
    first = first_of(request)
    page = await site.read(read_cron_page(site.keys, first, ROWS))
    return await render(
        request,
        "cron.html",
        title="Cron",
        jobs=listing(request, page.jobs, time.time(), f"cron?{first}"),
        pager=pager(request, "cron", total=page.total),
        misfires=MISFIRES,
        typed=form_of(request) if refusal else {},
        refused=refusal,
    )


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
        state=state(request, job),
        runs=runs(request, job, time.time()),
        args=args,
        slots=[(slot, _local(job, slot)) for slot in job.next_slots(_SLOTS)],
        misfires=MISFIRES,
        typed=form_of(request) if refusal else {field: getattr(job.entry, field) for field in _TEXTS},
        refused=refusal,
    )


async def add(request: Request) -> Response:
    """Add an entry, or act on one of the table."""
    form = form_of(request)
    if form.get("action") != "add":
        return await _act(request, names.decode(form.get("name", "")), own_address(request))
    name = form.get("name", "").strip()
    entries = CronSet(site_of(request).admin)
    try:
        fields = {"schedule": "", "job_class": form.get("class", "").strip(), **_fields(form)}
        await perform(request, "cron.add", name, lambda: entries.add(name, **fields))
    except _REFUSALS as error:
        return await show(request, str(error))
    return done(request, address(request, "cron"), f"{cut(name, 100)} is added.")


async def change_one(request: Request) -> Response:
    """Act on the entry, and return to its page."""
    name = names.decode(request.path_params["name"])
    return await _act(request, name, address(request, "cron", name))


async def _act(request: Request, name: str, back: str) -> Response:
    """Do what the form asks for; a refusal is shown on the page."""
    form, entries = form_of(request), CronSet(site_of(request).admin)
    action, short = form.get("action", ""), cut(name, 100)
    changes: dict[str, tuple[Callable[[], Any], Callable[[Any], str]]] = {
        "pause": (lambda: entries.pause(name), lambda new: f"{short} is paused{'' if new else ' already'}."),
        "resume": (
            lambda: entries.resume(name),
            lambda new: f"{short} fires again." if new else f"{short} was not paused.",
        ),
        "trigger": (lambda: entries.trigger(name), lambda jid: f"{short} is triggered: job {jid}."),
        "remove": (lambda: entries.remove(name), lambda _: f"{short} is removed."),
        "change": (lambda: entries.change(name, **_fields(form)), lambda _: f"{short} is changed."),
    }
    if action not in changes:
        raise HTTPException(400, "This action is unknown.")
    act, said = changes[action]
    try:
        result = await perform(request, f"cron.{action}", name, act)
    except _REFUSALS as error:
        if action == "change" and "name" in request.path_params:
            return await show_one(request, str(error))
        return done(request, back, str(error), failed=True)
    return done(request, address(request, "cron") if action == "remove" else back, said(result))


def _said(refusal: str) -> dict[str, Any]:
    """The sentence of a page that is shown at once, with what was typed; nothing without a refusal."""
    return {"flash": (refusal, True)} if refusal else {}


def _fields(form: Form) -> dict[str, Any]:
    """The fields of an entry that the form has; an empty one stays as it is. Raises BadArgumentError."""
    found: dict[str, Any] = {field: text for field in _TEXTS if (text := form.get(field, "").strip())}
    if text := form.get("args", "").strip():
        try:
            found["args"] = simplejson.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadArgumentError(f"the arguments are not JSON: {error}") from error
        if not isinstance(found["args"], list):
            raise BadArgumentError("the arguments are a JSON list, e.g. [7]")
    return found


def _local(job: CronJob, slot: int) -> str:
    """The slot by the clock of the entry."""
    try:
        return datetime.fromtimestamp(slot, ZoneInfo(job.entry.timezone)).isoformat(" ")
    except (ValueError, OverflowError, OSError):
        return ""


ROUTES = [
    Route("/cron", show),
    Route("/cron", add, methods=["POST"]),
    Route("/cron/{name}", show_one),
    Route("/cron/{name}", change_one, methods=["POST"]),
]
