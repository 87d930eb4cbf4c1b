"""Buttons: does what a form on a page asks for, or asks before, by the declaration of the action.

Runs in the event loop of the dashboard; the action itself in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.actions import Acted, Action, Given, Performed
from pyworkers.api.parameters import is_storable
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.web import names
from pyworkers.web.acting import carry_out, check_queues, done, queues_of
from pyworkers.web.rendering import own_address, render
from pyworkers.web.security import form_of
from pyworkers.web.security.guard import REDIS
from pyworkers.web.several import sites_of
from pyworkers.web.showing import cut, visible
from pyworkers.web.site import site_of

_LONGEST = 100
"""The characters of a name in the words after an action."""


async def act(request: Request, actions: Iterable[Action[Any]], to: str, refused: str = "") -> Response:
    """Do what a form asks for, and go on to the page ``to``, which says what was done.

    The form has the action's word as ``action``, or as ``ask`` to be asked before. Its fields are in the form
    or in the address. ``refused``: the page after a refusal, if it is another.
    """
    form = form_of(request)
    word = form.get("ask") or form.get("action")
    action = next((action for action in actions if action.word == word), None)
    if action is None:
        raise HTTPException(400, "This action is unknown.")
    known = {**request.path_params, **form}
    given = {field.name: names.decode(known[field.name]) for field in action.fields if field.name in known}
    lacking = [field.name for field in action.fields if field.required and field.name not in given]
    if lacking or not all(map(is_storable, given.values())):
        raise HTTPException(400, f"This action has no valid {lacking[0] if lacking else 'name'}.")
    if "ask" in form:
        return await ask(request, action, given, to)
    try:
        outcome = await carry_out(request, action, given)
    except (RedisUnavailableError, StoreError):
        raise
    except PyworkersError as error:
        return done(request, refused or to, str(error), failed=True)
    return said(request, outcome, to)


def forms(path: str, actions: Iterable[Action[Any]]) -> Route:
    """The route of the forms of a page, each of which does one of these actions and returns to the page."""

    async def change(request: Request) -> Response:
        return await act(request, actions, own_address(request))

    return Route(path, change, methods=["POST"])


def said(request: Request, outcome: Performed, to: str) -> Response:
    """Back to the page ``to``, which says what was done."""
    undo = outcome.result.undo if isinstance(outcome.result, Acted) else ""
    redis = site_of(request).settings.name
    at = sites_of(request).address(request, redis, "undo", undo) if undo else ""
    return done(request, to, f"{outcome.words(_shown)}.", failed=outcome.failed, undo=at)


async def ask(request: Request, action: Action[Any], given: Given, to: str) -> Response:
    """The page with the question before an action, whose form leads ``to`` this page."""
    if action.asks is None:
        raise HTTPException(400, "This action is done without a question.")
    check_queues(request, await queues_of(request, action, given))
    question = await site_of(request).act(partial(action.asks, site_of(request).admin, **given))
    return await render(
        request, "question.html", title=question.title, question=question, action=action, given=given, to=to,
        at_redis=form_of(request).get(REDIS, ""),
    )  # fmt: skip


def _shown(text: str) -> str:
    return visible(cut(text, _LONGEST))
