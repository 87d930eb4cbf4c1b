"""A TCP proxy between pyworkers and Redis: a network that loses, delays, and cuts.

Runs in threads of the test. ``done`` lists the faults that a connection has met: others have tested nothing.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from pyworkers.store.scripts import load

_PIECE = 65536
_RESET = struct.pack("ii", 1, 0)


@dataclass
class Trap:
    """Waits for a reply to a request; each is known by a part of its bytes. Springs ``times`` times.

    ``swallow`` loses the reply and all that follows on this connection, which looks alive: half-open.
    ``reset`` loses the reply and resets the connection. ``hold`` lets the reply wait for ``release``.
    """

    request: bytes
    reply: bytes = b""
    action: Literal["swallow", "reset", "hold"] = "swallow"
    times: int = 1
    sprung: int = 0
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let go what is held."""
        self.released.set()


class Proxy:
    """Listens on a loopback port and passes everything on to one server, unless a test sets it otherwise."""

    def __init__(self, url: str) -> None:
        self.lead_to(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}{urlsplit(url).path}"
        self.delay_s = 0.0
        self.refusing = False
        self.reset_after: int | None = None
        """Bytes of replies after which the next connection to reach them is reset."""
        self.done: list[str] = []
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._traps: list[Trap] = []
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def lead_to(self, url: str) -> None:
        """Pass new connections on to this server; open ones stay where they are."""
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 6379)

    # Faults

    def trap(self, trap: Trap) -> Trap:
        """Set a trap."""
        with self._lock:
            self._traps.append(trap)
        return trap

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """No trap springs within a block."""
        with self._lock:
            yield

    def drop(self) -> int:
        """Reset every connection. Returns their number."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _reset(*pair)
        self.done += ["drop"] * len(pairs)
        return len(pairs)

    @contextlib.contextmanager
    def refused(self) -> Iterator[None]:
        """Every connection is refused at once."""
        self.refusing = True
        self.drop()
        try:
            yield
        finally:
            self.refusing = False

    @contextlib.contextmanager
    def partition(self) -> Iterator[None]:
        """Nothing passes, in either direction, without an error; afterwards all of it arrives."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    def close(self) -> None:
        """Stop."""
        self._listener.close()
        self._flowing.set()
        self.drop()

    # Work

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._connect(client)

    def _connect(self, client: socket.socket) -> None:
        if self.refusing:
            self.done.append("refuse")
            _reset(client)
            return
        try:
            server = socket.create_connection(self._target, timeout=5)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._pairs.append((client, server))
        connection = _Connection(self, client, server)
        for pump in (connection.requests, connection.replies):
            threading.Thread(target=pump, daemon=True).start()

    def wait(self) -> None:
        """Until a partition is over."""
        self._flowing.wait()

    def pass_on(self, data: bytes, end: socket.socket) -> None:
        """Forward, as the network is now."""
        if not self._flowing.is_set():
            self.done.append("partition")
            self._flowing.wait()
        if self.delay_s:
            self.done.append("delay")
            time.sleep(self.delay_s)
        end.sendall(data)

    def caught(self, request: bytes, reply: bytes) -> Trap | None:
        """The trap that this reply springs."""
        with self._lock:
            for trap in self._traps:
                if trap.sprung < trap.times and trap.request in request and trap.reply in reply:
                    trap.sprung += 1
                    self.done.append(trap.action)
                    return trap
        return None

    def is_over(self, passed: int) -> bool:
        """True once: for the first connection with as many bytes of replies as cause a reset."""
        with self._lock:
            over = self.reset_after is not None and passed >= self.reset_after
            if over:
                self.reset_after = None
                self.done.append("reset_after")
        return over


class _Connection:
    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._request = b""

    def requests(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._client.recv(_PIECE):
                self._request = (self._request + data)[-_PIECE:]
                self._proxy.pass_on(data, self._server)
        # The end of a connection is lost as data are: Redis continues to serve a client that is gone.
        self._proxy.wait()
        _close(self._client, self._server)

    def replies(self) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := self._server.recv(_PIECE):
                passed += len(data)
                # Before it passes: the next request may follow at once.
                request, self._request = self._request, b""
                if not self._let_pass(request, data, passed):
                    return
        _close(self._client, self._server)

    def _let_pass(self, request: bytes, data: bytes, passed: int) -> bool:
        """False if nothing of this connection passes any more."""
        trap = self._proxy.caught(request, data)
        if trap is None:
            if self._proxy.is_over(passed):
                self._client.sendall(data[: len(data) // 2])
                _reset(self._client, self._server)
                return False
            self._proxy.pass_on(data, self._client)
            return True
        if trap.action == "hold":
            trap.released.wait()
            self._proxy.pass_on(data, self._client)
            return True
        if trap.action == "reset":
            _reset(self._client, self._server)
        # Swallowed: all that the server still sends is read, and lost.
        while trap.action == "swallow" and self._server.recv(_PIECE):
            pass
        return False


def script(name: str) -> bytes:
    """The bytes by which the request of a call of this script is known."""
    return load(name).sha.encode()


@contextlib.contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    """A proxy in front of a server, for the length of a block."""
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def _reset(*ends: socket.socket) -> None:
    """Reset the connections: the other side gets ECONNRESET."""
    for end in ends:
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    _close(*ends)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        # A thread that waits in recv would keep the socket alive.
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
