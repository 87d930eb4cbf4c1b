"""Mismatch: connections that notice a port with TLS where the URL has none, and the other way round.

Used in this folder alone. Without this, TLS to a plain port waits for the whole timeout, and the error does
not name the cause. A port is asked by a second connection, and only after the first one has failed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeGuard, TypeVar

import redis
import redis.asyncio

from pyworkers.store.transport.tls import Contexts, Peer, TlsError

T = TypeVar("T")

# A handshake takes two round trips. After this time, the port is asked whether it speaks TLS at all.
_HANDSHAKE_S = 1.0
_QUESTION_S = 0.4


class _TimeLimit:
    """The time that a connection may take with its handshake, from now on; None: as long as it takes."""

    def __init__(self, usual_s: float | None) -> None:
        self._end = None if usual_s is None else time.monotonic() + usual_s

    @property
    def left_s(self) -> float | None:
        """The seconds that are left; never 0, by which a socket does not wait at all."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.001)

    @property
    def first_s(self) -> float:
        """The time for a handshake before the port is asked; both fit into a short time."""
        left_s = self.left_s
        if left_s is None or left_s > _HANDSHAKE_S:
            return _HANDSHAKE_S
        return max(left_s - _QUESTION_S, left_s / 2)

    @property
    def question_s(self) -> float:
        """The time in which the port has to answer."""
        left_s = self.left_s
        return _QUESTION_S if left_s is None else min(left_s, _QUESTION_S)


class _Connection(redis.Connection):
    """A blocking connection by TCP, of which another thread may end each wait."""

    def opens(self, opened: socket.socket) -> None:
        """Called with each socket before it waits for the peer; to be overridden."""

    def _connect(self) -> socket.socket:
        """As redis-py's, which shows no socket before it is connected."""
        refusal: OSError | None = None
        for *kind, _, address in socket.getaddrinfo(
            self.host, self.port, self.socket_type, socket.SOCK_STREAM
        ):
            try:
                return self._connected(socket.socket(*kind), address)
            except OSError as error:
                refusal = error
        raise refusal or OSError("the host has no address")

    def _connected(self, opened: socket.socket, address: Any) -> socket.socket:
        try:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.socket_keepalive:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in self.socket_keepalive_options.items():
                    opened.setsockopt(socket.IPPROTO_TCP, option, value)
            opened.settimeout(self.socket_connect_timeout)
            self.opens(opened)
            opened.connect(address)
            opened.settimeout(self.socket_timeout)
        except BaseException:
            opened.close()
            raise
        return opened


class TlsConnection(_Connection):
    """A blocking connection by TLS.

    ``kind`` is the end of the scheme in the URL: empty, or ``+sentinel``; ``announced``: sentinels give the
    address.
    """

    def __init__(self, *, tls: Contexts, kind: str = "", announced: bool = False, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._tls = tls
        self.kind = kind
        self.announced = announced

    def _connect(self) -> ssl.SSLSocket:
        limit = _TimeLimit(self.socket_connect_timeout)
        opened = super()._connect()
        try:
            context = self._tls.current()
            # The handshake follows, because it has the time limit of a connection, not of a reply.
            opened = context.wrap_socket(opened, server_hostname=self.host, do_handshake_on_connect=False)
            self.opens(opened)
            self._shake_hands(opened, limit)
        except BaseException as error:
            opened.close()
            if _is_of_tls(error):
                raise TlsError(self._tls.explain(error, _peer(self))) from error
            raise
        return opened

    def _shake_hands(self, opened: ssl.SSLSocket, limit: _TimeLimit) -> None:
        try:
            opened.settimeout(limit.first_s)
            opened.do_handshake()
        except TimeoutError:
            if _is_plain(self.host, int(self.port), limit.question_s):
                raise TlsError(_peer(self).speaks_plain) from None
            opened.settimeout(limit.left_s)
            opened.do_handshake()
        opened.settimeout(self.socket_timeout)

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """The login, as redis-py's."""
        try:
            super().on_connect_check_health(check_health)
        except redis.ConnectionError as error:
            if _is_cut(error) and (alert := _alert(self._tls, self.host, int(self.port))):
                raise TlsError(self._tls.explain(alert, _peer(self))) from error
            raise


class AsyncTlsConnection(redis.asyncio.Connection):
    """A connection by TLS for asyncio."""

    def __init__(self, *, tls: Contexts, kind: str = "", announced: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls
        self.kind = kind
        self.announced = announced

    def _connection_arguments(self) -> Mapping[str, Any]:
        """As redis-py's, with a context of the files as they are now."""
        return {"host": self.host, "port": self.port, "ssl": self._tls.current()}

    async def _connect(self) -> None:
        try:
            await self._connect_in_time()
        except ssl.SSLError as error:
            if _is_of_tls(error):
                raise TlsError(self._tls.explain(error, _peer(self))) from error
            raise

    async def _connect_in_time(self) -> None:
        limit = _TimeLimit(self.socket_connect_timeout)
        try:
            async with asyncio.timeout(limit.first_s):
                await super()._connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            if await _answer(_is_plain, self.host, int(self.port), limit.question_s):
                raise TlsError(_peer(self).speaks_plain) from None
            async with asyncio.timeout(limit.left_s):
                await super()._connect()  # type: ignore[no-untyped-call]

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """The login, as redis-py's."""
        try:
            await super().on_connect_check_health(check_health)
        except redis.ConnectionError as error:
            if _is_cut(error) and (alert := await _answer(_alert, self._tls, self.host, int(self.port))):
                raise TlsError(self._tls.explain(alert, _peer(self))) from error
            raise


class PlainConnection(_Connection):
    """A blocking connection without TLS."""

    def __init__(self, *, kind: str = "", announced: bool = False, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self.kind = kind
        self.announced = announced

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """The login, as redis-py's."""
        try:
            super().on_connect_check_health(check_health)
        except (redis.ConnectionError, redis.InvalidResponse) as error:
            if _is_cut(error) and _has_tls(self.host, int(self.port)):
                raise TlsError(_peer(self).speaks_tls) from error
            raise


class AsyncPlainConnection(redis.asyncio.Connection):
    """A connection without TLS for asyncio."""

    def __init__(self, *, kind: str = "", announced: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.kind = kind
        self.announced = announced

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """The login, as redis-py's."""
        try:
            await super().on_connect_check_health(check_health)
        except (redis.ConnectionError, redis.InvalidResponse) as error:
            if _is_cut(error) and await _answer(_has_tls, self.host, int(self.port)):
                raise TlsError(_peer(self).speaks_tls) from error
            raise


def _peer(connection: TlsConnection | AsyncTlsConnection | PlainConnection | AsyncPlainConnection) -> Peer:
    return Peer(connection.host, int(connection.port), connection.kind, connection.announced)


def _is_of_tls(error: BaseException) -> TypeGuard[ssl.SSLError]:
    """True for an error of TLS itself, false for a connection that ends in the handshake."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)


async def _answer(question: Callable[..., T], *about: Any) -> T | None:
    """Ask the server in a thread; None if the system has no thread: the error met keeps its own name."""
    with suppress(RuntimeError):
        return await asyncio.to_thread(question, *about)
    return None


def _is_cut(error: Exception) -> bool:
    """True if the peer did not answer in Redis' protocol; an error reply has its own class."""
    return type(error) in (redis.ConnectionError, redis.InvalidResponse)


def _is_plain(host: str, port: int, limit_s: float) -> bool:
    """True if Redis answers here without TLS, be it with an error."""
    try:
        with socket.create_connection((host, port), limit_s) as opened:
            opened.sendall(b"PING\r\n")
            return opened.recv(1) in (b"+", b"-")
    except OSError:
        return False


def _has_tls(host: str, port: int) -> bool:
    """True if the port answers by TLS, also with an unknown certificate."""
    # It trusts no certificate: a port with TLS is known by the error.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        with socket.create_connection((host, port), _QUESTION_S) as opened:
            context.wrap_socket(opened, server_hostname=host).close()
            return True
    except ssl.SSLError as error:
        # An alert is an answer by TLS, e.g. to a client without a certificate.
        return isinstance(error, ssl.SSLCertVerificationError) or "ALERT" in (error.reason or "")
    except OSError:
        return False


def _alert(tls: Contexts, host: str, port: int) -> ssl.SSLError | None:
    """The error by which the port refuses this client after the handshake, as for want of a certificate.

    It is lost with a connection on which the client has already sent something.
    """
    try:
        with (
            socket.create_connection((host, port), _QUESTION_S) as opened,
            tls.current().wrap_socket(opened, server_hostname=host) as secured,
        ):
            secured.recv(1)
    except ssl.SSLError as error:
        return error
    except (OSError, TlsError):
        pass
    return None
