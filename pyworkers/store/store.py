"""Store: the asyncio connections to one Redis, and the names of its keys.

Runs in the event loop of the master, or of the dashboard. The operations are values, built by the other
modules of this folder. The master has its own connections for the hot path, the blocking move and the
announced changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Operation, arun
from pyworkers.store.transport.address import readable_on_the_way, redis_cli
from pyworkers.store.transport.connections import AsyncConnection, connect_async
from pyworkers.store.transport.tls import Contexts

T = TypeVar("T")


class Store:
    """Runs calls and steps over one connection pool. ``keys`` are the keys of its namespace."""

    def __init__(self, redis: AsyncConnection, keys: Keys) -> None:
        self._redis = redis
        self.keys = keys

    async def arun(self, operation: Operation[T]) -> T:
        """The result of a call or of steps. Raises RedisUnavailableError and StoreError."""
        return await arun(self._redis, operation)

    async def redis_cli(self) -> str:
        """The ``redis-cli`` command line that reaches this Redis. Raises PyworkersError."""
        return await redis_cli(self._redis)

    async def readable_on_the_way(self) -> list[str]:
        """The addresses to which a password goes over a network in plain text. Raises PyworkersError."""
        return await readable_on_the_way(self._redis)

    @property
    def tls(self) -> Contexts | None:
        """The contexts of the connections, if they are by TLS."""
        found: Contexts | None = self._redis.connection_pool.connection_kwargs.get("tls")
        return found

    async def watch_primary(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` after each failover by sentinels, until cancelled."""
        await self._redis.connection_pool.connection_kwargs["primary"].follow(on_change)

    async def connect_to(self, config: RedisConfig) -> None:
        """Use this Redis from now on, which has the same data. Commands under way fail."""
        former, self._redis = self._redis, connect_async(config)
        await former.connection_pool.disconnect()
        await former.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
