"""One job: where it is, all that is known about it, and every action that its state allows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import simplejson
from markupsafe import Markup, escape
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers.api.actions import Action
from pyworkers.api.batches import read_graph
from pyworkers.api.browse.actions import EDIT, ON_ONE, PLACES, moves_of
from pyworkers.api.browse.lookup import JOB_VIEW, Further, Hint, JobView, read_job
from pyworkers.api.browse.masking import masked, shown_bytes
from pyworkers.api.browse.places import Place
from pyworkers.api.finished import FinishedJob, FinishedPage
from pyworkers.api.joblog import JOB_LOG, LOG_LINE, JobLog, fields_text, read_joblog
from pyworkers.api.parameters import BadRequestError, Parameter
from pyworkers.api.record import JOB, STATUS, JobRecord
from pyworkers.api.results import JOB_RESULT, read_result
from pyworkers.api.running import ACTIONS, CANCEL, JOB_STACK, STACK, read_stack
from pyworkers.errors import BadArgumentError
from pyworkers.protocol import sealing
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.options import OPTIONS
from pyworkers.protocol.stacks import JobStack
from pyworkers.protocol.status import JobState, JobStatus
from pyworkers.web import names
from pyworkers.web.acting import carry_out
from pyworkers.web.buttons import act, said
from pyworkers.web.json.resources import Change, CheckedRequest, Resource, found, number_done
from pyworkers.web.lists.asking import decoded, encoded, order_of, typed
from pyworkers.web.lists.showing import NO_ID, json_text, segments_of, tags_of
from pyworkers.web.lists.words import DELAYS, title_of
from pyworkers.web.pages.batches import graph_of
from pyworkers.web.pages.finished import ends_of, read_ends
from pyworkers.web.rendering import address, linkable, render
from pyworkers.web.security import form_of, viewer_of
from pyworkers.web.several import sites_of
from pyworkers.web.showing import cut, number, shown, size, visible
from pyworkers.web.site import Site, site_of
from pyworkers.web.story import frames_of, story
from pyworkers.web.tables import Listing, link
from pyworkers.web.waiting import MOST as MOST_WAITS
from pyworkers.web.waiting import waits_of

_MOST_CHARACTERS = 20_000
_MOST_OF_LINE = 2000
# An array or object as an argument has one line up to this length.
_MOST_OF_ARGUMENT = 100
_LONGEST_WAIT_S = 30.0
_VIEW = JOB_VIEW.shown("jid", "state", "put_off", "server", "worker")
# The options of a job that has ended with which a copy is enqueued.
_OF_A_COPY = [name for name, option in OPTIONS.items() if option.is_field and name != "jid"]
_OF_JOB = ("class", "queue", "failures", "length", "tags", "batch")


async def find(request: Request) -> Response:
    """On to the page of the job whose id is in the box of every page."""
    jid = typed(request.query_params.get("id", ""))
    if linkable(jid):
        sites = sites_of(request)
        name = await sites.that_knows(jid)
        return RedirectResponse(sites.address(request, name, "jobs", jid), status_code=303)
    text = "No job has an id as long as this one." if jid else "Type the id of a job into the box above."
    return await render(request, "error.html", title="Find a job", text=text, json="")


async def show(request: Request, refusal: str = "", seen: Hint | None = None) -> Response:
    """The page of one job. It is 200 also for a job that is gone: it says so.

    After a ``refusal``, with the new time that was refused, and the job where the form has ``seen`` it: a
    search could end too soon.
    """
    jid, hint = asked(request)
    site = site_of(request)
    view = await site.read(read_job(site.keys, jid, seen or hint, None if seen else _begin(request)))
    most = 0 if request.query_params.get("whole") else _MOST_CHARACTERS
    seen_at = _seen_at(request, view)
    log = await site.read(read_joblog(site.keys, view.jid))
    ends = await _ends(site, view)
    kept = _kept(view) or next(iter(ends.jobs), None)
    known = view.job or kept
    now = time.time()
    operate = all(map(viewer_of(request).operates, queues_in(view)))
    texts = {} if known is None else _texts(known, site.settings.mask, operate)
    trace = texts.get("Traceback", "")
    return await render(
        request,
        "job.html",
        title=view.jid or "Job without an id",
        operate=operate,
        view=view,
        job=view.job,
        kept=kept,
        ended=ends_of(request, ends.jobs),
        texts=texts,
        most=most,
        is_cut=bool(most) and any(len(text) > most for text in texts.values()),
        result=_result(view, site.settings.mask),
        about=_about(request, view, kept, now),
        **(await _around(request, view.jid, known, now)),
        here=address(request, "jobs", _segment(request), **seen_at),
        known=known,
        story=story(view, known, log.lines if log else ()),
        frames=frames_of(cut(trace, most or len(trace))),
        log=_log(request, log),
        place_word="" if view.place is None else encoded(view.place),
        moves=() if view.place is None else moves_of(view.place),
        searched="" if view.further is None else title_of(view.further.place),
        delays=DELAYS,
        running=ACTIONS,
        refused=refusal,
        typed=form_of(request) if refusal else {},
        finished=address(request, "finished", jid=visible(view.jid)) if ends.next else "",
        **_addresses(request, view, seen_at),
        again={} if kept is None else _copy_of(request, kept),
    )


def _begin(request: Request) -> Further | None:
    """Where the search for the job goes on."""
    place = decoded(request.query_params.get("look", ""))
    return None if place is None else Further(place, request.query_params.get("from", ""))


def _addresses(request: Request, view: JobView, seen_at: dict[str, str]) -> dict[str, Any]:
    """The addresses of the job: in JSON, with all that is cut, where a search goes on, and of its forms."""
    segment = _segment(request)
    in_json = address(request, "api", "jobs", segment, place=seen_at.get("in"), at=seen_at.get("at"))
    return {
        "json": "" if view.job is None else in_json,
        "further": _further(request, view),
        "whole": address(request, "jobs", segment, whole=1, **seen_at),
        "edit": address(request, "jobs", segment, "edit", **seen_at),
        "copy": address(request, "jobs", segment, "edit", **seen_at, copy=1),
    }


async def change(request: Request) -> Response:
    """Act on the job where it was seen, or cancel it where it runs."""
    form = form_of(request)
    jid, _ = asked(request)
    if form.get("action") in [action.word for action in ACTIONS]:
        return await act(request, ACTIONS, address(request, "jobs", _segment(request)))
    place = decoded(form.get("in", ""))
    if place is None:
        raise HTTPException(400, "This action lacks its place.")
    at = form.get("at", "")
    try:
        order = order_of(place, form.get("action", ""), form, form.get("delay", ""))
    except BadArgumentError as error:
        return await show(request, f"Not done: {error}.", Hint(place, at))
    given = {"jid": jid, "at": at, **order.given}
    outcome = await carry_out(request, ON_ONE[order.action], given)
    return said(request, outcome, address(request, "jobs", _segment(request)))


def asked(request: Request) -> tuple[str, Hint | None]:
    """The id of the job, empty if it has none, and where it was seen."""
    segment = _segment(request)
    place, at = decoded(request.query_params.get("in", "")), request.query_params.get("at", "")
    hint = Hint(place, at) if place is not None and at else None
    return "" if segment == NO_ID and hint is not None else segment, hint


def queues_in(view: JobView) -> set[str]:
    """The queues that actions on a job change: the one where it is, and the one in its fields."""
    places = {view.place.queue if view.place else "", view.held.queue if view.held else ""} - {""}
    return places | ({view.job.queue} if view.job and (view.job.queue or not places) else set())


def _seen_at(request: Request, view: JobView) -> dict[str, str]:
    """The part of a query that says where the job was seen.

    A link with it needs no search, which could end before the job is found.
    """
    if view.place is not None and view.row is not None:
        return {"in": encoded(view.place), "at": view.row.at}
    return {name: request.query_params[name] for name in ("in", "at") if name in request.query_params}


def _segment(request: Request) -> str:
    return names.decode(request.path_params["jid"])


def _texts(job: JobRecord, mask: tuple[str, ...], operate: bool) -> dict[str, str]:
    """The long texts of a job by their titles."""
    if job.unreadable:
        stored = job.raw.decode(errors="surrogateescape")
        return {"Stored bytes": shown_bytes(stored, mask, operate=operate)}
    fields = {name: value for name, value in job.fields.items() if name != "error_backtrace"}
    if fields.get("args") is job.args:
        del fields["args"]
    texts = {"Arguments": "\n".join(map(_readable, masked(job.args, mask)))}
    if job.error:
        texts["Error"] = job.error
    if job.error_backtrace:
        texts["Traceback"] = "\n".join(job.error_backtrace)
    return texts | {"Envelope": _pretty(masked(fields, mask))}


async def _ends(site: Site, view: JobView) -> FinishedPage:
    """What is kept of the ends of a job that is nowhere, or not found so far; empty for any other."""
    if view.job is not None:
        return FinishedPage((), "", ())
    return await read_ends(site, view.jid)


def _about(request: Request, view: JobView, kept: JobRecord | None, now: float) -> list[Listing[Any]]:
    """What is known of the job: where it is, what is stored, and what its status adds to that."""
    state = partial(_state, request, kept)
    found: list[Listing[Any]] = [Listing(request, _VIEW, [view], now, html={"state": state})]
    job, known = view.job, view.job or kept
    if known:
        stored = JOB.shown(*_OF_JOB) if job else JOB.shown("class", "queue", "batch")
        html: Mapping[str, Callable[[JobRecord], Markup]] = {
            "class": lambda job: link(request, "metrics", job.job_class),
            "length": lambda job: escape(size(job.length)),
            "tags": lambda job: tags_of(request, job.tags[:50]),
        }
        found.append(Listing(request, stored, [known], now, html=html))
    names = [*([] if known and known.queue else ["queue"]), "progress"]
    columns = STATUS.shown(*names, *([] if job and job.error else ["error"]))
    error: Mapping[str, Callable[[JobStatus], Markup]] = {"error": lambda status: shown(status.error, 2000)}
    return [*found, Listing(request, columns, [view.tracked.status], now, html=error)]


def _state(request: Request, kept: JobRecord | None, view: JobView) -> Markup:
    """Where the job is; of a job that is nowhere, and has no status, how it ended."""
    state: str | Markup = view.state
    if view.state is JobState.UNKNOWN and view.further is None and isinstance(kept, FinishedJob):
        state = shown(kept.facts.state)
    parts = Markup("<strong>{}</strong>").format(state)
    if view.place is not None:
        href = address(request, *segments_of(view.place))
        parts += Markup(', in <a href="{}">{}</a>').format(href, shown(title_of(view.place)))
    if view.row is not None:
        parts += f", at place {number(view.row.index + 1)}"
    return parts + (Markup(' <span class="tag">cancelled</span>') if view.tracked.cancelled else "")


def _kept(view: JobView) -> JobRecord | None:
    """A job that is in no place any more, as its history has it; None without one."""
    history = view.tracked.history
    if view.job or history is None or not history.job:
        return None
    # With escapes: a text of a job may have a lone surrogate.
    return JobRecord(simplejson.dumps(history.job, allow_nan=True).encode())


def _copy_of(request: Request, kept: JobRecord) -> dict[str, str]:
    """The form *Enqueue* for a copy of a job that has ended; empty if not all its arguments are shown."""
    if not kept.queue or not viewer_of(request).operates(kept.queue):
        return {}
    args, options = kept.data.get("args"), {name: kept.data[name] for name in _OF_A_COPY if name in kept.data}
    if not isinstance(args, list) or not kept.job_class or kept.data.get(sealing.FIELD) is True:
        return {}
    try:
        if masked(args, site_of(request).settings.mask) != args:
            return {}
        texts = {"args": simplejson.dumps(args), "options": simplejson.dumps(options) if options else ""}
    except (ValueError, RecursionError):
        return {}
    if sum(map(len, texts.values())) > _MOST_CHARACTERS:
        return {}
    return {"class": visible(kept.job_class), "queue": visible(kept.queue), **texts}


def _readable(value: Any) -> str:
    """A value as JSON: in one line if it is short, else indented."""
    line = json_text(value)
    is_short = len(line) <= _MOST_OF_ARGUMENT or not isinstance(value, dict | list)
    return line if is_short else _pretty(value)


def _pretty(value: Any) -> str:
    try:
        return simplejson.dumps(value, indent=2, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        return json_text(value)


def _result(view: JobView, mask: tuple[str, ...]) -> str | None:
    """What the job returned, as JSON; None if it is not kept."""
    answer = view.tracked.answer
    if answer is None or answer.state is not JobState.DONE:
        return None
    return _pretty(masked(answer.result, mask))


def _log(request: Request, log: JobLog | None) -> Listing[LogLine]:
    """The lines of the log, the last of them last."""
    html = {"text": _log_text, "level": _log_level}
    return Listing(request, LOG_LINE.shown(), log.lines if log else (), time.time(), html=html)


def _log_text(line: LogLine) -> Markup:
    text = shown(line.text, _MOST_OF_LINE)
    if not line.fields:
        return text
    return Markup('{} <code class="note">{}</code>').format(text, shown(fields_text(line), _MOST_OF_LINE))


def _log_level(line: LogLine) -> Markup:
    if line.state:
        return Markup("<strong>{}</strong>").format(shown(line.state))
    tone = {"warning": "warn", "error": "bad", "critical": "bad"}.get(line.level, "note")
    return Markup('<span class="{}">{}</span>').format(tone, shown(line.level))


async def _stack(request: Request, jid: str) -> JobStack | None:
    """The answer about a job, for people who may act on its queue: it shows code."""
    site, viewer = site_of(request), viewer_of(request)
    stack = await site.read(read_stack(site.keys, jid)) if viewer.role == "operate" else None
    return stack if stack is not None and viewer.operates(stack.queue) else None


_STACK = JOB_STACK.shown("pid", "state", "rss_kb", "peak_kb", "at")


async def _around(request: Request, jid: str, known: JobRecord | None, now: float) -> dict[str, Any]:
    """The stack of the job, and the graph of its batch."""
    site, graph = site_of(request), None
    if known is not None and known.batch and linkable(known.batch):
        graph = await site.read(read_graph(site.keys, known.batch))
    return {**(await _stack_parts(request, jid, now)), **graph_of(request, graph, now)}


async def _stack_parts(request: Request, jid: str, now: float) -> dict[str, Any]:
    """What the server of the job has said of its process: the answer, its facts, and its frames."""
    stack = await _stack(request, jid)
    rows = [stack] if stack and stack.pid else ()
    return {
        "stack": stack,
        "stack_facts": Listing(request, _STACK, rows, now, html={"pid": lambda stack: escape(stack.pid)}),
        "stack_frames": frames_of(stack.text) if stack else (),
    }


def _further(request: Request, view: JobView) -> str:
    """The address of the next part of the search; empty if it is complete."""
    if view.further is None:
        return ""
    query = {"look": encoded(view.further.place), "from": view.further.cursor}
    return address(request, "jobs", _segment(request), **query)


async def _read(ask: CheckedRequest) -> Mapping[str, Any]:
    jid, given = ask.names["jid"], ask.given
    if given["wait"] is not None or viewer_of(ask.request).role == "enqueue":
        return await _read_result(ask, jid, min(given["wait"] or 0.0, _LONGEST_WAIT_S))
    place = _place_in(given["place"])
    hint = Hint(place, given["at"]) if place and given["at"] else None
    begin = Further(place, given["cursor"]) if place and given["cursor"] is not None else None
    view = await ask.site.read(read_job(ask.keys, jid, hint, begin))
    if view.job is None and view.further is None and view.state is JobState.UNKNOWN:
        raise HTTPException(404, "There is no such job.")
    return view.as_dict()


async def _read_result(ask: CheckedRequest, jid: str, seconds: float) -> Mapping[str, Any]:
    """The state of a job, and its result; waits for its end."""
    found = await ask.site.read(read_result(ask.keys, jid))
    if found is None or not viewer_of(ask.request).rights.cover(found.status.queue):
        raise HTTPException(404, "There is no such job.")
    if not found.ended and seconds:
        waits = waits_of(ask.request)
        if waits.full:
            text = f"{MOST_WAITS} programs wait for results: ask again, or without wait."
            raise HTTPException(429, text, {"Retry-After": "1"})
        await waits.wait(ask.request, jid, seconds)
        found = await ask.site.read(read_result(ask.keys, jid)) or found
    return found.as_dict()


async def _read_joblog(ask: CheckedRequest) -> Mapping[str, Any]:
    after = ask.given["after"] or ""
    if after and not re.fullmatch(r"\d{1,20}-\d{1,20}", after, re.ASCII):
        raise BadRequestError("after must be last of an earlier answer, e.g. 1795225197500-0")
    log = await ask.site.read(read_joblog(ask.keys, ask.names["jid"], after))
    return found(log, "log").as_dict()


async def _read_stack(ask: CheckedRequest) -> Mapping[str, Any]:
    return found(await _stack(ask.request, ask.names["jid"]), "stack").as_dict()


async def _act_running(action: Action[Any], ask: CheckedRequest) -> int:
    jid = ask.names["jid"]
    held = (await ask.site.read(read_job(ask.keys, jid))).held
    if held is None:
        raise HTTPException(409, "The job does not run: nothing was changed.")
    given = {"jid": jid, "server": held.identity, "queue": held.queue}
    return await number_done(ask.request, action, given)


def _place_in(word: str | None) -> Place | None:
    place = Place.read(word) if word else None
    if word and place is None:
        raise BadRequestError(f"place must be {PLACES}")
    return place


ROUTES = [Route("/jobs", find), Route("/jobs/{jid}", show), Route("/jobs/{jid}", change, methods=["POST"])]
RESOURCES = (
    Resource(
        "/jobs/{jid}",
        "One job, in any place. A long search goes on with further. With wait, and for the role enqueue: its "
        "state and its result alone.",
        _read,
        {"anyOf": [JOB_VIEW.schema, JOB_RESULT.schema]},
        [
            Parameter("place", f"Where to look first: {PLACES}"),
            Parameter("at", "Its at in that place."),
            Parameter("cursor", "Where a search goes on in that place: the cursor of further."),
            Parameter("wait", "Seconds to wait for the end of a tracked job, at most 30.", "number", least=0),
        ],
        [
            *ON_ONE.values(),
            EDIT,
            Change("cancel", "Cancel the job, which runs.", partial(_act_running, CANCEL)),
        ],
        readers=("read", "enqueue", "operate"),
        sought=True,
    ),
    Resource(
        "/jobs/{jid}/stack",
        "Where a running job is, and the memory of its process, as its server has answered the last request. "
        "POST asks for it; the answer comes within seconds.",
        _read_stack,
        JOB_STACK.schema,
        actions=[Change("stack", STACK.about, partial(_act_running, STACK))],
        readers=["operate"],
        sought=True,
    ),
    Resource(
        "/jobs/{jid}/logs",
        "What a job has written while it ran, and how its runs have ended.",
        _read_joblog,
        JOB_LOG.schema,
        [Parameter("after", "Only the lines behind the one with this id: last of an earlier answer.")],
        sought=True,
    ),
)
