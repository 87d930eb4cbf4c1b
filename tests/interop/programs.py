"""The peers: real Sidekiq and real go-workers, each a small program in ``peers``, alongside a real pyworkers.

Every program dies with the tests. All jobs, in Ruby, Go and Python alike, are named for what happens to them:
``Note`` only notes that it ran, ``Fail`` fails, ``FailOnce`` fails unless it has failed before, and ``Wait``
waits until the file that is its argument exists. In Python, ``Crash`` kills its process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from pyworkers.embedded import spawn_bound
from tests.helpers.replies import as_list, as_scores
from tests.helpers.server_process import ServerProcess, serving
from tests.helpers.support import PATIENCE_S, wait_for, whole_lines

HERE = Path(__file__).resolve().parent
RUBY = HERE / "peers" / "ruby"
GO = HERE / "peers" / "go"

# The queues of every test: "python" has only pyworkers, "ruby" and "go" only the peer, "shared" both.
PYTHON_APP = """
def serve(queue):
    @worker.process(queue, concurrency=2)
    def run(message):
        note(message.jid, message.job_class, message.args, message.attempt, message.enqueued_at, message.data)
        if message.job_class == "Fail" or message.job_class == "FailOnce" and message.attempt == 0:
            raise ValueError("python failed")
        if message.job_class == "Wait":
            while not Path(message.args[0]).exists():
                time.sleep(0.01)
        if message.job_class == "Crash":
            os.kill(os.getpid(), signal.SIGKILL)

serve("python")
serve("shared")

@worker.job(queue="mail", backtrace=True)
def send_mail(to, subject=""):
    raise ConnectionError(f"no route to {to}")
"""


@contextlib.contextmanager
def pyworkers(
    folder: Path, url: str, namespace: str = "", options: Sequence[str] = (), **environment: str
) -> Iterator[ServerProcess]:
    """A real ``pyworkers run`` on the queues "python", "shared" and "mail", or those of ``options``."""
    folder.mkdir(exist_ok=True)
    environment = {"PYWORKERS_SCHEDULER__POLL_INTERVAL": "0.2"} | environment
    with serving(folder, url, namespace, PYTHON_APP, *options, **environment) as server:
        yield server


class Console:
    """A program that answers each line of JSON on its standard input with one on its standard output."""

    def __init__(self, command: Sequence[str | Path], environment: dict[str, str], log: Path) -> None:
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | environment,
                start_new_session=True,
            )
        self._log = log

    def ask(self, request: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline() if ready else b""
        assert line, f"no answer to {request}:\n{self._log.read_text()}"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def close(self) -> None:
        """Its standard input ends, and so does it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


class Ruby(Console):
    """Sidekiq's client and API: ``peers/ruby/console.rb``."""

    def call(self, name: str, *args: Any) -> Any:
        return self.ask({"call": name, "with": args})


class GoProducer(Console):
    """The ``Enqueue`` functions of one Go library; the result is the jid."""

    def call(self, name: str, queue: str, job_class: str, args: Any, **more: Any) -> str:
        jid: str = self.ask({"call": name, "queue": queue, "class": job_class, "args": args} | more)
        return jid


class WorkingPeer:
    """A running worker of Sidekiq or of a Go library, and the payloads of the jobs that it ran."""

    def __init__(self, process: subprocess.Popen[bytes], ledger: Path, log: Path) -> None:
        self.process = process
        self._ledger = ledger
        self._log = log

    def ran(self, count: int = 1, **fields: Any) -> list[dict[str, Any]]:
        """The payloads of the jobs with these fields that it began, at least ``count``."""

        def found() -> list[dict[str, Any]]:
            jobs = [job for job in self.payloads() if fields.items() <= job.items()]
            return jobs if len(jobs) >= count else []

        try:
            return wait_for(found, PATIENCE_S)
        except AssertionError:
            text = f"not {count} with {fields} in {self.payloads()}; its log:\n{self.log_text()}"
            raise AssertionError(text) from None

    def log_text(self) -> str:
        return self._log.read_text()

    def payloads(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in whole_lines(self._ledger)] if self._ledger.exists() else []

    def stop(self) -> None:
        """SIGTERM, and wait until it is gone."""
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def kill(self) -> None:
        """SIGKILL: what it was doing is left undone."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def working(command: Sequence[str | Path], folder: Path, **environment: str) -> Iterator[WorkingPeer]:
    """A peer that works, with its ledger and log in ``folder``; killed after the block."""
    folder.mkdir(exist_ok=True)
    ledger, log = folder / "ledger", folder / "log"
    # spawn_bound hands on the environment of this process.
    settings = [f"{name}={value}" for name, value in (environment | {"PEER_LEDGER": str(ledger)}).items()]
    with (
        log.open("ab") as output,
        spawn_bound(["/usr/bin/env", *settings, *command], output=output) as process,
    ):
        try:
            yield WorkingPeer(process, ledger, log)
        finally:
            process.kill()


def sidekiq(
    folder: Path, url: str, *queues: str, jobs: Path = RUBY
) -> contextlib.AbstractContextManager[WorkingPeer]:
    """A real ``sidekiq`` with two threads."""
    command: list[str | Path] = [
        "/usr/bin/env",
        "sidekiq",
        "-r",
        jobs / "worker.rb",
        "-c",
        "2",
        "-t",
        "5",
        "-e",
        "production",
    ]
    for queue in queues:
        command += ["-q", queue]
    return working(command, folder, REDIS_URL=url)


def go_environment(url: str, process: str, namespace: str = "") -> dict[str, str]:
    """What the Go programs want to know. ``process`` is the library's name for "this instance"."""
    return {"PEER_REDIS": urlsplit(url).netloc, "PEER_PROCESS": process, "PEER_NAMESPACE": namespace}


def hurry(connection: redis.Redis, zset: str) -> None:
    """Let everything in a sorted set be due now, as if its time had passed."""
    for member in as_list(connection.zrange(zset, 0, -1)):
        connection.zadd(zset, {member: time.time() - 1}, xx=True)


def only(connection: redis.Redis, zset: str, **fields: Any) -> dict[str, Any]:
    """The only job of a sorted set, once it has these fields, with its ``score`` alongside the others."""

    def found() -> dict[str, Any] | None:
        pairs = as_scores(connection.zrange(zset, 0, -1, withscores=True))
        jobs = [json.loads(member) | {"score": score} for member, score in pairs]
        return jobs[0] if len(jobs) == 1 and fields.items() <= jobs[0].items() else None

    job = wait_for(found, PATIENCE_S, f"one job with {fields} in {zset}")
    assert job is not None
    return job
