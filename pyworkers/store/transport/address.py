"""Address: the ``redis-cli`` command line that reaches the server of a client, to be pasted into a shell.

Used by the master and the command line. It never holds a password: ``redis-cli`` prompts for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from redis.asyncio.sentinel import SentinelConnectionPool

from pyworkers.store.transport.connections import AsyncConnection, errors_translated
from pyworkers.store.transport.tls import Tls


async def redis_cli(redis: AsyncConnection) -> str:
    """The command line, quoted for a shell; sentinels are asked for the primary. Raises PyworkersError."""
    pool: Any = redis.connection_pool
    options = dict(pool.connection_kwargs)
    if isinstance(pool, SentinelConnectionPool):
        with errors_translated():
            options["host"], options["port"] = await pool.get_master_address()
    words = ["redis-cli", *_place(options), *_login(options)]
    if contexts := options.get("tls"):
        words += _tls(contexts.tls)
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


def _tls(tls: Tls) -> Iterator[str]:
    yield "--tls"
    if tls.cert_reqs == "none":
        yield "--insecure"
    for option, file in (
        ("--cacert", tls.ca_certs),
        ("--cacertdir", tls.ca_path),
        ("--cert", tls.certfile),
        ("--key", tls.keyfile),
    ):
        if file:
            yield from (option, file)
