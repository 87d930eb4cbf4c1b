"""Audit: who did what by the dashboard; the last thousand actions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.audit import AUDIT, AUDIT_ACTION, AuditEntry, AuditPage, read_audit
from pyworkers.api.browse.tasks import Task
from pyworkers.api.browse.undo import DELETION, UNDO, PutBack, read_deletions
from pyworkers.api.parameters import paging
from pyworkers.web import names
from pyworkers.web.acting import check_queues, queues_of
from pyworkers.web.buttons import act
from pyworkers.web.json.resources import Change, Changed, CheckedRequest, Resource, found, number_done
from pyworkers.web.pages.tasks import begin_if_long, to_task
from pyworkers.web.paging import pager, rows_of, span
from pyworkers.web.rendering import address, is_local, render
from pyworkers.web.security import form_of
from pyworkers.web.several import sites_of
from pyworkers.web.showing import both, shown
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, joined, link

_COLUMNS = AUDIT_ACTION.shown("action", "target", "result", "who", "source", "at")
_PAGES = {"queue": "queues", "job": "jobs", "batch": "batches", "cron": "cron"}
"""The pages of targets, by the first word of their actions."""


async def show(request: Request) -> Response:
    """A page of the actions, the latest first."""
    sites, now = sites_of(request), time.time()
    found = await sites.each(request, _read)
    rows = rows_of(request, {name: page.actions for name, (page, _) in found.items()}, _order)
    tables = {name: _listing(sites.at(request, name), some, now) for name, some in rows.items()}
    return await render(
        request, "audit.html", title="Audit", actions=joined(request, tables, _order),
        place=pager(request, "audit", total=sum(page.total for page, _ in found.values())),
        undoable=set().union(*(undoable for _, undoable in found.values())),
    )  # fmt: skip


def _listing(request: Request, actions: Sequence[AuditEntry], now: float) -> Listing[AuditEntry]:
    html: Mapping[str, Callable[[AuditEntry], Markup]] = {
        "at": lambda action: both(action.at, now),
        "target": partial(_target, request),
    }
    return Listing(request, _COLUMNS, actions, now, html=html)


def _target(request: Request, action: AuditEntry) -> Markup:
    """What was acted on; one thing leads to its page."""
    page = _PAGES.get(action.action.partition(".")[0])
    return link(request, page, action.target) if page and action.target else shown(action.target)


async def _read(request: Request) -> tuple[AuditPage, Collection[str]]:
    """The actions at one Redis, and the ids of the deletions that can be undone."""
    site = site_of(request)
    page = await site.read(read_audit(site.keys, *span(request)))
    if not any(one.undo for one in page.actions):
        return page, ()
    deletions = await site.read(read_deletions(site.keys))
    return page, [id for id, numbers in deletions.items() if numbers.kept]


def _order(action: AuditEntry) -> float:
    return -(action.at or 0.0)


async def _audit(ask: CheckedRequest) -> dict[str, Any]:
    return (await ask.site.read(read_audit(ask.keys, ask.given["first"], ask.given["count"]))).as_dict()


async def undo(request: Request) -> Response:
    """Put deleted jobs back, and return to the page that has the button."""
    back = form_of(request).get("back", "")
    if task := await _undoing(request, names.decode(request.path_params["deletion"])):
        return to_task(request, task)
    return await act(request, [UNDO], back if is_local(back) else address(request, "audit"))


async def _undoing(request: Request, deletion: str) -> Task | None:
    """The task that puts many jobs back; None for few."""
    site = site_of(request)
    numbers = (await site.read(read_deletions(site.keys))).get(deletion)
    if numbers is None:
        return None
    check_queues(request, await queues_of(request, UNDO, {"deletion": deletion}))
    return await begin_if_long(request, PutBack(deletion), numbers.kept)


async def _undo(ask: CheckedRequest) -> Changed:
    if task := await _undoing(ask.request, ask.names["deletion"]):
        return {"done": 0, "task": task.id}
    return await number_done(ask.request, UNDO, ask.names)


async def _deletion(ask: CheckedRequest) -> dict[str, Any]:
    known = await ask.site.read(read_deletions(ask.keys))
    return DELETION.as_dict(found(known.get(ask.names["deletion"]), "deletion"))


ROUTES = [Route("/audit", show), Route("/undo/{deletion}", undo, methods=["POST"])]
RESOURCES = (
    Resource(
        "/undo/{deletion}",
        "A deletion that can be undone, for ten minutes: when it began, and its jobs that are kept or not.",
        _deletion,
        DELETION.schema,
        actions=[Change(UNDO.word, "Put deleted jobs back, for ten minutes; many of them by a task.", _undo)],
        sought=True,
    ),
    Resource(
        "/audit",
        "The last thousand actions, the latest first.",
        _audit,
        AUDIT.schema,
        paging(),
        rows="actions",
        order=lambda row: -(row["at"] or 0.0),
    ),
)
