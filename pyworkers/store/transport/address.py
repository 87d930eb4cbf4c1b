"""Address: the ``redis-cli`` command line that reaches the server of a client, to be pasted into a shell.

Used by the master and the command line. It never holds a password: ``redis-cli`` prompts for it.
"""

from __future__ import annotations

import shlex
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from redis.asyncio import SSLConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from pyworkers.store.transport.connections import AsyncConnection, errors_translated

_TLS_FILES = {"ssl_ca_certs": "--cacert", "ssl_certfile": "--cert", "ssl_keyfile": "--key"}


async def redis_cli(redis: AsyncConnection) -> str:
    """The command line, quoted for a shell; sentinels are asked for the primary. Raises PyworkersError."""
    pool: Any = redis.connection_pool
    options = dict(pool.connection_kwargs)
    if isinstance(pool, SentinelConnectionPool):
        with errors_translated():
            options["host"], options["port"] = await pool.get_master_address()
    words = ["redis-cli", *_place(options), *_login(options)]
    if issubclass(pool.connection_class, SSLConnection):
        words += _tls(options)
    return shlex.join(words)


def _place(options: Mapping[str, Any]) -> tuple[str, ...]:
    if path := options.get("path"):
        return "-s", path
    # redis-py's defaults, for a URL that leaves them out.
    return "-h", options.get("host") or "localhost", "-p", str(options.get("port") or 6379)


def _login(options: Mapping[str, Any]) -> Iterator[str]:
    if user := options.get("username"):
        yield from ("--user", user)
    if user or options.get("password"):
        yield "--askpass"


def _tls(options: Mapping[str, Any]) -> Iterator[str]:
    yield "--tls"
    if options.get("ssl_cert_reqs") in ("none", ssl.CERT_NONE):
        yield "--insecure"
    for name, option in _TLS_FILES.items():
        if file := options.get(name):
            yield from (option, file)
