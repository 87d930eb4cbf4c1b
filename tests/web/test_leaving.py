"""Streams end when their server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from pyworkers.web.leaving import Streams

GET = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}


async def endless(_request: Request) -> Response:
    async def lines() -> AsyncIterator[str]:
        while True:
            yield "line\n"
            await asyncio.sleep(0.001)

    return StreamingResponse(lines())


async def short(request: Request) -> Response:
    return PlainTextResponse(await request.body())


class Client:
    """Sends one request, and stays connected."""

    def __init__(self, body: bytes = b"") -> None:
        self._requests = [{"type": "http.request", "body": body, "more_body": False}]
        self.answers: list[Any] = []

    async def receive(self) -> Any:
        if self._requests:
            return self._requests.pop()
        return await asyncio.Event().wait()

    async def send(self, message: Any) -> None:
        self.answers.append(message)


async def test_an_open_stream_ends_as_a_whole_answer() -> None:
    streams = Streams(Starlette(routes=[Route("/", endless)]))
    client = Client()
    running = asyncio.create_task(streams(dict(GET), client.receive, client.send))
    while len(client.answers) < 3:
        await asyncio.sleep(0.001)
    streams.leave()
    await running
    assert client.answers[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_request_under_way_is_answered() -> None:
    streams = Streams(Starlette(routes=[Route("/", short, methods=["POST"])]))
    streams.leave()
    client = Client(b"hello")
    await streams({**GET, "method": "POST"}, client.receive, client.send)
    assert [message["type"] for message in client.answers] == ["http.response.start", "http.response.body"]
    assert client.answers[-1]["body"] == b"hello"
    # Another request on the connection would keep the server.
    assert (b"connection", b"close") in client.answers[0]["headers"]
