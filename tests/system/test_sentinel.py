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

from pyworkers.cli import main
from tests.conftest import missing
from tests.helpers.certificates import Certificates
from tests.helpers.enqueuing import Producer, kept, lost
from tests.helpers.redises import Group, OwnRedis, Sentinel
from tests.helpers.server_process import WAITING_APP, serving
from tests.helpers.support import by_load, stretched, wait_for

# From the promotion to the first job (contrib/docs/reliability.md, R5).
SOON_S = 2
# From the promotion to the first job that is kept. A sentinel notices its promotion within a second.
LOST_S, GAP_S = 1.5, 2.0
UNDER_WAY_S = 0.2


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    binary = shutil.which("redis-server") or missing("redis-server is not installed")
    group = Group(binary, tmp_path_factory.mktemp("group"))
    try:
        yield group.start()
    finally:
        group.close()


@pytest.fixture
def group(servers: Group) -> Group:
    servers.repair()
    return servers


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
        group.fail_over()
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
            successor = group.promoted(former)
            # A job that ends before is settled by a former primary that still takes writes, and runs again.
            server.wait_for_event("redis.failover")
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
    primary.configure("maxmemory-policy", "noeviction")
    for sentinel in group.sentinels:
        sentinel.kill()
    rights = CliRunner().invoke(main, ["acl", "--url", group.url])
    assert (rights.exit_code, rights.stdout[:11]) == (0, "ACL SETUSER")
    assert "no sentinel names it" in rights.stderr


@contextlib.contextmanager
def producing(group: Group, folder: Path) -> Iterator[list[Producer]]:
    """A producer with each client, both at work."""
    with contextlib.ExitStack() as stack:
        producers = [
            stack.enter_context(Producer(group.url, kind, folder / kind, certificates=group.certificates))
            for kind in ("client", "async")
        ]
        for producer in producers:
            wait_for(lambda producer=producer: len(producer.acknowledged()) > 100, message="it enqueues")  # type: ignore[misc]
        yield producers


def first_kept(producer: Producer, successor: OwnRedis, promoted: float) -> float:
    """When the first call returned whose job the new primary has, of those since the promotion."""

    def found() -> float | None:
        since = [call for call in producer.acknowledged() if call.ended > promoted]
        with successor.client() as client:
            there = kept(client)
        return min((call.ended for call in since if call.jid in there), default=None)

    return wait_for(found, message="the producer follows")


def follow(folder: Path, group: Group, way: str, soon_s: float) -> None:
    """Both clients enqueue through a failover; soon after the promotion, their jobs are kept."""
    with producing(group, folder) as producers:
        # Only now: on a busy machine, the sentinels may have failed over meanwhile.
        former = group.primary
        with fail_over_by(way, group):
            successor = group.promoted(former)
            promoted = time.monotonic()
            for producer in producers:
                assert first_kept(producer, successor, promoted) - promoted < stretched(soon_s)


@pytest.mark.fault("R5")
def test_producers_follow(tmp_path: Path, group: Group) -> None:
    """A former primary that hangs answers nothing."""
    follow(tmp_path, group, "hang", GAP_S)


@pytest.mark.fault("R5")
def test_a_planned_failover_loses_no_job(tmp_path: Path, group: Group) -> None:
    """The former primary takes writes until it is demoted, ten seconds later.

    Not each time: the announcement may be late on a busy machine.
    """
    for attempt in range(3):
        if attempt:
            group.repair()
        folder = tmp_path / str(attempt)
        folder.mkdir()
        others = [listeners(sentinel) for sentinel in group.sentinels]
        with producing(group, folder) as producers:
            for sentinel, before in zip(group.sentinels, others, strict=True):
                wait_for(lambda s=sentinel, b=before: len(listeners(s) - b) >= 2, message="both listen")  # type: ignore[misc]
            former = group.primary
            group.fail_over()
            successor = group.promoted(former)
            promoted = time.monotonic()
            for producer in producers:
                assert first_kept(producer, successor, promoted) - promoted < stretched(LOST_S)
            acknowledged = [producer.acknowledged()[:-1] for producer in producers]
            with successor.client() as client:
                there = kept(client)
            if not any(lost(calls, there) for calls in acknowledged):
                return
    raise AssertionError("each failover has lost acknowledged jobs")


def listeners(sentinel: Sentinel) -> set[str]:
    """The clients that get its announcements of promotions."""
    with sentinel.client() as client:
        return {one["id"] for one in client.client_list() if one["sub"] == "2"}


@pytest.mark.fault("R5")
def test_producers_leave_a_primary_that_hangs_by_tls(tmp_path: Path) -> None:
    """Connections that are being opened to it wait for their handshake."""
    binary = shutil.which("redis-server") or missing("redis-server is not installed")
    secure = Group(binary, tmp_path / "group", certificates=Certificates(tmp_path / "certificates"))
    with contextlib.closing(secure.start()):
        follow(tmp_path, secure, "hang", GAP_S)


@pytest.mark.fault("R5")
def test_min_replicas_to_write_loses_next_to_nothing(tmp_path: Path, group: Group) -> None:
    for server in group.servers:
        server.configure("min-replicas-to-write", 1)
    with producing(group, tmp_path) as producers:
        former = group.primary
        group.fail_over()
        successor = group.promoted(former)
        for producer in producers:
            wait_for(
                lambda producer=producer: any(call.code == "NOREPLICAS" for call in producer.calls()),  # type: ignore[misc]
                message="it refuses",
            )
        with successor.client() as client:
            there = kept(client)
        for producer in producers:
            missing_ones = lost(producer.acknowledged(), there)
            if missing_ones:
                assert missing_ones[-1].ended - missing_ones[0].ended < by_load(UNDER_WAY_S)
