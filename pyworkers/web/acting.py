"""Acting: one change on behalf of a viewer, its line in the audit, and the answer after it.

Runs in the event loop of the dashboard; the change itself in a thread, through the blocking ``api``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pyworkers import logs
from pyworkers.api.actions import Acted, Action, Given, Performed, result_of
from pyworkers.api.audit import AuditEntry, read_audit, record
from pyworkers.api.browse.tasks import Task
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.web import flash
from pyworkers.web.security import viewer_of
from pyworkers.web.showing import cut, visible
from pyworkers.web.site import site_of

T = TypeVar("T")
# What is named of the queues of a person who is refused.
_MOST_NAMES, _LONGEST_NAME = 5, 60

log = logs.get_logger()


def _described(result: object) -> str:
    """A result in the words of the audit."""
    if isinstance(result, Task):
        return "begun"
    return str(result) if isinstance(result, Performed) else result_of(result)


async def carry_out(request: Request, action: Action[Any], given: Given) -> Performed:
    """Do it on behalf of the viewer. Raises PyworkersError."""
    change = partial(action.perform, site_of(request).admin, given)
    queues = await queues_of(request, action, given)
    return await perform(request, action.name, action.target_of(given), change, queues=queues)


async def queues_of(request: Request, action: Action[Any], given: Given) -> Iterable[str] | None:
    """The queues that an action changes, read if the viewer may act on some alone; None: more than queues."""
    if not viewer_of(request).rights.queues or action.queues is None:
        return None
    site, queues = site_of(request), action.queues
    return await site.act(lambda: _as_set(queues(site.admin, given)))


def _as_set(found: Iterable[str] | None) -> set[str] | None:
    return None if found is None else set(found)


def check_queues(request: Request, queues: Iterable[str] | None) -> None:
    """Raise HTTPException (403) if the viewer may not act on one of these; None: on more than queues."""
    rights = viewer_of(request).rights
    if not rights.queues:
        return
    if queues is None or not all(map(rights.cover, queues)):
        what = "this changes more" if queues is None else "this is of another queue"
        names = ", ".join(visible(cut(queue, _LONGEST_NAME)) for queue in rights.queues[:_MOST_NAMES])
        raise HTTPException(403, f"Your role {rights.role} is only for the queues {names}: {what}.")


async def perform(
    request: Request,
    action: str,
    target: str,
    change: Callable[[], T],
    *,
    queues: Iterable[str] | None = None,
) -> T:
    """The result of a change. ``action`` (``queue.pause``) and ``target`` are its words in the audit.

    ``queues``: those that it changes; without them, a person who may act on some queues alone is refused.

    The audit is written after the change, with its result, and in the log as well. If Redis refuses the line,
    the change stays: a Redis without memory refuses the line, and the change may be the remedy.
    Redis is asked for something first: an action that fails before the change is certainly not done.
    """
    return await audited(request, action, target, lambda: site_of(request).act(change), queues=queues)


async def audited(
    request: Request,
    action: str,
    target: str,
    work: Callable[[], Awaitable[T]],
    described: Callable[[T], str] = _described,
    *,
    queues: Iterable[str] | None,
) -> T:
    """As ``perform``, for a change that runs in the event loop."""
    check_queues(request, queues)
    site = site_of(request)
    try:
        with suppress(StoreError):
            await site.read(read_audit(site.keys, count=1))
        request.scope["state"]["sent"] = True
        result = await work()
    except PyworkersError as error:
        await _audit(request, action, target, f"failed: {error.message}")
        raise
    await _audit(request, action, target, described(result), _undo_of(result))
    return result


def undone(request: Request, error: PyworkersError) -> tuple[str, str]:
    """The title and the words about an action that failed, by whether Redis may have executed it."""
    if isinstance(error, StoreError):
        return "Not done", f"Not done: Redis refuses this. {error}"
    if is_sent(request):
        why = "the connection to Redis was lost before its answer came"
        return "Perhaps done", f"Perhaps done: {why}. Look before you try again."
    return "Not done", "Not done: Redis does not answer."


def is_sent(request: Request) -> bool:
    """True if Redis may have executed the change that a request asks for."""
    return getattr(request.state, "sent", False) is True


def _undo_of(result: object) -> str:
    """The id with which what was done can be undone; empty for most."""
    value = result.result if isinstance(result, Performed) else result
    if isinstance(value, Task):
        return value.undo
    return value.undo if isinstance(value, Acted) else ""


async def _audit(request: Request, action: str, target: str, result: str, undo: str = "") -> None:
    site, client = site_of(request), request.client
    entry = AuditEntry(
        viewer_of(request).name, client.host if client else "", action, target, result, undo=undo
    )
    log.info("web.action", who=entry.who, source=entry.source, action=action, target=target, result=result)
    if viewer_of(request).role == "enqueue" and not site.is_first_of_hour(entry.who):
        # Programs would push what people did out of the audit; the log has each of their requests.
        return
    try:
        await site.read(record(site.keys, entry))
    except PyworkersError as error:
        log.warning("web.unaudited", action=action, target=target, error=error.message)


def done(request: Request, to: str, text: str, *, failed: bool = False, undo: str = "") -> Response:
    """Back to the page ``to``, which says what was done; ``undo``: the address at which it can be undone."""
    answer = RedirectResponse(to, status_code=303)
    flash.give(request, answer, text, failed=failed, undo=undo)
    return answer
