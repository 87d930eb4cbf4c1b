"""Group: URLs of several hosts, which name the primary: their parts, and the connections to the primary.

Used by ``connections`` alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import parse_qs

from redis.asyncio.connection import parse_url

from pyworkers.config.directories import DirectoryUrl, is_cluster
from pyworkers.protocol.keys import slot_key
from pyworkers.store.transport.cluster import Nodes
from pyworkers.store.transport.mismatch import (
    AsyncPlainConnection,
    AsyncTlsConnection,
    PlainConnection,
    TlsConnection,
)
from pyworkers.store.transport.primary import AsyncFollowed, Directory, Followed
from pyworkers.store.transport.sentinel import Sentinels


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
    parts = DirectoryUrl.of(url)
    login = {"username": parts.user, "password": parts.password}
    options = {key: value for key, value in login.items() if value} | parse_url(f"redis://?{parts.query}")
    if "ssl" in options:
        # redis-py would encrypt the connections to Redis, and not the questions.
        secure = url.partition("://")[0].replace("redis", "rediss")
        raise ValueError(f"unknown option ssl; use {secure}:// for TLS")
    if is_cluster(url):
        return PrimaryUrl(Nodes(parts.hosts, slot_key(namespace)), options)
    query = parse_qs(parts.query)
    sentinel_login = {key: query[f"sentinel_{key}"][0] for key in login if f"sentinel_{key}" in query}
    for key in sentinel_login:
        del options[f"sentinel_{key}"]
    found = Sentinels(parts.hosts, parts.name, sentinel_login)
    return PrimaryUrl(found, {"db": parts.database, **options})


class PlainPrimary(Followed, PlainConnection):
    """A blocking connection to the primary, without TLS."""


class TlsPrimary(Followed, TlsConnection):
    """A blocking connection to the primary, by TLS."""


class AsyncPlainPrimary(AsyncFollowed, AsyncPlainConnection):
    """A connection to the primary, without TLS, for asyncio."""


class AsyncTlsPrimary(AsyncFollowed, AsyncTlsConnection):
    """A connection to the primary, by TLS, for asyncio."""
