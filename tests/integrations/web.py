"""A web application under uvicorn, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from pyworkers.web.leaving import Streams
from tests.helpers.support import PATIENCE_S, free_port, wait_for


class _Server(uvicorn.Server):
    """Ends event streams at its end, for which uvicorn would wait as long as there are viewers."""

    def __init__(self, app: Starlette) -> None:
        self._streams = Streams(app)
        super().__init__(uvicorn.Config(self._streams, port=free_port(), log_level="warning"))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._streams.leave()
        await super().shutdown(sockets)


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
