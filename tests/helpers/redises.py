"""Real Redis servers for one scenario: to kill, stop, restart, fill, replicate and fail over."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import redis

from pyworkers.embedded import spawn_bound
from tests.helpers.certificates import Certificates
from tests.helpers.support import free_port, wait_for


class OwnRedis:
    """A server that belongs to one scenario; what it has acknowledged survives its death."""

    def __init__(
        self, binary: str, folder: Path, *options: str, certificates: Certificates | None = None
    ) -> None:
        """With certificates, the port speaks TLS alone."""
        self.folder = folder
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self.certificates = certificates
        self.url = f"{'rediss' if certificates else 'redis'}://127.0.0.1:{self.port}/0"
        self.binary = binary
        self._options = [*options] or ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> Self:
        """Return when it answers."""
        command = [self.binary, *self._arguments()]
        with (self.folder / "log").open("ab") as log:
            self._process = spawn_bound(command, output=log)
        wait_for(self._answers, message=f"{self.binary} answers")
        return self

    def _arguments(self) -> list[str]:
        settings = {**self._port(), "bind": "127.0.0.1", "dir": str(self.folder)}
        return [*(word for name, value in settings.items() for word in (f"--{name}", value)), *self._options]

    def _port(self) -> dict[str, str]:
        if self.certificates is None:
            return {"port": str(self.port)}
        return {"port": "0", "tls-port": str(self.port), **self.certificates.of_redis}

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), self.client() as client:
            return bool(client.ping())
        return False

    def client(self) -> redis.Redis:
        """A connection of the test's own."""
        files: dict[str, Any] = {}
        if found := self.certificates:
            files = {
                "ssl": True,
                "ssl_certfile": str(found.admin),
                "ssl_cert_reqs": "none",
            }
        return redis.Redis(port=self.port, socket_timeout=5, protocol=2, **files)

    def kill(self) -> None:
        """SIGKILL, as a crash of the machine is to clients that see their connections reset."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """SIGSTOP: its connections stay open, and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


class Sentinel(OwnRedis):
    """Watches one primary with a quorum of one, and fails over within about a second."""

    def __init__(self, binary: str, folder: Path, primary: OwnRedis) -> None:
        super().__init__(binary, folder, certificates=primary.certificates)
        self._config = folder / "sentinel.conf"
        port = "".join(f"{name} {value}\n" for name, value in self._port().items())
        self._config.write_text(
            f"{port}bind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor mymaster 127.0.0.1 {primary.port} 1\n"
            "sentinel down-after-milliseconds mymaster 500\n"
            "sentinel failover-timeout mymaster 5000\n"
        )

    def _arguments(self) -> list[str]:
        return [str(self._config), "--sentinel"]

    def primary(self) -> int:
        """The port of the server that it calls the primary."""
        with self.client() as client:
            return int(client.sentinel_get_master_addr_by_name("mymaster")[1])


def blocked(client: redis.Redis) -> int:
    """How many connections of a server are in a command that waits, as the fetch of an idle queue."""
    return sum("b" in found["flags"] for found in client.client_list())


def all_empty(
    client: redis.Redis, lists: Iterable[str], sets: Iterable[str] = (), patterns: Iterable[str] = ()
) -> bool:
    """True if these lists and sorted sets are empty, and no key fits one of the patterns.

    All is read at one moment: a job may move from a place that is read later to one that was read before.
    """
    with client.pipeline(transaction=True) as pipe:
        for name in lists:
            pipe.llen(name)
        for name in sets:
            pipe.zcard(name)
        for pattern in patterns:
            pipe.keys(pattern)
        return not any(pipe.execute())
