"""Several: the Redis servers of a program in its dashboard, each with pages below ``/redis/NAME``.

Each Redis has all pages and all JSON there; their links and actions stay below its address. The lists without
``/redis/NAME`` show all of them, in one table; the other pages there show the first Redis, which also has the
viewers, the sessions and the secret. Runs in the event loop of the dashboard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pyworkers.api import Stats
from pyworkers.api.browse.lookup import JobView, read_job
from pyworkers.api.schemas import COUNT, TEXT, array, record
from pyworkers.api.stats import read_stats
from pyworkers.errors import PyworkersError, RedisUnavailableError, StoreError
from pyworkers.protocol.status import JobState
from pyworkers.web import names
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.navigation import OF_FIRST, is_joined
from pyworkers.web.roots import HOME, home_of, root_of
from pyworkers.web.security.access import Refusal
from pyworkers.web.security.guard import REDIS
from pyworkers.web.site import Site

_LONGEST_S = 2.0
_ALL = "All"
ALL = "all/"
"""The beginning of the names of feeds that have the live cells of all Redis servers."""
_OF_ALL = "pyworkers.of_all"
COUNTS = ("enqueued", "busy", "scheduled", "retries", "dead", "processes")

T = TypeVar("T")


class ByRedis:
    """The middleware that hands a request to the dashboard of the Redis in its address."""

    def __init__(self, app: ASGIApp, parts: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        root = root_of(scope)
        place, _, rest = str(scope["path"]).removeprefix(root).lstrip("/").partition("/")
        name, _, page = rest.partition("/")
        part = self._parts.get(name) if place == REDIS else None
        if part is None:
            await self._app(scope, receive, send)
            return
        if page.removeprefix("api/").partition("/")[0] in OF_FIRST:
            part = next(iter(self._parts.values()))
        own = f"{root}/{REDIS}/{name}"
        if scope["path"] == own:
            scope = {**scope, "path": f"{own}/", "raw_path": f"{own}/".encode()}
        await part({**scope, "root_path": own, HOME: root}, receive, send)


class ByForm:
    """The middleware that does what a form of a list of all asks for at the Redis that it names.

    What the first one keeps for all stays there.
    """

    def __init__(self, app: ASGIApp, sites: Mapping[str, Site]) -> None:
        self._app = app
        self._sites = sites

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (name := scope["state"]["form"].get(REDIS, "")):
            if name not in self._sites:
                raise Refusal(404, "There is no Redis with this name. Nothing was done.")
            if path_of(Request(scope)) not in OF_FIRST:
                scope["state"]["site"] = self._sites[name]
        await self._app(scope, receive, send)


class Choice(NamedTuple):
    """A Redis in the head of a page, or all of them: the name, and the address of the same list."""

    name: str
    address: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class RedisRow:
    """What the overview says of a Redis; ``stats`` None: it is away, for the reason ``error``."""

    name: str
    address: str
    stats: Stats | None
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The numbers for JSON."""
        counts = {} if self.stats is None else {name: getattr(self.stats, name) for name in COUNTS}
        return {"redis": self.name, **counts, **({"error": self.error} if self.error else {})}


@dataclass(frozen=True, slots=True)
class Sites:
    """All Redis servers of a dashboard by name, of which the first one is also at the usual addresses.

    ``own``: the name of the one whose pages these are; the lists show all if there are ``parts``.
    """

    by_name: Mapping[str, Site]
    own: str
    parts: Mapping[str, Starlette] = field(default_factory=dict)
    """The dashboards of single ones, by name; empty for one of them."""

    @property
    def several(self) -> bool:
        """True if there is more than one."""
        return len(self.by_name) > 1

    def address(self, request: Request, name: str, *segments: str) -> str:
        """The address of a page of a Redis."""
        own = [] if name == next(iter(self.by_name)) else [REDIS, name]
        parts = [home_of(request.scope), *own, *map(names.encode, segments)]
        return "/".join(parts) if segments else f"{'/'.join(parts)}/"

    def list_address(self, request: Request, name: str, page: str = "") -> str:
        """The address of a list of one Redis."""
        return f"{home_of(request.scope)}/{REDIS}/{name}/{page}"

    def shows_all(self, request: Request) -> bool:
        """True for a page that shows all of several."""
        return bool(self.parts) and is_joined(path_of(request))

    def choices(self, request: Request, page: str) -> list[Choice]:
        """Those to which the page at this path leads, itself included; none if there is only one."""
        if not self.several:
            return []
        shows_all = self.shows_all(request)
        return [
            Choice(_ALL, f"{home_of(request.scope)}/{page if is_joined(page) else ''}", shows_all),
            *(
                Choice(name, self.list_address(request, name, page), name == self.own and not shows_all)
                for name in self.by_name
            ),
        ]

    def at(self, request: Request, name: str) -> Request:
        """The request as the pages of one Redis get it: what is read and linked with it is there."""
        if not self.parts:
            return request
        changed = {
            "root_path": f"{home_of(request.scope)}/{REDIS}/{name}",
            HOME: home_of(request.scope),
            _OF_ALL: True,
            "app": self.parts[name],
            "state": {**request.scope["state"], "site": self.by_name[name]},
        }
        return Request({**request.scope, **changed}, request.receive)

    async def each(self, request: Request, read: Callable[[Request], Awaitable[T]]) -> dict[str, T]:
        """What is read at each Redis that the page shows, by name.

        The head of the page names those that are away. Raises RedisUnavailableError or StoreError if all are.
        """
        if not self.parts:
            return {self.own: await read(request)}
        away: dict[str, PyworkersError] = request.scope["state"].setdefault("away", {})
        names = [name for name in self.parts if name not in away]
        answers = await asyncio.gather(
            *(read(self.at(request, name)) for name in names), return_exceptions=True
        )
        found: dict[str, T] = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, RedisUnavailableError | StoreError):
                away[name] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found[name] = answer
        if not found:
            raise away[self.own]
        return found

    async def rows(self, request: Request) -> list[RedisRow]:
        """The counts of all, none if there is only one."""
        wanted = self.by_name if self.several else {}
        return list(await asyncio.gather(*(self._row(request, name) for name in wanted)))

    async def _row(self, request: Request, name: str) -> RedisRow:
        site, address = self.by_name[name], self.list_address(request, name)
        try:
            return RedisRow(name, address, await site.read(read_stats(site.keys)))
        except PyworkersError as error:
            return RedisRow(name, address, None, str(error))

    async def that_knows(self, jid: str) -> str:
        """The name of the Redis that knows a job; the name of this one if none does.

        Raises RedisUnavailableError if one is away, and no other knows it.
        """
        away: RedisUnavailableError | None = None
        for name in sorted(self.by_name, key=lambda name: name != self.own) if self.several else ():
            site = self.by_name[name]
            try:
                view = await _searched(site, jid)
            except RedisUnavailableError as error:
                away = RedisUnavailableError(
                    f"the Redis {name} is unreachable: {error.message}", code=error.code
                )
                continue
            if view.job is not None or view.state is not JobState.UNKNOWN:
                return name
        if away is not None:
            raise away
        return self.own


async def _searched(site: Site, jid: str) -> JobView:
    """A job as far as a search of some seconds finds it."""
    end = time.monotonic() + _LONGEST_S
    view = await site.read(read_job(site.keys, jid))
    while view.further is not None and view.state is JobState.UNKNOWN and time.monotonic() < end:
        view = await site.read(read_job(site.keys, jid, None, view.further))
    return view


def path_of(request: Request) -> str:
    """The path of a page below the dashboard."""
    return request.url.path.removeprefix(root_of(request.scope)).strip("/")


def page_of_all(
    found: Mapping[str, Sequence[T]], order: Callable[[T], Any], first: int, most: int
) -> dict[str, list[T]]:
    """The rows of one page of a list of all Redis servers, by name of the Redis, each list in this order."""
    kept: dict[str, list[T]] = {name: [] for name in found}
    for name, row in islice(merged(found, order), first, first + most):
        kept[name].append(row)
    return kept


def merged(found: Mapping[str, Sequence[T]], order: Callable[[T], Any]) -> Iterator[tuple[str, T]]:
    """The rows of lists in this order, as one list, each with the name of its Redis.

    No row comes before another one that is before it in the list of its Redis.
    """
    lists = ([(name, row) for row in rows] for name, rows in found.items())
    return merge(*lists, key=lambda one: order(one[1]))


def is_of_all(request: Request) -> bool:
    """True for the part that one Redis has in a list of all: a row of it may be on an earlier page there."""
    return request.scope.get(_OF_ALL, False) is True


def away_of(request: Request) -> Mapping[str, PyworkersError]:
    """Those that are away, of all that a page shows."""
    found: Mapping[str, PyworkersError] = request.scope["state"].get("away", {})
    return found


def sites_of(request: Request) -> Sites:
    """All Redis servers of the dashboard that answers this request."""
    found: Sites = request.app.state.sites
    return found


async def _rows(ask: CheckedRequest) -> Sequence[dict[str, Any]]:
    return [row.as_dict() for row in await sites_of(ask.request).rows(ask.request)]


RESOURCES = (
    Resource(
        "/redis",
        "The counts of each Redis; the JSON of another one than the first is below /redis/NAME/api.",
        _rows,
        array(
            record("Redis", {"redis": TEXT}, {**dict.fromkeys(COUNTS, COUNT), "error": TEXT}),
        ),
    ),
)
"""Only with several."""
