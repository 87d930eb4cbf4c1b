"""Finding: what a text names: pages, queues, classes, servers, a job, a batch; and the searches for it.

Runs in the event loop of the dashboard. Names come from what pages read anyway, a job and a batch by their
ids; no list is searched before a person follows the link to it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pyworkers.api.batches import read_batch
from pyworkers.api.browse.lookup import read_job
from pyworkers.api.metrics import read_class_names
from pyworkers.api.parameters import Parameter
from pyworkers.api.schemas import TEXT, array, record
from pyworkers.api.stats import Stats, read_stats
from pyworkers.errors import RedisUnavailableError, StoreError
from pyworkers.protocol.status import JobState
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.lists.asking import MOST_CHARACTERS, typed
from pyworkers.web.live.reader import reader_of
from pyworkers.web.navigation import NAVIGATION
from pyworkers.web.pages.finished import read_ends
from pyworkers.web.rendering import address, linkable, render
from pyworkers.web.security import viewer_of
from pyworkers.web.several import sites_of
from pyworkers.web.showing import counted, visible
from pyworkers.web.site import Site

_MOST = 8
"""The names of one kind."""
_MOST_SEARCHED = 3
# What an id may be; a shorter text would look for a job at each key of a person who types.
_ID = re.compile(r"\S{8,255}")
# What looks like an id of a job server, or like a UUID; any other text is more often a tag.
_LIKE_AN_ID = re.compile(r"[0-9a-fA-F-]{12,}")
_TITLES = {
    "page": "Pages",
    "queue": "Queues",
    "class": "Classes",
    "server": "Servers",
    "job": "Job",
    "batch": "Batch",
    "search": "Search in the jobs",
    "away": "Not searched",
}
"""The kinds in their order, with their titles."""
_ABOUT = {
    "problems": "causes, mute",
    "metrics": "classes, runs, failures, durations, deployments",
    "queues": "waiting jobs, latency, pause, resume, clear",
    "running": "busy jobs, progress, stack, cancel",
    "scheduled": "later jobs",
    "retries": "failed jobs, next attempts",
    "dead": "failed jobs, no more attempts",
    "errors": "exceptions in groups, new since deployments",
    "finished": "completed jobs",
    "enqueue": "new job",
    "batches": "members, progress, cancel",
    "cron": "periodic jobs, slots, last runs",
    "limits": "rates, holders",
    "locks": "unique jobs",
    "servers": "workers, processes, hosts, quiet, stop",
    "alarms": "alerts, silence",
    "thresholds": "red numbers",
    "audit": "who did what, undo of deleted jobs",
}
"""What pages are also called, and are found by: in the words of a person who does not know their names."""
_LEAST_OF_A_WORD = 3
_SEARCHES = (
    ("class", "of a class with", "*{}*", ("dead", "retries", "scheduled")),
    ("class", "of the class", "{}", ("finished",)),
    ("error", "whose error contains", "{}", ("dead", "retries")),
    ("text", "whose arguments contain", "{}", ("dead", "retries", "scheduled")),
)
"""The conditions of lists of jobs: the parameter, its words, its value, and the lists."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """One thing that a text names, with the address of its page; ``about`` says more of it."""

    kind: str
    name: str
    href: str = ""
    about: str = ""

    def as_dict(self) -> dict[str, str]:
        """The result for JSON."""
        return {"kind": self.kind, "name": self.name, "href": self.href, "about": self.about}


async def show(request: Request) -> Response:
    """The page: all that the text names, by kind. On to a job or a batch, if it names nothing else."""
    text = _text_of(request.query_params.get("q", ""))
    found = await findings(request, text)
    named = [one for one in found if one.kind not in ("search", "away")]
    if len(named) == 1 and named[0].kind in ("job", "batch"):
        return RedirectResponse(named[0].href, status_code=303)
    kinds = [(_TITLES[kind], list(some)) for kind, some in groupby(found, key=lambda one: one.kind)]
    return await render(
        request, "find.html", title="Find", sought=text, kinds=kinds, named=bool(named),
        json=address(request, "api", "find", q=visible(text)),
    )  # fmt: skip


async def findings(request: Request, text: str) -> list[SearchResult]:
    """All that a text names; the pages, for an empty one. Raises PyworkersError."""
    found = list(_pages(request, text))
    if text:
        waiting: list[SearchResult] = []
        sites = sites_of(request).by_name
        for some, searches in await asyncio.gather(
            *(_of_redis(request, name, site, text) for name, site in sites.items())
        ):
            found += some
            waiting += searches
        found += _searches(request, text, waiting)
    kinds = list(_TITLES)
    return sorted(found, key=lambda one: kinds.index(one.kind))


def _text_of(given: str) -> str:
    return typed(given.strip()[:MOST_CHARACTERS])


def _pages(request: Request, text: str) -> Iterator[SearchResult]:
    operates = viewer_of(request).role == "operate"
    for path, title in NAVIGATION:
        about = _ABOUT.get(path, "")
        if _is_meant(text.casefold(), title, about) and (operates or path != "enqueue"):
            yield SearchResult("page", title, address(request, path) if path else address(request), about)


def _is_meant(text: str, title: str, about: str) -> bool:
    """True for a part of the title, or for the beginning of a word of what the page is about."""
    words = about.replace(",", " ").split() if len(text) >= _LEAST_OF_A_WORD else ()
    return text in title.casefold() or any(word.startswith(text) for word in words)


async def _of_redis(
    request: Request, name: str, site: Site, text: str
) -> tuple[list[SearchResult], list[SearchResult]]:
    """What one Redis has, and searches of its queues.

    One that is away says so, unless the pages are its own.
    """
    sites = sites_of(request)
    is_own = name == sites.own
    to = partial(sites.address, request, name)
    where = f"on {name}" if sites.several else ""
    try:
        stats = await (reader_of(request).recent() if is_own else site.read(read_stats(site.keys)))
        found = list(_named(stats, text, to, where))
        classes = await site.read(read_class_names(site.keys))
        found += (
            SearchResult("class", one, to("metrics", one), where)
            for one in _matching((one for one in classes if linkable(one)), text)
        )
        if _ID.fullmatch(text) and linkable(text):
            found += [one async for one in _by_id(site, text, to, where)]
    except (RedisUnavailableError, StoreError) as error:
        if is_own:
            raise
        return [SearchResult("away", name, to(), error.message)], []
    return found, list(_in_queues(stats, text, to, where))


def _in_queues(stats: Stats, text: str, to: Callable[..., str], where: str) -> Iterator[SearchResult]:
    """The searches of the longest queues."""
    filled = [queue for queue in stats.queues if queue.size and linkable(queue.name)]
    query = urlencode({"text": visible(text)}, errors="surrogateescape")
    for queue in sorted(filled, key=lambda queue: -queue.size)[:_MOST_SEARCHED]:
        words = f"Queue {queue.name}: jobs whose arguments contain {text}"
        yield SearchResult("search", words, f"{to('queues', queue.name)}?{query}", where)


def _named(stats: Stats, text: str, to: Callable[..., str], where: str) -> Iterator[SearchResult]:
    sizes = {queue.name: queue.size for queue in stats.queues if linkable(queue.name)}
    for name in _matching(sizes, text):
        yield SearchResult(
            "queue", name, to("queues", name), _words(f"{counted(sizes[name], 'job')} waiting", where)
        )
    servers = [server.identity for server in stats.servers if linkable(server.identity)]
    for name in _matching(servers, text):
        yield SearchResult("server", name, to("servers", name), where)


async def _by_id(site: Site, text: str, to: Callable[..., str], where: str) -> AsyncIterator[SearchResult]:
    view = await site.read(read_job(site.keys, text))
    if view.job is not None or view.state is not JobState.UNKNOWN:
        about = view.job.job_class if view.job is not None else ""
        yield SearchResult("job", text, to("jobs", text), _words(about, view.state.value, where))
    elif ends := (await read_ends(site, text)).jobs:
        about, state = ends[0].job_class, ends[0].facts.state
        yield SearchResult("job", text, to("jobs", text), _words(about, state, where))
    if await site.read(read_batch(site.keys, text)) is not None:
        yield SearchResult("batch", text, to("batches", text), where)


def _matching(names: Iterable[str], text: str) -> list[str]:
    """The first names with the text in them, in any case; those that begin with it first."""
    wanted = text.casefold()
    found = [name for name in names if wanted in name.casefold()]
    return sorted(found, key=lambda name: (not name.casefold().startswith(wanted), name.casefold()))[:_MOST]


def _words(*parts: str) -> str:
    return ", ".join(filter(None, parts))


def _searches(request: Request, text: str, waiting: Iterable[SearchResult]) -> Iterator[SearchResult]:
    """The lists of jobs with a filter, which look through the jobs only then. ``waiting``: of queues."""
    titles = dict(NAVIGATION)
    href = address(request, "jobs", id=visible(text)) if linkable(text) else ""
    by_id = SearchResult("search", f"A job with the id {text}, in all places", href)
    is_id = _LIKE_AN_ID.fullmatch(text) is not None
    if is_id and href:
        yield by_id
    if href:
        yield SearchResult("search", f"All jobs with the tag {text}", address(request, "tags", text))
        yield SearchResult(
            "search", f"Batches with the tag {text}", address(request, "batches", tag=visible(text))
        )
    for parameter, words, form, places in _SEARCHES:
        for place in places:
            to = address(request, place, **{parameter: form.format(visible(text))})
            yield SearchResult("search", f"{titles[place]} {words} {text}", to)
    yield from waiting
    if href and not is_id:
        yield by_id


async def _find(ask: CheckedRequest) -> Sequence[Mapping[str, str]]:
    return [one.as_dict() for one in await findings(ask.request, _text_of(ask.given["q"] or ""))]


ROUTES = [Route("/find", show)]
RESOURCES = (
    Resource(
        "/find",
        "What a text names: pages, queues, classes, servers, a job or a batch by its id; and searches.",
        _find,
        array(record("SearchResult", {"kind": TEXT, "name": TEXT, "href": TEXT, "about": TEXT})),
        [Parameter("q", "The text.")],
    ),
)
