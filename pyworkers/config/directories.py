"""Directories: the parts of a URL of several hosts, which are sentinels, or nodes of a cluster.

Pure; used where a URL is checked or compared, and by the connections. Its errors hold no secret.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn
from urllib.parse import parse_qs, unquote, urlsplit

ESCAPES = "(in a password, write / ? # as %2F %3F %23)"
_SENTINEL_PORT, _NODE_PORT = 26379, 6379


def is_directory(url: str) -> bool:
    """True if the hosts of a URL give the address of Redis, instead of being its address."""
    return url.partition("://")[0].endswith(("+sentinel", "+cluster"))


def is_cluster(url: str) -> bool:
    """True for a URL of nodes of a cluster."""
    return url.partition("://")[0].endswith("+cluster")


class DirectoryUrl(NamedTuple):
    """The parts, without escapes. ``user`` and ``password`` are for Redis, not for the sentinels."""

    user: str
    password: str
    hosts: list[tuple[str, int]]
    name: str
    """The name of the primary; empty for a cluster."""
    database: int
    query: str
    """As in the URL."""

    @classmethod
    def of(cls, url: str) -> DirectoryUrl:
        """The parts of a URL. Raises ValueError, with the line to write."""
        # Not by urlsplit, which in newer Pythons rejects the brackets of an IPv6 address among several hosts.
        start, _, query = url.partition("#")[0].partition("?")
        scheme, _, address = start.partition("://")
        netloc, _, path = address.partition("/")
        login, _, hosts = netloc.rpartition("@")
        user, _, password = map(unquote, login.partition(":"))
        name, _, database = ("", "", path.strip("/")) if is_cluster(url) else path.strip("/").partition("/")
        database = parse_qs(query).get("db", [database])[0] or "0"
        port = _NODE_PORT if is_cluster(url) else _SENTINEL_PORT
        found = [_address(host, port) for host in hosts.split(",")]
        shown = f"{login.partition(':')[0]}:***@" if password else f"{login}@" if login else ""
        line = f"{scheme}://{shown}{hosts}"
        if url.count("@") > netloc.count("@"):
            # The rest of a password with one of these characters: what was found would be a part of it.
            line = ""
        if is_cluster(url) and database != "0":
            _refuse("a cluster has no database but 0", line)
        if not is_cluster(url) and not name:
            _refuse("the name of the primary is missing", line and f"{line}/mymaster")
        if not database.isdecimal():
            _refuse("the database is not a number", line and f"{line}/{name}/0")
        return cls(user, password, found, unquote(name), int(database), query)


def _address(host: str, port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{host}")
        found = port if parts.port is None else parts.port
    except ValueError:  # not passed on: its text may quote a part of the password
        found = 0
    if not found:
        raise ValueError(f"the URL has an invalid port {ESCAPES}")
    if not parts.hostname:
        raise ValueError(f"the URL has an empty host {ESCAPES}")
    return parts.hostname, found


def _refuse(fault: str, line: str) -> NoReturn:
    fix = f': write url = "{line}"' if line else f" {ESCAPES}"
    raise ValueError(f"{fault}{fix}")
