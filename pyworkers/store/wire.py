"""Wires: the connections of a producer, for the commands of one push and their replies.

Used in any program, thread and event loop. redis-py opens them (address, login, TLS, Sentinel) and hiredis
speaks; what lies between them in redis-py takes as long as the exchange itself. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from select import POLLIN, poll
from typing import Any

import hiredis
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError, InvalidResponse

from pyworkers.store.connection import PUSH, AsyncConnection, Connection

# The longest record of TLS. So a read leaves nothing of one behind, which a look at the socket would not see.
_READ_BYTES = 16_384


class Wires:
    """Connections, each used by one exchange at a time, in the process that opened it.

    Threads share them without a lock, for a fork would copy it locked: to take the last of a list, and to put
    one there, cannot be interrupted.
    """

    def __init__(self, opener: Connection) -> None:
        self._opener = opener
        self._idle: list[_Wire] = []

    def exchange(self, packed: bytes, count: int) -> list[Any]:
        """Send commands in one write; their ``count`` replies, refusals among them as exceptions.

        Raises redis-py's errors and OSError, after which nobody knows what the commands have done.
        """
        wire = self._usable() or _Wire(self._opener.connection_pool)
        try:
            wire.open()
            replies = wire.exchange(packed, count)
        except BaseException:
            # What is still to come would be taken for the reply to something else.
            wire.close()
            raise
        self._idle.append(wire)
        return replies

    def close(self) -> None:
        """Close what is not in use. A later exchange opens new ones."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

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
        self._connection = self._pool.get_connection()
        self._socket = self._connection._sock
        self._poll = poll()
        self._poll.register(self._socket, POLLIN)
        self._reader = _reader()

    def is_usable(self) -> bool:
        """False if another process opened it, if it leads to what is no longer the primary, or if there is
        something to read: its end.
        """
        return (
            self._pid == os.getpid()
            and self._pool.owns_connection(self._connection)
            and not self._poll.poll(0)
        )

    def exchange(self, packed: bytes, count: int) -> list[Any]:
        replies: list[Any] = []
        self._socket.sendall(packed)
        while len(replies) < count:
            _add(replies, count, self._reader, self._socket.recv(_READ_BYTES))
        return replies

    def close(self) -> None:
        if self._connection is None:
            return
        # In a forked process, redis-py closes its descriptor alone; the connection lives on.
        self._connection.disconnect()
        # Makes room for another: a URL may limit their number (``?max_connections=…``).
        self._pool.release(self._connection)


async def exchange_async(opener: AsyncConnection, packed: bytes, count: int) -> list[Any]:
    """As ``Wires.exchange``, with a connection of redis-py's pool."""
    pool: Any = opener.connection_pool
    connection = await pool.get_connection()
    try:
        replies: list[Any] = []
        reader = _reader()
        async with asyncio.timeout(connection.socket_timeout):
            connection._writer.write(packed)
            while len(replies) < count:
                _add(replies, count, reader, await connection._reader.read(_READ_BYTES))
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    finally:
        await pool.release(connection)
    return replies


def _reader() -> hiredis.Reader:
    return hiredis.Reader(protocolError=InvalidResponse, replyError=BaseParser.parse_error)


def _add(replies: list[Any], count: int, reader: hiredis.Reader, received: bytes) -> None:
    """Add the replies that are whole with what was received; there must not be more than ``count``."""
    if not received:
        raise ConnectionError("the server closed the connection")
    reader.feed(received)
    while (reply := reader.gets()) is not False:
        if type(reply) is not PUSH:
            replies.append(reply)
    if len(replies) > count or (len(replies) == count and reader.has_data()):
        raise ConnectionError("the server answers what was not asked")
