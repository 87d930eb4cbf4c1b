"""Wire: one open connection to Redis, for an event loop; AsyncWires: the connections of a producer there.

``Link`` uses one wire, and a producer a few. redis-py opens it (address, login, TLS, Sentinel) and hiredis
encodes and parses; the layers of redis-py between the two (retries, streams, timeouts, metrics) cost three
times as much as the exchange. A command is sent without waiting for the reply to the one before; replies come
in order. Nothing is sent twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import hiredis
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError, InvalidResponse, ResponseError, TimeoutError

from pyworkers.store.transport import replies
from pyworkers.store.transport.connections import (
    PUSH,
    AsyncConnection,
    are_refused,
    node_of_async,
    primary_of,
)
from pyworkers.store.transport.redirects import Resending, refusal_in, resending
from pyworkers.store.transport.replies import ReplyReader, UnexpectedReplyError, integer, reading

if TYPE_CHECKING:
    from pyworkers.store.transport.primary import Address

# Commands that wait for earlier ones are sent in portions of about this size, while the socket accepts them.
_PORTION_BYTES = 65_536
_RESP3 = 3
# A process that was suspended reads in this time the replies that have arrived meanwhile. Its timers are due
# at once, and run before it reads.
_READ_S = 0.1


class NotSentError(Exception):
    """The connection was lost before the command was sent, so the command may be sent over another."""


class _Awaited(NamedTuple):
    """Commands under way. ``due``: the time (of the loop's clock) by which data must have arrived.

    ``answers`` collects the ``number`` replies to several commands.
    """

    reply: asyncio.Future[Any]
    due: float
    command: str = ""
    read: ReplyReader | None = None
    on_reply: Callable[[Any], None] | None = None
    answers: list[Any] | None = None
    number: int = 1


async def open_wire(opener: AsyncConnection, timeout_s: float) -> Wire:
    """A new connection to the server of ``opener``, after the login. Raises redis-py's errors and OSError."""
    pool: Any = opener.connection_pool
    connection = pool.make_connection()
    try:
        with reading("the login"):
            await connection.connect()
        return Wire(connection, timeout_s)
    except BaseException:
        # redis-py leaves the socket open when it is cancelled.
        connection._close()
        raise


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """As ``asyncio.timeout``, but a reply that came while this process was suspended is read first."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(seconds, lambda: limit.reschedule(loop.time() + _READ_S))
        try:
            yield
        finally:
            timer.cancel()


class Wire(asyncio.Protocol):
    """The socket of one of redis-py's connections, after the login."""

    def __init__(self, connection: Any, timeout_s: float) -> None:
        # Taken from redis-py, which would close the socket. The writer is kept, because a StreamWriter closes
        # its socket when it is garbage-collected.
        self.protocol = int(connection.protocol)
        self._connection = connection
        reader, self._writer = connection._reader, connection._writer
        connection._reader = connection._writer = None
        self._transport = self._writer.transport
        if reader.at_eof() or reader.exception() or self._transport.is_closing():
            # asyncio reports the end of a connection only once, and has reported it to redis-py's reader.
            self._transport.abort()
            raise ConnectionError("the server closed the connection after the login")
        self._transport.set_protocol(self)
        self._loop = asyncio.get_running_loop()
        self._parser = hiredis.Reader(protocolError=InvalidResponse, replyError=BaseParser.parse_error)
        self._timeout_s = timeout_s
        self._awaited: deque[_Awaited] = deque()
        self._missing = 0
        self._unsent: deque[tuple[bytes, _Awaited]] = deque()
        self._flushing = self._full = self._retired = False
        self._received_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self.client_id: int | None = None
        """The server's number of this connection, after ``learn_id``; None if the server refuses it."""
        self._on_push: Callable[[Any], None] | None = None
        self._on_close: Callable[[], None] | None = None
        self.load_bytes = 0
        """Bytes given to ``exchange`` whose replies have not all arrived."""
        self.closed = False

    async def learn_id(self) -> None:
        """Ask for the server's number of this connection. An ACL may forbid it."""
        with suppress(ResponseError):
            self.client_id = await self.send(("CLIENT", "ID"), read=integer)

    def listen(self, on_push: Callable[[Any], None], on_close: Callable[[], None]) -> None:
        """Call ``on_push`` with each message that is not a reply, and ``on_close`` when the socket closes."""
        self._on_push, self._on_close = on_push, on_close

    async def send(
        self,
        command: tuple[Any, ...],
        on_reply: Callable[[Any], None] | None = None,
        read: ReplyReader | None = None,
    ) -> Any:
        """The reply to one command. A cancellation closes the connection, because the command may block."""
        if self.closed:
            raise ConnectionError("the server closed the connection")
        reply: asyncio.Future[Any] = self._loop.create_future()
        packed = hiredis.pack_command(command)
        self._expect(_Awaited(reply, self._loop.time() + self._timeout_s, command[0], read, on_reply))
        try:
            self._transport.write(packed)
            return await reply
        except asyncio.CancelledError:
            self.close(ConnectionError("a command was cancelled"))
            raise

    async def exchange(self, packed: bytes, count: int) -> list[Any]:
        """The ``count`` replies to commands that do not block, refusals among them as exceptions.

        Commands that arrive while others are under way are sent together, in the next round of the loop. Once
        they are sent, a cancellation only discards their replies. Raises NotSentError, redis-py's errors and
        OSError.
        """
        if self.closed:
            raise NotSentError
        reply: asyncio.Future[list[Any]] = self._loop.create_future()
        awaited = _Awaited(reply, self._loop.time() + self._timeout_s, answers=[], number=count)
        self.load_bytes += len(packed)
        try:
            if self._awaited or self._unsent:
                self._unsent.append((packed, awaited))
                if not self._flushing:
                    self._flushing = True
                    self._loop.call_soon(self._flush)
            else:
                self._expect(awaited)
                self._transport.write(packed)
            return await reply
        finally:
            self.load_bytes -= len(packed)

    @property
    def is_former(self) -> bool:
        """True if another server is known to be the primary, so that this connection is closed soon."""
        return getattr(self._connection, "is_former", False) is True

    @property
    def idle_s(self) -> float:
        """The time since the last reply; 0 while a command is under way."""
        return 0.0 if self._awaited or self._unsent else self._loop.time() - self._received_at

    def retire(self) -> None:
        """Close as soon as no command is under way."""
        self._retired = True
        self._part()

    def pause_writing(self) -> None:
        """The socket's buffer is full (asyncio)."""
        self._full = True

    def resume_writing(self) -> None:
        """The socket's buffer has room again (asyncio)."""
        self._full = False
        self._flush()

    def _flush(self) -> None:
        self._flushing = False
        while self._unsent and not self._full and not self.closed:
            self._transport.write(b"".join(self._portion()))

    def _portion(self) -> Iterator[bytes]:
        size = 0
        while self._unsent and size < _PORTION_BYTES:
            packed, awaited = self._unsent.popleft()
            # A command that was cancelled before it was sent is never sent.
            if not awaited.reply.done():
                size += len(packed)
                self._expect(awaited)
                yield packed

    def _expect(self, awaited: _Awaited) -> None:
        self._awaited.append(awaited)
        self._missing += awaited.number
        if self._watch is None:
            self._watch = self._loop.call_at(awaited.due, self._look)

    def data_received(self, data: bytes) -> None:
        self._received_at = self._loop.time()
        answers, parser = [], self._parser
        try:
            parser.feed(data)
            while (answer := parser.gets()) is not False:
                if type(answer) is not PUSH:
                    answers.append(answer)
                elif self._on_push is not None:
                    replies.read("CLIENT TRACKING", self._on_push, answer)
        except (InvalidResponse, UnexpectedReplyError) as error:
            self.close(error)
            return
        # Checked before any reply is used: a surplus reply may come before the expected ones.
        self._missing -= len(answers)
        # In RESP3, the bytes after the last reply may be the beginning of an announcement.
        if self._missing < 0 or (self._missing == 0 and self.protocol < _RESP3 and parser.has_data()):
            self.close(ConnectionError("the server sent a reply to no command"))
            return
        for answer in answers:
            self._answer(answer)
        if self._retired:
            self._part()

    def _answer(self, answer: Any) -> None:
        if self.closed:
            return
        reply, _, command, read, on_reply, answers, number = self._awaited[0]
        if answers is not None:
            answers.append(answer)
            if len(answers) < number:
                return
            answer = answers
        elif read is not None and not isinstance(answer, Exception):
            try:
                answer = replies.read(command, read, answer)
            except UnexpectedReplyError as error:
                # This command and all later ones fail: their replies may belong to other commands.
                self.close(error)
                return
        self._awaited.popleft()
        if reply.done():
            # Cancelled. After ``send``, the wire is closed in this round of the loop, and the reply is lost;
            # after ``exchange``, the wire continues.
            return
        if isinstance(answer, Exception):
            reply.set_exception(answer)
        else:
            reply.set_result(answer)
            if on_reply is not None:
                on_reply(answer)

    def _look(self) -> None:
        """Look for an overdue reply, after the data that came while this process was suspended is read."""
        self._watch = self._loop.call_later(_READ_S, self._close_if_overdue)

    def _close_if_overdue(self) -> None:
        """Close if the oldest command has waited too long. One timer is enough, as most replies come soon.

        All data received restarts the timeout: a large reply would otherwise fail and be requested for ever.
        """
        self._watch = None
        if self._awaited:
            due = max(self._awaited[0].due, self._received_at + self._timeout_s)
            if due <= self._loop.time():
                self.close(TimeoutError("no reply"))
            else:
                self._watch = self._loop.call_at(due, self._look)

    def eof_received(self) -> None:
        """The server has closed the connection."""
        self.close(ConnectionError("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.close(ConnectionError(str(exc or "the server closed the connection")))

    def close(self, error: Exception) -> None:
        """Close the socket; every command under way fails with ``error``."""
        self.closed = True
        self._transport.abort()
        if self._on_close is not None:
            self._on_close()
        if self._watch is not None:
            self._watch.cancel()
        while self._awaited:
            reply = self._awaited.popleft().reply
            if not reply.done():
                reply.set_exception(error)
        # After a timeout, the unsent commands, which have waited as long, fail too: not sent elsewhere.
        unsent_error = error if isinstance(error, TimeoutError) else NotSentError()
        while self._unsent:
            reply = self._unsent.popleft()[1].reply
            if not reply.done():
                reply.set_exception(unsent_error)

    def _part(self) -> None:
        if not self._awaited and not self._unsent:
            self.close(ConnectionError("the connection is no longer used"))


# One connection has the throughput of several. But with more bytes than this under way, a small job would
# wait for large ones, and a lost connection would fail many pushes: then another connection is opened.
_BUSY_BYTES, _MOST_SHARED = 1_000_000, 4
# A server that closes every connection after the login must not keep a caller for ever.
_MOST_LOSSES = 5


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
            if are_refused(replies, refusals):
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
        for wire in [wire for wire in wires if wire.is_former]:
            self._leave(wire)
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
