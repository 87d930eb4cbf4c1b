"""Wires: the blocking connections of a producer, for the commands of one push and their replies.

Used in any program and thread; event loops have ``AsyncWires`` (wire.py). redis-py opens them (address,
login, TLS, Sentinel) and hiredis encodes and parses; the layers of redis-py between the two take as long as
the exchange itself. Nothing is sent twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from select import POLLIN, poll
from typing import TYPE_CHECKING, Any

import hiredis
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError, InvalidResponse

from pyworkers.store.transport.connections import (
    PUSH,
    Connection,
    Turns,
    are_refused,
    call_when_dropped,
    node_of,
    primary_of,
)
from pyworkers.store.transport.redirects import Repeat, Resending, refusal_in, resending

if TYPE_CHECKING:
    from pyworkers.store.transport.primary import Address

# The longest TLS record. A shorter read could leave a part of one in the TLS layer, invisible to poll().
_READ_BYTES = 16_384


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
        call_when_dropped(self, _close_all, self._idle)

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
        if are_refused(replies, refusals):
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
        _close_all(self._idle)
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


def _close_all(idle: list[_Wire]) -> None:
    with suppress(IndexError):
        while True:
            idle.pop().close()


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
        has been closed by the server, or because another server is the primary. That one is closed soon.
        """
        is_former = getattr(self._connection, "is_former", False)
        return self._pid == os.getpid() and not is_former and not self._poll.poll(0)

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
