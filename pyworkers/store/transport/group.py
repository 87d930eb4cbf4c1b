"""Group: a primary whose address sentinels give: its URL, and the connections to it and to the sentinels.

Used by ``connections`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio.connection import parse_url
from redis.backoff import NoBackoff
from redis.retry import Retry

from pyworkers.store.transport.mismatch import (
    AsyncPlainConnection,
    AsyncTlsConnection,
    PlainConnection,
    TlsConnection,
)
from pyworkers.store.transport.replies import Readers
from pyworkers.store.transport.sentinel import (
    AsyncFollowed,
    AsyncSentinels,
    Followed,
    Sentinels,
    Watch,
    watch_of,
)

SENTINEL_TIMEOUT_S = 1.0
_KIND = "+sentinel"
_SENTINEL_PORT = 26379


@dataclass(frozen=True)
class SentinelGroup:
    """The parts of a ``redis+sentinel://user:password@host:port,host:port/name/db`` URL.

    User and password are those of Redis; those of the sentinels are in the query, as ``sentinel_username``
    and ``sentinel_password``. The other options of the query are of the connections to Redis, and those of
    TLS also of the connections to the sentinels.
    """

    sentinels: list[tuple[str, int]]
    name: str
    options: dict[str, Any]
    login: dict[str, str]

    @classmethod
    def parse(cls, url: str) -> SentinelGroup:
        """The parts. Raises ValueError."""
        scheme, _, rest = url.partition("://")
        # Not by urlsplit, which in newer Pythons rejects the brackets of an IPv6 address among several hosts.
        address, _, query_text = rest.partition("#")[0].partition("?")
        netloc, _, path = address.partition("/")
        userinfo, _, hosts = netloc.rpartition("@")
        user, _, password = userinfo.partition(":")
        name, _, db = path.strip("/").partition("/")
        if not name or not hosts or not (db or "0").isdecimal():
            raise ValueError(f"a sentinel URL is {scheme}://host:port,host:port/NAME-OF-THE-MASTER/db")
        login = {"username": unquote(user), "password": unquote(password)}
        query = parse_qs(query_text)
        sentinel_login = {key: query[f"sentinel_{key}"][0] for key in login if f"sentinel_{key}" in query}
        options: dict[str, Any] = {"db": int(db or 0)} | {key: value for key, value in login.items() if value}
        options |= parse_url(f"redis://?{query_text}")
        if "ssl" in options:
            # redis-py would encrypt the connections to Redis, and not those to the sentinels.
            raise ValueError("unknown option ssl; use rediss+sentinel:// for TLS")
        for key in sentinel_login:
            del options[f"sentinel_{key}"]
        return cls([_address(host) for host in hosts.split(",")], unquote(name), options, sentinel_login)

    def blocking(self, options: Mapping[str, Any]) -> Sentinels:
        """The sentinels; ``options`` are those of the connections to Redis."""
        return Sentinels(self._nodes(options), self._watch(options))

    def asyncio(self, options: Mapping[str, Any]) -> AsyncSentinels:
        """As ``blocking``, for asyncio."""
        kind = _AsyncTlsNode if "tls" in options else _AsyncPlainNode
        found = self._for_nodes(options)
        pools = [
            redis.asyncio.ConnectionPool(connection_class=kind, host=host, port=port, **found)
            for host, port in self.sentinels
        ]
        nodes = [redis.asyncio.Redis.from_pool(pool) for pool in pools]
        for node in nodes:
            node.response_callbacks = Readers(node.response_callbacks)
        return AsyncSentinels(nodes, self._watch(options))

    def _nodes(self, options: Mapping[str, Any]) -> list[redis.Redis]:
        kind = _TlsNode if "tls" in options else _PlainNode
        found = self._for_nodes(options)
        pools = [
            redis.ConnectionPool(connection_class=kind, host=host, port=port, **found)
            for host, port in self.sentinels
        ]
        return [redis.Redis.from_pool(pool) for pool in pools]

    def _watch(self, options: Mapping[str, Any]) -> Callable[[], Watch]:
        key = self.name, *self.sentinels, *self.login.items(), options.get("tls")
        # Its own clients, because it runs on a thread; those of asyncio have another kind of retry.
        nodes = partial(self._nodes, {**options, "retry": Retry(NoBackoff(), 0)})
        return partial(watch_of, key, nodes, self.name)

    def _for_nodes(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options of the connections to the sentinels, where Redis' own login is not valid."""
        kept = {
            key: value
            for key, value in options.items()
            if key.startswith("socket_") or key in ("retry", "tls")
        }
        # A sentinel that hangs, perhaps with the primary on its machine, must not delay the next query.
        # The replies of sentinels in RESP3 differ between versions of redis-py.
        return (
            kept
            | {
                "protocol": 2,
                "socket_timeout": SENTINEL_TIMEOUT_S,
                "socket_connect_timeout": SENTINEL_TIMEOUT_S,
            }
            | self.login
        )


class _PlainNode(PlainConnection):
    kind = _KIND


class _TlsNode(TlsConnection):
    kind = _KIND


class _AsyncPlainNode(AsyncPlainConnection):
    kind = _KIND


class _AsyncTlsNode(AsyncTlsConnection):
    kind = _KIND


class PlainPrimary(Followed, redis.sentinel.SentinelManagedConnection, _PlainNode):
    """A blocking connection to the primary, without TLS."""

    announced = True


class TlsPrimary(Followed, redis.sentinel.SentinelManagedConnection, _TlsNode):
    """A blocking connection to the primary, by TLS."""

    announced = True


class AsyncPlainPrimary(AsyncFollowed, redis.asyncio.sentinel.SentinelManagedConnection, _AsyncPlainNode):
    """A connection to the primary, without TLS, for asyncio."""

    announced = True


class AsyncTlsPrimary(AsyncFollowed, redis.asyncio.sentinel.SentinelManagedConnection, _AsyncTlsNode):
    """A connection to the primary, by TLS, for asyncio."""

    announced = True


def _address(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError("a sentinel URL holds an empty host")
    return parts.hostname, parts.port or _SENTINEL_PORT
