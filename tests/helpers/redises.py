"""Real Redis servers for one scenario: to kill, stop, restart, fill, replicate and fail over."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Any, Self

import redis
from redis.crc import key_slot

from pyworkers.embedded import spawn_bound
from tests.helpers.certificates import Certificates
from tests.helpers.support import free_port, wait_for

# A primary counts as failed after this time, and a replica is elected within about as much.
NODE_TIMEOUT_MS = 1000
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
        self._is_stopped = False

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

    @property
    def runs(self) -> bool:
        """False once it was killed, and while it is stopped."""
        return self._process is not None and not self._is_stopped

    def option(self, name: str) -> str:
        """The value of an option of its command line."""
        return self._options[self._options.index(f"--{name}") + 1]

    def client(self) -> redis.Redis:
        """A connection of the test's own."""
        files: dict[str, Any] = {}
        if found := self.certificates:
            files = {
                "ssl": True,
                "ssl_certfile": str(found.admin),
                "ssl_cert_reqs": "none",
                "ssl_check_hostname": False,
            }
        return redis.Redis(port=self.port, socket_timeout=5, protocol=2, **files)

    def configure(self, name: str, value: object) -> None:
        """Change a setting."""
        with self.client() as client:
            client.config_set(name, str(value))

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
        self._is_stopped = True
        try:
            yield
        finally:
            self._is_stopped = False
            self._process.send_signal(signal.SIGCONT)


class Sentinel(OwnRedis):
    """Watches one primary, and fails over within about a second."""

    def __init__(self, binary: str, folder: Path, primary: OwnRedis, quorum: int = 1) -> None:
        super().__init__(binary, folder, certificates=primary.certificates)
        self._config = folder / "sentinel.conf"
        port = "".join(f"{name} {value}\n" for name, value in self._port().items())
        self._config.write_text(
            f"{port}bind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor mymaster 127.0.0.1 {primary.port} {quorum}\n"
            "sentinel down-after-milliseconds mymaster 500\n"
            "sentinel failover-timeout mymaster 2000\n"
        )

    def _arguments(self) -> list[str]:
        return [str(self._config), "--sentinel"]

    def primary(self) -> int:
        """The port of the server that it calls the primary."""
        with self.client() as client:
            return int(client.sentinel_get_master_addr_by_name("mymaster")[1])


class Group:
    """A primary and replicas with three sentinels that must agree; who is who changes."""

    def __init__(
        self,
        binary: str,
        folder: Path,
        *options: str,
        replicas: int = 1,
        certificates: Certificates | None = None,
    ) -> None:
        words = [*PERSISTENT, *options]
        self.certificates = certificates
        self.servers = [
            OwnRedis(binary, folder / f"redis{n}", *words, certificates=certificates)
            for n in range(replicas + 1)
        ]
        self.sentinels = [Sentinel(binary, folder / f"sentinel{n}", self.servers[0], 2) for n in range(3)]
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        self.url = f"{'rediss' if certificates else 'redis'}+sentinel://{hosts}/mymaster/0"

    def start(self) -> Self:
        """Return when the replicas have what the primary has, and the sentinels know all."""
        for server in self.servers:
            server.start()
        self._replicate(self.servers[0])
        for sentinel in self.sentinels:
            sentinel.start()
        self._agree(self.servers[0])
        return self

    def repair(self) -> None:
        """After a failover: start who was killed, make replicas of all but the primary, and empty them."""
        for server in (*self.servers, *self.sentinels):
            if not server.runs:
                server.start()
        wait_for(lambda: len({sentinel.primary() for sentinel in self.sentinels}) == 1, message="they agree")
        primary = self.primary
        self._replicate(primary)
        self._agree(primary)
        for server in self.servers:
            server.configure("min-replicas-to-write", 0)
        with primary.client() as client:
            client.flushall()

    def _replicate(self, primary: OwnRedis) -> None:
        """Not left to the sentinels, which take ten seconds for it."""
        for server in self.servers:
            if server is not primary:
                replicate(server, primary)

    def _agree(self, primary: OwnRedis) -> None:
        for sentinel in self.sentinels:
            wait_for(lambda sentinel=sentinel: self._knows(sentinel, primary), message="they know each other")  # type: ignore[misc]

    def _knows(self, sentinel: Sentinel, primary: OwnRedis) -> bool:
        with sentinel.client() as client:
            state = client.sentinel_master("mymaster")
            replicas = client.sentinel_slaves("mymaster")
        up = [one for one in replicas if not one["is_sdown"] and not one["is_disconnected"]]
        return (
            sentinel.primary() == primary.port
            and (state["num-other-sentinels"], len(up)) == (2, len(self.servers) - 1)
            and "failover" not in str(state["flags"])
        )

    @property
    def primary(self) -> OwnRedis:
        """As the first sentinel sees it."""
        port = self.sentinels[0].primary()
        return next(server for server in self.servers if server.port == port)

    def fail_over(self) -> None:
        """Begin a planned failover: the former primary takes writes for about ten seconds more."""
        # After half a second without a reply, on a busy machine, the sentinels have begun one themselves.
        with contextlib.suppress(redis.ResponseError), self.sentinels[0].client() as client:
            client.execute_command("SENTINEL FAILOVER", "mymaster")

    def promoted(self, former: OwnRedis) -> OwnRedis:
        """The new primary, once it takes writes."""
        others = [server for server in self.servers if server is not former]
        return wait_for(lambda: next(filter(_is_primary, others), None), message="promoted")

    def close(self) -> None:
        """End all of them."""
        for server in (*self.sentinels, *self.servers):
            server.kill()


class Cluster:
    """Three primaries with a replica each; which node has the slot of a namespace changes."""

    def __init__(
        self, binary: str, folder: Path, namespace: str, certificates: Certificates | None = None
    ) -> None:
        self._slot = key_slot(namespace.encode())
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
        options += ["--cluster-replica-validity-factor", "0", *PERSISTENT]
        if certificates is not None:
            options += ["--tls-cluster", "yes", "--tls-replication", "yes"]
        self.nodes = [
            OwnRedis(
                binary,
                folder / f"node{number}",
                *options,
                "--cluster-port",
                str(free_port()),
                certificates=certificates,
            )
            for number in range(6)
        ]
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3])
        self.url = f"{'rediss' if certificates else 'redis'}+cluster://{hosts}"

    def start(self) -> Self:
        """Return when all nodes know each other and their slots."""
        for node in self.nodes:
            node.start()
        primaries, replicas = self.nodes[:3], self.nodes[3:]
        for number, node in enumerate(self.nodes):
            command(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node in self.nodes:
            # By one connection, because a handshake of TLS takes a tenth of a second.
            with node.client() as client:
                for other in self.nodes:
                    client.execute_command(
                        "CLUSTER MEET", "127.0.0.1", other.port, other.option("cluster-port")
                    )
        for node in self.nodes:
            wait_for(lambda node=node: len(_views(node)) == 6, message="they know each other")  # type: ignore[misc]
        for node, slots in zip(
            primaries, (range(5461), range(5461, 10923), range(10923, 16384)), strict=True
        ):
            command(node, "CLUSTER", "ADDSLOTS", *slots)
        for primary, replica in zip(primaries, replicas, strict=True):
            command(replica, "CLUSTER", "REPLICATE", self.id_of(primary))
        self.wait_until_healthy()
        return self

    def wait_until_healthy(self) -> None:
        """Wait until each node calls the cluster healthy, and each replica has what its primary has."""
        for node in self.nodes:
            if not node.runs:
                node.start()
        for node in self.nodes:
            wait_for(lambda node=node: self._is_healthy(node), message="the cluster is healthy")  # type: ignore[misc]
        wait_for(lambda: len({self.primary_by(node) for node in self.nodes}) == 1, message="they agree")

    def repair(self) -> None:
        """Start who was killed, and empty the nodes."""
        self.wait_until_healthy()
        for node in self.nodes:
            with node.client() as client, contextlib.suppress(redis.ReadOnlyError):
                client.flushall()

    def _is_healthy(self, node: OwnRedis) -> bool:
        state = command(node, "CLUSTER", "INFO")
        views = _views(node)
        up = all("fail" not in flags and link == "connected" for flags, link in views.values())
        with node.client() as client:
            found = client.info("replication")
        synced = found["role"] == "master" or found["master_link_status"] == "up"
        primaries = sum("master" in flags for flags, _ in views.values())
        return b"cluster_state:ok" in state and up and synced and primaries == 3

    def id_of(self, node: OwnRedis) -> str:
        """The id of a node."""
        return str(command(node, "CLUSTER", "MYID").decode())

    def primary_by(self, node: OwnRedis) -> int | None:
        """The port of the node that has the slot, as a node sees it; None while it knows of none."""
        slots = command(node, "CLUSTER", "SLOTS")
        return next((int(found[2][1]) for found in slots if found[0] <= self._slot <= found[1]), None)

    @property
    def primary(self) -> OwnRedis:
        """The node that has the slot."""
        seen = (self.primary_by(node) for node in self.nodes if node.runs)
        [(port, _)] = Counter(port for port in seen if port is not None).most_common(1)
        return next(node for node in self.nodes if node.port == port)

    def other_primary(self) -> OwnRedis:
        """A node that could have the slot: a primary of others."""
        found = [node for node in self.nodes if _is_primary(node) and node is not self.primary]
        return found[0]

    def replica(self) -> OwnRedis:
        """A replica of the node that has the slot."""
        port = self.primary.port
        return next(node for node in self.nodes if node.runs and _replicates(node, port))

    def fail_over(self) -> None:
        """Let a replica become the primary of the slot, as planned."""
        former, replica = self.primary, self.replica()
        asked_at = -inf

        def failed_over() -> bool:
            nonlocal asked_at
            if self.primary is not former:
                return True
            # A replica abandons a failover that takes more than five seconds, and does not try again.
            if time.monotonic() - asked_at > 6:
                asked_at = time.monotonic()
                with contextlib.suppress(redis.ResponseError):
                    command(replica, "CLUSTER", "FAILOVER")
            return False

        wait_for(failed_over, message="failed over")

    def wait_for_election(self) -> None:
        """Wait until a replica has the slot, whose primary does not answer."""
        wait_for(lambda: self.primary.runs, message="a replica is elected")

    def begin_reshard(self, target: OwnRedis) -> None:
        """Let the slot migrate, without its keys."""
        source = self.primary
        command(target, "CLUSTER", "SETSLOT", self._slot, "IMPORTING", self.id_of(source))
        command(source, "CLUSTER", "SETSLOT", self._slot, "MIGRATING", self.id_of(target))

    def migrate(self, target: OwnRedis, pause_s: float = 0.0) -> None:
        """Move the keys, one by one."""
        with self.primary.client() as source:
            while keys := source.execute_command("CLUSTER GETKEYSINSLOT", self._slot, 1):
                source.execute_command("MIGRATE", "127.0.0.1", target.port, keys[0], 0, 5000)
                time.sleep(pause_s)

    def end_reshard(self, target: OwnRedis) -> None:
        """Give the slot to the target."""
        number, source = self.id_of(target), self.primary
        for node in (target, source, *self.nodes):
            if _is_primary(node):
                command(node, "CLUSTER", "SETSLOT", self._slot, "NODE", number)

    def close(self) -> None:
        """End all of them."""
        for node in self.nodes:
            node.kill()


def command(node: OwnRedis, *words: Any) -> Any:
    """The reply of a node to a command, as it is."""
    with node.client() as client:
        client.response_callbacks.clear()
        return client.execute_command(*words)


def _views(node: OwnRedis) -> dict[str, tuple[str, str]]:
    """Flags and state of the link by the id of each node, as a node sees it."""
    rows = [line.split() for line in command(node, "CLUSTER", "NODES").decode().splitlines()]
    return {row[0]: (row[2], "connected" if "myself" in row[2] else row[7]) for row in rows}


def _replicates(node: OwnRedis, port: int) -> bool:
    with node.client() as client:
        return bool(client.info("replication").get("master_port") == port)


def _is_primary(server: OwnRedis) -> bool:
    with server.client() as client:
        return bool(client.info("replication")["role"] == "master")


def _is_replica(client: redis.Redis, port: int) -> bool:
    found = client.info("replication")
    return (found.get("master_port"), found.get("master_link_status")) == (port, "up")


def replicate(server: OwnRedis, primary: OwnRedis) -> None:
    """Make a server a replica, and wait until it has what the primary has."""
    with server.client() as client:
        client.replicaof("127.0.0.1", primary.port)
        wait_for(lambda: _is_replica(client, primary.port), message="replicating")


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
