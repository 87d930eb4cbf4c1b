"""Leaving: ends the event streams when the server stops, which would otherwise wait for their viewers."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Streams:
    """The application, whose streams see their client leave as soon as the server does."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """End all streams."""
        self._leaving.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, self._leaving)
        await self._app(scope, _Reception(receive, self._leaving).receive, answer.send)
        if self._leaving.is_set():
            await answer.complete()


class _Reception:
    """What a request receives: its body, then the end of the connection or of the server."""

    def __init__(self, receive: Receive, leaving: asyncio.Event) -> None:
        self._receive = receive
        self._leaving = leaving
        self._has_body = False

    async def receive(self) -> Message:
        if not self._has_body:
            message = await self._receive()
            self._has_body = not message.get("more_body", False)
            return message
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(self._receive()),
            asyncio.ensure_future(self._leaving.wait()),
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return tasks[0].result() if tasks[0].done() else {"type": "http.disconnect"}
        finally:
            for task in tasks:
                task.cancel()


class _Answer:
    """What a request sends, and whether it has sent all."""

    def __init__(self, send: Send, leaving: asyncio.Event) -> None:
        self._send = send
        self._leaving = leaving
        self._is_open = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self._leaving.is_set():
            # On a connection that came with the stop: else its next request would keep the server.
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await self._send(message)
        self._is_open = message["type"] == "http.response.start" or message.get("more_body", False)

    async def complete(self) -> None:
        """Send the end of a stream that was cut off."""
        if self._is_open:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
