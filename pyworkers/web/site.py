"""Site: what all pages of one dashboard share: its Redis, and its settings.

Runs in the event loop of the dashboard's process. Reads are steps, run in the loop; actions are calls of the
blocking ``api``, run in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import HTTPConnection

from pyworkers.api.enqueueing import writing_with
from pyworkers.api.target import Admin, Operation, Store, store_of
from pyworkers.config.fields import WebConfig
from pyworkers.config.stores import DEFAULT, Stores
from pyworkers.config.thresholds import Threshold
from pyworkers.errors import BadArgumentError, PyworkersError, RedisUnavailableError
from pyworkers.protocol.keys import Keys

# While Redis is away, a page must not wait as long as for a slow read.
_PATIENCE_S, _LESS_PATIENCE_S = 3.0, 0.5

_HOUR_S = 3600.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """The settings of a dashboard, which it gets at its start."""

    mask: tuple[str, ...] = WebConfig().mask
    """Names whose values are hidden in the arguments of jobs, at any depth."""
    thresholds: tuple[Threshold, ...] = ()
    """The numbers above which counts are shown as high."""
    keys: str = ""
    """The file with the keys of jobs that are enqueued here encrypted; empty: as the environment says."""

    stores: Stores | None = None
    """All Redis servers of the configuration, and which queue is where; None: not known."""
    name: str = DEFAULT
    """The name of the Redis of the site among them."""

    def elsewhere(self, queue: str) -> str:
        """The name of the Redis that has a queue, if it is another one; else empty."""
        name = self.name if self.stores is None else self.stores.name_of(queue)
        return name if name != self.name else ""


class Site:
    """The Redis and the settings of one dashboard.

    ``read`` and ``act`` raise RedisUnavailableError and StoreError, which every page answers with 503.
    """

    def __init__(self, admin: Admin, settings: SiteSettings) -> None:
        self.admin = admin
        self.settings = settings
        self.writing = writing_with(settings.keys)
        # A connection belongs to the event loop that opened it, and a test client has a loop per request.
        self._opened: dict[asyncio.AbstractEventLoop, tuple[Store, AsyncGenerator[None, None]]] = {}
        self._away_since: float | None = None
        self._noted: dict[str, float] = {}

    @property
    def keys(self) -> Keys:
        """The names of the keys."""
        return self.admin.keys

    @property
    def away_since(self) -> float | None:
        """When the first read failed, in epoch seconds, if Redis has not answered since; else None."""
        return self._away_since

    def is_first_of_hour(self, program: str) -> bool:
        """True once an hour for each program."""
        now = time.monotonic()
        if now < self._noted.get(program, now):
            return False
        self._noted[program] = now + _HOUR_S
        return True

    async def read(self, operation: Operation[T]) -> T:
        """Run a call or steps. Raises BadArgumentError for a text that Redis cannot hold."""
        try:
            async with asyncio.timeout(_PATIENCE_S if self._away_since is None else _LESS_PATIENCE_S):
                found = await (await self._store()).arun(operation)
        except UnicodeEncodeError as error:
            raise BadArgumentError(f"Redis cannot hold this text: {error.reason}") from error
        except (TimeoutError, RedisUnavailableError) as error:
            self._away_since = self._away_since or time.time()
            if isinstance(error, RedisUnavailableError):
                raise
            raise RedisUnavailableError("Redis did not answer in time") from error
        self._away_since = None
        return found

    async def act(self, change: Callable[[], T]) -> T:
        """Run a call of the blocking api, in a thread. Raises BadArgumentError for a value it refuses."""
        try:
            return await asyncio.to_thread(change)
        except PyworkersError:
            raise
        except ValueError as error:
            raise BadArgumentError(str(error)) from error

    async def _store(self) -> Store:
        loop = asyncio.get_running_loop()
        if loop not in self._opened:
            store = store_of(self.admin)
            self._opened[loop] = store, self._closing(loop, store)
            await anext(self._opened[loop][1])
        return self._opened[loop][0]

    async def _closing(self, loop: asyncio.AbstractEventLoop, store: Store) -> AsyncGenerator[None, None]:
        """Close the connections at the end of the loop, which ends all generators.

        A mounted application has no lifespan.
        """
        try:
            yield
        finally:
            self._opened.pop(loop, None)
            await store.close()

    async def close(self) -> None:
        """Close the connections of this event loop."""
        opened = self._opened.get(asyncio.get_running_loop())
        if opened is not None:
            await opened[1].aclose()


def site_of(connection: HTTPConnection) -> Site:
    """The dashboard that answers this request."""
    site: Site = connection.state.site
    return site
