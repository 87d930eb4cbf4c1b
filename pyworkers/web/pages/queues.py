"""Queues: all queues with their sizes; pause, resume and clear them."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api import Queue, QueueStats
from pyworkers.web import names
from pyworkers.web.acting import done, perform
from pyworkers.web.live.queues import PER_PAGE, ShownQueues, listing
from pyworkers.web.live.stream import reader_of
from pyworkers.web.rendering import address, render
from pyworkers.web.security import form_of
from pyworkers.web.showing import counted, cut, visible
from pyworkers.web.site import site_of

_ORDERS = (
    ("name", "by name"),
    ("size", "most waiting"),
    ("latency", "longest wait"),
    ("rate", "most jobs/min"),
)

SWITCHES = ("pause", "resume")
"""The actions of ``switch``."""


async def show(request: Request, asked: str = "") -> Response:
    """One page of the table of all queues. ``asked``: the queue that its viewer may clear."""
    stats = await reader_of(request).read()
    selection = ShownQueues.parse(request.url.query)
    rows, matching = selection.of(stats)
    pages = max(1, -(-matching // PER_PAGE))
    to_clear = next((queue for queue in stats.queues if queue.name == asked), None) if asked else None
    return await render(
        request,
        "queues.html",
        title="Queues",
        asked=to_clear or (QueueStats(asked, 0, 0, None, False, False) if asked else None),
        here=_address(request, selection.page),
        selection=selection,
        orders=_ORDERS,
        total=len(stats.queues),
        queues=listing(request, selection, rows, stats.now),
        previous=_address(request, selection.page - 1) if selection.page > 1 else "",
        next=_address(request, selection.page + 1) if selection.page < pages else "",
        text=f"Page {selection.page} of {pages}, {counted(matching, 'queue')}",
    )


async def change(request: Request) -> Response:
    """Pause, resume or clear a queue; ``ask`` asks before it is cleared."""
    form = form_of(request)
    name = names.decode(form.get("queue", ""))
    action = form.get("action", "")
    if action in SWITCHES:
        return await switch(request, name, action, _back(request))
    if action == "ask":
        return await show(request, asked=name)
    if action != "clear":
        raise HTTPException(400, "This action is unknown.")
    jobs = await perform(request, "queue.clear", name, Queue(name, site_of(request).admin).clear)
    text = f"{_called(name)} is cleared: {counted(jobs, 'job')} removed."
    return done(request, _back(request), text)


async def switch(request: Request, name: str, action: str, to: str) -> Response:
    """Pause or resume a queue, and go on to the address ``to``."""
    queue, called = Queue(name, site_of(request).admin), _called(name)
    if action == "resume":
        changed = await perform(request, "queue.resume", name, queue.resume)
        return done(request, to, f"{called} runs again." if changed else f"{called} was not paused.")
    try:
        changed = await perform(request, "queue.pause", name, queue.pause)
    except ValueError as error:
        return done(request, to, str(error), failed=True)
    return done(request, to, f"{called} is paused." if changed else f"{called} was paused already.")


def _called(name: str) -> str:
    return visible(cut(name, 100))


def _back(request: Request) -> str:
    return _address(request, ShownQueues.parse(request.url.query).page)


def _address(request: Request, page: int) -> str:
    return f"{address(request, 'queues')}?{ShownQueues.parse(request.url.query).query(page)}"


ROUTES = [Route("/queues", show), Route("/queues", change, methods=["POST"])]
