"""The jobs of queues and sets, page by page or by a search, and what can be done with them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException

from pyworkers.api.browse.actions import Acted, Action, Order, act_on, actions_of
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.pages import JOBS, read_page
from pyworkers.api.browse.places import Place
from pyworkers.api.browse.search import Sought, position_of, read_matches
from pyworkers.api.browse.tasks import create_task
from pyworkers.api.browse.work import start
from pyworkers.api.parameters import BadRequestError, Parameter, paging
from pyworkers.web.json.resources import Ask, Change, Changed, Resource, still_there
from pyworkers.web.lists.asking import MOST_CHARACTERS, MOST_SELECTED
from pyworkers.web.security import viewer_of

FILTERS = (
    Parameter("class", "Of this class; * is any text.", longest=MOST_CHARACTERS),
    Parameter("jid", "With this id.", longest=MOST_CHARACTERS),
    Parameter("queue", "Of this queue.", longest=MOST_CHARACTERS),
    Parameter("tag", "With this tag.", longest=MOST_CHARACTERS),
    Parameter(
        "error", "Whose last error contains this text, in upper or lower case.", longest=MOST_CHARACTERS
    ),
    Parameter("text", "Whose arguments contain this text, in upper or lower case.", longest=MOST_CHARACTERS),
    Parameter("older", "Older than so many seconds.", "number", least=0),
    Parameter("younger", "Younger than so many seconds.", "number", least=0),
)
_PAGING = (
    *paging(),
    Parameter("cursor", "Where a search goes on: the cursor of the answer before."),
)
ABOUT = {
    Action.RUN: "Put jobs into their queues now.",
    Action.FIRST: "Have jobs run first.",
    Action.RESCHEDULE: "Give jobs another time.",
    Action.KILL: "Move jobs to the dead ones.",
    Action.DELETE: "Delete jobs.",
}
_JOBS = Parameter("jobs", "The jobs, by their at; without it, all that the conditions select.", "array")
NEW_TIME = Parameter("time", "The new time in epoch seconds.", "number", least=0, most=1e11, required=True)


def _place(ask: Ask, word: str) -> Place:
    return Place.of_queue(ask.names["name"]) if word == "queue" else Place(word)


async def _list(word: str, ask: Ask) -> dict[str, Any]:
    """A page; with a condition, what a search finds in a bounded time."""
    place, given = _place(ask, word), ask.given
    wanted = filter_of(given)
    if wanted.empty and not given["cursor"]:
        return (await ask.site.read(read_page(ask.keys, place, given["first"], given["count"]))).as_dict()
    sought = Sought(place, wanted, time.time(), tuple(ask.site.settings.mask))
    begin = position_of(given["cursor"] or "")
    return (await ask.site.read(read_matches(ask.keys, sought, begin, given["count"]))).as_dict()


def filter_of(given: Any) -> Filter:
    texts = {name: given[name] or "" for name in ("jid", "queue", "tag", "error", "text")}
    older, younger = (None if given[name] is None else float(given[name]) for name in ("older", "younger"))
    return Filter(given["class"] or "", **texts, older_s=older, younger_s=younger)


async def _change(word: str, action: Action, ask: Ask) -> Changed:
    """Act on the named jobs; or note an order on all that are selected, which is to be confirmed."""
    place, ats = _place(ask, word), ask.given["jobs"]
    order = Order(place, action, ask.given.get("time"))
    if ats is None:
        return await _order(ask, order)
    if len(ats) > MOST_SELECTED:
        raise BadRequestError(f"jobs has more than {MOST_SELECTED} entries: pass conditions instead.")
    if not filter_of(ask.given).empty:
        raise BadRequestError("Pass either jobs or conditions.")
    return await act(ask, f"jobs.{action}", f"{place.word} ({len(ats)})", order, ats)


async def act(ask: Ask, action: str, target: str, order: Order, ats: Sequence[str]) -> int:
    """Act on jobs by their ``at``: 409 if none of them is there, or can be moved."""
    acted: Acted = await ask.perform(action, target, partial(act_on, ask.admin, order, ats))
    if acted.reason and not acted.done:
        raise HTTPException(409, acted.reason)
    still_there(acted.done > 0)
    return acted.done


async def _order(ask: Ask, order: Order) -> Changed:
    sought = Sought(order.place, filter_of(ask.given), time.time(), ask.site.settings.mask)
    by = viewer_of(ask.request).name
    task = await ask.site.act(partial(create_task, ask.admin, order, sought, by))
    if task.working:
        start(ask.admin, task)
    return {"done": 0, "task": task.id}


def _actions(word: str) -> Sequence[Change]:
    place = Place.of_queue("any") if word == "queue" else Place(word)
    return [
        Change(
            str(action),
            ABOUT[action],
            partial(_change, word, action),
            [_JOBS, *FILTERS, NEW_TIME] if action is Action.RESCHEDULE else [_JOBS, *FILTERS],
        )
        for action in actions_of(place)
    ]


def _resource(path: str, about: str, word: str) -> Resource:
    return Resource(path, about, partial(_list, word), JOBS, [*_PAGING, *FILTERS], _actions(word))


RESOURCES = (
    _resource("/queues/{name}/jobs", "The waiting jobs of a queue, the next one first.", "queue"),
    _resource("/scheduled", "The scheduled jobs, the next one first.", "scheduled"),
    _resource("/retries", "The failed jobs that wait for their next attempt, the next one first.", "retries"),
    _resource("/dead", "The dead jobs, the latest first.", "dead"),
)
