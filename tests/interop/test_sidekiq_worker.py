"""A real Sidekiq alongside pyworkers: each runs what the other enqueued and what failed in the other."""

from __future__ import annotations

import json
from pathlib import Path

import redis

from pyworkers import Client
from pyworkers.protocol import timestamps
from pyworkers.protocol.suspects import MARK
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import hurry, only, pyworkers, sidekiq


def test_sidekiq_runs_what_python_enqueued(
    sidekiq_installed: None, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    client = Client(url)
    jid = client.enqueue("ruby", "Note", [1, "ä<&", {"a": [None, 1.5, 10**30]}], tags=["t"])
    bulk = client.enqueue_bulk("ruby", "Note", [[n] for n in range(50)])
    later = client.enqueue_in(1.0, "ruby", "Note", ["later"])
    with sidekiq(tmp_path / "ruby", url, "ruby") as ruby:
        jobs = {job["jid"]: job for job in ruby.ran(52)}
        ruby.stop()
    assert set(jobs) == {jid, later, *bulk}
    assert jobs[jid]["args"] == [1, "ä<&", {"a": [None, 1.5, 10**30]}]
    assert jobs[jid]["tags"] == ["t"]
    assert [jobs[jid]["args"] for jid in bulk] == [[n] for n in range(50)]
    assert jobs[later]["enqueued_at"] >= jobs[later]["created_at"] + 1
    assert db.get("stat:processed") == b"52"
    assert db.get("stat:failed") == b"0"


def test_sidekiq_runs_a_job_that_recovery_has_marked(
    sidekiq_installed: None, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    job = {"class": "Note", "args": [1], "jid": "marked", "queue": "ruby", "enqueued_at": 1.5}
    db.lpush("queue:ruby", json.dumps(job).encode() + MARK)
    with sidekiq(tmp_path / "ruby", url, "ruby") as ruby:
        [ran] = ruby.ran(1)
        ruby.stop()
    assert ran["jid"] == "marked"
    assert not db.exists("retry", "queue:ruby", "dead")


def test_a_job_that_failed_in_sidekiq_runs_again_in_python(
    sidekiq_installed: None, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    Client(url).enqueue(
        "shared", "FailOnce", [7], retry=True, tags=["t"], extra={"future_field": {"b": [1.5, None]}}
    )
    with sidekiq(tmp_path / "ruby", url, "shared"):
        failed = only(db, "retry")
    assert (failed["error_class"], failed["error_message"]) == ("ArgumentError", "ruby failed")
    hurry(db, "retry")
    with pyworkers(tmp_path / "python", url) as server:
        [[_, _, job_class, args, attempt, _, data]] = server.wait_for_notes(1, timeout=PATIENCE_S)
        server.wait_for_event("job.done", jid=failed["jid"], attempt=1)
    assert (job_class, args, attempt) == ("FailOnce", [7], 1)
    unchanged = failed.keys() - {"score", "enqueued_at"}
    assert {key: data[key] for key in unchanged} == {key: failed[key] for key in unchanged}


def test_a_job_that_failed_in_python_runs_again_in_sidekiq(
    sidekiq_installed: None, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    Client(url).enqueue(
        "shared", "FailOnce", [7], retry=True, tags=["t"], extra={"future_field": {"b": [1.5, None]}}
    )
    with pyworkers(tmp_path / "python", url) as server:
        failed = only(db, "retry")
        server.stop()
    assert (failed["error_class"], failed["error_message"]) == ("ValueError", "python failed")
    hurry(db, "retry")
    with sidekiq(tmp_path / "ruby", url, "shared") as ruby:
        [job] = ruby.ran(1)
        ruby.stop()
    unchanged = failed.keys() - {"score", "enqueued_at"}
    assert {key: job[key] for key in unchanged} == {key: failed[key] for key in unchanged}
    assert job["enqueued_at"] > failed["failed_at"]
    assert not db.exists("retry", "queue:shared", "dead")


def test_attempts_in_both_count_together_until_the_job_is_dead(
    sidekiq_installed: None, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url).enqueue("shared", "Fail", [7], retry=3)
    for attempt, peer in enumerate(["python", "ruby", "python"]):
        with pyworkers(tmp_path / peer, url) if peer == "python" else sidekiq(tmp_path / peer, url, "shared"):
            failed = only(db, "retry", jid=jid, retry_count=attempt)
        hurry(db, "retry")
    with sidekiq(tmp_path / "ruby", url, "shared"):
        dead = only(db, "dead")
    assert (dead["jid"], dead["retry_count"], dead["error_message"]) == (jid, 3, "ruby failed")
    times = [timestamps.read(time) for time in (dead["failed_at"], failed["retried_at"], dead["retried_at"])]
    read = [time for time in times if time is not None]
    assert times == sorted(read)
    assert times[-1] <= dead["score"]


def test_both_work_on_one_queue_and_run_each_job_once(
    sidekiq_installed: None, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    with pyworkers(tmp_path / "python", url) as server, sidekiq(tmp_path / "ruby", url, "shared") as ruby:
        jids: list[str] = []

        def both_ran_some() -> bool:
            jids.extend(Client(url).enqueue_bulk("shared", "Note", [[n] for n in range(50)]))
            return bool(server.ledger() and ruby.payloads())

        wait_for(both_ran_some, PATIENCE_S)
        wait_for(lambda: len(server.ledger()) + len(ruby.payloads()) >= len(jids), PATIENCE_S, "all have run")
        wait_for(lambda: not server.inprogress("shared"), message="settled")
        ruby.stop()
        server.stop()
    ran = [note[1] for note in server.ledger()] + [job["jid"] for job in ruby.payloads()]
    assert sorted(ran) == sorted(jids)
    assert int(db.get("stat:processed") or 0) == len(jids)
