"""What people look at: servers with their workers and leases, a page of running jobs, the audit."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import pytest
import redis

from pyworkers.api import (
    AuditLog,
    Cancelled,
    JobSet,
    ProcessSet,
    Queue,
    WorkSet,
    read_process,
    read_processes,
    read_works,
)
from pyworkers.api.audit import AuditEntry
from pyworkers.api.processes import state_of
from pyworkers.config.fields import RedisConfig
from pyworkers.errors import BadArgumentError, RedisUnavailableError
from pyworkers.protocol.keys import Keys
from tests.helpers.records import hold_order, raw_job, register
from tests.store.conftest import Cli, Run

GROUPS = {
    "ledger": {
        "queues": {"ledger": 1}, "strict": True, "mode": "process", "processes": 2, "concurrency": 2,
        "busy": 0, "ordered": True, "restarts": 3,
        "workers": {"idle": 1, "busy": 1, "\ud800": 5, "gone": "x"},
    }
}  # fmt: skip


def beat(db: redis.Redis, keys: Keys, identity: str, **fields: Any) -> None:
    info = {"hostname": "web", "pid": 1, "queues": ["ledger"]}
    register(db, keys, identity, info, **{"beat": time.time(), **fields})


def run_job(
    db: redis.Redis, keys: Keys, identity: str, thread: str, jid: str, run_at: float, **more: Any
) -> None:
    about = {"queue": "q", "payload": raw_job(jid).decode(), "run_at": run_at, **more}
    db.hset(keys.work(identity), thread, json.dumps(about))


def test_a_server_is_shown_with_lease_workers_and_the_ordered_queue_that_it_runs(
    run_work: Run, keys: Keys, db: redis.Redis
) -> None:
    workers = [["ledger", 7, "idle", 4096, 3, 1795225197], ["ledger", 8], "x", ["\ud800", 9, "idle", 0, 0, 0]]
    beat(db, keys, "a:1:x", look=0, groups=json.dumps(GROUPS), workers=json.dumps(workers))
    beat(db, keys, "b:1:x", look=0, groups=json.dumps(GROUPS), workers=b"\xff")
    beat(db, keys, "ruby:1:x")
    hold_order(db, keys, "ledger", "a:1:x")
    page = run_work(read_processes(keys))
    assert [(view.about.identity, view.leased, view.active) for view in page.servers] == [
        ("a:1:x", True, ("ledger",)),
        ("b:1:x", False, ()),
        ("ruby:1:x", None, ()),
    ]
    assert (page.total, page.first) == (3, 0) and abs(page.at - time.time()) < 5
    assert [state_of(view, page.at) for view in page.servers] == ["older", "lost", "running"]
    [first, *_] = page.as_dict()["servers"]
    assert first["workers"] == [
        {
            "group": "ledger",
            "pid": 7,
            "state": "idle",
            "rss_kb": 4096,
            "jobs_done": 3,
            "started_at": 1795225197.0,
        }
    ]
    assert (first["restarts"], first["active"], first["leased"]) == (3, ["ledger"], True)
    assert first["groups"][0]["workers"] == {"idle": 1, "busy": 1}
    assert json.loads(json.dumps(page.as_dict())) == page.as_dict()


def test_servers_come_in_pages_and_one_that_has_gone_is_known_for_a_while(
    run_work: Run, keys: Keys, db: redis.Redis, where: RedisConfig
) -> None:
    names = [f"web:{number:04}:x" for number in range(250)]
    for name in names:
        beat(db, keys, name)
    assert [view.about.identity for view in run_work(read_processes(keys, 100, 50)).servers] == names[100:150]
    assert [process.identity for process in ProcessSet(where)] == names
    db.srem(keys.processes, names[0])
    view = run_work(read_process(keys, names[0]))
    assert state_of(view, time.time()) == "gone" and view.about.beat > 0
    assert ProcessSet(where).find(names[0]) is None
    db.delete(keys.process(names[0]))
    assert run_work(read_process(keys, names[0])) is None


def test_running_jobs_come_in_pages_the_longest_first(run_work: Run, keys: Keys, db: redis.Redis) -> None:
    now = time.time()
    for server in range(4):
        beat(db, keys, f"web:{server}:x", busy=250)
        for number in range(250):
            run_job(
                db, keys, f"web:{server}:x", f"{number}.1", f"j{server}-{number}", now - number - server / 10
            )
    page = run_work(read_works(keys))
    assert (page.total, page.complete, len(page.works)) == (1000, True, 50)
    assert [work.jid for work in page.works[:5]] == ["j3-249", "j2-249", "j1-249", "j0-249", "j3-248"]
    assert [work.jid for work in run_work(read_works(keys, 998)).works] == ["j1-0", "j0-0"]
    assert run_work(read_works(keys, 0, 10, "web:2:x")).total == 250
    for number in range(60):
        beat(db, keys, f"zero:{number}:x")
    short = run_work(read_works(keys, most=300))
    assert (short.total, short.complete) == (1000, False)


def test_a_running_job_has_progress_memory_and_limit(
    run_work: Run, keys: Keys, db: redis.Redis, cli: Cli
) -> None:
    workers = [["q", 7, "busy", 4096, 3, 5]]
    beat(db, keys, "a:1:x", busy=1, look=0, workers=json.dumps(workers))
    beat(db, keys, "ruby:1:x", busy=2)
    run_job(db, keys, "a:1:x", "7.1", "j1", 1795225197, limit_at=1795225797)
    run_job(db, keys, "ruby:1:x", "tid1", "j2", 1795225198)
    # An id that no key can have, and bytes that are no job.
    run_job(db, keys, "ruby:1:x", "tid2", "\ud800", 1795225199)
    db.hset(keys.work("ruby:1:x"), "tid3", b"\xff")
    db.hset(keys.job("j1"), mapping={"state": "running", "progress": '[30,200,"half"]'})
    db.set(keys.job("j2"), "of another type")
    works = run_work(read_works(keys)).works
    assert [
        (work.run_at, work.limit_at, work.rss_kb, work.progress and work.progress.done) for work in works
    ] == [
        (1795225197, 1795225797, 4096, 30),
        (1795225198, None, 0, None),
        (1795225199, None, 0, None),
    ]
    [line, *_] = cli("workers").stdout.splitlines()[1:]
    assert line.split()[-5:] == ["7.1", "a:1:x", "30/200", "4", "MB"]
    shown = json.loads(cli("workers", "--json").stdout)[0]
    assert shown["progress"] == {"done": 30, "total": 200, "text": "half"} and shown["rss_kb"] == 4096


def test_a_running_job_is_cancelled_without_a_search(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    db.hset(keys.owners, "a:1:x", '["q"]')
    db.lpush(keys.inprogress("q", "a:1:x"), raw_job("j1"))
    db.lpush(keys.queue("q"), raw_job("waits"))
    works = WorkSet(where)
    assert works.cancel("j1", "a:1:x", "q") is Cancelled.RUNNING
    assert db.zrange(keys.cancelled, 0, -1) == [b"j1"]
    assert works.cancel("waits", "a:1:x", "q") is Cancelled.UNKNOWN
    assert works.cancel("j1", "gone:1:x", "q") is Cancelled.UNKNOWN
    assert db.zcard(keys.cancelled) == 1
    beat(db, keys, "ruby:1:x", busy=1)
    run_job(db, keys, "ruby:1:x", "tid", "j2", 1)
    db.hset(keys.iteration("j2"), "ex", 1)
    assert works.cancel("j2", "ruby:1:x", "q") is Cancelled.ELSEWHERE
    assert db.hexists(keys.iteration("j2"), "cancelled")
    for invalid in ("", "\ud800"):
        with pytest.raises(BadArgumentError):
            works.cancel(invalid, "a:1:x", "q")


def test_the_audit_keeps_the_last_thousand_actions(where: RedisConfig, cli: Cli) -> None:
    log = AuditLog(where)
    assert cli("audit").stdout == "No action was taken yet.\n"
    for number in range(1003):
        at = log.record(AuditEntry("ann", "127.0.0.1", "queue.pause", f"q{number}", "done"))
    assert cli("audit", "--limit", "1").stdout.splitlines()[1].split()[-5:] == [
        "ann", "127.0.0.1", "queue.pause", "q1002", "done"
    ]  # fmt: skip
    assert json.loads(cli("audit", "--json").stdout)[1]["target"] == "q1001"
    page = log.page(0, 2)
    assert (page.total, [action.target for action in page.actions]) == (1000, ["q1002", "q1001"])
    assert page.actions[0].at == pytest.approx(at, abs=0.01) == pytest.approx(time.time(), abs=5)
    assert [action.target for action in log.page(999, 50).actions] == ["q3"]
    assert page.as_dict()["actions"][0]["action"] == "queue.pause"


def test_the_audit_shows_any_bytes(where: RedisConfig, keys: Keys, db: redis.Redis) -> None:
    log = AuditLog(where)
    assert log.page().actions == []
    log.record(AuditEntry("a\n<b>", "::1", "job.delete", "\udcff\ud800" + "x" * 400, "done"))
    [action] = log.page().actions
    assert action.target == "\\xff\\ud800" + "x" * 298 + "…"
    db.lpush(keys.audit, b"\xff<i>", b"[]", b'{"who":5,"at":"x"}')
    assert [(found.who, found.action) for found in log.page().actions] == [
        ("5", ""), ("", "[]"), ("", "\\xff<i>"), ("a\n<b>", "job.delete")
    ]  # fmt: skip
    db.set(keys.audit, "of another type")
    assert (log.page().total, log.page().actions) == (0, [])


def test_the_commands_of_people_are_in_the_audit(
    where: RedisConfig, cli: Cli, db: redis.Redis, keys: Keys
) -> None:
    db.zadd(keys.dead, {raw_job("1", **{"class": "Send"}): 1.0, raw_job("2"): 2.0})
    db.lpush(keys.queue("mail"), raw_job("3"))
    for words in (
        ("pause", "mail"),
        ("resume", "mail"),
        ("resume", "mail"),
        ("dead", "delete", "--class", "Send", "--older-than", "1h", "--yes"),
        ("dead", "delete", "--all", "--dry-run"),
        ("dead", "clear", "--yes"),
        ("jobs", "mail", "delete", "3"),
    ):
        assert cli(*words).exit_code == 0
    actions = AuditLog(where).page().actions
    assert {action.source for action in actions} == {socket.gethostname()}
    assert all(action.who for action in actions)
    assert [(action.action, action.target, action.result) for action in reversed(actions)] == [
        ("queue.pause", "mail", "done"),
        ("queue.resume", "mail", "done"),
        ("queue.resume", "mail", "nothing changed"),
        ("jobs.delete", "dead: class Send, older than 1h", "1"),
        ("jobs.clear", "dead: all jobs", "1"),
        ("jobs.delete", "queue mail: ids 3", "1"),
    ]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, RedisUnavailableError])
def test_a_command_that_is_interrupted_has_in_the_audit_what_it_has_done(
    where: RedisConfig, cli: Cli, monkeypatch: pytest.MonkeyPatch, reason: type[BaseException]
) -> None:
    pause = Queue.pause

    def interrupted(queue: Queue) -> bool:
        if queue.name == "second":
            raise reason("stopped")
        return pause(queue)

    monkeypatch.setattr(Queue, "pause", interrupted)
    assert cli("pause", "first", "second", "third").exit_code != 0
    assert [(action.target, action.result) for action in AuditLog(where).page().actions] == [
        ("first", "done")
    ]


@pytest.mark.parametrize("reason", [KeyboardInterrupt, RedisUnavailableError])
@pytest.mark.parametrize(
    ("command", "method", "results"),
    [
        (("delete", "--all"), "delete_jobs", ["at least 200", "perhaps done"]),
        (("reschedule", "--all", "--in", "1h"), "reschedule_jobs", ["at least 1", "perhaps done"]),
        (("clear",), "clear", ["perhaps done"]),
    ],
)
def test_an_action_on_many_jobs_that_is_cut_off_is_in_the_audit(
    where: RedisConfig,
    keys: Keys,
    db: redis.Redis,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    reason: type[BaseException],
    command: tuple[str, ...],
    method: str,
    results: list[str],
) -> None:
    db.zadd(keys.schedule, {raw_job(f"j{number}"): 4e9 for number in range(201)})
    whole, calls = getattr(JobSet, method), iter(results)

    def interrupted(*given: Any, **more: Any) -> int:
        if next(calls) == "perhaps done":
            raise reason("stopped")
        return int(whole(*given, **more))

    monkeypatch.setattr(JobSet, method, interrupted)
    assert cli("scheduled", *command, "--yes").exit_code != 0
    assert [action.result for action in AuditLog(where).page().actions] == results[:1]
