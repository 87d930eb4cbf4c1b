"""``pyworkers cancel`` of a batch, by tag and by class."""

from __future__ import annotations

import json

from pyworkers import Worker
from pyworkers.api import AuditLog
from pyworkers.config.fields import RedisConfig
from tests.store.conftest import Cli


def test_a_batch_and_jobs_by_tag_and_class_are_cancelled(cli: Cli, redis_url: str, namespace: str) -> None:
    worker = Worker(redis_url, namespace=namespace)

    @worker.job(queue="q")
    def member(number: int) -> None: ...

    with worker.batch() as batch:
        member.enqueue(1)
    member.options(tags=["tenant:7"]).enqueue(2)
    member.enqueue(3)
    cancelled = cli("cancel", "--batch", batch.id, "--tag", "tenant:7")
    assert (cancelled.exit_code, cancelled.stdout.splitlines()) == (
        0,
        [
            f"batch {batch.id}: cancelled: 1 job removed, 0 running are asked to end",
            "tag tenant:7: 1 job removed, 0 running are asked to end",
        ],
    )
    again = cli("cancel", "--batch", "b" * 24, "--class", "member", "--class", "other", "--json")
    assert (again.exit_code, json.loads(again.stdout)) == (
        1,
        {
            "action": "cancel",
            "done": 1,
            "results": {},
            "batches": {"b" * 24: {"state": "unknown"}},
            "classes": {"member": {"removed": 1, "running": 0}, "other": {"removed": 0, "running": 0}},
        },
    )
    audit = AuditLog(RedisConfig(redis_url, namespace)).page().actions
    found = {(entry.action, entry.target) for entry in audit}
    assert {("batch.cancel", batch.id), ("jobs.cancel", "tag tenant:7")} <= found
    assert cli("cancel").exit_code == 2
    worker.client.close()
