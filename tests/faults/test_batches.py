"""Faults around batches: each callback runs once, also if processes die while the members run."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pyworkers import Worker
from pyworkers.config.fields import RedisConfig
from pyworkers.plugins.batches import Batch
from pyworkers.store.admin import Admin
from pyworkers.store.flow.cancelling import cancel_batch
from tests.helpers.server_process import ServerProcess, serving
from tests.helpers.support import wait_for

CODE = """
@worker.job(queue="q", concurrency=4, retry=3, retry_in=lambda count, error, message: 0.2)
def member(number):
    note("member", number)
    time.sleep(0.005)
    if number % 3 == 0 and current_message().attempt == 0:
        raise ValueError("once")

@worker.job(queue="q")
def after(what, batch_id):
    note(what, batch_id)
"""
MEMBERS = 300
LEASE = "[server]\nlease = 2\n"


def enlist(url: str, namespace: str) -> Batch:
    worker = Worker(url, namespace=namespace)

    @worker.job(queue="q", retry=3)
    def member(number: int) -> None: ...

    @worker.job(queue="q")
    def after(what: str, batch_id: str = "") -> None: ...

    with worker.batch(
        "300",
        on_success=after.call("success"),
        on_complete=after.call("complete"),
        on_death=after.call("death"),
    ) as batch:
        member.enqueue_bulk([(number,) for number in range(MEMBERS)])
    return batch


def runs(server: ServerProcess) -> Counter[str]:
    return Counter(note[1] for note in server.ledger())


@pytest.mark.fault("B1")
def test_b1_the_callbacks_of_a_batch_run_once_though_worker_and_server_are_killed(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    (tmp_path / "workers.toml").write_text(LEASE)
    config = ("--config", str(tmp_path / "workers.toml"))
    with serving(tmp_path, one_redis_url, namespace, CODE, *config) as server:
        batch = enlist(one_redis_url, namespace)
        wait_for(lambda: runs(server)["member"] >= 30, message="some members run")
        os.kill(server.ledger()[-1][0], signal.SIGKILL)
        wait_for(lambda: runs(server)["member"] >= 100, message="more members run")
        server.kill()
        server.start()
        wait_for(lambda: batch.status().success_at is not None, message="all are done")
        server.wait_for_notes(1, "success", batch.id)
        server.wait_for_notes(1, "complete", batch.id)
        wait_for(lambda: server.settled("q"), message="nothing is left")
        server.stop()
        found = runs(server)
        assert (found["success"], found["complete"], found["death"]) == (1, 1, 0)
        status = batch.status()
        assert (status.total, status.done, status.pending, status.lost) == (MEMBERS, MEMBERS, 0, 0)
        members = {note[2] for note in server.ledger() if note[1] == "member"}
        assert members == set(range(MEMBERS))


LONG = """
@worker.job(queue="q", concurrency=2, retry=3, retry_in=lambda count, error, message: 0.2)
def member(number):
    note("member", number)
    if number == 0:
        raise ValueError("once")
    time.sleep(60)

@worker.job(queue="q")
def after(what, batch_id):
    note(what, batch_id)
"""


@pytest.mark.fault("B2")
def test_b2_no_member_starts_though_the_program_that_cancels_is_killed(
    tmp_path: Path, one_redis_url: str, namespace: str
) -> None:
    worker = Worker(one_redis_url, namespace=namespace)

    @worker.job(queue="q")
    def member(number: int) -> None: ...

    @worker.job(queue="q")
    def after(what: str, batch_id: str = "") -> None: ...

    calls: Any = {f"on_{event}": after.call(event) for event in ("success", "complete", "death", "cancel")}
    with worker.batch("all", **calls) as batch:
        member.enqueue_bulk([(number,) for number in range(20)])
    admin = Admin(RedisConfig(one_redis_url, namespace))
    with serving(tmp_path, one_redis_url, namespace, LONG) as server:
        server.wait_for_notes(3, "member")
        steps = iter(cancel_batch(admin.keys, batch.id))
        admin.run(next(steps))
        steps.close()
        server.wait_for_notes(1, "complete", batch.id)
        status = batch.status()
        assert (status.cancelled, status.pending, status.done) == (20, 0, 0)
        found = runs(server)
        assert (found["cancel"], found["complete"], found["success"], found["death"]) == (1, 1, 0, 0)
        assert found["member"] <= 4, "those that ran, and the one that failed"
        assert not admin.redis.exists(admin.keys.cancelled)
        admin.redis.close()
        worker.client.close()
        server.stop()
