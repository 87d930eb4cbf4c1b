"""go-workers and go-workers2 and pyworkers on one Redis: none loses, eats or repeats the others' jobs."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from pyworkers import Client
from pyworkers.api import Stats
from pyworkers.cli import adopt as adopting
from pyworkers.cli import main
from pyworkers.protocol.suspects import MARK
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import WorkingPeer, go_environment, hurry, only, pyworkers, working


def serving(
    go: Path, folder: Path, url: str, *queues: str, namespace: str = ""
) -> contextlib.AbstractContextManager[WorkingPeer]:
    return working([go, "work", *queues], folder, **go_environment(url, "1", namespace))


def test_go_runs_what_python_enqueued(go: Path, url: str, db: redis.Redis, tmp_path: Path) -> None:
    client = Client(url)
    jid = client.enqueue("go", "Note", [1, "ä<&", {"a": [None, 1.5, 10**30]}], tags=["t"])
    bulk = client.enqueue_bulk("go", "Note", [[n] for n in range(50)])
    later = client.enqueue_in(1.0, "go", "Note", ["later"])
    with serving(go, tmp_path / "go", url, "go") as peer:
        jobs = {job["jid"]: job for job in peer.ran(52)}
        wait_for(lambda: not db.exists("queue:go:1:inprogress"), PATIENCE_S, "acknowledged")
    assert set(jobs) == {jid, later, *bulk}
    assert jobs[jid]["args"] == [1, "ä<&", {"a": [None, 1.5, 10**30]}]
    assert jobs[later]["enqueued_at"] >= jobs[later]["created_at"] + 1


def test_go_runs_and_acknowledges_a_job_that_recovery_has_marked(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    job = {"class": "Note", "args": [1], "jid": "marked", "queue": "go", "enqueued_at": 1.5}
    db.lpush("queue:go", json.dumps(job).encode() + MARK)
    with serving(go, tmp_path / "go", url, "go") as peer:
        [ran] = peer.ran(1)
        wait_for(lambda: not db.exists("queue:go:1:inprogress"), PATIENCE_S, "acknowledged")
    assert ran == job


def test_a_job_that_failed_in_go_runs_again_in_go(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url).enqueue(
        "go", "FailOnce", [7], retry=True, tags=["t"], extra={"future_field": {"b": [1.50, None]}}
    )
    with pyworkers(tmp_path / "python", url), serving(go, tmp_path / "go", url, "go") as peer:
        failed = only(db, "goretry", jid=jid, retry_count=0, error_message="go failed")
        hurry(db, "goretry")
        again = peer.ran(2, jid=jid)[1]
    assert again["future_field"] == failed["future_field"] == {"b": [1.5, None]}


def test_goretry_is_drained_if_configured_and_the_job_runs_in_python(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url).enqueue(
        "shared", "FailOnce", [7], retry=True, extra={"future_field": {"b": [1.50, None]}}
    )
    with serving(go, tmp_path / "go", url, "shared"):
        failed = only(db, "goretry", jid=jid)
    assert isinstance(failed["failed_at"], str)
    hurry(db, "goretry")
    with pyworkers(tmp_path / "python", url, PYWORKERS_RETRY__DRAIN_GORETRY="true") as server:
        [[*_, attempt, _, data]] = server.wait_for_notes(1, jid, timeout=PATIENCE_S)
        server.wait_for_event("job.done", jid=jid)
    assert attempt == 1
    unchanged = failed.keys() - {"score", "enqueued_at", "at"}
    assert {key: data[key] for key in unchanged} == {key: failed[key] for key in unchanged}


def test_goretry_is_left_alone_otherwise(go: Path, url: str, db: redis.Redis, tmp_path: Path) -> None:
    jid = Client(url).enqueue("shared", "FailOnce", [7], retry=True)
    with serving(go, tmp_path / "go", url, "shared"):
        only(db, "goretry", jid=jid)
    hurry(db, "goretry")
    with pyworkers(tmp_path / "python", url) as server:
        # The scheduler's round that moves this one has passed goretry, too.
        Client(url).enqueue_in(1.0, "python", "Note")
        server.wait_for_notes(1, timeout=PATIENCE_S)
    assert only(db, "goretry")["jid"] == jid


def test_a_retry_of_go_in_a_namespace_runs_in_python(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url, namespace="app:").enqueue("shared", "FailOnce", [7], retry=True)
    with serving(go, tmp_path / "go", url, "shared", namespace="app"):
        assert only(db, "app:goretry", jid=jid)["queue"] == "app:shared"
    hurry(db, "app:goretry")
    with pyworkers(tmp_path / "python", url, "app:", PYWORKERS_RETRY__DRAIN_GORETRY="true") as server:
        server.wait_for_notes(1, jid, timeout=PATIENCE_S)


def test_a_job_that_failed_in_go_and_then_in_python_has_times_that_sidekiq_reads(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url).enqueue("shared", "Fail", [7], retry=True)
    with serving(go, tmp_path / "go", url, "shared"):
        only(db, "goretry", jid=jid)
    hurry(db, "goretry")
    with pyworkers(tmp_path / "python", url, PYWORKERS_RETRY__DRAIN_GORETRY="true"):
        failed = only(db, "retry", jid=jid, retry_count=1, error_message="python failed")
    assert isinstance(failed["failed_at"], float)
    assert failed["created_at"] - 1 <= failed["failed_at"] <= failed["retried_at"]


def test_a_job_that_failed_in_python_runs_again_in_go(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = Client(url).enqueue(
        "shared", "FailOnce", [7], retry=True, extra={"future_field": {"b": [1.50, None]}}
    )
    with pyworkers(tmp_path / "python", url) as server:
        failed = only(db, "retry", jid=jid)
        server.stop()
        hurry(db, "retry")
    # go-workers does not poll `retry`: a pyworkers without that queue moves the job.
    mover = pyworkers(tmp_path / "mover", url, options=["--queue", "python"])
    with mover, serving(go, tmp_path / "go", url, "shared") as peer:
        [job] = peer.ran(1, jid=jid)
        wait_for(lambda: not db.exists("queue:shared:1:inprogress"), PATIENCE_S, "acknowledged")
    unchanged = failed.keys() - {"score", "enqueued_at"}
    assert {key: job[key] for key in unchanged} == {key: failed[key] for key in unchanged}
    assert not db.exists("goretry", "retry")


def test_both_work_on_one_queue_and_run_each_job_once(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    with pyworkers(tmp_path / "python", url) as server, serving(go, tmp_path / "go", url, "shared") as peer:
        jids: list[str] = []

        def both_ran_some() -> bool:
            jids.extend(Client(url).enqueue_bulk("shared", "Note", [[n] for n in range(50)]))
            return bool(server.ledger() and peer.payloads())

        wait_for(both_ran_some, PATIENCE_S)
        wait_for(lambda: len(server.ledger()) + len(peer.payloads()) >= len(jids), PATIENCE_S, "all have run")
        wait_for(lambda: not server.inprogress("shared"), PATIENCE_S, "settled")
        server.stop()
    ran = [note[1] for note in server.ledger()] + [job["jid"] for job in peer.payloads()]
    assert sorted(ran) == sorted(jids)
    assert int(db.get("stat:processed") or 0) == len(jids)


def test_running_jobs_of_each_are_safe_from_the_other(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    python_jid = Client(url).enqueue("shared", "Wait", [str(gate)])
    with pyworkers(tmp_path / "python", url) as server:
        server.wait_for_notes(1, python_jid, timeout=PATIENCE_S)
        go_jid = Client(url).enqueue("go", "Wait", [str(gate)])
        with serving(go, tmp_path / "go", url, "go", "shared") as peer:
            peer.ran(1, jid=go_jid)
            # Others start and stop alongside them, and look for what is left of the dead.
            with pyworkers(tmp_path / "other", url) as other:
                other.wait_for_event("server.started")
                other.stop()
            assert len(server.inprogress("shared")) == 1
            assert db.llen("queue:go:1:inprogress") == 1
            gate.touch()
            server.wait_for_event("job.done", jid=python_jid, timeout=PATIENCE_S)
            wait_for(lambda: not db.exists("queue:go:1:inprogress"), PATIENCE_S, "acknowledged")
            wait_for(lambda: not server.inprogress("shared"), message="settled")
            assert [job["jid"] for job in peer.payloads()] == [go_jid]
        assert [note[1] for note in server.ledger()] == [python_jid]


def test_the_jobs_that_go_runs_are_in_progress(go: Path, url: str, db: redis.Redis, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    for queue in ("go", "shared"):
        Client(url).enqueue(queue, "Wait", [str(gate)])
    with serving(go, tmp_path / "go", url, "go", "shared") as peer:
        peer.ran(2)
        shown = CliRunner().invoke(main, ["queues", "--json", "--url", url])
        queues = {
            queue["name"]: (queue["in_progress"], queue["in_progress_by"])
            for queue in json.loads(shown.output)
        }
        assert queues == {"go": (1, {"1": 1}), "shared": (1, {"1": 1})}
        assert Stats.fetch(url, search=True).busy == 2
        top = CliRunner().invoke(main, ["top", "--once", "--url", url]).output
        assert ["go", "0", "1", "unserved"] in [line.split() for line in top.splitlines()]
        gate.touch()
        wait_for(lambda: not db.exists("queue:go:1:inprogress"), PATIENCE_S, "acknowledged")


def test_what_a_killed_process_leaves_is_run_by_its_own_kind(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    lease = {"PYWORKERS_SERVER__LEASE": "2"}
    go_jid = Client(url).enqueue("go", "Wait", [str(gate)])
    with serving(go, tmp_path / "go", url, "go") as peer:
        peer.ran(1, jid=go_jid)
        peer.kill()
    python_jid = Client(url).enqueue("shared", "Wait", [str(gate)])
    with pyworkers(tmp_path / "python", url, **lease) as server:
        server.wait_for_notes(1, python_jid, timeout=PATIENCE_S)
        server.kill()
    gate.touch()
    with (
        serving(go, tmp_path / "go", url, "go") as peer,
        pyworkers(tmp_path / "other", url, **lease) as other,
    ):
        other.wait_for_event("process.recovered", timeout=PATIENCE_S)
        other.wait_for_event("job.done", jid=python_jid, timeout=PATIENCE_S)
        peer.ran(2, jid=go_jid)
        wait_for(lambda: not db.exists("queue:go:1:inprogress"), PATIENCE_S, "acknowledged")
    assert len(peer.payloads()) == 2
    assert [note[1] for note in other.ledger()] == [python_jid]


def test_python_runs_what_a_process_that_never_returns_has_left(
    go: Path, url: str, db: redis.Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopting, "_WATCH_S", 0.05)
    gate = tmp_path / "gate"
    jid = Client(url).enqueue("shared", "Wait", [str(gate)])
    with serving(go, tmp_path / "go", url, "shared") as peer:
        peer.ran(1, jid=jid)
        peer.kill()
    gate.touch()
    program = go.name.replace("go", "go-")
    adopted = CliRunner().invoke(main, ["adopt", program, "--process", "1", "--yes", "--url", url])
    assert adopted.exit_code == 0, adopted.output
    assert not db.exists("queue:shared:1:inprogress")
    with pyworkers(tmp_path / "python", url) as server:
        server.wait_for_event("job.done", jid=jid, timeout=PATIENCE_S)


def test_go_retries_once_more_than_its_limit_says(
    go: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    # What coming-from.md says: it does not count the first failure.
    limit: dict[str, Any] = {"retry": 2} if go.name == "goworkers" else {"retry": True, "retry_max": 2}
    jid = Client(url).enqueue("go", "Fail", [7], **limit)
    with serving(go, tmp_path / "go", url, "go") as peer:
        for count in range(3):
            only(db, "goretry", jid=jid, retry_count=count)
            hurry(db, "goretry")
        peer.ran(4, jid=jid)
        wait_for(lambda: not db.exists("queue:go:1:inprogress"), PATIENCE_S, "acknowledged")
    assert not db.exists("goretry", "dead")
