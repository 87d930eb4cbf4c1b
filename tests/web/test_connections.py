"""The bounds of one connection, with a real server."""

from __future__ import annotations

import asyncio

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

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


@pytest.mark.parametrize("rest", [HEAD, HEAD + b"\r\n", HEAD + b"\r\nabc"], ids=["head", "body", "half"])
def test_a_second_request_that_arrives_with_the_first_has_the_same_time(rest: bytes) -> None:
    async def ends() -> bytes:
        config = uvicorn.Config(
            answer, port=0, http=Impatient, lifespan="off", log_config=None, timeout_keep_alive=60
        )
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(WHOLE + rest)
        received = await reader.readuntil(b"ok")
        try:
            assert await asyncio.wait_for(reader.read(), 10) == b""
        finally:
            writer.close()
            server.should_exit = True
            await running
        return received

    assert asyncio.run(ends()).startswith(b"HTTP/1.1 200")
