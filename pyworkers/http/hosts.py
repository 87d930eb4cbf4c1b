"""Hosts: the names under which a dashboard or an endpoint answers, so that no other name can lead to it.

Pure. Without it, a page anywhere could point its own name at 127.0.0.1 (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^\s:/@\[\]]+)(:[0-9]{1,5})?", re.IGNORECASE)


class Hosts:
    """The allowed names, without ports; None: any, because the application around it checks.

    ``any_address``: each IP address leads here as well, for a server that is reached through address
    translation. It takes a name to lead a browser to another machine's address.
    """

    def __init__(self, names: Iterable[str] | None, *, any_address: bool = False) -> None:
        self._any_address = any_address
        self._names = None if names is None else frozenset(map(_normal, names))

    def allow(self, host: str, scope: Mapping[str, Any]) -> bool:
        """True if this header ``Host`` may lead here: a name, loopback, or the address that was reached."""
        if self._names is None:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        name = _normal(found[1])
        if name in self._names or is_loopback(name):
            return True
        return _address(name) is not None if self._any_address else _is_address_of_server(name, scope)


def is_loopback(name: str) -> bool:
    """True for ``localhost``, and for an address of the loopback interface, in any notation."""
    address = _address(name)
    return name == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _is_address_of_server(name: str, scope: Mapping[str, Any]) -> bool:
    """True for the IP address at which the connection arrived: no name leads there."""
    server = scope.get("server")
    return server is not None and _address(name) is not None and _address(name) == _address(str(server[0]))


def _normal(name: str) -> str:
    return name.lower().removesuffix(".").removeprefix("[").removesuffix("]")
