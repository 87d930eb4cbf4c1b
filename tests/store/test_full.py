"""What people can do while the memory of Redis is full: all that may end it, and it is in the audit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from pyworkers.api import AuditLog, CronSet, DeadSet, ProcessSet, Queue, ScheduledSet
from pyworkers.api.alarms import SILENCE
from pyworkers.api.audit import AuditEntry
from pyworkers.api.browse.actions import Action, Order
from pyworkers.api.browse.filter import Filter
from pyworkers.api.browse.places import DEAD
from pyworkers.api.browse.search import Sought
from pyworkers.api.browse.tasks import TaskState, confirm_task, create_task, read_task
from pyworkers.api.browse.work import work_on
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import StoreError
from pyworkers.protocol.keys import Keys
from pyworkers.store.acl import Role
from pyworkers.store.admin import Admin
from tests.helpers.acl import url_of
from tests.helpers.records import raw_job, register
from tests.helpers.replies import as_bytes, as_scores
from tests.helpers.support import free_port, running_server

SOON = time.time() + 86_400.0
KEYS = Keys("shop:")


@pytest.fixture
def server(tmp_path: Path, one_binary: str) -> Iterator[redis.Redis]:
    """A Redis whose memory is full."""
    with running_server(one_binary, tmp_path, free_port()) as url, redis.Redis.from_url(url) as db:
        db.lpush(KEYS.queue("q"), raw_job("waiting"))
        db.zadd(KEYS.schedule, {raw_job("scheduled"): SOON})
        db.zadd(KEYS.dead, {raw_job(f"dead{number}"): time.time() - 60 - number for number in range(3)})
        register(db, KEYS, "host:1:abcdef", {"identity": "host:1:abcdef"}, beat=time.time())
        CronSet(url, namespace="shop:").add("nightly", "0 3 * * *", "Add")
        db.config_set("maxmemory", 1)
        yield db


@pytest.fixture
def admin(server: redis.Redis) -> Admin:
    url = f"redis://127.0.0.1:{server.get_connection_kwargs()['port']}"
    return Admin(RedisConfig(url_of(url, Role.ADMIN, "shop:"), "shop:"))


def test_what_fills_it_can_be_paused(server: redis.Redis, admin: Admin) -> None:
    queue = Queue("q", admin)
    assert queue.pause()
    assert not queue.pause()
    assert CronSet(admin).pause("nightly")
    assert server.exists(KEYS.cron_version)
    SILENCE.perform(admin, {"name": "late"})
    assert 3500 < server.ttl(KEYS.web_muted("alarm:late")) <= 3600
    AuditLog(admin).record(AuditEntry("ann", "", "queue.pause", "q", "done"))
    assert [entry.target for entry in AuditLog(admin).page().actions] == ["q"]
    with pytest.raises(StoreError, match="maxmemory"):
        CronSet(admin).add("other", "0 3 * * *", "Add")
    assert queue.resume()


def test_jobs_are_edited_and_rescheduled(server: redis.Redis, admin: Admin) -> None:
    [waiting], [scheduled] = Queue("q", admin), ScheduledSet(admin)
    assert waiting.edit(args=[2])
    assert b"[2]" in as_bytes(server.lindex(KEYS.queue("q"), 0))
    assert scheduled.reschedule(SOON + 60)
    [(_, score)] = as_scores(server.zrange(KEYS.schedule, 0, -1, withscores=True))
    assert score == SOON + 60
    [dead, *_] = DeadSet(admin)
    assert dead.edit(args=[3], at=SOON)
    assert server.zcard(KEYS.schedule) == 2


def test_all_jobs_that_match_are_deleted(server: redis.Redis, admin: Admin) -> None:
    sought = Sought(DEAD, Filter(job_class="Add"), SOON, ())
    task = create_task(admin, Order(DEAD, Action.DELETE), sought, "ann")
    assert work_on(admin, task) is TaskState.COUNTED
    counted = admin.run(read_task(admin.keys, task.id))
    assert counted is not None
    confirmed = confirm_task(admin, counted)
    assert confirmed is not None
    assert confirm_task(admin, counted) is None
    assert work_on(admin, confirmed) is TaskState.DONE
    assert server.zcard(KEYS.dead) == 0


def test_a_server_is_stopped(server: redis.Redis, admin: Admin) -> None:
    [process] = ProcessSet(admin)
    process.stop()
    assert server.lrange(KEYS.signals("host:1:abcdef"), 0, -1) == [b"TERM"]
    assert server.ttl(KEYS.signals("host:1:abcdef")) > 0
