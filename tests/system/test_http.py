"""The HTTP endpoint: the contents of its pages, and that no client can slow the server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pyworkers.api import ProcessSet, Stats
from pyworkers.api.problems import _failing
from pyworkers.protocol.flow.counted import INCIDENTS
from tests.helpers.endpoint import Endpoint
from tests.helpers.records import job
from tests.helpers.server_process import Serve, ServerProcess
from tests.helpers.support import PATIENCE_S, ROOT, free_port, running_server, wait_for

CODE = """
@worker.process("q", concurrency=2)
def handle(message):
    note("start", message.jid)
    if message.args == ["wait"]:
        wait_for_file("finish")

@worker.job(queue="mail", concurrency=1)
def send_mail(to):
    raise ValueError("no")
"""


def test_the_pages(serve_either: Serve) -> None:
    endpoint = Endpoint()
    with serve_either(CODE, **endpoint.environment) as server:
        assert endpoint.get("/livez") == (200, "ok\n")
        ready = {"fetching": True, "lease": True, "redis": True}
        assert endpoint.get("/readyz")[0] == 200 and endpoint.json("/readyz") == ready
        assert endpoint.get("/nothing")[0] == 404
        before = int(time.time())
        server.push(
            "q", {"class": "Any", "args": ["wait"], "jid": "a"}, {"class": "A", "args": [], "jid": "b"}
        )
        server.push("mail", {"class": "send_mail", "args": ["x"], "jid": "c", "retry": True})
        # It waits for minutes until its next try: with the first misfits, it would be due again meanwhile.
        server.push("mail", job("d", "Nobody's name", retry=True, misfits=5, misfit_at=time.time()))
        server.wait_for_notes(2, "start")
        server.redis.sadd(server.keys.paused, "q")
        server.wait_for_event("manager.state", queue="q", state="paused")
        server.push("q", {"class": "Any", "args": [], "jid": "e"})
        wait_for(lambda: endpoint.json("/stats")["failed"] == 1)
        wait_for(lambda: endpoint.json("/stats")["misfits"] == 1)
        wait_for(lambda: endpoint.json("/stats")["processed"] == 2)
        stats = wait_for(lambda: (s := endpoint.json("/stats"))["enqueued"]["q"] == "1" and s)
        (shown,) = stats["jobs"].pop("q")
        assert shown["message"] == {"class": "Any", "args": ["wait"], "jid": "a"}
        assert before <= shown["started_at"] <= time.time()
        unusual = dict.fromkeys(INCIDENTS, 0) | {"misfits": 1}
        assert stats == {
            "processed": 2, "failed": 1, "expired": 0, **unusual, "retries": 2,
            "jobs": {"mail": []}, "enqueued": {"q": "1", "mail": "0"},
            "groups": {
                "q": {
                    "queues": {"q": 1}, "strict": True, "mode": "process",
                    "processes": 2, "concurrency": 2, "busy": 1,
                    "ordered": False, "workers": {"busy": 1, "idle": 1}, "restarts": 0,
                },
                "mail": {
                    "queues": {"mail": 1}, "strict": True, "mode": "process",
                    "processes": 1, "concurrency": 1, "busy": 0,
                    "ordered": False, "workers": {"idle": 1}, "restarts": 0,
                },
            },
        }  # fmt: skip
        assert endpoint.json("/readyz") == ready
        assert endpoint.number('pyworkers_jobs_processed_total{job_class="handle"}') == 1
        assert endpoint.number('pyworkers_jobs_failed_total{job_class="send_mail"}') == 1
        assert endpoint.number('pyworkers_job_duration_seconds_count{job_class="handle"}') == 1
        assert endpoint.number('pyworkers_workers{group="q",state="busy"}') == 1
        assert endpoint.number('pyworkers_workers{group="q",state="idle"}') == 1
        assert endpoint.number('pyworkers_group_concurrency{group="q",mode="process"}') == 2
        assert endpoint.number('pyworkers_group_busy{group="q"}') == 1
        assert endpoint.number('pyworkers_group_busy{group="mail"}') == 0
        assert endpoint.number('pyworkers_queue_paused{queue="q"}') == 1
        assert endpoint.number('pyworkers_queue_paused{queue="mail"}') == 0
        assert endpoint.number('pyworkers_queue_size{queue="q"}') == 1
        assert endpoint.number("pyworkers_retries") == 2
        assert endpoint.number("pyworkers_scheduled") == endpoint.number("pyworkers_dead") == 0
        assert endpoint.number('pyworkers_queue_latency_seconds{queue="mail"}') == 0
        assert endpoint.number('pyworkers_queue_latency_seconds{queue="q"}') == -1
        server.redis.rpush(server.keys.queue("q"), json.dumps({"class": "A", "enqueued_at": before - 100}))
        wait_for(lambda: endpoint.number('pyworkers_queue_latency_seconds{queue="q"}') >= 100)
        assert endpoint.number("pyworkers_ready_fetching") == 1
        assert endpoint.number("pyworkers_resident_memory_bytes") > 10_000_000
        assert "Nobody" not in endpoint.get("/metrics")[1]
        server.signal(signal.SIGTSTP)
        server.wait_for_event("manager.state", queue="q", state="quiet")
        assert endpoint.get("/readyz")[0] == 503 and endpoint.json("/readyz") == ready | {"fetching": False}
        server.signal(signal.SIGTERM)
        server.wait_for_event("server.stopping")
        assert endpoint.get("/livez") == (200, "ok\n")
        server.let_go("finish")
        assert server.wait() == 0
        assert server.events("http.exposed") == []


def test_redis_goes_away_and_comes_back(tmp_path: Path, valkey_binary: str) -> None:
    endpoint = Endpoint()
    port = free_port()
    folder = tmp_path / "app"
    folder.mkdir()
    server = ServerProcess(folder, f"redis://127.0.0.1:{port}/0", "", **endpoint.environment)
    server.write_app(CODE)
    try:
        server.start(ready=False)
        server.wait_for_event("http.listening")
        wait_for(lambda: endpoint.get("/readyz")[0] == 503)
        assert endpoint.get("/livez") == (200, "ok\n")
        assert endpoint.get("/stats")[0] == 503
        assert endpoint.get("/metrics")[0] == 200
        wait_for(lambda: endpoint.number("pyworkers_ready_redis") == 0)
        with running_server(valkey_binary, tmp_path, port):
            server.wait_for_event("server.started")
            wait_for(lambda: endpoint.get("/readyz")[0] == 200)
        wait_for(lambda: endpoint.json("/readyz")["redis"] is False)
        assert endpoint.get("/livez") == (200, "ok\n")
    finally:
        server.kill()


def thrown_out(client: socket.socket) -> None:
    client.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionResetError):
        while client.recv(65536):
            pass


def test_clients_that_hang_slow_no_other(serve: Serve) -> None:
    endpoint = Endpoint()
    host, _, port = endpoint.bind.rpartition(":")
    with serve(CODE, **endpoint.environment) as server:
        server.push("q", {"class": "Any", "args": [], "jid": "a"})
        server.wait_for_notes(1, "start", "a")
        assert endpoint.get("/stats")[0] == 200
        descriptors = Path(f"/proc/{server.pid}/fd")
        before = len(list(descriptors.iterdir()))
        hanging = []
        try:
            for place in range(200):
                hanging.append(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
                hanging[-1].sendall(b"GET /stats HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n" * (place % 2))
            server.push("q", {"class": "Any", "args": [], "jid": "b"})
            server.wait_for_notes(1, "start", "b")
            # Within one turn of its loop, it accepts several and closes as many.
            wait_for(lambda: len(list(descriptors.iterdir())) <= before + 64 + 20, message="64 are kept")
            # Each of them is thrown out in the end, and then there is room again.
            for client in hanging:
                thrown_out(client)
            wait_for(lambda: len(list(descriptors.iterdir())) <= before + 20)
            assert endpoint.get("/livez") == (200, "ok\n")
        finally:
            for client in hanging:
                client.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"], ids=["idle", "half a request"]
)
def test_clients_that_wait_keep_no_other_out(serve: Serve, sent: bytes) -> None:
    endpoint = Endpoint()
    host, _, port = endpoint.bind.rpartition(":")
    with (
        serve(CODE, **endpoint.environment) as server,
        contextlib.ExitStack() as waiting,
    ):
        descriptors = Path(f"/proc/{server.pid}/fd")
        before = len(list(descriptors.iterdir()))

        def crowded() -> bool:
            """Whether all places are taken, so that another one needs an older one to be closed.

            On a slow machine the first ones are closed for their age, before there are this many.
            """
            for place in range(150):
                client = waiting.enter_context(
                    socket.create_connection((host, int(port)), timeout=PATIENCE_S)
                )
                client.sendall(sent)
                if place % 10 == 0:
                    assert endpoint.get("/livez", timeout=5) == (200, "ok\n")
            return len(list(descriptors.iterdir())) >= before + 60

        wait_for(crowded)
        # Sooner than the next of them would be closed for its age, which is 10 s.
        assert endpoint.get("/livez", timeout=5) == (200, "ok\n")
        wait_for(lambda: len(list(descriptors.iterdir())) <= before + 64 + 20, message="64 are kept")


def test_an_address_in_use_is_said_so(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    endpoint = Endpoint()
    host, _, port = endpoint.bind.rpartition(":")
    with socket.create_server((host, int(port))):
        server = ServerProcess(tmp_path, one_redis_url, namespace, **endpoint.environment)
        server.write_app(CODE)
        try:
            assert server.start(ready=False).wait() == 2
            [line] = [line for line in server.log_text().splitlines() if "http.bind" in line]
            assert line.endswith(f"http.bind: cannot listen on {endpoint.bind}: Address already in use")
        finally:
            server.kill()


@pytest.mark.parametrize(("missing", "extra"), [("uvicorn", "http"), ("prometheus_client", "metrics")])
def test_a_missing_extra_is_named(
    tmp_path: Path, one_redis_url: str, namespace: str, missing: str, extra: str
) -> None:
    # Python looks for this module in front of all others at its start.
    hide = f"import sys\nsys.modules[{missing!r}] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    endpoint = Endpoint()
    (tmp_path / "tasks.py").write_text(
        "from pyworkers import Worker\nworker = Worker()\nworker.process('q')(print)\n"
    )
    command = [sys.executable, "-m", "pyworkers", "run", "--app", "tasks:worker", "--url", one_redis_url]
    environment = os.environ | endpoint.environment | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    output = tmp_path / "output"
    with output.open("wb") as log:
        process = subprocess.Popen(
            [*command, "--namespace", namespace], cwd=tmp_path, env=environment, stdout=log, stderr=log
        )
    try:
        if extra == "http":
            assert process.wait(PATIENCE_S) == 2
            assert f"pip install 'pyworkers-server[{extra}]'" in output.read_text()
        else:
            wait_for(
                lambda: "http.listening" in output.read_text() and "server.started" in output.read_text(), 30
            )
            assert endpoint.get("/readyz")[0] == 200
            status, text = endpoint.get("/metrics")
            assert status == 501 and f"pip install 'pyworkers-server[{extra}]'" in text
    finally:
        process.kill()
        process.wait()


def test_it_answers_to_known_hosts_and_hides_what_is_masked(serve: Serve) -> None:
    endpoint = Endpoint()
    settings = {"PYWORKERS_HTTP__HOSTS": "jobs.internal", **endpoint.environment}
    with serve(CODE, **settings) as server:
        about = {"apiKey": "hidden-1", "deep": [{"Card-Number": "hidden-2"}], "shown": 7}
        server.push("q", {"class": "Any", "args": ["wait"], "jid": "a", "about": about})
        server.wait_for_notes(1, "start", "a")
        [job] = endpoint.json("/stats")["jobs"]["q"]
        assert job["message"]["about"] == {
            "apiKey": "(hidden)", "deep": [{"Card-Number": "(hidden)"}], "shown": 7
        }  # fmt: skip
        for host, status in {
            endpoint.bind: 200, "localhost": 200, "jobs.internal:80": 200, "[::1]:7433": 200, "": 200,
            "10.1.2.3": 200, "evil.example": 400, "127.0.0.1.evil.example": 400, "a b": 400,
        }.items():  # fmt: skip
            assert (host, endpoint.get("/livez", Host=host)[0]) == (host, status)
        server.let_go("finish")


def test_without_stats_it_is_no_page(serve: Serve) -> None:
    endpoint = Endpoint()
    settings = {"PYWORKERS_HTTP__STATS": "false", **endpoint.environment}
    with serve(CODE, **settings):
        assert endpoint.get("/stats")[0] == 404
        assert endpoint.get("/livez")[0] == 200


BROKEN = """
@worker.on_startup
def connect():
    if Path(__file__).with_name("broken").exists():
        raise ConnectionError("no database")

@worker.job(queue="q", concurrency=1)
def end():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_that_cannot_start_workers_is_not_ready(
    serve: Serve, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    endpoint = Endpoint()
    with serve(BROKEN, **endpoint.environment) as server:
        wait_for(lambda: endpoint.get("/readyz")[0] == 200)
        server.let_go("broken")
        server.push("q", job("a", "end", retry=False))
        wait_for(lambda: endpoint.get("/readyz")[0] == 503, message="not ready")
        about = endpoint.json("/readyz")
        assert about["fetching"] is False and "workers end at their start" in about["failing"]["q"]
        assert endpoint.number('pyworkers_group_failing{group="q"}') == 1
        processes = ProcessSet(one_redis_url, namespace=namespace)
        [process] = wait_for(lambda: [one for one in processes if one.about.failing])
        stats = Stats.fetch(one_redis_url, namespace=namespace)
        assert process.about.state(stats.now) == "failing"
        assert "workers end at their start" in stats.groups[0].failing
        assert [problem.code for problem in _failing(stats)] == ["failing"]
        (tmp_path / "broken").unlink()
        wait_for(lambda: endpoint.get("/readyz")[0] == 200, message="ready again")
        wait_for(lambda: not any(one.about.failing for one in processes))
