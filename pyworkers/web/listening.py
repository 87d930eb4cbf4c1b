"""Listening: where the dashboard is reached, and the sockets for it."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyworkers.errors import ConfigError

_UNIX = "unix:"
_BACKLOG = 2048
_FIX = (
    "write users into a file with `pyworkers web-user NAME ROLE >> users` and pass --auth users, describe a "
    "provider in [web.oidc], or listen on 127.0.0.1"
)
# An address of another family than this machine has: "localhost" is often both.
_ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address of the dashboard, as ``[web]`` says it; ``path`` is the path of a Unix socket."""

    bind: str
    host: str = ""
    port: int = 0
    path: Path | None = None
    prefix: str = ""

    @classmethod
    def parse(cls, bind: str, prefix: str = "") -> ListenAddress:
        """Read an address and a prefix that the configuration has checked."""
        if bind.startswith(_UNIX):
            return cls(bind, path=Path(bind.removeprefix(_UNIX)), prefix=prefix)
        host, _, port = bind.rpartition(":")
        return cls(bind, host.removeprefix("[").removesuffix("]"), int(port), prefix=prefix)

    @property
    def hosts(self) -> list[str]:
        """The host, as browsers may name it."""
        return [self.host] if self.host else []

    @property
    def url(self) -> str:
        """What a person opens."""
        if self.path is not None:
            return self.bind
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{self.prefix}/"

    def url_with(self, token: str) -> str:
        """What a person opens, with the token of this start; ``token`` may be empty."""
        if not token:
            return self.url
        url = f"{self.url} http://localhost{self.prefix}/" if self.path else self.url
        return f"{url}?token={token}"

    def check_private(self) -> None:
        """Raise ConfigError if other machines could reach it."""
        if self.path is None and not all(_is_loopback(found[4][0]) for found in self._found()):
            text = f"refuses to listen on {self.bind} without users: other machines could reach it"
            raise ConfigError(text, hint=_FIX, location="web.bind")

    @contextmanager
    def listening(self, *, private: bool) -> Iterator[list[socket.socket]]:
        """The sockets that listen, until the end of the block.

        ``private``: only this user may connect to a Unix socket. Raises ConfigError.
        """
        try:
            sockets = self._sockets() if self.path is None else [_unix_socket(self.path, private=private)]
        except OSError as error:
            # create_server adds the address to its text.
            text = f"cannot listen on {self.bind}: {os.strerror(error.errno) if error.errno else error}"
            raise ConfigError(text, location="web.bind") from error
        try:
            yield sockets
        finally:
            for listener in sockets:
                listener.close()
            if self.path is not None:
                self.path.unlink(missing_ok=True)

    def _sockets(self) -> list[socket.socket]:
        sockets = []
        absent = None
        for family, _, _, _, address in self._found():
            try:
                sockets.append(socket.create_server(address[:2], family=family, backlog=_BACKLOG))
            except OSError as error:
                if error.errno not in _ABSENT:
                    for listener in sockets:
                        listener.close()
                    raise
                absent = error
        if not sockets and absent is not None:
            raise absent
        return sockets

    def _found(self) -> list[Any]:
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            text = f"cannot listen on {self.bind}: {error.strerror or error}"
            raise ConfigError(text, location="web.bind") from error
        return list({entry[4]: entry for entry in found}.values())


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _unix_socket(path: Path, *, private: bool) -> socket.socket:
    """A socket at a path; one that a killed process has left is replaced."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if _answers(path):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Also in the moment before a chmod, no other user may connect.
    before = os.umask(0o177) if private else None
    try:
        listener.bind(str(path))
    except OSError:
        listener.close()
        raise
    finally:
        if before is not None:
            os.umask(before)
    listener.listen(_BACKLOG)
    return listener


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
