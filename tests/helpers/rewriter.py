"""A proxy that reads Redis' protocol, and sends other replies in the place of Redis' own.

Runs in threads of the test. ``done`` lists the commands whose replies it has changed; ``reused`` are the
commands that came over a connection after that.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import hiredis

from pyworkers.store import scripts
from pyworkers.store.scripts import load

Rewrite = Callable[[str, bytes], bytes]
"""The name of a command and the reply to it; what the client gets."""

_PIECE = 65536
# Sent by redis-py when it connects.
_LOGIN = {"CLIENT SETINFO", "CLIENT MAINT_NOTIFICATIONS", "CLIENT SETNAME", "AUTH", "SELECT", "HELLO"}


class Rewriter:
    """Listens on a loopback port; each connection is passed on to one server."""

    def __init__(self, url: str, rewrite: Rewrite, grace_s: float) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 6379)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}{parts.path}"
        self.rewrite = rewrite
        self.grace_s = grace_s
        self.done: list[str] = []
        self.reused: list[tuple[str, str]] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                _Connection(self, client, socket.create_connection(self._target))


class _Connection:
    def __init__(self, owner: Rewriter, client: socket.socket, server: socket.socket) -> None:
        self._owner = owner
        self._client = client
        self._server = server
        self._names: deque[str] = deque()
        self._rewritten, self._rewritten_at = "", 0.0
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pump in (self._requests, self._replies):
            threading.Thread(target=self._pump, args=(pump,), daemon=True).start()

    def _pump(self, pump: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            pump()
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _requests(self) -> None:
        received = hiredis.Reader()
        while data := self._client.recv(_PIECE):
            received.feed(data)
            while (command := received.gets()) is not False:
                self._names.append(name_of(command))
                if self._rewritten and time.monotonic() - self._rewritten_at >= self._owner.grace_s:
                    self._owner.reused.append((self._rewritten, self._names[-1]))
            self._server.sendall(data)

    def _replies(self) -> None:
        buffer = b""
        while data := self._server.recv(_PIECE):
            buffer += data
            out = b""
            while end := end_of(buffer, 0):
                reply, buffer = buffer[:end], buffer[end:]
                if not reply.startswith(b">"):
                    reply = self._rewrite(self._names.popleft(), reply)
                out += reply
            # At once, as the server has sent it: one too many must not come later than those before it.
            self._client.sendall(out)

    def _rewrite(self, name: str, reply: bytes) -> bytes:
        if name in _LOGIN:
            return reply
        other = self._owner.rewrite(name, reply)
        if other != reply:
            self._owner.done.append(name)
            if not self._rewritten:
                self._rewritten, self._rewritten_at = name, time.monotonic()
        return other


def name_of(command: list[bytes]) -> str:
    """``GET``, ``CLIENT ID``; the name of a script, sent as its text or as its digest."""
    first, *rest = (part.decode(errors="replace").upper() for part in command[:2])
    if first in ("EVAL", "EVALSHA"):
        return _scripts().get(command[1].decode(), first)
    return f"{first} {rest[0]}" if first in ("CLIENT", "CONFIG") else first


@cache
def _scripts() -> dict[str, str]:
    return {key: name for name in script_names() for key in (load(name).sha, load(name).text)}


def script_names() -> list[str]:
    """The names of all scripts, as ``cron/fire``."""
    folder = Path(str(files(scripts)))
    names = (path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.lua"))
    return sorted(name for name in names if not name.startswith("shared/"))


def end_of(buffer: bytes, begin: int) -> int:
    """Where the reply ends that begins there; 0 if not all of it has come."""
    line_end = buffer.find(b"\r\n", begin) + 2
    if line_end < 2:
        return 0
    kind, size = buffer[begin : begin + 1], buffer[begin + 1 : line_end - 2]
    if kind == b"$" and int(size) >= 0:
        end = line_end + int(size) + 2
        return end if end <= len(buffer) else 0
    end = line_end
    # Announcements and maps are of the third protocol.
    for _ in range({b"*": 1, b">": 1, b"%": 2}.get(kind, 0) * (int(size) if size.isdigit() else 0)):
        end = end_of(buffer, end)
        if not end:
            return 0
    return end


@contextlib.contextmanager
def rewriting(
    url: str, rewrite: Rewrite = lambda _, reply: reply, grace_s: float = 0.0
) -> Iterator[Rewriter]:
    """A rewriting proxy in front of a server, for the length of a block.

    A command that comes within ``grace_s`` after a rewritten reply may have been sent before that was read.
    """
    proxy = Rewriter(url, rewrite, grace_s)
    try:
        yield proxy
    finally:
        proxy.close()
