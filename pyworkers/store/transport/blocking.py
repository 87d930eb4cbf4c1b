"""Wires: the connections of a producer, for the commands of one push and their replies.

Used in any program, thread and event loop. redis-py opens them (address, login, TLS, Sentinel) and hiredis
encodes and parses; the layers of redis-py between the two take as long as the exchange itself. Nothing is
sent twice.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from operator import attrgetter
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any

import hiredis
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError, InvalidResponse, ResponseError

from pyworkers.store.transport.connections import (
    PUSH,
    AsyncConnection,
    Connection,
    Turns,
    node_of,
    node_of_async,
    primary_of,
)
from pyworkers.store.transport.errors import code_of
from pyworkers.store.transport.redirects import Repeat, Resending, refusal_in, resending
from pyworkers.store.transport.wire import NotSentError, Wire, open_wire

if TYPE_CHECKING:
    from pyworkers.store.transport.primary import Address

# The longest TLS record. A shorter read could leave a part of one in the TLS layer, invisible to poll().
_READ_BYTES = 16_384
# One connection has the throughput of several. But with more bytes than this under way, a small job would
# wait for large ones, and a lost connection would fail many pushes: then another connection is opened.
_BUSY_BYTES, _MOST_SHARED = 1_000_000, 4
# A server that closes every connection after the login must not keep a caller for ever.
_MOST_LOSSES = 5


class Wires:
    """Connections, each used by one exchange at a time, in the process that opened it; at most 100, or as
    many as the URL allows (``?max_connections=…``). An exchange waits for a free one.

    Threads share them without a lock, because a fork would copy a locked one: ``list.pop`` and
    ``list.append`` are atomic.
    """

    def __init__(self, opener: Connection) -> None:
        self._opener = opener
        self._primary = primary_of(opener)
        self._pool: Any = opener.connection_pool
        self._timeout_s = self._pool.connection_kwargs["socket_timeout"]
        self._turns = Turns(self._pool.max_connections)
        self._idle: list[_Wire] = []
        self._importing: tuple[Address, Wires] | None = None

    def exchange(self, packed: bytes, count: int, refusals: Collection[str] = ()) -> list[Any]:
        """Send commands in one write; their ``count`` replies, refusals among them as exceptions.

        After a refusal with one of these codes, the next exchange opens a connection, which may lead to
        another server. Raises redis-py's errors and OSError; the commands may have run then, or not.
        """
        turn = self._turns.take(self._timeout_s)
        try:
            replies = self._exchange(packed, count, refusals)
            if self._primary is not None and refusal_in(replies) is not None:
                self._redirect(resending(self._primary, packed, replies))
            return replies
        finally:
            turn.leave()

    def _exchange(self, packed: bytes, count: int, refusals: Collection[str]) -> list[Any]:
        wire = self._usable() or _Wire(self._pool)
        try:
            wire.open()
            replies = wire.exchange(packed, count)
        except BaseException:
            # The next exchange would take the replies still to come for its own.
            wire.close()
            raise
        self._idle.append(wire)
        if _are_refused(replies, refusals):
            self.close()
        return replies

    def _redirect(self, steps: Resending) -> None:
        """Send again what a node of a cluster has refused."""
        with suppress(StopIteration):
            again = next(steps)
            while True:
                again = steps.send(self._sent_again(again))

    def _sent_again(self, again: Repeat) -> list[Any]:
        if again.leaves:
            self.close()
        time.sleep(again.pause_s)
        wires = self if again.node is None else self._at(again.node)
        return wires._exchange(again.packed, again.number, ())

    def _at(self, node: Address) -> Wires:
        """The connections to the node that imports the slot."""
        if self._importing is None or self._importing[0] != node:
            self._importing = node, Wires(node_of(self._opener, node))
        return self._importing[1]

    def close(self) -> None:
        """Close the idle connections. A later exchange opens new ones."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()
        if (importing := self._importing) is not None:
            self._importing = None
            importing[1].close()

    def _usable(self) -> _Wire | None:
        try:
            while not (wire := self._idle.pop()).is_usable():
                wire.close()
        except IndexError:
            return None
        return wire


class _Wire:
    """The socket of one of redis-py's connections, after the login."""

    def __init__(self, pool: Any) -> None:
        self._pid = os.getpid()
        self._pool = pool
        self._connection: Any = None

    def open(self) -> None:
        if self._connection is not None:
            return
        # Not by the pool: it has locks, which a fork would copy, and it counts and keeps its connections.
        self._connection = self._pool.connection_class(**self._pool.connection_kwargs)
        self._connection.connect()
        self._socket = self._connection._sock
        self._poll = poll()
        self._poll.register(self._socket, POLLIN)
        self._reader = _reader()

    def is_usable(self) -> bool:
        """False if another process opened it, or if it is readable: between exchanges, a readable connection
        has been closed by the server, or because another server is the primary.
        """
        return self._pid == os.getpid() and not self._poll.poll(0)

    def exchange(self, packed: bytes, count: int) -> list[Any]:
        replies: list[Any] = []
        self._socket.sendall(packed)
        while len(replies) < count:
            _add(replies, count, self._reader, self._socket.recv(_READ_BYTES))
        return replies

    def close(self) -> None:
        if self._connection is not None:
            # In a forked process, redis-py closes only the descriptor; the parent's connection stays open.
            self._connection.disconnect()


class AsyncWires:
    """The connections of one event loop: at most four, each shared by the exchanges under way."""

    def __init__(self, opener: AsyncConnection) -> None:
        self._opener = opener
        self._primary = primary_of(opener)
        pool: Any = opener.connection_pool
        self._timeout_s = pool.connection_kwargs["socket_timeout"]
        self._most = min(_MOST_SHARED, pool.max_connections)
        self._wires: list[Wire] = []
        self._importing: dict[Address, AsyncWires] = {}
        self._opening: asyncio.Task[Wire] | None = None
        self._closed = False

    async def exchange(self, packed: bytes, count: int, refusals: Collection[str] = ()) -> list[Any]:
        """Send commands together; their ``count`` replies, refusals among them as exceptions.

        After a refusal with one of these codes, the next exchange opens a connection, which may lead to
        another server. A cancelled or refused exchange does not affect the others; a lost connection fails
        those whose commands were sent. Raises redis-py's errors and OSError.
        """
        wire, replies = await self._exchange(packed, count, refusals)
        if self._primary is not None and refusal_in(replies) is not None:
            await self._redirect(resending(self._primary, packed, replies), wire)
        return replies

    async def _exchange(self, packed: bytes, count: int, refusals: Collection[str]) -> tuple[Wire, list[Any]]:
        for _ in range(_MOST_LOSSES):
            wire = self._least_loaded() or await self._opened()
            try:
                replies = await wire.exchange(packed, count)
            except NotSentError:
                continue
            if _are_refused(replies, refusals):
                self._leave(wire)
            return wire, replies
        raise ConnectionError("the connection is lost each time before anything is sent")

    async def _redirect(self, steps: Resending, wire: Wire) -> None:
        """Send again what a node of a cluster has refused; ``wire`` leads there."""
        with suppress(StopIteration):
            again = next(steps)
            while True:
                if again.leaves:
                    self._leave(wire)
                await asyncio.sleep(again.pause_s)
                if again.node is None:
                    wire, answers = await self._exchange(again.packed, again.number, ())
                else:
                    _, answers = await self._at(again.node)._exchange(again.packed, again.number, ())
                again = steps.send(answers)

    def _at(self, node: Address) -> AsyncWires:
        """The connections to the node that imports the slot."""
        if (wires := self._importing.get(node)) is None:
            wires = self._importing[node] = AsyncWires(node_of_async(self._opener, node))
        return wires

    async def aclose(self) -> None:
        """Close all connections; exchanges under way fail."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        while self._wires:
            self._wires.pop().close(ConnectionError("the client was closed"))
        for wires in self._importing.values():
            await wires.aclose()
        await self._opener.aclose()

    def _least_loaded(self) -> Wire | None:
        """The least loaded connection, None if there is none; opens another if even this is busy."""
        wires = self._wires
        if any(wire.closed for wire in wires):
            wires = self._wires = [wire for wire in wires if not wire.closed]
        if not wires:
            return None
        wire = min(wires, key=attrgetter("load_bytes"))
        if wire.load_bytes > _BUSY_BYTES and len(wires) < self._most:
            self._open()
        return wire

    async def _opened(self) -> Wire:
        opening = self._open()
        # All callers wait for the same connection; the cancellation of one caller does not end its opening.
        await asyncio.wait([opening])
        if opening.cancelled():
            raise ConnectionError("the client was closed")
        return opening.result()

    def _open(self) -> asyncio.Task[Wire]:
        if self._closed:
            raise ConnectionError("the client was closed")
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._add())
            # If all callers were cancelled, no other code retrieves its error, and asyncio would log it.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._opening

    async def _add(self) -> Wire:
        wire = await open_wire(self._opener, self._timeout_s)
        self._wires.append(wire)
        return wire

    def _leave(self, wire: Wire) -> None:
        """Send no more commands over this connection: another server is the primary now."""
        if wire in self._wires:
            self._wires.remove(wire)
        wire.retire()


def _are_refused(replies: Sequence[Any], refusals: Collection[str]) -> bool:
    """True for a refusal with one of these codes among the replies, or inside the reply to EXEC."""
    for reply in replies:
        for answer in reply if type(reply) is list else (reply,):
            if isinstance(answer, ResponseError) and code_of(answer) in refusals:
                return True
    return False


def _reader() -> hiredis.Reader:
    return hiredis.Reader(protocolError=InvalidResponse, replyError=BaseParser.parse_error)


def _add(replies: list[Any], count: int, reader: hiredis.Reader, received: bytes) -> None:
    """Add the complete replies received. Raises ConnectionError if there are more than ``count``."""
    if not received:
        raise ConnectionError("the server closed the connection")
    reader.feed(received)
    while (reply := reader.gets()) is not False:
        if type(reply) is not PUSH:
            replies.append(reply)
    if len(replies) > count or (len(replies) == count and reader.has_data()):
        raise ConnectionError("the server sent a reply to no command")
