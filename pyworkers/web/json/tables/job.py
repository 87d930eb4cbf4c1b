"""One job by its id, and an action on all jobs that a filter selects."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.exceptions import HTTPException

from pyworkers.api.browse.actions import Action, Order
from pyworkers.api.browse.lookup import JOB_VIEW, Further, Hint, read_job
from pyworkers.api.browse.places import SETS, Place
from pyworkers.api.browse.tasks import TASK, Task, confirm_task, read_task, stop_task
from pyworkers.api.browse.work import start
from pyworkers.api.parameters import BadRequestError, Parameter
from pyworkers.api.running import CANCEL
from pyworkers.protocol.status import JobState
from pyworkers.web.acting import carry_out
from pyworkers.web.json.resources import Ask, Change, Resource, found, still_there
from pyworkers.web.json.tables.jobs import NEW_TIME, act
from pyworkers.web.lists.words import selected_in

_PLACE = f"{', '.join(SETS)}, or queue:NAME."
_ABOUT = {
    Action.RUN: "Put the job into its queue now.",
    Action.FIRST: "Have the job run first.",
    Action.RESCHEDULE: "Give the job another time.",
    Action.KILL: "Move the job to the dead ones.",
    Action.DELETE: "Delete the job.",
}


async def _read(ask: Ask) -> dict[str, Any]:
    jid, given = ask.names["jid"], ask.given
    place = _place(given["place"])
    hint = Hint(place, given["at"]) if place and given["at"] else None
    begin = Further(place, given["cursor"]) if place and given["cursor"] is not None else None
    view = await ask.site.read(read_job(ask.keys, jid, hint, begin))
    if view.job is None and view.further is None and view.state is JobState.UNKNOWN:
        raise HTTPException(404, "There is no such job.")
    return view.as_dict()


async def _act(action: Action, ask: Ask) -> int:
    place = _place(ask.given["place"]) or Place("")
    try:
        order = Order(place, action, ask.given.get("time"))
    except ValueError as error:
        raise BadRequestError(str(error)) from error
    return await act(ask, f"job.{action}", ask.names["jid"], order, [ask.given["at"]])


async def _cancel(ask: Ask) -> int:
    jid = ask.names["jid"]
    held = (await ask.site.read(read_job(ask.keys, jid))).held
    if held is None:
        raise HTTPException(409, "The job does not run: nothing was changed.")
    given = {"jid": jid, "server": held.identity, "queue": held.queue}
    outcome = await carry_out(ask.request, CANCEL, given)
    return still_there(not outcome.nothing)


async def _task(ask: Ask) -> dict[str, Any]:
    return (await _find(ask)).as_dict()


async def _find(ask: Ask) -> Task:
    return found(await ask.site.read(read_task(ask.keys, ask.names["id"])), "task")


async def _confirm(ask: Ask) -> int:
    task = await _find(ask)
    word = "clear" if task.clears else str(task.order.action)
    target = selected_in(task.order.place, task.sought.wanted)
    ready = await ask.perform(f"jobs.{word}", target, lambda: confirm_task(ask.admin, task) or False)
    if not isinstance(ready, Task):
        raise HTTPException(409, f"The task is {task.state.value}: nothing was changed.")
    start(ask.admin, ready)
    return 1


async def _stop(ask: Ask) -> int:
    task = await _find(ask)
    return await ask.perform("task.stop", task.id, partial(stop_task, ask.admin, task))


def _place(word: str | None) -> Place | None:
    place = Place.read(word) if word else None
    if word and place is None:
        raise BadRequestError(f"place must be {_PLACE}")
    return place


def _one(action: Action) -> Change:
    seen = [
        Parameter("place", f"Where it was seen: {_PLACE}", required=True),
        Parameter("at", "Its at in that place.", required=True),
    ]
    fields = [*seen, NEW_TIME] if action is Action.RESCHEDULE else seen
    return Change(str(action), _ABOUT[action], partial(_act, action), fields)


RESOURCES = (
    Resource(
        "/jobs/{jid}",
        "One job, in any place. A long search goes on with further.",
        _read,
        JOB_VIEW.schema,
        [
            Parameter("place", f"Where to look first: {_PLACE}"),
            Parameter("at", "Its at in that place."),
            Parameter("cursor", "Where a search goes on in that place: the cursor of further."),
        ],
        [*map(_one, Action), Change("cancel", "Cancel the job, which runs.", _cancel)],
    ),
    Resource(
        "/tasks/{id}",
        "An order on all jobs that conditions select: counted, then confirmed, then done.",
        _task,
        TASK.schema,
        actions=[
            Change("confirm", "Let a counted task run.", _confirm),
            Change("stop", "Stop a task after its present jobs.", _stop),
        ],
    ),
)
