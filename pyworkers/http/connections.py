"""Connections: limits their number and their time in an HTTP server. For the dashboard and masters.

Needs uvicorn, of the extras ``http`` and ``web``. A new connection is never refused: if there are too many,
one that has sent no whole request is closed instead, so that a client that hangs cannot block the others.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_BYTES = 16 * 1024
"""The largest head of a request, for uvicorn's ``h11_max_incomplete_event_size``."""


class BoundedConnection(H11Protocol):
    """A connection of uvicorn with bounds."""

    most: ClassVar[int]
    """The number of connections of the server."""
    longest_s: ClassVar[float] = 10.0
    """Seconds in which a request arrives, head and body."""
    serves_one: ClassVar[bool] = False
    """If true, the connection is closed after ``longest_s``, answered or not."""

    _end: asyncio.TimerHandle | None = None
    _arrived: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._arrived = self.loop.time()
        self._wait()
        if len(self.connections) > self.most:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request, or no longer."""
        super().data_received(data)
        if not self._is_whole:
            self._wait()
        elif not self.serves_one:
            self._wait_no_longer()

    def on_response_complete(self) -> None:
        """Wait for the rest of the next request, of which a part may have arrived with the one before."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY or self.conn.trailing_data[0]:
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, and drop the answer to its head, which the application may be making.

        That answer can no longer be sent: uvicorn would log an exception for it.
        """
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()
            return
        super().send_400_response(msg)
        super().connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        super().connection_lost(exc)
        self._wait_no_longer()

    def _wait(self) -> None:
        if self._end is None and not self.transport.is_closing():
            self._end = self.loop.call_later(self.longest_s, self.transport.abort)

    def _wait_no_longer(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    @property
    def _is_whole(self) -> bool:
        """True if no part of a request is missing."""
        return self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)

    @property
    def _is_answering(self) -> bool:
        """True while the answer to a whole request is under way."""
        return self._is_whole and self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> None:
        """Close the oldest connection without a whole request under way, or else the oldest of all."""
        others = cast("set[BoundedConnection]", self.connections) - {self}
        oldest = min(others, key=lambda other: (other._is_answering, other._arrived))
        # Otherwise it would count until the loop's next turn, and many connections may arrive in this turn.
        self.connections.discard(oldest)
        oldest.transport.abort()
