"""The client and the worker for Go with sentinels and with a cluster: a failover under a worker."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from pyworkers import Client
from pyworkers.errors import RedisUnavailableError
from tests.helpers.redises import Cluster, Group
from tests.helpers.support import PATIENCE_S, wait_for

NAMESPACE = "{go}:"


@contextmanager
def worker(program: Path, folder: Path, url: str, namespace: str) -> Iterator[subprocess.Popen[bytes]]:
    """contrib/clients/go/internal/holder, whose jobs end at once: their file is there."""
    (folder / "job").touch()
    about = {"REDIS_URL": url, "PYWORKERS_REDIS__NAMESPACE": namespace, "GRACE": "1s"}
    process = subprocess.Popen([program], env={**os.environ, **about, "LEDGER": str(folder / "ledger")})
    try:
        yield process
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()


def run_one(client: Client) -> None:
    """Enqueue a job for Go as soon as there is a primary, and wait for its result."""

    def enqueued() -> str | None:
        with suppress(RedisUnavailableError):
            return client.enqueue("go", "hold", ["job"], track=60)
        return None

    jid = wait_for(enqueued, message="a primary takes the job")
    wait_for(lambda: client.status(jid).state == "done", message="the worker has run it")


def test_the_worker_for_go_follows_the_primary_of_sentinels(
    go_programs: Path, one_binary: str, tmp_path: Path
) -> None:
    with closing(Group(one_binary, tmp_path / "group")) as group:
        url = group.start().url
        with worker(go_programs / "holder", tmp_path, url, ""), Client(url) as client:
            run_one(client)
            former = group.primary
            former.kill()
            group.promoted(former)
            run_one(client)


def test_the_worker_for_go_follows_the_slot_in_a_cluster(
    go_programs: Path, one_binary: str, tmp_path: Path
) -> None:
    with closing(Cluster(one_binary, tmp_path / "cluster", NAMESPACE)) as cluster:
        url = cluster.start().url
        with (
            worker(go_programs / "holder", tmp_path, url, NAMESPACE),
            Client(url, namespace=NAMESPACE) as client,
        ):
            run_one(client)
            cluster.primary.kill()
            cluster.wait_for_election()
            run_one(client)
