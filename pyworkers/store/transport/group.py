"""Group: URLs of several hosts, which name the primary: their parts, and the connections to the primary.

Used by ``connections`` alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio.connection import parse_url

from pyworkers.protocol.keys import slot_key
from pyworkers.store.transport.cluster import Nodes
from pyworkers.store.transport.mismatch import (
    AsyncPlainConnection,
    AsyncTlsConnection,
    PlainConnection,
    TlsConnection,
)
from pyworkers.store.transport.primary import Address, AsyncFollowed, Directory, Followed
from pyworkers.store.transport.sentinel import Sentinels

_SENTINEL_PORT, _NODE_PORT = 26379, 6379


class PrimaryUrl(NamedTuple):
    """What names the primary, and the options of the connections to the primary."""

    directory: Directory
    options: dict[str, Any]


def parse(url: str, namespace: str) -> PrimaryUrl:
    """The parts of a URL of sentinels, or of nodes of a cluster. Raises ValueError.

    ``redis+sentinel://user:password@host:port,host:port/name/db``: user and password are for Redis;
    the sentinels' are in the query, as ``sentinel_username`` and ``sentinel_password``.
    ``redis+cluster://user:password@host:port,host:port``: user and password are for all nodes.
    The other options of the query are of the connections to Redis, and options of TLS also of the questions.
    """
    scheme, _, rest = url.partition("://")
    # Not by urlsplit, which in newer Pythons rejects the brackets of an IPv6 address among several hosts.
    address, _, query_text = rest.partition("#")[0].partition("?")
    netloc, _, path = address.partition("/")
    userinfo, _, hosts = netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    login = {"username": unquote(user), "password": unquote(password)}
    options = {key: value for key, value in login.items() if value} | parse_url(f"redis://?{query_text}")
    if "ssl" in options:
        # redis-py would encrypt the connections to Redis, and not the questions.
        raise ValueError(f"unknown option ssl; use {scheme.replace('redis', 'rediss')}:// for TLS")
    if scheme.endswith("+cluster"):
        if not hosts or path.strip("/") not in ("", "0") or options.get("db", 0) != 0:
            raise ValueError(f"a cluster URL is {scheme}://host:port,host:port, and the database is 0")
        return PrimaryUrl(Nodes(_addresses(hosts, _NODE_PORT), slot_key(namespace)), options)
    name, _, db = path.strip("/").partition("/")
    if not name or not hosts or not (db or "0").isdecimal():
        raise ValueError(f"a sentinel URL is {scheme}://host:port,host:port/NAME-OF-THE-MASTER/db")
    query = parse_qs(query_text)
    sentinel_login = {key: query[f"sentinel_{key}"][0] for key in login if f"sentinel_{key}" in query}
    for key in sentinel_login:
        del options[f"sentinel_{key}"]
    found = Sentinels(_addresses(hosts, _SENTINEL_PORT), unquote(name), sentinel_login)
    return PrimaryUrl(found, {"db": int(db or 0), **options})


def _addresses(hosts: str, port: int) -> list[Address]:
    found = [urlsplit(f"//{host}") for host in hosts.split(",")]
    if not all(parts.hostname for parts in found):
        raise ValueError("the URL has an empty host")
    return [(str(parts.hostname), parts.port or port) for parts in found]


class PlainPrimary(Followed, PlainConnection):
    """A blocking connection to the primary, without TLS."""


class TlsPrimary(Followed, TlsConnection):
    """A blocking connection to the primary, by TLS."""


class AsyncPlainPrimary(AsyncFollowed, AsyncPlainConnection):
    """A connection to the primary, without TLS, for asyncio."""


class AsyncTlsPrimary(AsyncFollowed, AsyncTlsConnection):
    """A connection to the primary, by TLS, for asyncio."""
