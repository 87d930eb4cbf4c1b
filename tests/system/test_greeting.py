"""What a server says to the person who starts and stops it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import redis

from pyworkers.protocol.keys import Keys
from pyworkers.version import __version__
from tests.helpers.records import job
from tests.helpers.server_process import HEADER, Serve, ServerProcess
from tests.helpers.support import wait_for
from tests.helpers.terminal import terminal

APP = """
@worker.job(queue="q", concurrency=3)
def sleeps():
    note("start")
    time.sleep(600)

worker.group("web", queues=["critical", "low"], concurrency=10, processes=2, mode="thread")
"""


def test_the_start_says_version_application_redis_groups_and_how_to_stop(serve: Serve) -> None:
    with serve(APP) as server:
        about = server.wait_for_event("server.started")["about"]
        assert about["pyworkers"] == __version__
        assert about["application"] == "tasks:worker"
        assert about["redis"] == f"{server.url} namespace {server.keys.namespace}"
        assert about["groups"] == (
            "web (critical, low): 10 at a time in 2 processes, mode thread; q: 3 at a time"
        )
        assert "Ctrl-C or SIGTERM" in about["stop"]


def test_a_slow_import_is_announced(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    server = ServerProcess(tmp_path, one_redis_url, namespace)
    server.write_app("wait_for_file('imported')" + APP)
    try:
        server.start(ready=False)
        assert server.wait_for_event("app.importing")["app"] == "tasks:worker"
        assert server.events("server.started") == []
        server.let_go("imported")
        server.wait_for_event("server.started")
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_stop_says_what_it_waits_for_and_a_second_ctrl_c_gives_the_jobs_back(serve: Serve) -> None:
    with serve(APP) as server:
        server.push("q", job("a", "sleeps"), job("b", "sleeps"))
        server.wait_for_notes(2, "start")
        wait_for(lambda: len(server.events("job.start")) == 2)
        server.signal(signal.SIGINT)
        stopping = server.wait_for_event("server.stopping")
        assert (stopping["running"], stopping["timeout_s"]) == (2, 25.0)
        assert stopping["deadline"] > stopping["timestamp"]
        server.wait_for_event("manager.state", state="quiet", queue="q")
        server.signal(signal.SIGINT)
        assert server.wait_for_event("server.hurried")["running"] == 2
        assert server.wait() == 0
        assert server.events("jobs.given_back", jobs=2)
        assert server.waiting("q") == 2
        assert server.inprogress("q") == []
        # Before the requests to end, which come two seconds before the deadline.
        ended = server.events("server.stopped")[0]["timestamp"]
        assert ended < stopping["deadline"]


def test_a_second_ctrl_c_does_not_wait_for_hooks(serve: Serve) -> None:
    code = """
    @worker.during_drain
    def drains():
        note("drains")
        time.sleep(600)
    """
    with serve(APP + "\n".join(line[4:] for line in code.splitlines())) as server:
        server.signal(signal.SIGINT)
        server.wait_for_notes(1, "drains")
        server.signal(signal.SIGINT)
        assert server.wait() == 0
        server.wait_for_event("server.hurried", running=0)


def test_a_terminal_shows_it_in_lines(
    tmp_path: Path,
    redis_url: str,
    namespace: str,
    db: redis.Redis,
    keys: Keys,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.py").write_text(HEADER + APP)
    words = ("run", "--app", "tasks:worker", "--url", redis_url, "--namespace", namespace)
    with terminal(*words, columns=120) as shown:
        shown.wait_for("server.started")
        shown.wait_for("\n    application  tasks:worker")
        shown.wait_for(f"\n    redis        {redis_url} namespace {namespace}")
        shown.wait_for("\n    stop         Ctrl-C or SIGTERM: running jobs get 25 s")
        db.lpush(keys.queue("q"), '{"class": "sleeps", "args": [], "jid": "a"}')
        wait_for(lambda: (tmp_path / "ledger").exists(), message="the job runs")
        shown.type("\x03")
        shown.wait_for("server.stopping")
        shown.type("\x03")
        shown.wait_for("server.hurried")
        assert shown.wait() == 0
        assert db.llen(keys.queue("q")) == 1


def test_hooks_that_fail_are_one_traceback_and_a_count(serve: Serve) -> None:
    code = """
@worker.on_startup
def connect():
    if not Path(__file__).with_name("works").exists():
        raise RuntimeError("no database")

@worker.job(queue="q", concurrency=12)
def ran():
    note("ran")
"""
    began = time.monotonic()
    with serve(code) as server:
        server.wait_for_event("manager.state", state="failing")

        def counts() -> list[int]:
            return [event["count"] for event in server.events("worker.starts_failed", queue="q")]

        wait_for(lambda: sum(counts()) >= 12, message="all of them have failed")
        counted = sum(counts())
        assert counted <= len(server.events("worker.lost", level="debug"))
        assert server.events("worker.lost", level="warning") == []
        whys = server.events("worker.boot_failed")
        # One, and another one each half minute.
        assert 1 <= len(whys) <= 1 + (time.monotonic() - began) // 30
        assert "RuntimeError: no database" in whys[0]["exception"]
        server.let_go("works")
        server.push("q", job("a", "ran"))
        server.wait_for_notes(1, "ran")


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("'{url}', namespace='other:'", "{url} with the namespace 'other:'"),
        # A bracket in a user name, at which urllib raises ValueError.
        (
            "'unix://a[b:secret@/run/redis.sock'",
            "unix://a[b:***@/run/redis.sock with the namespace '{namespace}'",
        ),
        ("'{url}', namespace='{namespace}'", None),
        ("", None),
        ("config='missing.toml'", None),
    ],
)
def test_an_application_that_names_another_redis_is_a_warning(
    serve: Serve, one_redis_url: str, namespace: str, made: str, named: str | None
) -> None:
    def filled(text: str) -> str:
        return text.format(url=one_redis_url, namespace=namespace)

    code = f"worker = Worker({filled(made)})\n{APP}"
    # Variables of the environment are those of the server as well, and no choice of the application.
    with serve(code, PYWORKERS_REDIS__NAMESPACE="third:", REDIS_URL="redis://127.0.0.1:1/2") as server:
        if named is None:
            assert server.events("app.other_redis") == []
            return
        warning = server.wait_for_event("app.other_redis")
        assert (warning["level"], "secret" in server.log_text()) == ("warning", False)
        assert warning["message"] == (
            f"the application enqueues to {filled(named)}, and the server takes jobs from "
            f"{one_redis_url} with the namespace '{namespace}'"
        )
        assert warning["fix"].startswith("leave url and namespace out of Worker(…), or start the server")


def test_each_reload_warns_again(serve: Serve, one_redis_url: str) -> None:
    with serve(f"worker = Worker({one_redis_url!r}, namespace='other:')\n{APP}") as server:
        warning = server.wait_for_event("app.other_redis")
        server.signal(signal.SIGHUP)
        server.wait_for_event("reload.done")
        assert server.wait_for_event("app.other_redis", count=2) == warning | {
            "timestamp": server.events("app.other_redis")[1]["timestamp"]
        }
