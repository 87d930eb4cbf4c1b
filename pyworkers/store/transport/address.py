"""Address: where the connections of a client lead, as a ``redis-cli`` command line and for a warning.

Used by the master and the command line. Nothing here holds a password: ``redis-cli`` prompts for it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from pyworkers.store.transport.connections import AsyncConnection, errors_translated
from pyworkers.store.transport.tls import Tls, spell

# redis-py's defaults, for a URL that leaves them out.
_HOST, _PORT = "localhost", 6379


async def redis_cli(redis: AsyncConnection) -> str:
    """The command line that reaches the server, quoted for a shell.

    Sentinels are asked for the primary. Raises PyworkersError.
    """
    options = await _options(redis)
    words = ["redis-cli", *_place(options), *_login(options)]
    if contexts := options.get("tls"):
        words += _tls(contexts.tls)
    return shlex.join(words)


async def readable_on_the_way(redis: AsyncConnection) -> list[str]:
    """The addresses to which a password goes over a network in plain text, sentinels included.

    Raises PyworkersError.
    """
    options = await _options(redis)
    ends = [options]
    if primary := options.get("primary"):
        ends += primary.ends
    return [
        spell(host, end.get("port", _PORT))
        for end in ends
        if end.get("password") and not {"tls", "path"} & end.keys()
        if not _is_loopback(host := end.get("host") or _HOST)
    ]


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == _HOST or host.endswith(f".{_HOST}")


async def _options(redis: AsyncConnection) -> dict[str, Any]:
    """The options of the connections, with the address of the primary if a directory names it."""
    options: dict[str, Any] = dict(redis.connection_pool.connection_kwargs)
    if primary := options.get("primary"):
        with errors_translated():
            options["host"], options["port"] = await primary.find_async()
    return options


def _place(options: Mapping[str, Any]) -> tuple[str, ...]:
    if path := options.get("path"):
        return "-s", path
    return "-h", options.get("host") or _HOST, "-p", str(options.get("port") or _PORT)


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
