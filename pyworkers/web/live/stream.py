"""Stream: the event stream of one viewer, ``/events``. Runs in the event loop of the dashboard.

A viewer that does not read has no queue that could grow: it misses events, and is dropped after a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Send

from pyworkers.web.live.reader import reader_of, readers_of

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


class EventStream(StreamingResponse):
    """The events of these feeds, one a second, until the viewer or the server leaves."""

    def __init__(self, request: Request, names: Sequence[str]) -> None:
        super().__init__(_events_of(request, names), headers=_HEADERS, media_type="text/event-stream")
        self._request = request

    async def stream_response(self, send: Send) -> None:
        """Send the events while there is a viewer for the readers."""

        async def patiently(message: Message) -> None:
            async with asyncio.timeout(_PATIENCE_S):
                await send(message)

        with suppress(TimeoutError, OSError), ExitStack() as viewing:
            for reader in readers_of(self._request).values():
                viewing.enter_context(reader.viewing())
            await super().stream_response(patiently)


async def _events_of(request: Request, names: Sequence[str]) -> AsyncIterator[bytes]:
    end, event = time.monotonic() + _LONGEST_S, _BEGINNING
    while event and time.monotonic() < end:
        yield event
        event = await reader_of(request).next_event(request, names)


async def _events(request: Request) -> Response:
    names = request.query_params.getlist("feed") or [DEFAULT]
    return EventStream(request, [name for name in names if name][:MOST])


ROUTES = [Route("/events", _events)]
