"""Real Redis servers for one scenario: to kill, stop, restart, fill, replicate and fail over."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import redis

from pyworkers.embedded import spawn_bound
from tests.conftest import missing
from tests.helpers.certificates import Certificates
from tests.helpers.support import free_port, wait_for

PERSISTENT = ("--appendonly", "yes", "--save", "", "--repl-diskless-sync-delay", "0")


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


class Group:
    """Primary and replica with their sentinels; who is who changes."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("redis-server") or missing("redis-server is not installed")
        self.servers = [OwnRedis(binary, folder / name, *PERSISTENT) for name in ("one", "two")]
        self.sentinels = [Sentinel(binary, folder / f"sentinel{n}", self.servers[0]) for n in range(3)]
        for sentinel in self.sentinels:
            text = sentinel._config.read_text()
            monitor = f"mymaster 127.0.0.1 {self.servers[0].port}"
            sentinel._config.write_text(text.replace(f"{monitor} 1", f"{monitor} 2"))
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"redis+sentinel://{hosts}/mymaster/0"

    def start(self) -> None:
        primary, replica = self.servers
        primary.start()
        replica.start()
        with replica.client() as client:
            client.replicaof("127.0.0.1", primary.port)
            wait_for(lambda: client.info("replication")["master_link_status"] == "up", message="replicating")
        for sentinel in self.sentinels:
            sentinel.start()
        for sentinel in self.sentinels:
            wait_for(lambda sentinel=sentinel: self._complete(sentinel), message="they know each other")  # type: ignore[misc]

    def _complete(self, sentinel: Sentinel) -> bool:
        with sentinel.client() as client:
            known = client.sentinel_master("mymaster")
        return (known["num-other-sentinels"], known["num-slaves"]) == (2, 1)

    @property
    def primary(self) -> OwnRedis:
        """As the first sentinel sees it."""
        port = self.sentinels[0].primary()
        return next(server for server in self.servers if server.port == port)

    def promoted(self, former: OwnRedis, way: str) -> OwnRedis:
        """The new primary, once it takes writes, and the former one none: it is dead, or a replica."""
        successor = next(server for server in self.servers if server is not former)
        wait_for(lambda: self.primary is successor and role(successor) == "master", message="promoted")
        if way == "demotion":
            wait_for(lambda: role(former) == "slave", message="demoted")
        return successor

    def close(self) -> None:
        for server in (*self.sentinels, *self.servers):
            server.kill()


def role(server: OwnRedis) -> str:
    with server.client() as client:
        return str(client.info("replication")["role"])


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
