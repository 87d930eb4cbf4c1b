"""SIGHUP: the configuration file is read again; an error keeps the code and the configuration that were."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from pyworkers.api import ProcessSet
from tests.helpers.processes import process_alive
from tests.helpers.records import job
from tests.helpers.redises import OwnRedis
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import wait_for

APP = """
@worker.on_startup
def up():
    note("up")

@worker.job(queue="q", concurrency=1)
def ran(key):
    note("ran", key)

@worker.job(queue="q")
def sleeps():
    time.sleep(600)

@worker.job(queue="ticks", concurrency=1)
def tick():
    note("tick")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "workers.toml"
    path.write_text("[server]\nlease = 30\n")
    return path


def test_hup_applies_sizes_limits_log_level_and_cron_entries(serve: Serve, file: Path) -> None:
    with serve(APP, "--config", str(file), log_level=None) as server:
        old = [note[0] for note in server.wait_for_notes(2, "up")]
        server.push("q", job("a", "ran", 1))
        server.wait_for_event("job.done", jid="a")
        assert server.events("job.start") == []

        file.write_text(
            '[log]\nlevel = "debug"\n[queues.q]\nconcurrency = 3\ntimeout = 0.1\n'
            '[[cron]]\nname = "tick"\nevery = "1s"\nqueue = "ticks"\nclass = "tick"\n'
        )
        server.signal(signal.SIGHUP)
        assert server.wait_for_event("reload.done")["queues"] == {"q": 3, "ticks": 1}
        server.wait_for_notes(2 + 3 + 1, "up")
        # Until then they take jobs, too.
        wait_for(lambda: not any(map(process_alive, old)), message="the workers before are gone")
        server.push("q", job("b", "ran", 2), job("c", "sleeps", retry=False))
        server.wait_for_event("job.start", jid="b")
        server.wait_for_event("job.timeout", jid="c")
        server.wait_for_notes(1, "tick")

        file.write_text('[log]\nlevel = "debug"\n[queues.q]\ntimeout = 600\n')
        server.signal(signal.SIGHUP)
        assert server.wait_for_event("reload.done", count=2)["queues"] == {"q": 1, "ticks": 1}


ERRORS = {
    "concurrency = 3\n": "workers.toml:1: unknown key concurrency",
    "[queues.q]\nconcurrency = 0\n": "queues.q.concurrency: must be at least 1, not 0",
    "[queues.other]\nconcurrency = 2\n": "[queues.other]: the application has no handler",
    '[groups.a]\nqueues = ["q"]\n[groups.b]\nqueues = ["q"]\n': "the queue 'q' is in two groups",
}


def test_a_configuration_with_an_error_changes_nothing(serve: Serve, file: Path) -> None:
    with serve(APP, "--config", str(file)) as server:
        workers = [note[0] for note in server.wait_for_notes(2, "up")]
        for count, (text, message) in enumerate(ERRORS.items(), start=1):
            file.write_text(text)
            server.signal(signal.SIGHUP)
            assert message in server.wait_for_event("reload.failed", count=count)["error"]
            server.push("q", job(f"j{count}", "ran", count))
            server.wait_for_notes(1, "ran", count)
            assert all(map(process_alive, workers)), text


def fork_server(server: ServerProcess) -> int:
    """The parent of the workers."""
    [[worker, *_], _] = server.wait_for_notes(2, "up")
    return int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_lost_fork_server_is_replaced_while_the_file_is_invalid(serve: Serve, file: Path) -> None:
    with serve(APP, "--config", str(file)) as server:
        file.write_text('[groups.a]\nqueues = ["q"]\n[groups.b]\nqueues = ["q"]\n')
        server.signal(signal.SIGHUP)
        lost = server.wait_for_event("reload.failed")
        forker = fork_server(server)
        os.kill(forker, signal.SIGKILL)
        server.wait_for_event("forkserver.lost", pid=forker)
        assert server.wait_for_event("reload.done")["queues"] == {"q": 1, "ticks": 1}
        server.push("q", job("a", "ran", 1))
        server.wait_for_notes(1, "ran", 1)
        assert server.events("reload.failed") == [lost]


def test_the_url_may_change_to_another_redis_of_the_same_data(
    tmp_path: Path, file: Path, one_binary: str
) -> None:
    def url_in_file(redis: OwnRedis) -> None:
        file.write_text(f'[redis]\nurl = "{redis.url}"\n')

    with (
        OwnRedis(one_binary, tmp_path / "former").start() as former,
        OwnRedis(one_binary, tmp_path / "replica").start() as replica,
        OwnRedis(one_binary, tmp_path / "other").start() as other,
    ):
        with replica.client() as client:
            client.replicaof("127.0.0.1", former.port)
            wait_for(lambda: client.info("replication")["master_link_status"] == "up", message="replicating")
        url_in_file(former)
        server = ServerProcess(tmp_path, former.url, "", "--config", str(file), direct_url=replica.url)
        # The URL of the command line would override the file.
        place = server._arguments.index("--url")
        del server._arguments[place : place + 2]
        server.write_app(APP)
        try:
            server.start()
            url_in_file(other)
            server.signal(signal.SIGHUP)
            assert server.wait_for_event("reload.incomplete")["keys"] == ["redis.url"]
            server.wait_for_event("reload.done")
            with replica.client() as client:
                client.replicaof("NO", "ONE")
            url_in_file(replica)
            server.signal(signal.SIGHUP)
            server.wait_for_event("reload.done", count=2)
            server.push("q", job("a", "ran", 1))
            server.wait_for_notes(1, "ran", 1)
            with former.client() as client:
                wait_for(
                    lambda: len(client.client_list()) == 1, message="all connections lead to the new one"
                )
            assert len(server.events("reload.incomplete")) == 1
            assert server.stop() == 0
        finally:
            server.kill()


def test_what_only_a_restart_changes_is_named(serve: Serve, file: Path) -> None:
    with serve(APP, "--config", str(file)) as server:
        file.write_text("[server]\nlease = 20\nmax_jobs_per_worker = 5\n[scheduler]\npoll_interval = 2\n")
        server.signal(signal.SIGHUP)
        named = server.wait_for_event("reload.incomplete")["keys"]
        assert named == ["server.lease", "scheduler.poll_interval"]
        server.wait_for_event("reload.done")


def test_a_reload_through_redis_loads_new_code(serve: Serve) -> None:
    with serve(APP) as server:
        before = server.wait_for_notes(2, "up")
        server.write_app(APP.replace('note("ran", key)', 'note("ran anew", key)'))
        servers = ProcessSet(server.url, namespace=server.keys.namespace)
        [process] = wait_for(lambda: list(servers), message="it is listed")
        process.reload()
        server.wait_for_event("signal.received", signal="HUP")
        server.wait_for_event("reload.done")
        server.wait_for_notes(4, "up")
        wait_for(lambda: not any(process_alive(note[0]) for note in before), message="the old ones left")
        server.push("q", job("a", "ran", 1))
        server.wait_for_notes(1, "ran anew", 1)


@pytest.mark.lengthy
def test_an_import_that_hangs_makes_room_for_the_next_reload_which_may_be_slow(serve: Serve) -> None:
    with serve(APP) as server:
        forker = fork_server(server)
        server.write_app(APP + 'note("hangs")\ntime.sleep(600)')
        os.kill(forker, signal.SIGKILL)
        server.wait_for_notes(1, "hangs")
        server.write_app(APP + "time.sleep(11)")
        server.signal(signal.SIGHUP)
        assert "another reload was requested" in server.wait_for_event("reload.failed")["error"]
        server.wait_for_event("reload.done")


def test_a_reload_announces_new_classes_at_once(serve: Serve) -> None:
    with serve(APP) as server:
        servers = ProcessSet(server.url, namespace=server.keys.namespace)
        [before] = wait_for(servers.declared, message="its classes are announced")
        assert "later" not in before.known
        server.write_app(APP + 'worker.job(queue="q", name="later")(print)\n')
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done")
        # Without a change of its groups or jobs, a server renews its heartbeat after fifteen seconds.
        wait_for(lambda: "later" in servers.declared()[0].known, timeout=7, message="the new class")
