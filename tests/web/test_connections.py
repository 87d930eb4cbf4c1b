"""The bounds of one connection, with a real server."""

from __future__ import annotations

import asyncio

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pyworkers.http.connections import BoundedConnection

WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"


class Impatient(BoundedConnection):
    """A connection that waits half a second for a request."""

    most = 10
    longest_s = 0.5


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await Request(scope, receive).body()
    await PlainTextResponse("ok")(scope, receive, send)


async def exchange(app: ASGIApp, sent: bytes) -> bytes:
    """All that the server answers on one connection, until it closes it."""
    config = uvicorn.Config(
        app, port=0, http=Impatient, lifespan="off", log_config=None, timeout_keep_alive=60
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    try:
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
        await writer.wait_closed()
        server.should_exit = True
        await running


@pytest.mark.parametrize("rest", [HEAD, HEAD + b"\r\n", HEAD + b"\r\nabc"], ids=["head", "body", "half"])
def test_a_second_request_that_arrives_with_the_first_has_the_same_time(rest: bytes) -> None:
    received = asyncio.run(exchange(answer, WHOLE + rest))
    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b"ok")


def test_a_body_that_is_not_http_is_refused_without_an_error(caplog: pytest.LogCaptureFixture) -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n"
    received = asyncio.run(exchange(PlainTextResponse("ok"), chunked))
    assert received.startswith(b"HTTP/1.1 400")
    assert "Exception in ASGI application" not in caplog.text
