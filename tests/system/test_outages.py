"""Redis away, back, slow, full or wrong: workers carry on, outcomes wait, no job is lost."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from pyworkers.store.acl import Role
from tests.helpers.acl import url_of
from tests.helpers.proxy import Proxy
from tests.helpers.records import job
from tests.helpers.redises import OwnRedis, replicate
from tests.helpers.replies import as_list
from tests.helpers.server_process import WAITING_APP, Serve, ServerProcess, serving
from tests.helpers.support import free_port, stretched, wait_for


@pytest.fixture
def own(tmp_path: Path, one_binary: str) -> Iterator[OwnRedis]:
    with OwnRedis(one_binary, tmp_path / "redis") as server:
        yield server


@pytest.mark.fault("R2")
def test_a_restart_of_redis_loses_nothing_and_repeats_nothing(tmp_path: Path, own: OwnRedis) -> None:
    own.start()
    with serving(tmp_path, own.url, "", WAITING_APP) as server:
        server.push("q", job("wait-1", "Any", "wait", 1), job("wait-2", "Any", "wait", 2))
        server.wait_for_notes(2, "start")
        own.kill()
        (tmp_path / "finish").touch()
        server.wait_for_notes(2, "end")
        server.wait_for_event("redis.down")
        time.sleep(0.5)  # long enough for several attempts
        own.start()
        back = time.monotonic()
        server.wait_for_event("redis.up")
        wait_for(lambda: not inprogress(server), message="settled afterwards")
        server.push("q", job("after-3", "Any", "after", 3))
        server.wait_for_notes(1, "end", "after")
        assert time.monotonic() - back < stretched(2 + 1)  # the second is Valkey's own start
        assert server.stop() == 0
        assert len(server.ledger()) == 6
        assert server.redis.get("stat:processed") == b"3"


def inprogress(server: ServerProcess) -> list[bytes]:
    with contextlib.suppress(ConnectionError):
        return server.inprogress("q")
    return [b"unknown"]


QUEUES = """
for number in range(6):
    worker.process(f"q{number}", concurrency=1)(print)
"""


@pytest.mark.fault("R5")
def test_a_server_leaves_a_primary_that_is_demoted(tmp_path: Path, own: OwnRedis, one_binary: str) -> None:
    """Its address leads to the new primary now, and open connections stay where they are."""
    with OwnRedis(one_binary, tmp_path / "other") as other, contextlib.closing(Proxy(own.url)) as proxy:
        own.start()
        replicate(other.start(), own)
        with serving(tmp_path, proxy.url, "", QUEUES, direct_url=other.url) as server:
            server.wait_until_listed()
            with own.client() as former, other.client() as primary:
                primary.replicaof("NO", "ONE")
                primary.zadd(server.keys.schedule, {json.dumps(job("due", "Any", queue="q0")): 1})
                # A replica of nothing: what it has of the queues is never what the primary has.
                former.replicaof("127.0.0.1", 1)
            proxy.lead_to(other.url)
            for number in range(6):
                server.push(f"q{number}", job("late", "Any", queue=f"q{number}"))
            wait_for(
                lambda: len(server.events("job.done")) == 7, message="each queue and the schedule are read"
            )
            assert server.stop() == 0


@pytest.mark.fault("R1")
def test_redis_may_be_absent_at_the_start(tmp_path: Path, own: OwnRedis) -> None:
    server = ServerProcess(tmp_path, own.url, "")
    server.write_app(WAITING_APP)
    try:
        server.start(ready=False)
        server.wait_for_event("redis.down")
        own.start()
        server.wait_for_event("server.started")
        server.push("q", job("now", "Any", "now"))
        server.wait_for_notes(1, "end")
        assert len(server.events("redis.down")) == 1
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_server_without_redis_can_be_stopped(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, f"redis://127.0.0.1:{free_port()}/0", "")
    server.write_app(WAITING_APP)
    try:
        server.start(ready=False)
        server.wait_for_event("redis.down")
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.fault("R1")
def test_fail_fast_exits_with_4_and_says_why(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, f"redis://:secret@127.0.0.1:{free_port()}/0", "", "--fail-fast")
    server.write_app(WAITING_APP)
    try:
        server.start(ready=False)
        assert server.wait() == 4
        assert "Redis cannot be reached" in server.log_text()
        assert "Start Redis, or name another address" in server.log_text()
        assert "secret" not in server.log_text()
        assert "Traceback" not in server.log_text()
    finally:
        server.kill()


@pytest.mark.fault("R4")
def test_killed_connections_heal_and_lose_no_outcome(serve_either: Serve) -> None:
    with serve_either(WAITING_APP) as server:
        for number in range(30):
            server.push("q", job(f"n-{number}", "Any", "n", number))
            wait_for(lambda: _kill_a_connection(server, number), message="a connection to kill")  # noqa: B023
        server.wait_for_notes(30, "end")
        wait_for(lambda: not server.inprogress("q"), message="settled")
        assert server.stop() == 0
        assert sorted(note[3] for note in server.ledger() if note[1] == "end") == list(range(30))


def _kill_a_connection(server: ServerProcess, number: int) -> int:
    """Kill the one whose turn it is; 0 while there is none."""
    ours = server.redis.client_id()
    victims = [client["id"] for client in server.redis.client_list() if int(client["id"]) != ours]
    if not victims:
        return 0
    return int(server.redis.client_kill_filter(_id=victims[number % len(victims)], skipme=True))


@pytest.mark.fault("M7")
def test_a_deleted_lease_comes_back_and_no_peer_recovers_from_its_owner(
    serve: Serve, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    path = tmp_path / "workers.toml"
    # Renewed after 3.3 s, and recovered 6 s after it was deleted: a machine may stall in between.
    path.write_text("[server]\nlease = 20\n")
    options = ("--config", str(path))
    with serve(WAITING_APP, *options) as server:
        peer = ServerProcess(tmp_path, one_redis_url, namespace, *options)
        peer.start()
        try:
            server.push("q", job("wait", "Any", "wait"))
            server.wait_for_notes(1, "start")
            for identity in as_list(server.redis.hkeys(server.keys.owners)):
                server.redis.delete(server.keys.lease(identity.decode()))
            wait_for(lambda: _leases(server) == 2, message="both leases are back")
            server.let_go("finish")
            server.wait_for_notes(1, "end")
            assert server.events("process.recovered") == []
            assert len(server.ledger()) == 2
        finally:
            peer.kill()


def _leases(server: ServerProcess) -> int:
    owners = [identity.decode() for identity in as_list(server.redis.hkeys(server.keys.owners))]
    return sum(server.redis.exists(server.keys.lease(identity)) for identity in owners)


def test_a_flushed_database_is_survived(tmp_path: Path, own: OwnRedis) -> None:
    own.start()
    path = tmp_path / "workers.toml"
    path.write_text("[server]\nlease = 2\n")
    with serving(tmp_path, own.url, "", WAITING_APP, "--config", str(path)) as server:
        server.push("q", job("wait", "Any", "wait"))
        server.wait_for_notes(1, "start")
        server.redis.flushall()
        (tmp_path / "finish").touch()
        server.wait_for_event("job.not_ours")
        wait_for(lambda: _leases(server) == 1, message="registered again")
        server.push("q", job("after", "Any", "after"))
        server.wait_for_notes(1, "end", "after")
        assert server.stop() == 0


@pytest.mark.fault("R8")
def test_a_queue_of_the_wrong_type_does_not_stop_the_others(serve_either: Serve) -> None:
    code = (
        WAITING_APP
        + """
@worker.process("other", concurrency=1)
def other(message):
    note("other", *message.args)
"""
    )
    with serve_either(code) as server:
        server.redis.set(server.keys.queue("q"), "no list")
        server.wait_for_event("queue.broken", queue="q")
        server.push("other", job("1", "Any", 1))
        server.wait_for_notes(1, "other")
        server.redis.delete(server.keys.queue("q"))
        server.push("q", job("mended", "Any", "mended"))
        server.wait_for_notes(1, "end", "mended")
        assert server.events("redis.down") == []
        assert server.stop() == 0


def test_full_memory_lets_running_jobs_settle(tmp_path: Path, own: OwnRedis) -> None:
    own.start()
    with serving(tmp_path, own.url, "", WAITING_APP) as server:
        server.push(
            "q",
            job("wait-1", "Any", "wait", 1),
            job("wait-2", "Any", "wait", 2),
            job("n-3", "Any", "n", 3),
            job("n-4", "Any", "n", 4),
        )
        server.wait_for_notes(2, "start")
        server.redis.config_set("maxmemory", 1)
        (tmp_path / "finish").touch()
        server.wait_for_notes(4, "end")
        wait_for(lambda: not server.inprogress("q"), message="settled while full")
        server.redis.config_set("maxmemory", 0)
        server.push("q", job("n-5", "Any", "n", 5))
        server.wait_for_notes(1, "end", "n", 5)
        server.signal(signal.SIGTERM)
        assert server.wait() == 0


@pytest.mark.fault("R10")
def test_a_login_that_is_refused_is_named_asked_for_rarely_and_taken_again(
    tmp_path: Path, own: OwnRedis
) -> None:
    own.start()
    wait_for(lambda: answers(own), message="Redis answers")
    url = url_of(own.url, Role.WORKER, "")
    user = url.partition("//")[2].partition(":")[0]
    with serving(tmp_path, url, "", WAITING_APP, direct_url=own.url) as server:
        server.push("q", job("wait", "Any", "wait"))
        server.wait_for_notes(1, "start")
        server.redis.execute_command("ACL SETUSER", user, "off")
        server.redis.config_resetstat()
        server.redis.execute_command("CLIENT KILL", "USER", user)
        refused = time.monotonic()
        event = server.wait_for_event("redis.down", code="WRONGPASS")
        assert "Redis refused the login: WRONGPASS" in event["error"]
        (tmp_path / "finish").touch()
        server.wait_for_notes(1, "end")
        server.push("q", job("n", "Any", "n"))
        parts = wait_for(lambda: parts_down(server, refused, 6))
        # 50 ms doubled up to 5 s is at most a dozen attempts of each part in this time.
        attempts = server.redis.info("commandstats")["cmdstat_auth"]["calls"]
        assert attempts <= 12 * len(parts)
        named = [event["part"] for event in server.events("redis.down", code="WRONGPASS")]
        assert len(named) == len(set(named))
        server.redis.execute_command("ACL SETUSER", user, "on")
        server.wait_for_notes(1, "end", "n")
        wait_for(lambda: not server.inprogress("q"), message="settled")
        assert server.events("server.failed") == []
        assert server.stop() == 0


def answers(own: OwnRedis) -> bool:
    with contextlib.suppress(redis.ConnectionError), redis.Redis.from_url(own.url) as client:
        return bool(client.ping())
    return False


def parts_down(server: ServerProcess, since: float, seconds: float) -> set[str]:
    """The parts that have named the trouble, once so much time has passed."""
    enough = time.monotonic() - since > seconds
    return {event["part"] for event in server.events("redis.down", code="WRONGPASS")} if enough else set()


def test_a_stop_does_not_wait_for_a_redis_that_hangs(tmp_path: Path, own: OwnRedis) -> None:
    own.start()
    environment = {"PYWORKERS_SERVER__SHUTDOWN_TIMEOUT": "1"}
    with serving(tmp_path, own.url, "", WAITING_APP, **environment) as server:
        server.push("q", job("wait-1", "Any", "wait", 1))
        server.wait_for_notes(1, "start")
        with own.stopped():
            server.signal(signal.SIGTERM)
            # 1 s for the job, then twice 3 s for Redis; one of its time-outs alone is 10 s.
            assert server.wait(timeout=stretched(7)) == 0
            assert server.tree() == set()
            assert server.events("stop.failed", level="error")
        server.redis.ping()
        # A peer finds the job by the lease that has run out.
        assert [json.loads(raw)["jid"] for raw in server.inprogress("q")] == ["wait-1"]
