"""Mismatch: connections that notice a port with TLS where the URL has none, and the other way round.

Used by ``connections`` alone. Without this, TLS to a plain port waits for the whole timeout, and the error
does not name the cause. A port is asked by a second connection, and only after the first one has failed.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import redis
import redis.asyncio

# A handshake takes two round trips. Where it takes longer than this, a second attempt has the usual time.
_HANDSHAKE_S = 1.0
_QUESTION_S = 0.4
_MET_PLAIN = "this port does not speak TLS: use redis:// instead of rediss://, or the port of Redis' tls-port"
_MET_TLS = "this port speaks TLS: use rediss:// instead of redis://"


class TlsMismatchError(redis.ConnectionError):
    """The port has TLS and the URL has not, or the other way round."""


class TlsConnection(redis.SSLConnection):
    """A blocking connection by TLS."""

    def _connect(self) -> Any:
        usual_s, self.socket_timeout = self.socket_timeout, _HANDSHAKE_S
        try:
            found = super()._connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            if _is_plain(self.host, int(self.port)):
                raise TlsMismatchError(_MET_PLAIN) from None
            self.socket_timeout = usual_s
            return super()._connect()  # type: ignore[no-untyped-call]
        finally:
            self.socket_timeout = usual_s
        found.settimeout(usual_s)
        return found


class AsyncTlsConnection(redis.asyncio.SSLConnection):
    """A connection by TLS for asyncio."""

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                await super()._connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            if await _answer(_is_plain, self.host, int(self.port)):
                raise TlsMismatchError(_MET_PLAIN) from None
            await super()._connect()  # type: ignore[no-untyped-call]


class PlainConnection(redis.Connection):
    """A blocking connection without TLS."""

    def on_connect_check_health(self, check_health: bool = True) -> None:
        """The login, as redis-py's."""
        try:
            super().on_connect_check_health(check_health)
        except (redis.ConnectionError, redis.InvalidResponse) as error:
            if _is_cut(error) and _has_tls(self.host, int(self.port)):
                raise TlsMismatchError(_MET_TLS) from error
            raise


class AsyncPlainConnection(redis.asyncio.Connection):
    """A connection without TLS for asyncio."""

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """The login, as redis-py's."""
        try:
            await super().on_connect_check_health(check_health)
        except (redis.ConnectionError, redis.InvalidResponse) as error:
            if _is_cut(error) and await _answer(_has_tls, self.host, int(self.port)):
                raise TlsMismatchError(_MET_TLS) from error
            raise


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
