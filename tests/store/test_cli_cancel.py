"""``pyworkers cancel`` of a batch, by tag and by class; a retry of the dead members of a batch."""

from __future__ import annotations

import json

import redis

from pyworkers import Worker
from pyworkers.api import AuditLog
from pyworkers.config.fields import RedisConfig
from pyworkers.protocol.keys import Keys
from tests.helpers.replies import as_list
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
    found = {(entry.action, entry.target, entry.result) for entry in audit}
    assert {
        ("batch.cancel", batch.id, "1 job removed, 0 left"),
        ("jobs.cancel", "tag tenant:7", "1 removed, 0 running"),
    } <= found
    assert cli("cancel").exit_code == 2
    worker.client.close()


def test_all_dead_members_of_a_batch_are_retried_by_one_command(
    cli: Cli, redis_url: str, namespace: str, keys: Keys, db: redis.Redis
) -> None:
    for number, batch in enumerate(("b1", "b1", "b2", "")):
        job = {
            "jid": f"j{number}",
            "queue": "q",
            "class": "A",
            "args": [batch],
            "failed_at": 1.5,
            "retry_count": 0,
        }
        db.zadd(keys.dead, {json.dumps(job | ({"batch": batch} if batch else {})): number})
    assert cli("dead", "retry", "--batch", "b1", "--yes").exit_code == 0
    assert sorted(json.loads(raw)["jid"] for raw in as_list(db.lrange(keys.queue("q"), 0, -1))) == [
        "j0",
        "j1",
    ]
    assert db.zcard(keys.dead) == 2
