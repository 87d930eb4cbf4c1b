"""Moves: follows the name of Redis in ``redis.url`` to another address, while the former Redis still answers.

Runs in the master's event loop. Connections that work are kept for ever, so without this a server would stay
with a former primary after the name has moved. It follows to the same data alone.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from urllib.parse import urlsplit

from pyworkers import logs
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import PyworkersError, StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.server.health import Health
from pyworkers.server.parts import Part
from pyworkers.store.replication import Data, data
from pyworkers.store.store import Store
from pyworkers.store.transport.connections import connect_async

_LOOK_S = 30.0

log = logs.get_logger()


class Moves(Part):
    """Looks the name up every 30 s; ``leave`` is awaited if it leads to another Redis of the same data."""

    name = "address"

    def __init__(
        self,
        store: Store,
        config: RedisConfig,
        host: str,
        health: Health,
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(health)
        self._store = store
        self._config = config
        self._host = host
        self._leave = leave
        self._known: frozenset[str] = frozenset()
        """The addresses of the name; a change is compared until it is followed or refused."""
        self._here: Data | None = None
        """The data when the name was last looked up without a change: a connection that is opened after the
        name has moved leads to the other Redis.
        """

    async def look(self) -> float:
        """Look the name up once."""
        found = await self._addresses()
        if self._here is None or found in (self._known, frozenset()):
            await self._read_data()
        elif not await self._is_settled(self._here):
            return _LOOK_S
        self._known = found or self._known
        return _LOOK_S

    async def _read_data(self) -> None:
        try:
            self._here = await self._store.arun(data())
        except StoreError as error:
            # Without the right to INFO nothing is compared, and a server works as well.
            log.debug("redis.not_compared", error=error.message)

    async def _addresses(self) -> frozenset[str]:
        """All addresses of the name; none while it is unknown, which new connections report."""
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
        except socket.gaierror:
            return frozenset()
        return frozenset(str(place[4][0]) for place in found)

    async def _is_settled(self, here: Data) -> bool:
        """Compare the Redis at the new addresses. False while it is a replica, which takes no writes."""
        try:
            there = await data_at(self._config)
        except PyworkersError as error:
            # No outage: the Redis in use answers.
            log.warning("redis.not_compared", host=self._host, error=error.message)
            return False
        if not there.follows(here):
            log.error("redis.other_data", host=self._host, hint="restart the server if that is intended")
        elif not there.is_primary:
            return False
        elif there.now != here.now:
            await self._leave()
        return True


async def data_at(config: RedisConfig) -> Data:
    """The data of the Redis to which a new connection leads. Raises PyworkersError."""
    other = Store(connect_async(config), Keys(config.namespace))
    try:
        return await other.arun(data())
    finally:
        await other.close()


def name_in(url: str) -> str | None:
    """The name of the host in a URL of one Redis; None for an address, a socket, sentinels and a cluster."""
    parts = urlsplit(url) if url.startswith(("redis://", "rediss://")) else None
    host = parts.hostname if parts else None
    try:
        ip_address(host or "")
    except ValueError:
        return host
    return None
