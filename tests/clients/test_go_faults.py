"""Faults of the worker for Go: Redis restarted under it, stopped with jobs past the grace, frozen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pyworkers import Client
from tests.helpers.redises import OwnRedis
from tests.helpers.server_process import serving
from tests.helpers.support import PATIENCE_S, wait_for, whole_lines

Start = Callable[..., subprocess.Popen[bytes]]
Notes = Callable[..., list[list[Any]]]
# A server in Python, which recovers the jobs of dead workers.
CODE = """
@worker.job
def other(): ...
"""
LEASE = "[server]\nlease = 2\n"


@pytest.fixture
def start(go_programs: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a worker at a Redis; what is left of it is killed after the test."""
    with ExitStack() as started:

        def start_one(url: str, namespace: str = "", grace: str = "20s") -> subprocess.Popen[bytes]:
            about = {"REDIS_URL": url, "PYWORKERS_REDIS__NAMESPACE": namespace, "GRACE": grace}
            log = started.enter_context((tmp_path / "go-log").open("ab"))
            worker = subprocess.Popen(
                [go_programs / "holder"],
                env={**os.environ, **about, "LEDGER": str(tmp_path / "ledger")},
                stderr=log,
            )
            started.callback(worker.wait)
            started.callback(worker.kill)
            return worker

        yield start_one


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """The lines of the ledger that begin with these words, each with the pid in front."""
    (tmp_path / "ledger").touch()

    def found(*words: Any) -> list[list[Any]]:
        lines = map(json.loads, whole_lines(tmp_path / "ledger"))
        return [line for line in lines if line[1 : 1 + len(words)] == list(words)]

    return found


@pytest.mark.fault("K2")
def test_k2_the_worker_for_go_settles_after_a_restart_of_redis(
    start: Start, notes: Notes, tmp_path: Path, one_binary: str
) -> None:
    with OwnRedis(one_binary, tmp_path / "redis") as own, Client(own.start().url) as client:
        worker = start(own.url)
        jid = client.enqueue("go", "hold", ["first"], track=60)
        wait_for(lambda: notes("start", "first"), message="the job runs")
        own.kill()
        (tmp_path / "first").touch()
        wait_for(lambda: notes("end", "first"), message="the job ends without Redis")
        own.start()
        wait_for(lambda: client.status(jid).state == "done", message="its outcome is settled")
        (tmp_path / "second").touch()
        assert client.result(client.enqueue("go", "hold", ["second"], track=60)) == "second"
        assert [len(notes("start", name)) for name in ("first", "second")] == [1, 1]
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0


@pytest.mark.fault("K3")
def test_k3_a_stop_of_the_worker_for_go_gives_its_jobs_back(
    start: Start, notes: Notes, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    with Client(one_redis_url, namespace=namespace) as client:
        worker = start(one_redis_url, namespace, "100ms")
        jids = [client.enqueue("go", "hold", [name], track=60) for name in ("polite", "stuck")]
        wait_for(lambda: len(notes("start")) == 2, message="both jobs run")
        worker.terminate()
        assert worker.wait(PATIENCE_S) == 0
        [asked] = notes("asked")
        assert asked[2:] == ["polite", "pyworkers: the worker is stopping"]
        for name in ("polite", "stuck"):
            (tmp_path / name).touch()
        start(one_redis_url, namespace)
        assert sorted(client.result(jid) for jid in jids) == ["polite", "stuck"]
        # No attempt is counted.
        assert [note[3] for note in notes("start")] == [0] * 4


@pytest.mark.fault("K4")
def test_k4_a_worker_for_go_that_was_frozen_takes_another_identity(
    start: Start, notes: Notes, tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    (tmp_path / "workers.toml").write_text(LEASE)
    config = ("--config", str(tmp_path / "workers.toml"))
    with (
        serving(tmp_path, one_redis_url, namespace, CODE, *config),
        Client(one_redis_url, namespace=namespace) as client,
    ):
        frozen = start(one_redis_url, namespace)
        jid = client.enqueue("go", "hold", ["job"], track=60)
        wait_for(lambda: notes("start", "job"), message="the job runs")
        frozen.send_signal(signal.SIGSTOP)
        other = start(one_redis_url, namespace)
        wait_for(lambda: len(notes("start", "job")) == 2, message="a peer runs the job again")
        frozen.send_signal(signal.SIGCONT)
        wait_for(lambda: notes("asked", "job"), message="the first run is asked to end")
        [asked] = notes("asked")
        assert (asked[0], "the lease was lost" in asked[3]) == (frozen.pid, True)
        (tmp_path / "job").touch()
        assert client.result(jid) == "job"
        other.terminate()
        assert other.wait(PATIENCE_S) == 0
        # The one that was frozen goes on.
        (tmp_path / "next").touch()
        assert client.result(client.enqueue("go", "hold", ["next"], track=60)) == "next"
        assert [note[0] for note in notes("start", "next")] == [frozen.pid]
        assert [note[0] for note in notes("end", "job")] == [other.pid]
