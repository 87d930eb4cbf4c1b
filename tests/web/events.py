"""A viewer of the event stream, which reads it in a thread."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any, Self
from urllib.parse import urlsplit

from tests.helpers.support import wait_for


class Listener:
    """The events of ``/events`` so far; ``ended`` once the server has closed the stream."""

    def __init__(self, root: str, query: str = "") -> None:
        address = urlsplit(root)
        self._socket = socket.create_connection((address.hostname or "", address.port or 80), timeout=60)
        path = f"{address.path.rstrip('/')}/events{query}"
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        self.head = b""
        self.events: list[dict[str, Any]] = []
        self.ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The thread holds the socket open, too.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _read(self) -> None:
        with self._socket.makefile("rb") as stream:
            try:
                for line in stream:
                    if line.startswith(b"data: "):
                        self.events.append(json.loads(line[6:]))
                    elif not self.events:
                        self.head += line
            except (OSError, ValueError):
                pass
        self.ended = True

    def wait(self, number: int = 1) -> dict[str, Any]:
        """The latest of this many more events."""
        wanted = len(self.events) + number
        wait_for(lambda: len(self.events) >= wanted, message=f"event {wanted}")
        return self.events[-1]
