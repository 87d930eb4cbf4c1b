"""A web application under uvicorn, in a thread of the test."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.types import Message, Receive, Scope, Send

from pyworkers.web import site
from pyworkers.web.security import ended, secret
from tests.helpers.support import PATIENCE_S, free_port, wait_for


class _Server(uvicorn.Server):
    """Ends event streams at its end, which learn of the end of a program by its signal alone."""

    def __init__(self, app: Starlette) -> None:
        self._leaving = asyncio.Event()

        async def served(scope: Scope, receive: Receive, send: Send) -> None:
            async def receive_or_leave() -> Message:
                waits = asyncio.create_task(self._leaving.wait())
                message = asyncio.ensure_future(receive())
                try:
                    await asyncio.wait({message, waits}, return_when=asyncio.FIRST_COMPLETED)
                    return message.result() if message.done() else {"type": "http.disconnect"}
                finally:
                    message.cancel()
                    waits.cancel()

            await app(scope, receive_or_leave if scope["type"] == "http" else receive, send)

        super().__init__(uvicorn.Config(served, port=free_port(), log_level="warning"))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._leaving.set()
        await super().shutdown(sockets)


@contextmanager
def patient() -> Iterator[None]:
    """Have dashboards wait for Redis: on a busy machine, an answer that takes seconds is no outage."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (site, secret, ended):
            patch.setattr(module, "_PATIENCE_S", PATIENCE_S)
        patch.setattr(site, "_LESS_PATIENCE_S", PATIENCE_S)
        yield


@contextmanager
def served(app: Starlette) -> Iterator[str]:
    """The address of the application, which uvicorn serves in a thread."""
    server = _Server(app)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started)
        yield f"http://127.0.0.1:{server.config.port}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        if thread.is_alive():
            state = server.server_state
            waits_for = [*map(repr, state.connections), *map(repr, state.tasks)]
            server.force_exit = True
            thread.join()
            raise AssertionError(f"the server did not end: {waits_for}")
