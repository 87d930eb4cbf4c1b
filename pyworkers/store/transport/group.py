"""Group: URLs of several hosts, which name the primary: their parts, and the connections to the primary.

Used by ``connections`` alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from redis.asyncio.connection import parse_url

from pyworkers.store.transport.mismatch import (
    AsyncPlainConnection,
    AsyncTlsConnection,
    PlainConnection,
    TlsConnection,
)
from pyworkers.store.transport.primary import Address, AsyncFollowed, Directory, Followed
from pyworkers.store.transport.sentinel import Sentinels

_SENTINEL_PORT = 26379


class Group(NamedTuple):
    """What names the primary, and the options of the connections to the primary."""

    directory: Directory
    options: dict[str, Any]


def parse(url: str) -> Group:
    """The parts of a ``redis+sentinel://user:password@host:port,host:port/name/db`` URL. Raises ValueError.

    User and password are those of Redis; those of the sentinels are in the query, as ``sentinel_username``
    and ``sentinel_password``. The other options of the query are of the connections to Redis, and those of
    TLS also of the connections to the sentinels.
    """
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
        raise ValueError(f"unknown option ssl; use {scheme.replace('redis', 'rediss')}:// for TLS")
    for key in sentinel_login:
        del options[f"sentinel_{key}"]
    return Group(
        Sentinels([_address(host) for host in hosts.split(",")], unquote(name), sentinel_login), options
    )


class PlainPrimary(Followed, PlainConnection):
    """A blocking connection to the primary, without TLS."""


class TlsPrimary(Followed, TlsConnection):
    """A blocking connection to the primary, by TLS."""


class AsyncPlainPrimary(AsyncFollowed, AsyncPlainConnection):
    """A connection to the primary, without TLS, for asyncio."""


class AsyncTlsPrimary(AsyncFollowed, AsyncTlsConnection):
    """A connection to the primary, by TLS, for asyncio."""


def _address(host: str) -> Address:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError("a sentinel URL holds an empty host")
    return parts.hostname, parts.port or _SENTINEL_PORT
