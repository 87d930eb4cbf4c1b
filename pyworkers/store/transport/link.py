"""Link: a connection of the master for the hot path, reopened after a loss. It sends nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import hiredis
from redis.exceptions import ConnectionError, ResponseError

from pyworkers.config.fields import RedisConfig
from pyworkers.store.transport import replies
from pyworkers.store.transport.connections import (
    SOCKET_TIMEOUT_S,
    AsyncConnection,
    connect_async,
    node_of_async,
    primary_of,
)
from pyworkers.store.transport.errors import Reaction, code_of, rule_for
from pyworkers.store.transport.redirects import CODES, Redirects, answers
from pyworkers.store.transport.replies import SHAPES, ReplyReader
from pyworkers.store.transport.wire import NotSentError, Wire, open_wire

if TYPE_CHECKING:
    from pyworkers.store.transport.primary import Address


class Link:
    """One connection at a time, opened with the first command and again after a loss."""

    _asks = True
    """True if the node that imports the slot is asked for what the primary does not have any more."""

    def __init__(self, config: RedisConfig, timeout_s: float = SOCKET_TIMEOUT_S, **options: Any) -> None:
        """``options`` are redis-py's, and override the defaults."""
        self._config = config
        self._options = options
        self._made: AsyncConnection | None = None
        """What opens the connection, made with the first one: many queues never have one."""
        self._timeout_s = timeout_s
        self._opening = asyncio.Lock()
        self._wire: Wire | None = None
        self._importing: tuple[Address, Wire] | None = None
        """The connection to the node that imports the slot."""
        self._connecting: asyncio.Task[Wire] | None = None
        self._drops = 0

    async def execute_command(
        self, *command: Any, on_reply: Callable[[Any], None] | None = None, read: ReplyReader | None = None
    ) -> Any:
        """The reply to one command, strings as bytes. Raises redis-py's errors and OSError.

        What a former primary or a node of a cluster refuses is sent again, for some seconds, and to the node
        that imports the slot.

        ``read`` converts the reply, instead of the check of its shape. ``on_reply`` is called with the result
        as soon as the reply has arrived; the waiting task continues a little later.

        An error other than an error reply closes the connection, because the state of its other commands is
        unknown; so does an error reply of the wrong server, and the next command resolves the address again.
        """
        redirects: Redirects | None = None
        drops, reader = self._drops, read or SHAPES.get(command[0])
        while drops == self._drops:
            wire = self._usable or await self._open()
            try:
                return await wire.send(command, on_reply, reader)
            except ResponseError as error:
                self._leave_after(error, wire)
                redirects = redirects or Redirects(primary_of(self._opener))
                refusal = error
            # A blocking command, which alone has on_reply, might wait there for longer than the slot moves.
            if self._asks and on_reply is None and (node := redirects.node_in(refusal)) is not None:
                reply = await self._ask(node, command)
                if not isinstance(reply, ResponseError):
                    return reply if reader is None else replies.read(command[0], reader, reply)
                refusal = reply
            pause_s = redirects.pause_s(refusal)
            await asyncio.sleep(pause_s)
        raise ConnectionError("another server is the primary")

    async def _ask(self, node: Address, command: tuple[Any, ...]) -> Any:
        """The answer, or the refusal, of the node that imports the slot."""
        wire = await self._wire_to(node)
        packed = hiredis.pack_command(("ASKING",)) + hiredis.pack_command(command)
        try:
            [reply] = answers(await wire.exchange(packed, 2))
        except NotSentError:
            raise ConnectionError("the connection was lost") from None
        return reply

    async def _wire_to(self, node: Address) -> Wire:
        """The connection to the node that imports the slot, kept because a login costs more than a call."""
        if self._importing is None or self._importing[0] != node or self._importing[1].closed:
            drops = self._drops
            wire = await open_wire(node_of_async(self._opener, node), self._timeout_s)
            if drops != self._drops:
                wire.close(ConnectionError("closed"))
                raise ConnectionError("another server is the primary")
            self._leave_importing()
            self._importing = node, wire
        return self._importing[1]

    def _leave_importing(self) -> None:
        """Close the connection to the node that imported the slot, after the replies to what was sent."""
        if self._importing is not None:
            self._importing[1].retire()
            self._importing = None

    async def send_together(
        self, commands: Sequence[tuple[Any, ...]], wire: Wire | None = None
    ) -> tuple[Wire, list[Any]]:
        """The replies to commands that are sent in one piece, refusals among them as exceptions.

        They are sent over the connection ``wire``, if it is given, or not at all. Returns also the connection
        that was used. Raises redis-py's errors and OSError.
        """
        if wire is None:
            wire = self._usable or await self._open()
        try:
            found = await wire.exchange(b"".join(map(hiredis.pack_command, commands)), len(commands))
        except NotSentError:
            raise ConnectionError("the connection was lost") from None
        except asyncio.CancelledError:
            wire.close(ConnectionError("a command was cancelled"))
            raise
        for reply in found:
            if isinstance(reply, ResponseError):
                self._leave_after(reply, wire)
        return wire, found

    def _leave_after(self, error: ResponseError, wire: Wire) -> None:
        """Send no more commands to a server that has refused one because it is the wrong one."""
        code = code_of(error)
        if rule_for(code).reaction is not Reaction.RECONNECT:
            return
        self._leave_importing()
        if code not in CODES:
            wire.close(ConnectionError("the wrong server"))
            return
        # A node of a cluster refuses the commands under way, too: they are not in doubt.
        if wire is self._wire:
            self._wire = None
        wire.retire()

    @property
    def client_id(self) -> int | None:
        """The server's number of the connection, for ``CLIENT UNBLOCK``; None if the server refuses it."""
        return None if self._wire is None or self._wire.closed else self._wire.client_id

    def hang_up(self, idle_s: float = 0.0) -> None:
        """Close the connection if it was not used for this time; the next command opens another."""
        if self._wire is not None and self._wire.idle_s >= idle_s:
            self._wire.retire()

    def drop_connection(self) -> None:
        """Fail the commands under way: another server is the primary now."""
        self._drops += 1
        self._leave_importing()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._wire is not None:
            self._wire.close(ConnectionError("another server is the primary"))

    async def connect_to(self, config: RedisConfig) -> None:
        """Fail the commands under way, and send the next ones to this Redis."""
        former, self._made, self._config = self._made, None, config
        self.drop_connection()
        if former is not None:
            await former.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        self._drops += 1
        if self._connecting is not None:
            self._connecting.cancel()
        if self._importing is not None:
            self._importing[1].close(ConnectionError("closed"))
        if self._wire is not None:
            self._wire.close(ConnectionError("closed"))
        if self._made is not None:
            await self._made.aclose()

    @property
    def _opener(self) -> AsyncConnection:
        if self._made is None:
            self._made = connect_async(self._config, **self._options)
        return self._made

    @property
    def _usable(self) -> Wire | None:
        """The connection, unless it is lost, or leads to a server that is not the primary any more."""
        wire = self._wire
        return None if wire is None or wire.closed or wire.is_former else wire

    async def _open(self) -> Wire:
        drops = self._drops
        async with self._opening:
            if (wire := self._usable) is None:
                if drops != self._drops:
                    raise ConnectionError("another server is the primary")
                former, wire = self._wire, await self._connect()
                self._wire = wire
                if former is not None and not former.closed:
                    former.retire()
                await self._greet(wire)
            return wire

    async def _greet(self, wire: Wire) -> None:
        """Send the first commands of a new connection."""
        await wire.learn_id()

    async def _connect(self) -> Wire:
        drops = self._drops
        connecting = self._connecting = asyncio.create_task(open_wire(self._opener, self._timeout_s))
        try:
            await asyncio.wait([connecting])
            # asyncio.wait_for of Python 3.11, in redis-py, may lose a cancellation.
            if connecting.cancelled() or drops != self._drops:
                raise ConnectionError("another server is the primary")
            return connecting.result()
        except BaseException:
            connecting.cancel()
            # Not awaited: this task may be cancelled again.
            connecting.add_done_callback(_close_unused)
            raise
        finally:
            self._connecting = None


def _close_unused(connecting: asyncio.Task[Wire]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close(ConnectionError("a command was cancelled"))
