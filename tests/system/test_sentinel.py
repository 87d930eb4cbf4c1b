"""Failover with real servers: a primary, a replica, and three sentinels that must agree."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from pyworkers import Client
from pyworkers.cli import main
from tests.conftest import missing
from tests.helpers.redises import OwnRedis, Sentinel
from tests.helpers.server_process import WAITING_APP, serving
from tests.helpers.support import stretched, wait_for

# From the promotion to the first job (contrib/docs/reliability.md, R5).
SOON_S = 2
PERSISTENT = ("--appendonly", "yes", "--save", "", "--repl-diskless-sync-delay", "0")


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


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path / "group")
    try:
        group.start()
        yield group
    finally:
        group.close()


def push(server: OwnRedis, *words: Any) -> None:
    """Push a job, and wait until the replica has it if there is one."""
    job = {"class": "Any", "args": words, "jid": "-".join(map(str, words))}
    with server.client() as client:
        client.lpush("queue:q", json.dumps(job))
        if client.info("replication")["connected_slaves"]:
            assert client.wait(1, 5000) >= 1


def settled(server: OwnRedis) -> bool:
    with contextlib.suppress(redis.ConnectionError), server.client() as client:
        return not list(client.scan_iter("*:inprogress"))
    return False


def fail_over_by(way: str, group: Group) -> contextlib.AbstractContextManager[None]:
    former = group.primary
    if way == "crash":
        former.kill()
    elif way == "hang":
        return former.stopped()
    else:
        with group.sentinels[0].client() as client:
            client.execute_command("SENTINEL FAILOVER", "mymaster")
    return contextlib.nullcontext()


@pytest.mark.fault("R5")
@pytest.mark.parametrize("way", ["crash", "hang", "demotion"])
def test_a_failover_while_jobs_run(tmp_path: Path, group: Group, way: str) -> None:
    with serving(tmp_path, group.url, "", WAITING_APP, direct_url=group.primary.url) as server:
        former = group.primary
        push(former, "wait", 1)
        push(former, "wait", 2)
        server.wait_for_notes(2, "start", "wait")
        with former.client() as client:
            client.wait(1, 5000)
        with fail_over_by(way, group):
            successor = group.promoted(former, way)
            (tmp_path / "finish").touch()
            promoted = time.monotonic()
            push(successor, "after")
            server.wait_for_notes(1, "end", "after")
            assert time.monotonic() - promoted < stretched(SOON_S)
            wait_for(lambda: settled(successor), message="all is settled")
        server.wait_for_notes(2, "end", "wait")
        assert len([note for note in server.ledger() if note[1] == "start"]) == 3
        assert server.events("server.failed") == []
        assert server.stop() == 0


def test_a_fix_and_the_place_for_rights_name_the_primary(group: Group) -> None:
    primary = group.primary
    with primary.client() as connection:
        connection.config_set("maxmemory-policy", "allkeys-lru")
    found = CliRunner().invoke(main, ["check", "--url", group.url])
    command_line = f"redis-cli -h 127.0.0.1 -p {primary.port}"
    assert f"    {command_line} CONFIG SET maxmemory-policy noeviction\n" in found.stdout
    assert (
        CliRunner().invoke(main, ["acl", "--url", group.url]).stderr.endswith(f"\nRun it in {command_line}\n")
    )
    for sentinel in group.sentinels:
        sentinel.kill()
    rights = CliRunner().invoke(main, ["acl", "--url", group.url])
    assert (rights.exit_code, rights.stdout[:11]) == (0, "ACL SETUSER")
    assert "no sentinel names it" in rights.stderr


def test_a_client_finds_the_new_primary(group: Group) -> None:
    with Client(group.url) as client:
        client.enqueue("q", "Any", ["before"])
        former = group.primary
        with former.client() as connection:
            assert connection.wait(1, 5000) >= 1
        with fail_over_by("demotion", group):
            successor = group.promoted(former, "demotion")
        client.enqueue("q", "Any", ["after"])
        with successor.client() as connection:
            assert connection.llen("queue:q") == 2
