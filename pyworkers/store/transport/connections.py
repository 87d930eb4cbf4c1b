"""Connections to Redis: opens all of them, and translates redis-py's errors into pyworkers' own.

Used by producers, the command line and the master. A client connects with its first command. Nothing is sent
twice: redis-py's own retries are off, because after a lost reply they would run a command again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from pyworkers.config.checks import mask_url
from pyworkers.config.fields import RedisConfig
from pyworkers.embedded import socket_url
from pyworkers.errors import ConfigError, PyworkersError, RedisUnavailableError, StoreError
from pyworkers.store.transport.errors import MENDS, NO_THREAD, code_of, reply_text, rule_for
from pyworkers.store.transport.mismatch import (
    AsyncPlainConnection,
    AsyncTlsConnection,
    PlainConnection,
    TlsConnection,
)
from pyworkers.store.transport.pools import AsyncGroupPool, AsyncPool, CheckedClient, GroupPool, WaitingPool
from pyworkers.store.transport.replies import Readers

Connection = redis.Redis
AsyncConnection = redis.asyncio.Redis
P = TypeVar("P", WaitingPool, AsyncPool)

CONNECT_TIMEOUT_S = 5.0
SOCKET_TIMEOUT_S = 10.0
SENTINEL_TIMEOUT_S = 1.0
MAX_CONNECTIONS = 100
"""The most connections of one pool, unless the URL sets another number (``?max_connections=…``)."""
# A million fits: sockets count milliseconds in 31 bits.
_LONGEST_S = 1_000_000
# What redis-py takes as text, in old versions also the protocol. What else it leaves as text is a flag or an
# object, which no URL can hold.
_TEXTS = {
    *("host", "port", "path", "username", "password"),
    *("client_name", "lib_name", "lib_version", "encoding", "encoding_errors", "protocol"),
}
_SENTINEL_SCHEME = "redis+sentinel://"
_SENTINEL_PORT = 26379
# The type of a message that is not a reply, in RESP3 (``?protocol=3`` in a URL); since hiredis 3.2.
PUSH: type | None = getattr(hiredis, "PushNotification", None)
# Ends of the errors of a write to a connection just lost: with uvloop, and with asyncio in Python 3.13.0.
_LOST = ("the handler is closed", "no attribute '_add_writer'")


def connect(config: RedisConfig, **options: Any) -> Connection:
    """A client for the server of ``config``; ``options`` are redis-py's and override the defaults.

    Raises ConfigError for a URL that cannot be used.
    """
    with _url_checked(config.url):
        return _connect(config, socket_url(config.url), options)


def connect_async(config: RedisConfig, **options: Any) -> AsyncConnection:
    """As ``connect``, for asyncio; the client belongs to the loop that uses it first."""
    with _url_checked(config.url):
        return _connect_async(config, socket_url(config.url), options)


def has_sentinels(config: RedisConfig) -> bool:
    """True if sentinels give the address of the server."""
    return config.url.startswith(_SENTINEL_SCHEME)


def translate(error: Exception) -> PyworkersError:
    """The PyworkersError, with its code, for an error of redis-py or of the system; it holds no password."""
    if isinstance(error, PyworkersError):
        return error
    rule = rule_for(code_of(error))
    text = reply_text(error) or type(error).__name__
    kind = RedisUnavailableError if rule.away else StoreError
    message = f"{rule.meaning}: {text}" if rule.meaning else text
    return kind(message, hint=MENDS.get(rule.code, ""), code=rule.code)


class _Translation:
    """The context of ``errors_translated``; a class, which costs less, because every exchange enters it."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _where: TracebackType | None
    ) -> None:
        if isinstance(error, redis.RedisError | OSError):
            raise translate(error) from error
        if isinstance(error, RuntimeError | AttributeError) and str(error).endswith(_LOST):
            raise translate(redis.ConnectionError("the connection was lost")) from error
        if isinstance(error, RuntimeError) and str(error).startswith(NO_THREAD):
            # asyncio looks up a host name in a thread.
            raise translate(redis.ConnectionError(NO_THREAD)) from error


_translation = _Translation()


def errors_translated() -> _Translation:
    """A block in which errors of redis-py and of the system become RedisUnavailableError or StoreError."""
    return _translation


@contextmanager
def _url_checked(url: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"the Redis URL {mask_url(url)!r} cannot be used: {error}") from error


def _connect(config: RedisConfig, url: str, options: dict[str, Any]) -> Connection:
    options = {
        "retry": Retry(NoBackoff(), 0),
        "max_connections": MAX_CONNECTIONS,
        **_kind(url, PlainConnection, TlsConnection),
        **_options(config, url),
        **options,
    }
    single = options.pop("single_connection_client", False)
    client = redis.Redis(connection_pool=_pool(url, options), single_connection_client=single)
    client.auto_close_connection_pool = True
    return client


def _pool(url: str, options: dict[str, Any]) -> redis.ConnectionPool:
    if not url.startswith(_SENTINEL_SCHEME):
        return _usable(WaitingPool.from_url(url, **options), url)
    group = _Group.parse(url)
    sentinel = redis.sentinel.Sentinel(group.sentinels, sentinel_kwargs=group.for_sentinels(options))
    return _usable(GroupPool(group.name, sentinel, **(options | group.options)), url)


def _connect_async(config: RedisConfig, url: str, options: dict[str, Any]) -> AsyncConnection:
    options = {"retry": AsyncRetry(NoBackoff(), 0), **_options(config, url), **options}
    single = options.pop("single_connection_client", False)
    client = CheckedClient(connection_pool=_async_pool(url, options), single_connection_client=single)
    client.auto_close_connection_pool = True
    client.response_callbacks = Readers(client.response_callbacks)
    return client


def _async_pool(url: str, options: dict[str, Any]) -> redis.asyncio.ConnectionPool:
    options = {"timeout": options["socket_timeout"], "max_connections": MAX_CONNECTIONS, **options}
    if not url.startswith(_SENTINEL_SCHEME):
        # Not by from_url, in which the URL decides on the class of the connections.
        kind = _kind(url, AsyncPlainConnection, AsyncTlsConnection)
        return _usable(AsyncPool(**{**options, **parse_url(url), **kind}), url)
    group = _Group.parse(url)
    sentinel = redis.asyncio.sentinel.Sentinel(group.sentinels, sentinel_kwargs=group.for_sentinels(options))
    for node in sentinel.sentinels:
        node.response_callbacks = Readers(node.response_callbacks)
    options |= group.options
    return _usable(AsyncGroupPool(group.name, sentinel, **options), url)  # type: ignore[no-untyped-call]


def _usable(pool: P, url: str) -> P:
    """The pool. Raises ValueError for an option of the URL that its connections cannot use.

    They themselves raise other errors, and only when the first one is made or opened.
    """
    if "?" in url:
        # An application may share its URL with clients that want text; here replies are bytes.
        pool.connection_kwargs.pop("decode_responses", None)
        kinds: tuple[Any, ...] = pool.connection_class.__mro__
        known = {name for kind in kinds for name in signature(kind.__init__).parameters}
        # That of sentinels takes its pool from its other keywords.
        for name in sorted(pool.connection_kwargs.keys() - known - {"connection_pool"}):
            close = get_close_matches(name, known, n=1)
            raise ValueError(f"unknown option {name}" + (f"; did you mean {close[0]}?" if close else ""))
        for name in parse_qs(url.partition("?")[2].partition("#")[0]):
            text = isinstance(pool.connection_kwargs.get(name), str | list)
            if text and name not in _TEXTS and not name.startswith("ssl_"):
                raise ValueError(f"option {name} cannot be set in a URL")
        for name in ("socket_timeout", "socket_connect_timeout"):
            seconds = pool.connection_kwargs[name]
            if seconds is not None and not 0 < seconds <= _LONGEST_S:
                raise ValueError(f"{name} must be above 0 and at most {_LONGEST_S:,} seconds, not {seconds}")
    return pool


def _kind(url: str, plain: type[Any], tls: type[Any]) -> dict[str, Any]:
    """The class of the connections; redis-py's for sockets and sentinels."""
    kinds = {"redis": plain, "rediss": tls}
    scheme = url.partition("://")[0]
    return {"connection_class": kinds[scheme]} if scheme in kinds else {}


def _options(config: RedisConfig, url: str) -> dict[str, Any]:
    """The defaults. The options in the URL override all of them (redis-py's rule)."""
    options: dict[str, Any] = {
        "protocol": 2,
        "username": config.username or None,
        "password": config.password or None,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "socket_timeout": SOCKET_TIMEOUT_S,
    }
    if not url.startswith("unix:"):
        options["socket_keepalive"] = True
    if url.startswith("rediss:"):
        files = {
            "ssl_ca_certs": config.ca_file,
            "ssl_certfile": config.cert_file,
            "ssl_keyfile": config.key_file,
        }
        options |= {name: file for name, file in files.items() if file}
    return options


@dataclass(frozen=True)
class _Group:
    """The parts of a ``redis+sentinel://user:password@host:port,host:port/name/db`` URL.

    User and password are those of Redis; those of the sentinels are in the query, as ``sentinel_username``
    and ``sentinel_password``. The other options of the query are of the connections to Redis.
    """

    sentinels: list[tuple[str, int]]
    name: str
    options: dict[str, Any]
    login: dict[str, str]

    @classmethod
    def parse(cls, url: str) -> _Group:
        # Not by urlsplit, which in newer Pythons rejects the brackets of an IPv6 address among several hosts.
        address, _, query_text = url.removeprefix(_SENTINEL_SCHEME).partition("#")[0].partition("?")
        netloc, _, path = address.partition("/")
        userinfo, _, hosts = netloc.rpartition("@")
        user, _, password = userinfo.partition(":")
        name, _, db = path.strip("/").partition("/")
        if not name or not hosts or not (db or "0").isdecimal():
            raise ValueError("a sentinel URL is redis+sentinel://host:port,host:port/NAME-OF-THE-MASTER/db")
        login = {"username": unquote(user), "password": unquote(password)}
        query = parse_qs(query_text)
        sentinel_login = {key: query[f"sentinel_{key}"][0] for key in login if f"sentinel_{key}" in query}
        options: dict[str, Any] = {"db": int(db or 0)} | {key: value for key, value in login.items() if value}
        options |= parse_url(f"redis://?{query_text}")
        for key in sentinel_login:
            del options[f"sentinel_{key}"]
        return cls([_address(host) for host in hosts.split(",")], unquote(name), options, sentinel_login)

    def for_sentinels(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options of the connections to the sentinels, where Redis' own login is not valid."""
        kept = {key: value for key, value in options.items() if key.startswith("socket_") or key == "retry"}
        # A sentinel that hangs, perhaps with the primary on its machine, must not delay the next query.
        return (
            kept
            | {"socket_timeout": SENTINEL_TIMEOUT_S, "socket_connect_timeout": SENTINEL_TIMEOUT_S}
            | self.login
        )


def _address(host: str) -> tuple[str, int]:
    parts = urlsplit(f"//{host}")
    if not parts.hostname:
        raise ValueError("a sentinel URL holds an empty host")
    return parts.hostname, parts.port or _SENTINEL_PORT
