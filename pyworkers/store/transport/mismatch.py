"""Mismatch: connections that notice a port with TLS where the URL has none, and the other way round.

Used by ``connections`` and ``group`` alone. Without this, TLS to a plain port waits for the whole timeout,
and the error does not name the cause. A port is asked by a second connection, and only after the first one
has failed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import redis
import redis.asyncio

from pyworkers.store.transport.tls import Contexts, TlsError

# A handshake takes two round trips. After this time, the port is asked whether it speaks TLS at all.
_HANDSHAKE_S = 1.0
_QUESTION_S = 0.4


class TlsConnection(redis.Connection):
    """A blocking connection by TLS."""

    kind = ""
    """The end of the scheme in the URL: empty, or ``+sentinel``."""

    def __init__(self, *, tls: Contexts, **options: Any) -> None:
        super().__init__(**options)  # type: ignore[no-untyped-call]
        self._tls = tls

    def _connect(self) -> ssl.SSLSocket:
        opened = super()._connect()  # type: ignore[no-untyped-call]
        try:
            context = self._tls.current()
            # The handshake follows, because it has its own time limit.
            opened = context.wrap_socket(opened, server_hostname=self.host, do_handshake_on_connect=False)
            self._shake_hands(opened)
        except BaseException:
            opened.close()
            raise
        return opened

    def _shake_hands(self, opened: ssl.SSLSocket) -> None:
        try:
            opened.settimeout(_first_s(self.socket_timeout))
            opened.do_handshake()
        except TimeoutError:
            if _is_plain(self.host, int(self.port)):
                raise TlsError(_met_plain(self.kind)) from None
            if not _is_longer(self.socket_timeout):
                raise
            opened.settimeout(self.socket_timeout)
            opened.do_handshake()
        opened.settimeout(self.socket_timeout)


class AsyncTlsConnection(redis.asyncio.Connection):
    """A connection by TLS for asyncio."""

    kind = ""

    def __init__(self, *, tls: Contexts, **options: Any) -> None:
        super().__init__(**options)
        self._tls = tls

    def _connection_arguments(self) -> Mapping[str, Any]:
        """As redis-py's, with a context of the files as they are now."""
        return {"host": self.host, "port": self.port, "ssl": self._tls.current()}

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(_first_s(self.socket_connect_timeout)):
                await super()._connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            if await _answer(_is_plain, self.host, int(self.port)):
                raise TlsError(_met_plain(self.kind)) from None
            if not _is_longer(self.socket_connect_timeout):
                raise
            await super()._connect()  # type: ignore[no-untyped-call]


class PlainConnection(redis.Connection):
    """A blocking connection without TLS."""

    kind = ""

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """The login, as redis-py's."""
        try:
            super().on_connect_check_health(check_health)
        except (redis.ConnectionError, redis.InvalidResponse) as error:
            if _is_cut(error) and _has_tls(self.host, int(self.port)):
                raise TlsError(_met_tls(self.kind)) from error
            raise


class AsyncPlainConnection(redis.asyncio.Connection):
    """A connection without TLS for asyncio."""

    kind = ""

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """The login, as redis-py's."""
        try:
            await super().on_connect_check_health(check_health)
        except (redis.ConnectionError, redis.InvalidResponse) as error:
            if _is_cut(error) and await _answer(_has_tls, self.host, int(self.port)):
                raise TlsError(_met_tls(self.kind)) from error
            raise


def _first_s(usual_s: float | None) -> float:
    """The time for a handshake before the port is asked; both fit into the usual time, if that is short."""
    return _HANDSHAKE_S if usual_s is None or _is_longer(usual_s) else max(usual_s - _QUESTION_S, usual_s / 2)


def _is_longer(usual_s: float | None) -> bool:
    return usual_s is None or usual_s > _HANDSHAKE_S


def _met_plain(kind: str) -> str:
    return (
        f"this port does not speak TLS: use redis{kind}:// instead of rediss{kind}://, "
        "or the port of Redis' tls-port"
    )


def _met_tls(kind: str) -> str:
    return f"this port speaks TLS: use rediss{kind}:// instead of redis{kind}://"


async def _answer(question: Callable[[str, int], bool], host: str, port: int) -> bool:
    """Ask the server in a thread; False if the system has no thread: the error met keeps its own name."""
    with suppress(RuntimeError):
        return await asyncio.to_thread(question, host, port)
    return False


def _is_cut(error: Exception) -> bool:
    """True if the peer did not answer in Redis' protocol; an error reply has its own class."""
    return type(error) in (redis.ConnectionError, redis.InvalidResponse)


def _is_plain(host: str, port: int) -> bool:
    """True if Redis answers here without TLS, be it with an error."""
    try:
        with socket.create_connection((host, port), _QUESTION_S) as opened:
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
