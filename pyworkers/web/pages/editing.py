"""Editing: a form for the arguments and the time of a job that does not run, or of a copy of it.

Runs in the event loop of the dashboard. What is refused stays in the form, and the audit has no arguments.
"""

from __future__ import annotations

import time
from typing import Any

import simplejson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pyworkers.api.actions import Action, Performed
from pyworkers.api.browse.actions import COPY, EDIT
from pyworkers.api.browse.lookup import Hint, JobView, read_job
from pyworkers.api.browse.masking import HIDDEN, masked, unmask
from pyworkers.api.browse.pages import read_rows
from pyworkers.api.record import JobRecord
from pyworkers.errors import BadArgumentError, PyworkersError, RedisUnavailableError, StoreError
from pyworkers.protocol import sealing
from pyworkers.web import names
from pyworkers.web.acting import carry_out
from pyworkers.web.buttons import said
from pyworkers.web.lists.asking import decoded, encoded, moment_of
from pyworkers.web.lists.showing import NO_ID
from pyworkers.web.lists.words import DELAYS
from pyworkers.web.pages.enqueue import json_of
from pyworkers.web.pages.job import asked, queues_in
from pyworkers.web.rendering import address, linkable, render
from pyworkers.web.security import Form, form_of, viewer_of
from pyworkers.web.showing import visible
from pyworkers.web.site import site_of

_ACTIONS = {action.word: action for action in (EDIT, COPY)}
_TITLES = {EDIT.word: "Edit a job", COPY.word: "Enqueue a copy"}
_BUTTONS = {EDIT.word: "Save", COPY.word: COPY.text}
# A form with more of them, each of four bytes, could be larger than the dashboard reads.
_MOST_CHARACTERS = 50_000
_LINE = 80
_UNCHANGED = ""
_NOW = (0, "now")
_GONE = "the job is no longer here: it was taken, moved or deleted in the meantime"


async def show(request: Request) -> Response:
    """The form; with ``copy`` in the address, for a copy."""
    return await _form(request, COPY if request.query_params.get("copy") else EDIT)


async def change(request: Request) -> Response:
    """Edit the job where it was seen, or enqueue a copy."""
    form = form_of(request)
    action, place = _ACTIONS.get(form.get("action", "")), decoded(form.get("in", ""))
    if action is None or place is None:
        raise HTTPException(400, "This action is unknown, or lacks its place.")
    hint = Hint(place, form.get("at", ""))
    try:
        outcome = await _changed(request, action, hint)
    except (RedisUnavailableError, StoreError):
        raise
    except PyworkersError as error:
        return await _form(request, action, hint, f"Not done: {error}.")
    to = outcome.result if action is COPY else names.decode(request.path_params["jid"])
    return said(request, outcome, address(request, "jobs", to if linkable(to) else NO_ID))


async def _changed(request: Request, action: Action[Any], hint: Hint) -> Performed:
    """Raises PyworkersError."""
    site, form = site_of(request), form_of(request)
    [row] = await site.read(read_rows(site.keys, hint.place, [hint.at]))
    if row is None:
        raise BadArgumentError(_GONE)
    args, at = _args_of(row.job, form, site.settings.mask), _time_of(form)
    if action is EDIT and args is None and at is None:
        raise BadArgumentError("neither the arguments nor the time have changed")
    changes = {name: value for name, value in (("args", args), ("time", at)) if value is not None}
    given = {"jid": row.job.jid, "place": hint.place.word, "at": hint.at, **changes}
    outcome = await carry_out(request, action, given)
    if outcome.failed:
        raise BadArgumentError(_GONE)
    return outcome


async def _form(
    request: Request, action: Action[Any], seen: Hint | None = None, refusal: str = ""
) -> Response:
    """The form; after a ``refusal`` with what was typed, for the job where the form has ``seen`` it."""
    site = site_of(request)
    jid, hint = asked(request)
    viewer = viewer_of(request)
    view = await site.read(read_job(site.keys, jid, seen or hint)) if viewer.role == "operate" else None
    operate = view is not None and all(map(viewer.operates, queues_in(view)))
    row = view.row if view and operate else None
    barred, args = ("", "") if row is None else _editable(row.job, site.settings.mask)
    form = form_of(request) if refusal else Form()
    return await render(
        request,
        "edit.html",
        title=_TITLES[action.word],
        operate=operate,
        page=address(request, "jobs", names.decode(request.path_params["jid"])),
        row=row,
        place_word=encoded(view.place) if view and view.place else "",
        first_time=_first_time(action, view),
        timeless=bool(view and view.order),
        hidden=HIDDEN if f'"{HIDDEN}"' in args else "",
        barred=barred,
        args=_spelled(form.get("args", args)),
        typed={name: visible(form.get(name, "")) for name in ("delay", "when")},
        delays=DELAYS if action is COPY or (view and view.place and view.place.queue) else (_NOW, *DELAYS),
        word=action.word,
        button=_BUTTONS[action.word],
        refused=refusal,
    )


def _first_time(action: Action[Any], view: JobView | None) -> str:
    """The words for no other time."""
    if action is COPY:
        return "now"
    kept = {"queue": "in its turn: it stays in its queue", "dead": "never: it stays dead"}
    return kept.get(view.place.kind if view and view.place else "", "as it is")


def _editable(job: JobRecord, mask: tuple[str, ...]) -> tuple[str, str]:
    """Why the arguments of a job cannot be edited here, or else their text for the form."""
    if job.unreadable:
        return "The bytes are not a valid job.", ""
    if job.data.get(sealing.FIELD) is True or job.data.get("encrypt") is True:
        return "The arguments are encrypted: they are not shown, and stay as they are.", ""
    try:
        values = masked(job.args, mask)
        text = simplejson.dumps(values, ensure_ascii=False)
        if len(text) > _LINE:
            text = simplejson.dumps(values, ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return "The arguments are nested too deep for a form: they stay as they are.", ""
    if len(text) > _MOST_CHARACTERS:
        return "The arguments are too long for a form: they stay as they are.", ""
    return "", _spelled(text)


def _spelled(text: str) -> str:
    """JSON with escapes in place of invisible characters: it is the same JSON."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(
        line if line.isspace() or visible(line) == line else "".join(map(_escaped, line)) for line in lines
    )


def _escaped(char: str) -> str:
    return char if char.isspace() or visible(char) == char else f"\\u{ord(char):04x}"


def _args_of(job: JobRecord, form: Form, mask: tuple[str, ...]) -> list[Any] | None:
    """The arguments that were typed; None if they are as the form had them, or cannot be edited."""
    barred, before = _editable(job, mask)
    text = _spelled(form.get("args", ""))
    if barred or text.strip() == before.strip():
        return None
    args: list[Any] = json_of(text, "arguments", list, "[7]")
    if f'"{HIDDEN}"' in before:
        unmask(args, job.args, mask)
        if f'"{HIDDEN}"' in simplejson.dumps(args):
            raise BadArgumentError(f"{HIDDEN} is in another place than before: type the value itself")
    return args


def _time_of(form: Form) -> float | None:
    """The new time; None if there is none. Raises BadArgumentError."""
    now = time.time()
    if (at := moment_of(form, now)) is not None:
        return at
    delay = form.get("delay", _UNCHANGED)
    return next((now + seconds for seconds, _ in (_NOW, *DELAYS) if str(seconds) == delay), None)


ROUTES = [Route("/jobs/{jid}/edit", show), Route("/jobs/{jid}/edit", change, methods=["POST"])]
