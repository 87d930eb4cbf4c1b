"""An attacker of the dashboard: sends any bytes as a request, and reads what comes back."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from tests.helpers.support import PATIENCE_S


@dataclass(frozen=True)
class Reply:
    """The status of an answer, with its header and body as they came; 0 if the server closed at once."""

    status: int
    head: bytes
    body: bytes

    @property
    def broken(self) -> bool:
        """True for an error of the server's own, and for an answer that ends too early."""
        return (
            self.status == 500
            or self.status > 503
            or not self.is_whole
            or b"Traceback (most recent call last)" in self.body
        )

    @property
    def is_whole(self) -> bool:
        """False while a part of the body is missing."""
        found = re.search(rb"\r\ncontent-length: *(\d+)", self.head.lower())
        return found is None or len(self.body) >= int(found[1])


class Attacker:
    """Sends requests to the dashboard at ``root``, each over its own connection."""

    def __init__(self, root: str) -> None:
        parts = urlsplit(root)
        assert parts.hostname and parts.port
        self._address = (parts.hostname, parts.port)

    def ask(
        self,
        target: str | bytes,
        method: str = "GET",
        headers: Mapping[str, str | bytes] | None = None,
        body: bytes | None = None,
    ) -> Reply:
        """The answer to one request, whose target and headers are sent as they are."""
        lines = [b"%b %b HTTP/1.1" % (method.encode(), _bytes(target))]
        given = {"Host": f"127.0.0.1:{self._address[1]}", "Connection": "close", **(headers or {})}
        if body is not None:
            given.setdefault("Content-Type", "application/x-www-form-urlencoded")
            given.setdefault("Content-Length", str(len(body)))
        lines += [b"%b: %b" % (name.encode(), _bytes(value)) for name, value in given.items()]
        return self.send([b"\r\n".join([*lines, b"", b""]), body or b""], head_only=method == "HEAD")

    @contextmanager
    def stream(self, target: str) -> Iterator[Stream]:
        """An event stream, until the end of the block, which breaks it off."""
        with socket.create_connection(self._address, timeout=PATIENCE_S) as connection:
            connection.sendall(
                f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{self._address[1]}\r\n\r\n".encode()
            )
            yield Stream(connection)

    def send(self, parts: Iterable[bytes], *, head_only: bool = False, close: bool = False) -> Reply:
        """The answer to these bytes; with ``close``, the last ones."""
        received = b""
        with socket.create_connection(self._address, timeout=PATIENCE_S) as connection:
            # Its answer may come, and the connection be closed, before it has read everything.
            with suppress(ConnectionError):
                for part in parts:
                    connection.sendall(part)
                if close:
                    connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionError):
                while (data := connection.recv(1 << 16)) and not _is_complete(received := received + data):
                    pass
        reply = _reply(received)
        return replace(reply, head=b"") if head_only else reply


class Stream:
    """The beginning of an event stream."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def is_served(self) -> bool:
        """True once an event has arrived; False if the server ends the stream before."""
        received = b""
        while b"\ndata: " not in received:
            data = self._connection.recv(1 << 16)
            if not data or (not received and not data.startswith(b"HTTP/1.1 200")):
                return False
            received += data
        return True


def _is_complete(received: bytes) -> bool:
    reply = _reply(received)
    return b"content-length:" in reply.head.lower() and reply.is_whole


def _reply(received: bytes) -> Reply:
    head, _, body = received.partition(b"\r\n\r\n")
    return Reply(int(head.split(b" ")[1]) if head.startswith(b"HTTP/") else 0, head, body)


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", errors="surrogateescape")
