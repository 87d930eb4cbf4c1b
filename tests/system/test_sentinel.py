"""Failover with real servers: a primary, a replica, and three sentinels that must agree."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from pyworkers import Client
from pyworkers.cli import main
from tests.helpers.redises import Group, OwnRedis
from tests.helpers.server_process import WAITING_APP, serving
from tests.helpers.support import stretched, wait_for

# From the promotion to the first job (contrib/docs/reliability.md, R5).
SOON_S = 2


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
