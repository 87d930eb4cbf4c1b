"""After ``server.started``, the master and the workers read nothing of the package any more."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.records import job
from tests.helpers.replies import as_list
from tests.helpers.sites import Server, running, wheel
from tests.helpers.support import free_port, wait_for

APP = """
import os, signal, time
from pathlib import Path
from pyworkers import Worker

worker = Worker()

@worker.job(queue="q", concurrency=2)
def look(what):
    if what == "fail":
        raise ValueError("a failure")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "enqueue":
        from pyworkers import chain
        look.enqueue("wait")
    if what == "wait":
        Path(os.environ["LEDGER"]).touch()
        time.sleep(600)
"""


def push(server: Server, *whats: str) -> None:
    for what in whats:
        server.count += 1
        server.redis.lpush(server.keys.queue("q"), json.dumps(job(f"{server.count:024}", "look", what)))


def test_the_package_is_moved_away_and_replaced(tmp_path: Path, one_redis_url: str, namespace: str) -> None:
    for extra in ("uvicorn", "starlette", "prometheus_client"):
        pytest.importorskip(extra)
    bind = f"127.0.0.1:{free_port()}"
    site = wheel(tmp_path)
    (site.folder / "tasks.py").write_text(APP)
    site = replace(site, environment={"PYWORKERS_HTTP__BIND": bind})
    with running(site, tmp_path, one_redis_url, namespace) as server:
        [package] = tmp_path.glob("env/lib/*/site-packages/pyworkers")
        away = package.rename(tmp_path / "away")

        push(server, "fail", "die", "right")
        wait_for(lambda: server.redis.zcard(server.keys.retry) == 2, message="both are retried")
        for raw in as_list(server.redis.zrange(server.keys.retry, 0, -1)):
            server.redis.zadd(server.keys.retry, {raw: time.time()})
        # Both again. The one that has died is in the set for two seconds only.
        server.event("job.failed", attempt=1)
        server.event("job.failed", crash_count=2)
        with urllib.request.urlopen(f"http://{bind}/metrics") as reply:
            assert b"pyworkers_" in reply.read()
        with urllib.request.urlopen(f"http://{bind}/stats") as reply:
            assert b"processed" in reply.read()

        os.kill(server.pid, signal.SIGHUP)
        assert "No module named 'pyworkers'" in server.event("reload.failed")["error"]
        away.rename(package)
        version = package / "version.py"
        version.write_text(version.read_text().replace('__version__ = "', '__version__ = "9.'))
        (package / "worker/forkserver.py").write_text("raise AssertionError('of another version')")
        (package / "store/scripts/give_back.lua").write_text("error('of another version')")
        os.kill(server.pid, signal.SIGHUP)
        wait_for(lambda: "send it USR2" in server.event("reload.failed")["error"])

        push(server, "enqueue")
        wait_for(server.ledger.exists, message="a job runs")
        for _ in range(2):
            os.kill(server.pid, signal.SIGINT)
            server.event("server.stopping")
        assert server.process.wait(30) == 0
        assert server.redis.llen(server.keys.queue("q")) == 1
        assert server.redis.hlen(server.keys.owners) == 0
