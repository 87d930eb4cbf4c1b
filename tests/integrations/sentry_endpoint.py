"""A Sentry for tests: an HTTP endpoint on the loopback address that keeps the envelopes it gets."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.helpers.support import PATIENCE_S, wait_for

Item = dict[str, Any]


class Endpoint:
    """The items that have arrived, in their order, by type: ``event``, ``check_in``, ``transaction``."""

    def __init__(self) -> None:
        self._items: list[tuple[str, Item]] = []
        self._lock = threading.Lock()
        self.dsn = ""

    def served_at(self, port: int) -> None:
        self.dsn = f"http://key@127.0.0.1:{port}/1"

    def take(self, body: bytes) -> None:
        """Keep the items of an envelope: a header line, then a header and a payload for each item."""
        lines = body.split(b"\n")
        with self._lock:
            for header, payload in zip(lines[1::2], lines[2::2], strict=False):
                self._items.append((json.loads(header)["type"], json.loads(payload)))

    def items(self, kind: str) -> list[Item]:
        with self._lock:
            return [item for found, item in self._items if found == kind]

    def wait_for(self, kind: str, count: int = 1) -> list[Item]:
        """The items of this type, once there are this many."""
        try:
            wait_for(lambda: len(self.items(kind)) >= count, PATIENCE_S, message=f"{count} of {kind}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.items(kind)}") from None
        return self.items(kind)


@contextmanager
def recording() -> Iterator[Endpoint]:
    """An endpoint that runs in a thread of the test."""
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            endpoint.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.served_at(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
