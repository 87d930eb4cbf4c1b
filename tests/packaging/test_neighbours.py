"""Servers and producers of the last release and of today share one Redis."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pyworkers import Client
from tests.conftest import missing
from tests.helpers.server_process import ServerProcess
from tests.helpers.support import ROOT, wait_for

pytestmark = [pytest.mark.package, pytest.mark.timeout(600)]

# The last commit of 0.2.0. A release changes this line to its own tag.
LAST_RELEASE = "e03ae372f0d22bda87bd13979b16b1e5ed3db22e"
LAST_VERSION = "0.2.0.dev0"
APP = """
@worker.job(queue="q", concurrency=2, retry_in=lambda *_: 0.1)
def work(name, fails=0):
    message = current_message()
    if message.attempt < fails:
        raise LookupError(name)
    if name == "meet":
        meet("go", message.jid)
    note("done", message.jid)
"""


@pytest.fixture(scope="module")
def last_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the last release; a shallow clone fetches its commit."""

    def git(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)

    if git("cat-file", "-e", LAST_RELEASE).returncode:
        git("fetch", "--quiet", "--depth=1", "origin", LAST_RELEASE)
    archive = git("archive", LAST_RELEASE, "pyworkers")
    if archive.returncode:
        missing(f"the commit of {LAST_VERSION} is not here, git fetch --unshallow: {archive.stderr.decode()}")
    folder = tmp_path_factory.mktemp("release")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


class Neighbours:
    """A server of the last release and one of today."""

    def __init__(self, old: ServerProcess, new: ServerProcess, old_code: Path, namespace: str) -> None:
        self.old, self.new = old, new
        self._old_code = old_code
        self._namespace = namespace

    def enqueue(self, count: int, *args: object, **options: object) -> set[str]:
        """Enqueue this many jobs by each version; returns their ids."""
        client = Client(self.new.url, namespace=self._namespace)
        options = {"retry": 3, **options}
        jids = {client.enqueue("q", "work", args, **options) for _ in range(count)}  # type: ignore[arg-type]
        client.close()
        code = f"""
import pyworkers
assert pyworkers.__version__ == {LAST_VERSION!r}, pyworkers.__file__
client = pyworkers.Client({self.new.url!r}, namespace={self._namespace!r})
for _ in range({count}):
    print(client.enqueue("q", "work", {list(args)!r}, **{options!r}))
"""
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self._old_code,
            env=os.environ | {"PYTHONPATH": str(self._old_code)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return jids | set(done.stdout.split())

    def done(self) -> Counter[str]:
        """How often each job ended, on either server."""
        return Counter(
            jid for server in (self.old, self.new) for _, word, jid in server.ledger() if word == "done"
        )

    def wait_until_done(self, jids: set[str]) -> None:
        wait_for(lambda: self.done().keys() >= jids)
        wait_for(lambda: self.new.settled("q"))
        assert self.done() == Counter(jids)


@pytest.fixture
def neighbours(
    tmp_path: Path, one_redis_url: str, namespace: str, last_release: Path
) -> Iterator[Neighbours]:
    with ExitStack() as stack:

        def server(name: str, **environment: str) -> ServerProcess:
            folder = tmp_path / name
            folder.mkdir()
            made = ServerProcess(folder, one_redis_url, namespace, PYWORKERS_SERVER__LEASE="3", **environment)
            made.write_app(APP)
            stack.callback(made.kill)
            return made.start()

        old = server("old", PYTHONPATH=str(last_release))
        yield Neighbours(old, server("new"), last_release, namespace)


def test_they_share_the_jobs_of_both(neighbours: Neighbours) -> None:
    held = neighbours.enqueue(2, "meet")
    for server in (neighbours.old, neighbours.new):
        server.wait_for_notes(2, "go")
    others = neighbours.enqueue(10, "plain")
    others |= neighbours.enqueue(3, "fails", 2)
    others |= neighbours.enqueue(3, "later", delay=0.5)
    for server in (neighbours.old, neighbours.new):
        server.let_go("go")
    neighbours.wait_until_done(held | others)
    assert neighbours.old.stop() == 0
    assert neighbours.new.stop() == 0


@pytest.mark.parametrize("killed", ["old", "new"])
def test_one_recovers_the_jobs_of_the_other(neighbours: Neighbours, killed: str) -> None:
    lost: ServerProcess = getattr(neighbours, killed)
    other = neighbours.new if killed == "old" else neighbours.old
    held = neighbours.enqueue(2, "meet")
    for server in (neighbours.old, neighbours.new):
        server.wait_for_notes(2, "go")
    os.killpg(lost.pid, signal.SIGKILL)
    other.let_go("go")
    neighbours.wait_until_done(held)
    assert other.stop() == 0
