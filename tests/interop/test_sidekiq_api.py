"""What Sidekiq's Ruby API sees of pyworkers' jobs, and what its actions do to them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import redis

from pyworkers import Client, JobFailedError, Worker
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import Ruby, hurry, only, pyworkers


def test_waiting_and_scheduled_jobs_are_read(ruby: Ruby, url: str) -> None:
    client, now = Client(url), time.time()
    first = client.enqueue("python", "Note", [1, "ä"], tags=["t"])
    second = client.enqueue("python", "Note", [2.5, {"a": None}])
    later = client.enqueue_in(60, "python", "Note", [3])
    assert ruby.call("queues") == ["python"]
    queue = ruby.call("queue", "python")
    assert [(job["jid"], job["args"]) for job in queue["jobs"]] == [
        (second, [2.5, {"a": None}]),
        (first, [1, "ä"]),
    ]
    assert queue["size"] == 2
    assert 0 <= queue["latency"] < PATIENCE_S
    job = queue["jobs"][1]
    assert (job["klass"], job["queue"], job["tags"]) == ("Note", "python", ["t"])
    assert now <= job["created_at"] <= job["enqueued_at"] <= time.time()
    [scheduled] = ruby.call("set", "schedule")
    assert (scheduled["jid"], scheduled["args"], scheduled["queue"]) == (later, [3], "python")
    assert now + 60 <= scheduled["at"] <= time.time() + 60
    stats = ruby.call("stats")
    assert (stats["enqueued"], stats["scheduled_size"], stats["queues"]) == (2, 1, {"python": 2})


def test_error_and_backtrace_of_a_failed_job_are_read(
    ruby: Ruby, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    client, now = Client(url), time.time()
    jid = client.enqueue("mail", "send_mail", ["ada@example.org"])
    dead = client.enqueue("mail", "send_mail", ["bob@example.org"], retry=0)
    with pyworkers(tmp_path / "python", url) as server:
        only(db, "retry")
        only(db, "dead")
        server.stop()
    [retried] = ruby.call("set", "retry")
    assert (retried["jid"], retried["klass"], retried["queue"]) == (jid, "send_mail", "mail")
    assert (retried["error_class"], retried["error_message"]) == (
        "ConnectionError",
        "no route to ada@example.org",
    )
    assert now + 15 <= retried["at"] < time.time() + 26
    [buried] = ruby.call("set", "dead")
    assert (buried["jid"], buried["error_message"]) == (dead, "no route to bob@example.org")
    for job in (retried, buried):
        [line] = job["error_backtrace"]
        assert line.startswith(str(tmp_path / "python" / "tasks.py:"))
        assert line.endswith(":in send_mail")
    stats = ruby.call("stats")
    assert (stats["processed"], stats["failed"]) == (2, 2)
    assert (stats["retry_size"], stats["dead_size"], stats["enqueued"]) == (1, 1, 0)


def test_a_retry_of_the_api_runs_again_and_is_not_counted(
    ruby: Ruby, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url).enqueue("python", "Fail", [1], retry=True)
    with pyworkers(tmp_path / "python", url) as server:
        for attempt, count in [(0, 0), (1, 1)]:
            only(db, "retry", retry_count=count)
            server.wait_for_notes(attempt + 1, jid)
            hurry(db, "retry")
        failed = only(db, "retry", retry_count=2)
        assert ruby.call("act", "retry", jid, "retry")
        again = server.wait_for_notes(4, jid, timeout=PATIENCE_S)[-1]
        only(db, "retry", retry_count=2, failed_at=failed["failed_at"])
    assert [note[4] for note in server.ledger()] == [0, 1, 2, 2]
    assert again[6].items() >= {key: failed[key] for key in ("jid", "args", "class", "created_at")}.items()


@pytest.mark.parametrize("zset", ["retry", "dead"])
def test_the_actions_of_the_api_move_and_remove(
    ruby: Ruby, url: str, db: redis.Redis, tmp_path: Path, zset: str
) -> None:
    options = {"retry": True} if zset == "retry" else {"retry": 0}
    jids = [Client(url).enqueue("python", "Fail", [n], **options) for n in range(3)]
    with pyworkers(tmp_path / "python", url) as server:
        wait_for(lambda: db.zcard(zset) == 3, PATIENCE_S, f"three jobs in {zset}")
        server.stop()
    assert ruby.call("act", zset, jids[0], "delete")
    assert ruby.call("act", zset, jids[1], "kill")
    assert ruby.call("act", zset, jids[2], "add_to_queue")
    assert [job["jid"] for job in ruby.call("queue", "python")["jobs"]] == [jids[2]]
    assert [job["jid"] for job in ruby.call("set", "dead")] == [jids[1]]
    assert ruby.call("set", "retry") == []


@pytest.mark.fault("D4")
def test_a_kill_of_the_api_ends_a_member_its_lock_and_its_status(
    ruby: Ruby, url: str, tmp_path: Path
) -> None:
    worker = Worker(url)

    @worker.job(queue="python", name="Note", unique_for=3600, track=60)
    def member() -> None: ...

    @worker.job(queue="python", name="Died")
    def died() -> None: ...

    with worker.batch(on_death=died.call()) as batch:
        jid = member.enqueue_in(60)
    assert ruby.call("act", "schedule", jid, "kill")
    with pyworkers(tmp_path / "python", url, PYWORKERS_SERVER__LEASE="1") as server:
        [callback] = server.wait_for_notes(1, timeout=PATIENCE_S)
        server.wait_for_event("flow.swept", dead=1)
    assert callback[2] == "Died"
    with pytest.raises(JobFailedError, match="dead"):
        worker.result(jid, timeout=1)
    assert (batch.status().dead, batch.status().pending) == (1, 0)
    assert member.enqueue_in(60) != jid


@pytest.mark.parametrize("zset", ["retry", "schedule"])
def test_the_api_reschedules_a_job_and_makes_no_second_one(
    ruby: Ruby, url: str, db: redis.Redis, tmp_path: Path, zset: str
) -> None:
    args = ["ä</&\u2028", 1.5, 0.1, 10**30, -0.0, True, None, {"b": [], "a": {}}]
    if zset == "retry":
        jid = Client(url).enqueue("python", "Fail", args, retry=True, backtrace=True)
        with pyworkers(tmp_path / "python", url) as server:
            only(db, "retry")
            server.stop()
    else:
        jid = Client(url).enqueue_in(60, "python", "Note", args, tags=["t"])
    moment = time.time() + 5000
    assert ruby.call("act", zset, jid, "reschedule", moment)
    assert only(db, zset)["score"] == pytest.approx(moment, abs=0.01)


def test_the_server_and_its_running_jobs_are_listed(ruby: Ruby, url: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    jid = Client(url).enqueue("python", "Wait", [str(gate)])
    with pyworkers(tmp_path / "python", url, PYWORKERS_SERVER__SIDEKIQ6="true") as server:
        [work] = wait_for(lambda: ruby.call("works"), PATIENCE_S, "the running job is listed")
        [process] = ruby.call("processes")
        assert work.items() >= {"process": process["identity"], "jid": jid, "class": "Wait"}.items()
        assert (process["pid"], process["busy"], process["quiet"]) == (server.pid, 1, False)
        assert sorted(process["queues"]) == ["mail", "python", "shared"]
        assert process["concurrency"] == 9
        assert process["rss"] > 1000
        assert ruby.call("stats")["processes_size"] == ruby.call("stats")["workers_size"] == 1
        gate.touch()
        server.wait_for_event("job.done", jid=jid, timeout=PATIENCE_S)
        assert server.stop() == 0
    assert ruby.call("processes") == ruby.call("works") == []


def test_a_crashed_job_that_the_api_takes_out_of_dead_may_crash_again(
    ruby: Ruby, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    """Sidekiq knows no crashes: a job in dead has none counted, and begins a new life with every retry."""
    jid = Client(url).enqueue("python", "Crash", [])
    with pyworkers(tmp_path / "python", url) as server:
        for life, action in enumerate(["retry", "add_to_queue"], 1):
            dead = only(db, "dead", jid=jid)
            assert len(server.events("worker.lost")) == 3 * life
            assert dead["error_message"].startswith("the worker was killed by SIGKILL")
            assert ruby.call("act", "dead", jid, action)
        only(db, "dead", jid=jid)
        assert [event["crash_count"] for event in server.events("job.failed")] == [1, 2, 3] * 3
