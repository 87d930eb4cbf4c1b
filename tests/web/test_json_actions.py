"""Actions by JSON: what they change, what they answer when it has gone, and who may do them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import redis

from pyworkers import Client
from pyworkers.api import AuditLog
from pyworkers.protocol.keys import Keys
from pyworkers.web import app
from pyworkers.web.security.passwords import PasswordHash
from tests.helpers.records import raw_job, register
from tests.helpers.support import wait_for
from tests.integrations.web import served
from tests.web.programs import Program, Reply
from tests.web.visitor import Visitor


@pytest.fixture
def program(dashboard: Visitor) -> Program:
    """A program on the dashboard of this test, which may operate."""
    return Program.with_token(dashboard.root)


def test_a_queue_is_paused_resumed_and_cleared(program: Program, client: Client) -> None:
    client.enqueue("mail", "Send", [1])
    assert program.done("/queues/mail", "pause") == 1
    assert program.get("/queues/mail")["paused"]
    assert program.done("/queues/mail", "pause") == 0
    assert program.done("/queues/mail", "resume") == 1
    assert not program.get("/queues/mail")["paused"]
    assert program.done("/queues/mail", "clear") == 1


def test_a_long_queue_is_cleared_and_put_back_by_tasks(program: Program, db: redis.Redis, keys: Keys) -> None:
    db.sadd(keys.queues, "mail")
    db.lpush(keys.queue("mail"), *(raw_job(str(number)) for number in range(10_001)))

    def done(begun: Reply) -> dict[str, Any]:
        assert begun.value["done"] == 0
        task: str = begun.value["task"]
        wait_for(lambda: program.get(f"/tasks/{task}")["state"] == "done")
        about: dict[str, Any] = program.get(f"/tasks/{task}")
        return about

    cleared = done(program.act("/queues/mail", "clear"))
    assert (cleared["place"], cleared["action"], cleared["done"]) == ("queue:mail", "delete", 10_001)
    assert not db.exists(keys.queue("mail"))
    back = done(program.act(f"/undo/{cleared['id']}", "undo"))
    assert (back["place"], back["action"], back["done"]) == (f"deletion:{cleared['id']}", "undo", 10_001)
    assert db.llen(keys.queue("mail")) == 10_001
    lines = [(line["action"], line["target"]) for line in program.get("/audit")["actions"]]
    assert lines == [("jobs.undo", cleared["id"]), ("jobs.clear", "queue:mail: all jobs")]


def test_waiting_jobs_are_moved_and_deleted(program: Program, client: Client) -> None:
    jids = [client.enqueue("mail", "Send", [number]) for number in range(3)]
    first, second, third = (job["at"] for job in program.get("/queues/mail/jobs")["jobs"])
    assert program.done("/queues/mail/jobs", "first", jobs=[third]) == 1
    assert program.get("/queues/mail/jobs")["jobs"][0]["jid"] == jids[2]
    assert program.done("/queues/mail/jobs", "delete", jobs=[first, third]) == 2
    assert program.done("/queues/mail/jobs", "kill", jobs=[second]) == 1
    assert program.get("/dead")["jobs"][0]["jid"] == jids[1]


def test_a_job_that_has_just_gone(program: Program, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.retry, {raw_job("1"): 5.0})
    [job] = program.get("/retries")["jobs"]
    assert program.done("/retries", "run", jobs=[job["at"]]) == 1
    reply = program.act("/retries", "run", jobs=[job["at"]])
    assert (reply.status, reply.error) == (409, "The job has just gone: nothing was changed.")


def test_all_jobs_that_conditions_select(program: Program, db: redis.Redis, keys: Keys) -> None:
    for number in range(5):
        error = "TimeoutError" if number % 2 else "KeyError"
        db.zadd(keys.retry, {raw_job(str(number), error_class=error): number})
    ordered = program.act("/retries", "delete", error="timeout").value
    assert (ordered["action"], ordered["done"]) == ("delete", 0)
    task = f"/tasks/{ordered['task']}"
    wait_for(lambda: program.get(task)["state"] == "counted")
    assert program.get(task)["selected"] == 2
    assert program.done(task, "confirm") == 1
    wait_for(lambda: program.get(task)["state"] == "done")
    assert program.get(task)["done"] == 2
    assert program.act(task, "confirm").status == 409
    assert [job["jid"] for job in program.get("/retries")["jobs"]] == ["0", "2", "4"]


def test_one_job(program: Program, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.retry, {raw_job("1"): 5.0})

    seen = program.look_up("/jobs/1").value
    assert (seen["state"], seen["place"]) == ("retrying", "retries")
    where = {"place": seen["place"], "at": seen["job"]["at"]}
    assert program.act("/jobs/1", "first", **where).status == 400
    assert program.act("/jobs/1", "cancel").status == 409
    assert program.done("/jobs/1", "kill", **where) == 1
    assert program.look_up("/jobs/1").value["state"] == "dead"
    assert program.act("/jobs/1", "kill", **where).status == 409
    assert program.look_up("/jobs/2").status == 404


def test_a_lock_is_released(program: Program, client: Client) -> None:
    client.enqueue("mail", "Send", [1], unique_for=60)
    [lock] = program.get("/locks")["locks"]
    assert program.done("/locks", "release", key=lock["key"]) == 1
    assert program.act("/locks", "release", key=lock["key"]).status == 409


def test_a_scheduled_job_gets_another_time(program: Program, db: redis.Redis, keys: Keys) -> None:
    db.zadd(keys.schedule, {raw_job("1"): 5.0})
    [job] = program.get("/scheduled")["jobs"]
    assert program.done("/scheduled", "reschedule", jobs=[job["at"]], time=4e9) == 1
    assert program.get("/scheduled")["jobs"][0]["score"] == 4e9
    assert program.act("/scheduled", "reschedule", jobs=[job["at"]]).error == "time is missing."


def test_a_cron_entry_is_added_and_changed(program: Program) -> None:
    new = {"name": "nightly/1", "schedule": "0 3 * * *", "job_class": "Sweep"}
    assert program.done("/cron", "add", **new) == 1
    assert program.act("/cron", "add", **new).status == 400
    address = "/cron/nightly~2F1"
    assert program.done(address, "pause") == 1
    assert program.get(address)["state"] == "paused"
    assert program.done(address, "resume") == 1
    assert program.done(address, "trigger") == 1
    assert program.get("/queues/default")["size"] == 1
    assert program.done(address, "change", schedule="0 4 * * *") == 1
    reply = program.act(address, "change", schedule="never")
    assert reply.status == 400
    assert "schedule" in reply.error
    assert program.done(address, "remove") == 1
    assert program.ask("GET", address).status == 404


def test_a_server_is_signalled(program: Program, db: redis.Redis, keys: Keys) -> None:
    register(db, keys, "web:1:a", {"hostname": "web", "pid": 1})
    assert program.done("/servers/web~3A1~3Aa", "quiet") == 1
    assert db.lrange(keys.signals("web:1:a"), 0, -1) == [b"TSTP"]
    assert program.done("/servers", "stop") == 1
    assert db.lrange(keys.signals("web:1:a"), 0, -1) == [b"TERM", b"TSTP"]
    assert program.done("/servers", "reload") == 0
    assert program.act("/servers/web:1:a", "reload").status == 409
    assert program.act("/servers/none", "stop").status == 404


def test_roles_and_tokens(one_redis_url: str, namespace: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    # A second of hashing would prove nothing.
    hashed = PasswordHash.of("secret", n=2, r=1, p=1)
    users.write_text(f"ann:read:{hashed}\nbob:operate:{hashed}\n")
    with served(app(one_redis_url, namespace=namespace, auth=users)) as root:
        statuses = {
            name: Program(root, Authorization=f"Bearer {name}:secret").act("/queues/mail", "pause").status
            for name in ("ann", "bob", "eve")
        }
        assert statuses == {"ann": 403, "bob": 200, "eve": 401}
        assert Program(root).ask("GET", "/queues").status == 401


def test_a_slot_of_a_limit_is_freed(program: Program, db: redis.Redis, keys: Keys) -> None:
    db.hset(keys.limits, "stripe", "2 0")
    db.zadd(keys.limit("stripe"), {"web:1:a|1 jid": 5.0})
    limit = program.get("/limits/stripe")
    assert (limit["used"], [holder["jid"] for holder in limit["holders"]]) == (1, ["jid"])
    member = limit["holders"][0]["member"]
    assert program.done("/limits/stripe", "release", member=member) == 1
    assert program.act("/limits/stripe", "release", member=member).status == 409
    assert program.get("/limits")["limits"][0]["used"] == 0


def test_an_order_keeps_its_ages_and_the_audit_names_them(
    program: Program, db: redis.Redis, keys: Keys, one_redis_url: str
) -> None:
    db.zadd(keys.dead, {raw_job("old"): time.time() - 7200, raw_job("new"): time.time()})
    task = program.act("/dead", "delete", older=3600, younger=90_000.5).value["task"]
    wait_for(lambda: program.get(f"/tasks/{task}")["state"] == "counted")
    assert program.get(f"/tasks/{task}")["filter"] == {"older_s": 3600.0, "younger_s": 90_000.5}
    assert program.get(f"/tasks/{task}")["selected"] == 1
    program.done(f"/tasks/{task}", "confirm")
    wait_for(lambda: program.get(f"/tasks/{task}")["state"] == "done")
    assert [job["jid"] for job in program.get("/dead")["jobs"]] == ["new"]
    [action] = AuditLog(one_redis_url, namespace=keys.namespace).page().actions
    assert action.action == "jobs.delete"
    assert action.target == "dead: died within the last 25 h 0.5 s, died more than 1 hour ago"


def test_a_change_without_a_token_says_what_is_missing(dashboard: Visitor) -> None:
    answer = dashboard.ask("api/queues/mail", {"action": "pause"})
    assert answer.status == 403
    assert "X-CSRF-Token" in answer.text and "Authorization: Bearer" in answer.text
