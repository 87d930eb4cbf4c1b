"""Connections to Redis: opens all of them, and translates redis-py's errors into pyworkers' own.

Used by producers, the command line and the master. A client connects with its first command. Nothing is sent
twice: redis-py's own retries are off, because after a lost reply they would run a command again. A pool
closes a connection in an unknown state, and limits the threads that use one at once (``Turns``).
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from inspect import signature
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs

import hiredis
import redis
import redis.asyncio
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from pyworkers.config.checks import check_slot, mask_url
from pyworkers.config.directories import is_directory
from pyworkers.config.fields import RedisConfig
from pyworkers.embedded import socket_url
from pyworkers.errors import ConfigError, PyworkersError, RedisUnavailableError, StoreError
from pyworkers.store.transport.errors import FIXES, NO_THREAD, Reaction, code_of, reply_text, rule_for
from pyworkers.store.transport.mismatch import (
    AsyncPlainConnection,
    AsyncTlsConnection,
    PlainConnection,
    TlsConnection,
)
from pyworkers.store.transport.replies import CheckedPipeline, Readers, reading
from pyworkers.store.transport.tls import OPTIONS, Tls, contexts_of, has_tls

if TYPE_CHECKING:
    from pyworkers.store.transport.primary import Address, Primary

Connection = redis.Redis
AsyncConnection = redis.asyncio.Redis
P = TypeVar("P", "WaitingPool", "AsyncPool")

CONNECT_TIMEOUT_S = 5.0
SOCKET_TIMEOUT_S = 10.0
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
# The type of a message that is not a reply, in RESP3 (``?protocol=3`` in a URL); since hiredis 3.2.
PUSH: type | None = getattr(hiredis, "PushNotification", None)
# Ends of the errors of a write to a connection just lost: with uvloop, and with asyncio in Python 3.13.0.
_LOST = ("the handler is closed", "no attribute '_add_writer'")


def connect(config: RedisConfig, **options: Any) -> Connection:
    """A client for the server of ``config``; ``options`` are redis-py's and override the defaults.

    Raises ConfigError for a URL that cannot be used.
    """
    with _url_checked(config):
        return _connect(config, socket_url(config.url), options)


def connect_async(config: RedisConfig, **options: Any) -> AsyncConnection:
    """As ``connect``, for asyncio; the client belongs to the loop that uses it first."""
    with _url_checked(config):
        return _connect_async(config, socket_url(config.url), options)


def primary_of(client: Any) -> Primary | None:
    """What finds the address of the server for a client of redis-py; None if the URL has it."""
    pool = getattr(client, "connection_pool", None)
    return None if pool is None else pool.connection_kwargs.get("primary")


def node_of(client: Connection, node: Address) -> Connection:
    """A client with the same options, for one node of the cluster, whichever is the primary."""
    return _client(_pool_at(client, node))


def node_of_async(client: Any, node: Address) -> AsyncConnection:
    """As ``node_of``, for asyncio."""
    return _async_client(_pool_at(client, node))


def translate(error: Exception) -> PyworkersError:
    """The PyworkersError, with its code, for an error of redis-py or of the system; it holds no password."""
    if isinstance(error, PyworkersError):
        return error
    rule = rule_for(code_of(error))
    text = reply_text(error) or type(error).__name__
    kind = RedisUnavailableError if rule.away else StoreError
    message = f"{rule.meaning}: {text}" if rule.meaning else text
    return kind(message, hint=FIXES.get(rule.code, ""), code=rule.code)


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


def are_refused(answers: Sequence[Any], refusals: Collection[str]) -> bool:
    """True for a refusal with one of these codes among the replies, or inside the reply to EXEC."""
    for reply in answers:
        for answer in reply if type(reply) is list else (reply,):
            if isinstance(answer, redis.ResponseError) and code_of(answer) in refusals:
                return True
    return False


@contextmanager
def _url_checked(config: RedisConfig) -> Iterator[None]:
    try:
        check_slot(config.url, config.namespace)
        yield
    except ValueError as error:
        raise ConfigError(f"the Redis URL {mask_url(config.url)!r} cannot be used: {error}") from error


def _pool_at(client: Any, node: Address) -> Any:
    pool = client.connection_pool
    options = {**pool.connection_kwargs, "primary": pool.connection_kwargs["primary"].at(node)}
    return type(pool)(connection_class=pool.connection_class, max_connections=pool.max_connections, **options)


def _connect(config: RedisConfig, url: str, options: dict[str, Any]) -> Connection:
    options = {
        "retry": Retry(NoBackoff(), 0),
        "max_connections": MAX_CONNECTIONS,
        **_options(config, url),
        **options,
    }
    single = options.pop("single_connection_client", False)
    return _client(_pool(config, url, options), single_connection_client=single)


def _client(pool: redis.ConnectionPool, **options: Any) -> Connection:
    client = redis.Redis(connection_pool=pool, **options)
    client.auto_close_connection_pool = True
    # redis-py closes it when it is finalized. Python may finalize its socket first, and warn of that.
    call_when_dropped(client, pool.disconnect)
    return client


def call_when_dropped(owner: object, call: Callable[..., object], *arguments: Any) -> None:
    """Call this when ``owner`` is garbage, before anything that it holds; not at the end of the process."""
    finalizer = weakref.finalize(owner, call, *arguments)
    finalizer.atexit = False


def _pool(config: RedisConfig, url: str, options: dict[str, Any]) -> redis.ConnectionPool:
    if is_directory(url):
        # Imported for such URLs alone.
        from pyworkers.store.transport.group import PlainPrimary, TlsPrimary

        kind: Any = TlsPrimary if has_tls(url) else PlainPrimary
        return _usable(WaitingPool(connection_class=kind, **_of_group(config, url, options)), url)
    found = _parsed(url)
    options |= _tls(config, url, found)
    kind = _kind(url, PlainConnection, TlsConnection, redis.UnixDomainSocketConnection)
    return _usable(WaitingPool(connection_class=kind, **(options | found)), url)


def _connect_async(config: RedisConfig, url: str, options: dict[str, Any]) -> AsyncConnection:
    options = {"retry": AsyncRetry(NoBackoff(), 0), **_options(config, url), **options}
    single = options.pop("single_connection_client", False)
    return _async_client(_async_pool(config, url, options), single_connection_client=single)


def _async_client(pool: redis.asyncio.ConnectionPool, **options: Any) -> AsyncConnection:
    client = CheckedClient(connection_pool=pool, **options)
    client.auto_close_connection_pool = True
    client.response_callbacks = Readers(client.response_callbacks)
    return client


def _async_pool(config: RedisConfig, url: str, options: dict[str, Any]) -> redis.asyncio.ConnectionPool:
    options = {"timeout": options["socket_timeout"], "max_connections": MAX_CONNECTIONS, **options}
    if is_directory(url):
        from pyworkers.store.transport.group import AsyncPlainPrimary, AsyncTlsPrimary

        kind: Any = AsyncTlsPrimary if has_tls(url) else AsyncPlainPrimary
        return _usable(AsyncPool(connection_class=kind, **_of_group(config, url, options)), url)
    found = _parsed(url)
    options |= _tls(config, url, found)
    kind = _kind(url, AsyncPlainConnection, AsyncTlsConnection, redis.asyncio.UnixDomainSocketConnection)
    return _usable(AsyncPool(connection_class=kind, **(options | found)), url)


def _of_group(config: RedisConfig, url: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of connections to the primary of a group."""
    from pyworkers.store.transport.group import parse
    from pyworkers.store.transport.primary import Primary

    group = parse(url, config.namespace)
    options |= _tls(config, url, group.options)
    options |= group.options
    return {**options, "primary": Primary(group.directory, options)}


def _parsed(url: str) -> dict[str, Any]:
    """The options of a URL. The scheme alone decides on the class of the connections."""
    return {name: value for name, value in parse_url(url).items() if name != "connection_class"}


def _kind(url: str, plain: type[Any], tls: type[Any], unix: type[Any]) -> type[Any]:
    return tls if has_tls(url) else unix if url.startswith("unix:") else plain


def _tls(config: RedisConfig, url: str, found: dict[str, Any]) -> dict[str, Any]:
    """The option that connections by TLS need; it replaces the options for TLS among those found in a URL."""
    if not has_tls(url):
        return {}
    given = {name: found.pop(name) for name in OPTIONS & found.keys()}
    return {"tls": contexts_of(Tls.of(config, given))}


def _usable(pool: P, url: str) -> P:
    """The pool. Raises ValueError for an option of the URL that its connections cannot use.

    They themselves raise other errors, and only when the first one is made or opened.
    """
    if "?" in url:
        # An application may share its URL with clients that want text; here replies are bytes.
        pool.connection_kwargs.pop("decode_responses", None)
        kinds: tuple[Any, ...] = pool.connection_class.__mro__
        known = {name for kind in kinds for name in signature(kind.__init__).parameters}
        known |= OPTIONS if has_tls(url) else frozenset()
        for name in sorted(pool.connection_kwargs.keys() - known):
            if name in OPTIONS:
                secure = url.partition("://")[0].replace("redis", "rediss")
                raise ValueError(f"option {name} is for URLs with TLS, which begin with {secure}://")
            close = get_close_matches(name, known, n=1)
            raise ValueError(f"unknown option {name}" + (f"; did you mean {close[0]}?" if close else ""))
        for name in parse_qs(url.partition("?")[2].partition("#")[0]):
            text = isinstance(pool.connection_kwargs.get(name), str | list)
            if text and name not in _TEXTS:
                raise ValueError(f"option {name} cannot be set in a URL")
        for name in ("socket_timeout", "socket_connect_timeout"):
            seconds = pool.connection_kwargs[name]
            if seconds is not None and not 0 < seconds <= _LONGEST_S:
                raise ValueError(f"{name} must be above 0 and at most {_LONGEST_S:,} seconds, not {seconds}")
    return pool


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
    return options


class Turns:
    """Limits the threads that use a connection at once; a forked process starts with all turns free.

    The others wait, first come, first served. There is no lock, because a fork would copy a locked one: each
    step is one atomic call, and is checked again where two threads may have taken it at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._line = FreeTurns(most)

    def take(self, timeout_s: float | None) -> FreeTurns:
        """Wait for a turn; ``leave`` of the returned FreeTurns ends it. Raises redis-py's TimeoutError."""
        line = self._line
        if line.pid != os.getpid():
            # The threads that held a turn, or waited for one, do not exist in this process.
            line = self._line = FreeTurns(self._most)
        line.enter(timeout_s)
        return line


class FreeTurns:
    """The free turns, and the threads that wait for one."""

    def __init__(self, most: int) -> None:
        self.pid = os.getpid()
        self._most = most
        self._free: list[None] = [None] * most
        self._waiting: deque[SimpleQueue[None]] = deque()

    def enter(self, timeout_s: float | None) -> None:
        """Take a turn, after the threads that came before."""
        try:
            if not self._waiting:
                self._free.pop()
                return
        except IndexError:
            pass
        ticket: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(ticket)
        # A turn may have become free before the ticket was in the queue.
        self._call()
        try:
            ticket.get(timeout=timeout_s)
        except BaseException as error:
            self._give_up(ticket)
            if isinstance(error, Empty):
                text = f"none of the {self._most} connections became free within {timeout_s:g} s"
                raise redis.TimeoutError(text) from None
            raise

    def leave(self) -> None:
        """End a turn."""
        self._free.append(None)
        if self._waiting:
            self._call()

    def _call(self) -> None:
        """Give free turns to waiting threads."""
        while self._free and self._waiting:
            with suppress(IndexError):
                self._free.pop()
                try:
                    ticket = self._waiting.popleft()
                except IndexError:
                    self._free.append(None)
                else:
                    ticket.put(None)

    def _give_up(self, ticket: SimpleQueue[None]) -> None:
        try:
            self._waiting.remove(ticket)
        except ValueError:
            # The ticket got its turn in the meantime.
            self.leave()


class WaitingPool(redis.ConnectionPool):
    """A pool that makes a command wait for a free connection, where redis-py's raises an error.

    It drops a connection whose login was interrupted (a job's time limit, Ctrl-C): redis-py would give it to
    the next command in that state, perhaps not logged in, or on another database.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turns = Turns(self.max_connections)
        self._lent: dict[Any, FreeTurns] = {}

    def get_connection(self, *args: Any, **options: Any) -> Any:
        """As redis-py's. Raises its TimeoutError if none becomes free."""
        turn = self._turns.take(self.connection_kwargs["socket_timeout"])
        try:
            connection = super().get_connection(*args, **options)
            self._lent[connection] = turn
        except BaseException:
            turn.leave()
            self.disconnect(inuse_connections=False)
            raise
        return connection

    def release(self, connection: Any) -> None:
        """As redis-py's."""
        turn = self._lent.pop(connection, None)
        try:
            if getattr(connection, "is_left", False):
                connection.disconnect()
            super().release(connection)
        finally:
            if turn is not None:
                turn.leave()


class CheckedClient(redis.asyncio.Redis):
    """Drops a connection that leads to the wrong server, e.g. to a primary that has become a replica, or
    whose replies have an unexpected shape. The next connection resolves the address again, by DNS or a load
    balancer.
    """

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        try:
            return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except redis.ResponseError as error:
            if rule_for(code_of(error)).reaction is Reaction.RECONNECT:
                await self._leave()
            raise

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> CheckedPipeline:
        """As redis-py's."""
        return CheckedPipeline(self.connection_pool, self.response_callbacks, transaction, shard_hint)

    async def _leave(self) -> None:
        if self.connection is not None:
            await self.connection.disconnect()
        else:
            await self.connection_pool.disconnect(inuse_connections=False)


class AsyncPool(redis.asyncio.BlockingConnectionPool):
    """Drops a connection whose login was cancelled, or got a reply of an unexpected shape."""

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        try:
            with reading("the login"):
                return await super().get_connection(*args, **options)  # type: ignore[no-untyped-call]
        except BaseException:
            await self.disconnect(inuse_connections=False)
            raise

    async def release(self, connection: Any) -> None:
        """As redis-py's."""
        if getattr(connection, "is_left", False):
            await connection.disconnect()
        await super().release(connection)
