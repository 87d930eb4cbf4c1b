"""Several: the pages of the other Redis servers of a program, below ``/redis/NAME`` of its dashboard.

Each Redis has all pages and all JSON; their links and actions stay below its address. Viewers, sessions and
the secret are those of the first Redis. Runs in the event loop of the dashboard.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from pyworkers.api import Stats
from pyworkers.api.browse.lookup import JobView, read_job
from pyworkers.api.schemas import COUNT, TEXT, array, record
from pyworkers.api.stats import read_stats
from pyworkers.errors import PyworkersError, RedisUnavailableError
from pyworkers.protocol.status import JobState
from pyworkers.web import names
from pyworkers.web.json.resources import CheckedRequest, Resource
from pyworkers.web.security import cookies
from pyworkers.web.security.guard import REDIS
from pyworkers.web.site import Site

_LONGEST_S = 2.0
COUNTS = ("enqueued", "busy", "scheduled", "retries", "dead", "processes")


class ByRedis:
    """The middleware that hands a request to the dashboard of the Redis in its address."""

    def __init__(self, app: ASGIApp, others: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        root = scope.get("root_path", "").rstrip("/")
        place, _, rest = str(scope["path"]).removeprefix(root).lstrip("/").partition("/")
        name = rest.partition("/")[0]
        other = self._others.get(name) if place == REDIS else None
        if other is None:
            await self._app(scope, receive, send)
            return
        own = f"{root}/{REDIS}/{name}"
        if scope["path"] == own:
            scope = {**scope, "path": f"{own}/", "raw_path": f"{own}/".encode()}
        await other({**scope, "root_path": own, cookies.HOME: root}, receive, send)


class Choice(NamedTuple):
    """A Redis in the head of a page: its name, and the address of the same list of it."""

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
    """All Redis servers of a dashboard by name, the first one of which has no address of its own.

    ``own``: the name of the one whose pages these are.
    """

    by_name: Mapping[str, Site]
    own: str

    @property
    def several(self) -> bool:
        """True if there is more than one."""
        return len(self.by_name) > 1

    def address(self, request: Request, name: str, *segments: str) -> str:
        """The address of a page of a Redis."""
        root = request.scope.get("root_path", "").rstrip("/")
        home = request.scope.get(cookies.HOME, root)
        first = next(iter(self.by_name))
        parts = [home, *([] if name == first else [REDIS, name]), *map(names.encode, segments)]
        return "/".join(parts) if segments else f"{'/'.join(parts)}/"

    def choices(self, request: Request, page: str) -> list[Choice]:
        """Those to which a page leads, itself included; none if there is only one."""
        if not self.several:
            return []
        segments = [page] if page else []
        return [
            Choice(name, self.address(request, name, *segments), name == self.own) for name in self.by_name
        ]

    async def rows(self, request: Request) -> list[RedisRow]:
        """The counts of all, none if there is only one."""
        wanted = self.by_name if self.several else {}
        return list(await asyncio.gather(*(self._row(request, name) for name in wanted)))

    async def _row(self, request: Request, name: str) -> RedisRow:
        site, address = self.by_name[name], self.address(request, name)
        try:
            return RedisRow(name, address, await site.read(read_stats(site.keys)))
        except PyworkersError as error:
            return RedisRow(name, address, None, str(error))

    async def that_knows(self, jid: str) -> str:
        """The name of the Redis that knows a job; that of these pages if none does.

        Raises RedisUnavailableError if one is away, and no other knows it.
        """
        away: RedisUnavailableError | None = None
        for name in sorted(self.by_name, key=lambda name: name != self.own) if self.several else ():
            site = self.by_name[name]
            try:
                view = await _searched(site, jid)
            except RedisUnavailableError as error:
                away = RedisUnavailableError(f"the Redis {name} is away: {error.message}", code=error.code)
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
