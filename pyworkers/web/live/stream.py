"""Stream: the event stream of one viewer, ``/events``. Runs in the event loop of the dashboard.

A viewer that does not read has no queue that could grow: it misses events, and is dropped after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from pyworkers.web.live.reader import Reader, reader_of, readers_of

# A viewer that takes no event for this time is dropped.
_PATIENCE_S = 10.0
# The browser comes back at once, and its session is checked again.
_LONGEST_S = 300.0
DEFAULT = "overview"
"""The feed of a viewer that names none."""
MOST = 4
"""The feeds of one viewer."""
_BEGINNING = b"retry: 2000\n\n"
# A middleware that compresses, as Django's, would hold the events back: the stream names its encoding.
_HEADERS = {
    "Cache-Control": "no-store, no-transform",
    "Content-Encoding": "identity",
    "X-Accel-Buffering": "no",
}


class EventStream(Response):
    """The events of these feeds, one a second, until the viewer or the server leaves."""

    media_type = "text/event-stream"

    def __init__(self, reader: Reader, request: Request, names: Sequence[str]) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._reader = reader
        self._request = request
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events: ASGI's interface."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        leaving = asyncio.create_task(_left(receive))
        sending = asyncio.create_task(self._send(send))
        try:
            with ExitStack() as stack:
                for reader in readers_of(self._request).values():
                    stack.enter_context(reader.viewing())
                await asyncio.wait(
                    {leaving, sending}, timeout=_LONGEST_S, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            leaving.cancel()
            sending.cancel()
        if not leaving.done() or leaving.cancelled():
            with suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await send({"type": "http.response.body", "body": b""})

    async def _send(self, send: Send) -> None:
        body = _BEGINNING
        with suppress(TimeoutError, OSError):
            while body:
                async with asyncio.timeout(_PATIENCE_S):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                body = await self._reader.next_event(self._request, self._names)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _events(request: Request) -> Response:
    names = request.query_params.getlist("feed") or [DEFAULT]
    return EventStream(reader_of(request), request, [name for name in names if name][:MOST])


ROUTES = [Route("/events", _events)]
