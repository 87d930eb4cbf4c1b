"""One task: an action on all jobs that a filter selects, to confirm, to watch and to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers.api import DeletionNumbers
from pyworkers.api.browse.actions import Order
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.search import Sought
from pyworkers.api.browse.tasks import (
    TASK,
    Task,
    TaskState,
    confirm_task,
    create_task,
    read_task,
    stop_task,
)
from pyworkers.api.browse.undo import PutBack, read_deletions
from pyworkers.api.browse.work import start
from pyworkers.api.target import Admin
from pyworkers.web import names
from pyworkers.web.acting import check_queues, done, perform
from pyworkers.web.json.resources import Change, CheckedRequest, Resource, found
from pyworkers.web.lists.asking import query_of
from pyworkers.web.lists.showing import segments_of
from pyworkers.web.lists.words import conditions, selected_in, title_of
from pyworkers.web.rendering import address, render
from pyworkers.web.security import form_of, viewer_of
from pyworkers.web.several import sites_of
from pyworkers.web.showing import shown
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing

T = TypeVar("T")
# A request waits for a second, at most, for the end or the return of this many jobs.
_MOST_AT_ONCE = 10_000
_FACTS = TASK.shown("filter", "at", "by", "ordered")


async def show(request: Request) -> Response:
    """How far the task is. The page asks again by itself while it works."""
    task = await _task(request)
    place, move = task.order.place, task.order.move
    columns = _FACTS[:-1] if task.state in (TaskState.COUNTING, TaskState.COUNTED) else _FACTS
    return await render(
        request,
        "task.html",
        title=f"{move.label}: {title_of(place)}",
        task=task,
        kept=await _kept(request, task),
        operate=_may(request, task),
        move=move,
        done=move.done_with(task.progress.done),
        about=Listing(request, columns, [task], time.time(), html={"filter": _selected}),
        back=address(request, *segments_of(place), **query_of(task.sought.wanted)),
        states=TaskState,
    )


async def _kept(request: Request, task: Task) -> DeletionNumbers | None:
    """How many of the jobs that a task has deleted can be put back; None for no deletion."""
    if not task.undo or not task.progress.done or task.working:
        return None
    site = site_of(request)
    return (await site.read(read_deletions(site.keys))).get(task.undo)


def _selected(task: Task) -> Markup:
    """The conditions in words."""
    found = conditions(task.sought.wanted, task.order.place)
    parts = (Markup("{} <strong>{}</strong>").format(words, shown(value)) for words, value in found)
    return Markup(", ").join(parts) or Markup("all")


async def change(request: Request) -> Response:
    """Confirm the task, or stop it."""
    task = await _task(request)
    action = form_of(request).get("action")
    if action == "confirm":
        text = "It has begun." if await confirm(request, task) else "It was confirmed already."
    elif action == "stop":
        text = "It stops after its present jobs." if await _stop(request, task) else "It has ended already."
    else:
        raise HTTPException(400, "This action is unknown.")
    return done(request, address(request, "tasks", task.id), text)


async def begin_if_long(request: Request, order: Order | PutBack, jobs: int) -> Task | None:
    """The running task of an order on more jobs than a request should wait for; None for fewer."""
    if jobs <= _MOST_AT_ONCE:
        return None
    task = await begin(request, order, Filter())
    await confirm(request, task)
    return task


def to_task(request: Request, task: Task) -> Response:
    """To the page of a task that has begun, at the Redis of the request."""
    to = sites_of(request).address(request, site_of(request).settings.name, "tasks", task.id)
    return RedirectResponse(to, status_code=303)


async def begin(request: Request, order: Order | PutBack, wanted: Filter) -> Task:
    """A task on all jobs that are selected: counted first, and confirmed by a person."""
    site, rights = site_of(request), viewer_of(request).rights
    if order.place.queue:
        check_queues(request, [order.place.queue])
    else:
        wanted = wanted.but(queues=rights.queues)
    sought = Sought(order.place, wanted, time.time(), site.settings.mask)
    task = await site.act(partial(create_task, site.admin, order, sought, viewer_of(request).name))
    if task.working:
        start(site.admin, task)
    return task


async def confirm(request: Request, task: Task) -> bool:
    """Let a counted task run; False if it was confirmed already."""
    word = "clear" if task.clears else str(task.order.action)
    ready = await _perform(request, task, f"jobs.{word}", lambda *of: confirm_task(*of) or False)
    if isinstance(ready, Task):
        start(site_of(request).admin, ready)
    return bool(ready)


async def _stop(request: Request, task: Task) -> bool:
    """Have a task end after its present jobs; False if it has ended already."""
    return await _perform(request, task, "task.stop", stop_task)


async def _perform(request: Request, task: Task, action: str, change: Callable[[Admin, Task], T]) -> T:
    target = selected_in(task.order.place, task.sought.wanted)
    changing = partial(change, site_of(request).admin, task)
    return await perform(request, action, target, changing, queues=_queues(request, task))


def _queues(request: Request, task: Task) -> Sequence[str] | None:
    """The queues that a task changes; none if it is limited to the queues of the viewer; None: all."""
    if task.order.place.queue:
        return [task.order.place.queue]
    return () if task.sought.wanted.queues == viewer_of(request).rights.queues else None


def _may(request: Request, task: Task) -> bool:
    """True if the viewer may confirm the task, stop it, and undo it."""
    viewer, queues = viewer_of(request), _queues(request, task)
    if queues is None or viewer.role != "operate":
        return viewer.operates()
    return all(map(viewer.operates, queues))


async def _task(request: Request) -> Task:
    site = site_of(request)
    task = await site.read(read_task(site.keys, names.decode(request.path_params["id"])))
    if task is None:
        raise HTTPException(404, "There is no such task: it has expired.")
    return task


async def _json(ask: CheckedRequest) -> dict[str, Any]:
    return (await _find(ask)).as_dict()


async def _find(ask: CheckedRequest) -> Task:
    return found(await ask.site.read(read_task(ask.keys, ask.names["id"])), "task")


async def _let_run(ask: CheckedRequest) -> int:
    task = await _find(ask)
    if not await confirm(ask.request, task):
        raise HTTPException(409, f"The task is {task.state.value}: nothing was changed.")
    return 1


async def _have_stop(ask: CheckedRequest) -> int:
    return await _stop(ask.request, await _find(ask))


ROUTES = [Route("/tasks/{id}", show), Route("/tasks/{id}", change, methods=["POST"])]
RESOURCES = (
    Resource(
        "/tasks/{id}",
        "An order on all jobs that conditions select: counted, then confirmed, then done.",
        _json,
        TASK.schema,
        actions=[
            Change("confirm", "Let a counted task run.", _let_run),
            Change("stop", "Stop a task after its present jobs.", _have_stop),
        ],
        sought=True,
    ),
)
