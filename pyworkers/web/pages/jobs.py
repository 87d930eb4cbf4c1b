"""Jobs: the lists of a queue, of Scheduled, Retries and Dead; does what a form on their page asks for.

Runs in the event loop of the dashboard; the changes run in a thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers.api.actions import Performed
from pyworkers.api.browse.actions import ON_ONE, ON_SEVERAL, JobMove, Order, moves_of
from pyworkers.api.browse.pages import JOBS, PAGE, Row, read_page, read_rows
from pyworkers.api.browse.places import SETS, Place
from pyworkers.api.browse.search import Sought, position_of, read_matches
from pyworkers.api.parameters import BadRequestError, Parameter, paging
from pyworkers.api.queue import SWITCHES, read_pause
from pyworkers.api.queuestats import read_queue
from pyworkers.api.stats import Stats
from pyworkers.errors import BadArgumentError, RedisUnavailableError, StoreError
from pyworkers.web import names
from pyworkers.web.acting import carry_out, check_queues, done, queues_of, undone
from pyworkers.web.buttons import act, said
from pyworkers.web.json.resources import Change, Changed, CheckedRequest, Resource, number_done
from pyworkers.web.lists.asking import (
    MOST_CHARACTERS,
    MOST_SELECTED,
    Asked,
    ages_of,
    decoded,
    encoded,
    filter_of,
    order_of,
)
from pyworkers.web.lists.columns import chosen, keep, offered
from pyworkers.web.lists.showing import listing, most_frequent, segments_of
from pyworkers.web.lists.words import DELAYS, title_of
from pyworkers.web.live.reader import Feed, Reader
from pyworkers.web.names import number_in
from pyworkers.web.pages import gauges
from pyworkers.web.pages.tasks import begin
from pyworkers.web.paging import own_of, rank_in
from pyworkers.web.rendering import address, own_address, render
from pyworkers.web.security import form_of
from pyworkers.web.several import ALL, is_of_all, page_of_all, sites_of
from pyworkers.web.showing import number
from pyworkers.web.site import site_of
from pyworkers.web.tables import Listing, Sort, joined, words

_ALL = "all-"
_ASK = "ask-"
_NONE = "No job is selected."
# In an address: the place from its other end.
_ORDER = "reversed"
# In the address of a list of all, with the name of a Redis: the page is before this rank there.
_BEFORE = "before"
FILTERS = (
    Parameter("class", "Of this class; * is any text.", longest=MOST_CHARACTERS),
    Parameter("jid", "With this id.", longest=MOST_CHARACTERS),
    Parameter("queue", "Of this queue.", longest=MOST_CHARACTERS),
    Parameter("tag", "With this tag.", longest=MOST_CHARACTERS),
    Parameter("batch", "Of this batch, without those inside it.", longest=MOST_CHARACTERS),
    Parameter(
        "error", "Whose last error contains this text, in upper or lower case.", longest=MOST_CHARACTERS
    ),
    Parameter("error_like", "Whose last error is this one of `pyworkers errors`.", longest=MOST_CHARACTERS),
    Parameter("text", "Whose arguments contain this text, in upper or lower case.", longest=MOST_CHARACTERS),
    Parameter("older", "Older than this many seconds.", "number", least=0),
    Parameter("younger", "Younger than this many seconds.", "number", least=0),
)
_PAGING = (
    *paging(),
    Parameter("cursor", "Where a search goes on: the cursor of the answer before."),
)
_JOBS = Parameter("jobs", "The jobs, by their at; without it, all that the conditions select.", "array")


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of a page. ``previous`` and ``next``: queries of the pages around it; None at the ends.

    ``looked_at``: how far a search has come; None without a filter.
    """

    rows: tuple[Row, ...]
    total: int
    first: int
    previous: Mapping[str, object] | None
    next: Mapping[str, object] | None
    looked_at: int | None = None
    fault: str = ""
    """Why there are no rows, although the key exists."""
    rows_at: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    """The rows by Redis, in a list of all."""


async def show(request: Request, refusal: str = "", asking: JobMove | None = None) -> Response:
    """The page of a list; after a ``refusal``, with the fields of the form that was refused.

    ``asking``: the page asks before it does this with the selected jobs.
    """
    place, asked = _place(request), Asked.of(request.query_params)
    sites = sites_of(request)
    of_all = bool(sites.parts) and not place.queue
    lists = await sites.each(request, _listed) if of_all else {sites.own: await _listed(request)}
    back = f"{_BEFORE}." in request.url.query
    listed = _listed_in_all(place, asked, lists, back=back) if of_all else lists[sites.own]
    known: dict[str, Any] = {
        "switches": SWITCHES,
        "place": place,
        "asked": asked,
        "listed": listed,
        "rows": _table(request, place, listed),
        "columns": offered(place),
        "shown_columns": chosen(request, place),
        "order": _ORDER if place.reversed else None,
        "news": _feed(place, {name: one.total for name, one in lists.items()}, of_all=of_all),
        "news_of": [f"{name}/" for name in lists] if of_all else [""],
        "of_all": of_all,
        "own": segments_of(place),
        "ages_of": ages_of,
        "delays": DELAYS,
        "moves": moves_of(place),
        "classes": most_frequent(row.job.job_class for row in listed.rows),
        "errors": most_frequent(row.job.error_class for row in listed.rows),
        "refused": refusal,
        "typed": form_of(request) if refusal else {},
        "selected": _selected(request) if refusal or asking else (),
        "asking": asking,
        **(await _of_queue(request, place.queue)),
    }
    if listed.fault:
        # Its JSON would be the fault alone.
        known["json"] = ""
    answer = await render(request, "jobs.html", title=place.queue or title_of(place), **known)
    keep(request, answer, place)
    return answer


def _table(request: Request, place: Place, listed: Listed) -> Listing[Row]:
    """The jobs of the page, in a list of all with the name of their Redis."""
    sites, mask = sites_of(request), site_of(request).settings.mask
    sort, now = _sort(request, place), time.time()
    if not listed.rows_at:
        return listing(request, place, listed.rows, now, mask, sort)
    tables = {
        name: listing(sites.at(request, name), place, rows, now, mask, sort)
        for name, rows in listed.rows_at.items()
    }
    return joined(request, tables, partial(_time, place))


async def _of_queue(request: Request, queue: str) -> dict[str, Any]:
    """What the page of a queue shows besides its jobs; ``queue`` is empty for the other lists."""
    if not queue:
        return {"facts": None, "state": ""}
    site = site_of(request)
    facts = await site.read(read_queue(site.keys, queue))
    state = words(request, facts.words()) if facts else ""
    pause = await site.read(read_pause(site.keys, queue)) if facts and facts.paused else None
    return {"facts": facts, "state": state, "pause": pause, **(await gauges.of_queue(request, queue))}


async def show_queue(request: Request) -> Response:
    """The page of a queue. If the address names no Redis, it leads to the Redis that has the queue.

    Of several that have it, to the one of the configuration.
    """
    sites, queue = sites_of(request), names.decode(request.path_params["name"])
    if not sites.parts:
        return await show(request)

    async def read(at: Request) -> bool:
        facts = await site_of(at).read(read_queue(site_of(at).keys, queue))
        return bool(facts.size or facts.in_progress or facts.served or facts.paused)

    having = [name for name, has in (await sites.each(request, read)).items() if has]
    home = site_of(request).settings.elsewhere(queue)
    if home not in having and (not having or sites.own in having):
        return await show(request)
    query = f"?{request.url.query}" if request.url.query else ""
    there = address(sites.at(request, home if home in having else having[0]), "queues", queue)
    return RedirectResponse(f"{there}{query}", status_code=303)


def _sort(request: Request, place: Place) -> Sort:
    """The link that turns the order of a place, by its time, around."""
    query = Asked.of(request.query_params).query()
    href = address(request, *segments_of(place), **query, order=None if place.reversed else _ORDER)
    return Sort(href, "descending" if place.descending else "ascending")


def _feed(place: Place, totals: Mapping[str, int], *, of_all: bool) -> str:
    sizes = {f"of.{name}" if of_all else "of": total for name, total in totals.items()}
    query = urlencode({"in": encoded(place), **sizes}, errors="surrogateescape")
    return f"{ALL if of_all else ''}jobs?{query}"


def parts(reader: Reader, request: Request, parameters: str) -> dict[str, str]:
    """How many jobs have come to a place since its page was loaded, or have left it."""
    given = dict(parse_qsl(parameters, errors="surrogateescape"))
    name = site_of(request).settings.name if is_of_all(request) else ""
    place, total = decoded(given.get("in", "")), number_in(given.get(f"of.{name}" if name else "of", ""), 15)
    size = None if place is None or reader.last is None else _size(reader.last, place)
    if size is None or total is None or size == total:
        return {"news": ""}
    words = f"{number(size - total)} new" if size > total else f"{number(total - size)} fewer"
    where = f" in {name}" if name else ""
    return {"news": str(Markup('<a href="">{}{}: show</a>').format(words, where))}


def _size(stats: Stats, place: Place) -> int | None:
    if place.queue:
        return next((queue.size for queue in stats.queues if queue.name == place.queue), None)
    return {"scheduled": stats.scheduled, "retries": stats.retries, "dead": stats.dead}[place.word]


async def _listed(request: Request) -> Listed:
    """The rows of one Redis that the address asks for."""
    place, query = _place(request), request.query_params
    first, cursor, before = (own_of(request, name) for name in ("first", "from", _BEFORE))
    asked = Asked.of({**query, "first": first or "", "from": cursor or ""})
    try:
        if before and asked.wanted.empty and is_of_all(request):
            return await _read_before(request, place, rank_in(before))
        if first is not None and cursor is not None and before is not None:
            return await _read(request, place, asked)
        # All rows are on the pages before.
        total = (await site_of(request).read(read_page(site_of(request).keys, place, 0, 1))).total
        return Listed((), total, total, None, None, None if asked.wanted.empty else total)
    except StoreError as error:
        if error.code:
            raise
        return Listed((), 0, 0, None, None, fault=error.message)


def _time(place: Place, row: Row) -> float:
    """What a list of all Redis servers is sorted by."""
    return -(row.score or 0.0) if place.descending else row.score or 0.0


def _listed_in_all(place: Place, asked: Asked, lists: Mapping[str, Listed], *, back: bool) -> Listed:
    """A page of all Redis servers: their first jobs by time, or all that their searches have found.

    ``back``: the page before instead, so the last of the jobs that were read.
    """
    found = {name: one.rows for name, one in lists.items()}
    firsts = {name: one.first for name, one in lists.items()}
    previous: dict[str, str] = {}
    following: dict[str, str] = {}
    if asked.wanted.empty:
        skipped = max(0, sum(map(len, found.values())) - PAGE) if back else 0
        rows_at = page_of_all(found, partial(_time, place), skipped, PAGE)
        if back:
            firsts = {name: first + len(found[name]) - len(rows_at[name]) for name, first in firsts.items()}
        ends = {name: first + len(rows_at[name]) for name, first in firsts.items()}
        previous = {f"{_BEFORE}.{name}": str(first) for name, first in firsts.items()}
        following = {f"first.{name}": str(end + 1) for name, end in ends.items() if end < lists[name].total}
    else:
        rows_at = {name: list(rows) for name, rows in found.items()}
        following = {f"from.{name}": str(one.next["from"]) for name, one in lists.items() if one.next}
    looked_at = [one.looked_at for one in lists.values() if one.looked_at is not None]
    first = sum(firsts.values())
    return Listed(
        tuple(row for rows in rows_at.values() for row in rows),
        sum(one.total for one in lists.values()),
        first,
        asked.query(**previous) if first or any(one.previous for one in lists.values()) else None,
        asked.query(**following) if following else None,
        sum(looked_at) if looked_at else None,
        " ".join(f"{name}: {one.fault}" for name, one in lists.items() if one.fault),
        rows_at,
    )


async def _read_before(request: Request, place: Place, end: int) -> Listed:
    """The rows of one Redis before this rank, as many as a page has."""
    site, first = site_of(request), max(0, end - PAGE)
    page = await site.read(read_page(site.keys, place, first, max(1, end - first)))
    return Listed(page.rows[: end - first], page.total, page.first, None, None)


async def _read(request: Request, place: Place, asked: Asked) -> Listed:
    site = site_of(request)
    if asked.wanted.empty:
        page = await site.read(read_page(site.keys, place, asked.first - 1))
        before = {"first": max(1, page.first + 1 - PAGE)} if page.first else None
        following = {"first": page.last + 1} if page.last < page.total else None
        return Listed(page.rows, page.total, page.first, before, following)
    sought = Sought(place, asked.wanted, time.time(), site.settings.mask)
    found = await site.read(read_matches(site.keys, sought, position_of(asked.cursor)))
    again = asked.query() if asked.cursor else None
    more = asked.query(**{"from": found.cursor}) if found.cursor else None
    return Listed(found.rows, found.total, 0, again, more, found.looked_at)


async def change(request: Request) -> Response:
    """Do what a form of the list asks for: with one job, with the selected ones, or with all that match.

    With ``ask-`` before its word, it asks before. A queue can be paused and resumed, too.
    """
    form, place = form_of(request), _place(request)
    verb, ats = form.get("action", ""), _selected(request)
    if place.queue and verb in [action.word for action in SWITCHES]:
        return await act(request, SWITCHES, own_address(request))
    if one := form.get("one"):
        verb, _, at = one.partition("|")
        ats = [at]
    if verb.startswith(_ASK) and ats:
        return await show(request, asking=_asking(place, verb.removeprefix(_ASK)))
    verb = verb.removeprefix(_ASK)
    try:
        order = order_of(place, verb.removeprefix(_ALL), form, form.get("in", ""))
    except BadArgumentError as error:
        return await show(request, f"Not done: {error}.")
    if verb.startswith(_ALL):
        task = await begin(request, order, Asked.of(request.query_params).wanted)
        return RedirectResponse(address(request, "tasks", task.id), status_code=303)
    if not ats:
        return await show(request, _NONE)
    if sites_of(request).parts and not place.queue:
        return await _carry_out(request, order, ats)
    return said(request, await _do(request, order, ats), own_address(request))


async def _do(request: Request, order: Order, ats: Sequence[str]) -> Performed:
    """Act on the selected jobs of one Redis. The audit has the id of a single one, and a link to it."""
    site = site_of(request)
    if len(ats) == 1:
        [row] = await site.read(read_rows(site.keys, order.place, ats))
        if row is not None and row.job.jid:
            given = {"jid": row.job.jid, "at": row.at, **order.given}
            return await carry_out(request, ON_ONE[order.action], given)
    return await carry_out(request, ON_SEVERAL[order.action], {"jobs": [*ats], **order.given})


async def _carry_out(request: Request, order: Order, ats: Sequence[str]) -> Response:
    """Do it with the selected jobs of a list of all, at the Redis of each."""
    sites, action = sites_of(request), ON_SEVERAL[order.action]
    given: dict[str, dict[str, Any]] = {}
    for name, _, at in (selected.partition("|") for selected in ats):
        if name not in sites.parts:
            raise HTTPException(400, "A selected job has no Redis: load the page again.")
        given.setdefault(name, {"jobs": [], **order.given})["jobs"].append(at)
    places = {name: sites.at(request, name) for name in given}
    for name, at_redis in places.items():
        check_queues(at_redis, await queues_of(at_redis, action, given[name]))
    texts, failed = [], False
    for name, at_redis in places.items():
        try:
            outcome = await _do(at_redis, order, given[name]["jobs"])
        except (RedisUnavailableError, StoreError) as error:
            texts.append(f"{name}: {undone(at_redis, error)[1]}")
            failed = True
            continue
        if len(given) == 1:
            return said(at_redis, outcome, own_address(request))
        texts.append(f"{name}: {outcome.words(str)}.")
        failed = failed or outcome.failed
    return done(request, own_address(request), " ".join(texts), failed=failed)


def _asking(place: Place, word: str) -> JobMove:
    """The action before which a form asks. Raises HTTPException (400)."""
    for move in moves_of(place):
        if move.action == word and move.asks:
            return move
    raise HTTPException(400, "This action is unknown, or done without a question.")


def _selected(request: Request) -> list[str]:
    """The places of the jobs that a form has selected."""
    return form_of(request).getlist("job")[:MOST_SELECTED]


def _place(request: Request) -> Place:
    """The queue that the address names, or the set."""
    is_reversed = request.query_params.get("order") == _ORDER
    if "name" in request.path_params:
        return Place.of_queue(names.decode(request.path_params["name"]), reversed=is_reversed)
    return Place(request.url.path.rstrip("/").rpartition("/")[2], is_reversed)


def _place_of(ask: CheckedRequest, word: str) -> Place:
    return Place.of_queue(ask.names["name"]) if word == "queue" else Place(word)


async def _list(word: str, ask: CheckedRequest) -> dict[str, Any]:
    """A page; with a condition, what a search finds in a bounded time."""
    place, given = _place_of(ask, word), ask.given
    wanted = filter_of(given)
    if wanted.empty and not given["cursor"]:
        return (await ask.site.read(read_page(ask.keys, place, given["first"], given["count"]))).as_dict()
    sought = Sought(place, wanted, time.time(), tuple(ask.site.settings.mask))
    begin = position_of(given["cursor"] or "")
    return (await ask.site.read(read_matches(ask.keys, sought, begin, given["count"]))).as_dict()


async def _change(word: str, move: JobMove, ask: CheckedRequest) -> Changed:
    """Act on the named jobs; or note an order on all that are selected, which is to be confirmed."""
    ats = ask.given["jobs"]
    order = Order(_place_of(ask, word), move.action, ask.given.get("time"))
    if ats is None:
        task = await begin(ask.request, order, filter_of(ask.given))
        return {"done": 0, "task": task.id}
    if len(ats) > MOST_SELECTED:
        raise BadRequestError(f"jobs has more than {MOST_SELECTED} entries: pass conditions instead.")
    if not filter_of(ask.given).empty:
        raise BadRequestError("Pass either jobs or conditions.")
    return await number_done(ask.request, ON_SEVERAL[move.action], {"jobs": ats, **order.given})


def _actions(word: str) -> Sequence[Change]:
    place = Place.of_queue("any") if word == "queue" else Place(word)
    return [
        Change(move.action, move.about, partial(_change, word, move), [_JOBS, *FILTERS, *move.fields])
        for move in moves_of(place)
    ]


def _resource(path: str, about: str, word: str) -> Resource:
    parameters = [*_PAGING, *FILTERS]
    sign = -1 if word == "dead" else 1

    def by_time(row: Mapping[str, Any]) -> float:
        return sign * float(row.get("score", 0))

    order = itemgetter("index") if word == "queue" else by_time
    return Resource(
        path, about, partial(_list, word), JOBS, parameters, _actions(word), rows="jobs", order=order
    )


FEEDS: Mapping[str, Feed] = {"jobs": parts}
ROUTES = [
    route
    for path, page in (("/queues/{name}", show_queue), *((f"/{word}", show) for word in SETS))
    for route in (Route(path, page), Route(path, change, methods=["POST"]))
]
RESOURCES = (
    _resource("/queues/{name}/jobs", "The waiting jobs of a queue, the next one first.", "queue"),
    _resource("/scheduled", "The scheduled jobs, the next one first.", "scheduled"),
    _resource("/retries", "The failed jobs that wait for their next attempt, the next one first.", "retries"),
    _resource("/dead", "The dead jobs, the latest first.", "dead"),
)
