"""Link: one connection of the master for the commands of the hot path.

Runs in the master's event loop. redis-py opens it (address, login, TLS, Sentinel) and hiredis speaks; what
lies between them in redis-py (retries, streams, timeouts, metrics) costs three times as much as the exchange
itself. Commands are sent at once and answered in order, so several may be under way. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import hiredis
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError, ResponseError, TimeoutError

from pyworkers import replies
from pyworkers.config import RedisConfig
from pyworkers.replies import Action
from pyworkers.store.connection import PUSH, SOCKET_TIMEOUT_S, connect_async
from pyworkers.store.refusals import code_of


class _Awaited(NamedTuple):
    """A command under way. ``due``: until when something must have been heard, in the loop's time."""

    reply: asyncio.Future[Any]
    heard: Callable[[Any], None] | None
    due: float


class Link:
    """One connection at a time, opened with the first command and again after a loss."""

    def __init__(self, config: RedisConfig, timeout_s: float = SOCKET_TIMEOUT_S, **options: Any) -> None:
        """``options`` are redis-py's, and go before the defaults."""
        self._opener = connect_async(config, **options)
        self._timeout_s = timeout_s
        self._opening = asyncio.Lock()
        self._wire: Wire | None = None
        self._connecting: asyncio.Future[None] | None = None

    async def execute_command(self, *command: Any, heard: Callable[[Any], None] | None = None) -> Any:
        """The reply to one command, strings as bytes. Raises redis-py's errors and OSError.

        ``heard`` is called with it as soon as it has come; whoever waits for it goes on a little later.
        After anything but an error reply the connection is closed, for what was under way on it is unknown;
        and after one that tells of the wrong server, so that the next command looks for the address again.
        """
        wire = self._wire
        if wire is None or wire.closed:
            wire = await self._open()
        try:
            return await wire.send(command, heard)
        except ResponseError as error:
            if replies.rule(code_of(error)).action is Action.RECONNECT:
                wire.close(ConnectionError("the wrong server"))
            raise

    @property
    def client_id(self) -> int | None:
        """The server's number of the open connection, for ``CLIENT UNBLOCK``; None if it does not tell."""
        return None if self._wire is None or self._wire.closed else self._wire.client_id

    def leave(self) -> None:
        """End what is under way, with an error: another server is the primary now."""
        if self._connecting is not None:
            self._connecting.cancel()
        if self._wire is not None:
            self._wire.close(ConnectionError("another server is the primary"))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._wire is not None:
            self._wire.close(ConnectionError("closed"))
        await self._opener.aclose()

    async def _open(self) -> Wire:
        async with self._opening:
            if self._wire is None or self._wire.closed:
                connection = self._opener.connection_pool.make_connection()
                await self._connect(connection)
                wire = self._wire = Wire(connection, self._timeout_s)
                await self._greet(wire)
            return self._wire

    async def _greet(self, wire: Wire) -> None:
        """Send the first commands of a new connection."""
        # An ACL may forbid it.
        with suppress(ResponseError):
            wire.client_id = await wire.send(("CLIENT", "ID"))

    async def _connect(self, connection: Any) -> None:
        connecting = self._connecting = asyncio.ensure_future(connection.connect())
        try:
            await asyncio.wait([connecting])
            if connecting.cancelled():
                raise ConnectionError("another server is the primary")
            connecting.result()
        except BaseException:
            connecting.cancel()
            # Where redis-py is cancelled, it leaves the socket open. Not awaited: we may be cancelled again.
            connecting.add_done_callback(lambda _: connection._close())
            raise
        finally:
            self._connecting = None


class Wire(asyncio.Protocol):
    """The socket of one of redis-py's connections, after the login."""

    def __init__(self, connection: Any, timeout_s: float) -> None:
        # redis-py must not close what it no longer owns; a writer closes its socket when nobody holds it.
        self.protocol = int(connection.protocol)
        reader, self._writer = connection._reader, connection._writer
        connection._reader = connection._writer = None
        self._transport = self._writer.transport
        if reader.at_eof() or reader.exception() or self._transport.is_closing():
            # It will not be said again.
            self._transport.abort()
            raise ConnectionError("the server closed the connection after the login")
        self._transport.set_protocol(self)
        self._loop = asyncio.get_running_loop()
        self._parser = hiredis.Reader(replyError=BaseParser.parse_error)
        self._timeout_s = timeout_s
        self._awaited: deque[_Awaited] = deque()
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self.client_id: int | None = None
        self.on_push: Callable[[Any], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.closed = False

    async def send(self, command: tuple[Any, ...], heard: Callable[[Any], None] | None = None) -> Any:
        if self.closed:
            raise ConnectionError("the server closed the connection")
        reply: asyncio.Future[Any] = self._loop.create_future()
        packed = hiredis.pack_command(command)
        due = self._loop.time() + self._timeout_s
        self._awaited.append(_Awaited(reply, heard, due))
        if self._watch is None:
            self._watch = self._loop.call_at(due, self._look)
        try:
            self._transport.write(packed)
            return await reply
        except asyncio.CancelledError:
            self.close(ConnectionError("a command was cancelled"))
            raise

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            self._parser.feed(data)
            while not self.closed and (answer := self._parser.gets()) is not False:
                self._answer(answer)
        except hiredis.HiredisError as error:
            self.close(ConnectionError(f"the server sent what is no reply: {error}"))

    def _answer(self, answer: Any) -> None:
        if type(answer) is PUSH:
            if self.on_push is not None:
                self.on_push(answer)
            return
        if not self._awaited:
            self.close(ConnectionError("the server answers what was not asked"))
            return
        reply, heard, _ = self._awaited.popleft()
        if reply.done():
            # Cancelled in this round of the loop, and not yet closed: for the server this reply is lost.
            return
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)
            if heard is not None:
                heard(answer)

    def _look(self) -> None:
        """Close if the oldest command has waited too long: one timer for all, for most are answered soon.

        A large reply that is coming in may take its time: given up, it would be asked for again and again.
        """
        self._watch = None
        if self._awaited:
            due = max(self._awaited[0].due, self._heard_at + self._timeout_s)
            if due <= self._loop.time():
                self.close(TimeoutError("no reply"))
            else:
                self._watch = self._loop.call_at(due, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(ConnectionError(str(exc or "the server closed the connection")))

    def close(self, error: Exception) -> None:
        """Close the socket; every command under way fails with ``error``."""
        self.closed = True
        self._transport.abort()
        if self.on_close is not None:
            self.on_close()
        if self._watch is not None:
            self._watch.cancel()
        while self._awaited:
            reply = self._awaited.popleft().reply
            if not reply.done():
                reply.set_exception(error)
