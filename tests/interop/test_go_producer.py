"""Jobs that go-workers and go-workers2 enqueue, executed by pyworkers."""

from __future__ import annotations

import time
from pathlib import Path

import redis

from tests.helpers.replies import as_bytes
from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import GoProducer, go_environment, hurry, only, pyworkers


def test_jobs_of_every_enqueue_function_run(go_producer: GoProducer, url: str, tmp_path: Path) -> None:
    before = time.time()
    now = go_producer.call("Enqueue", "python", "Note", [1, "ä<&", {"a": [None]}])
    later = go_producer.call("EnqueueIn", "python", "Note", ["in"], **{"in": 1.5})
    at = go_producer.call("EnqueueAt", "python", "Note", ["at"], at=before + 1.2)
    told = go_producer.call("EnqueueWithOptions", "python", "Note", ["told"], options={"retry": True})
    odd = go_producer.call("Enqueue", "python", "Note", {"not": "a list"})
    none = go_producer.call("Enqueue", "python", "Note", None)
    with pyworkers(tmp_path / "python", url) as server:
        notes = {note[1]: note for note in server.wait_for_notes(6, timeout=PATIENCE_S)}
        wait_for(lambda: not server.inprogress("python"), message="settled")
        assert not server.redis.exists("schedule", "retry", "dead", "queue:python")
    assert notes[now][2:5] == ["Note", [1, "ä<&", {"a": [None]}], 0]
    assert {notes[jid][3][0] for jid in (later, at, told)} == {"in", "at", "told"}
    assert notes[odd][3] == [{"not": "a list"}]
    assert notes[none][3] == []
    assert before <= notes[now][5] <= time.time()
    for jid, seconds in ((later, 1.5), (at, 1.2)):
        assert notes[jid][5] >= before + seconds  # stamped when it entered the queue
        assert "at" not in notes[jid][6]


def test_a_failed_job_without_the_option_retry_is_kept_in_dead(
    go_producer: GoProducer, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = go_producer.call("Enqueue", "python", "Fail", [7])
    with pyworkers(tmp_path / "python", url):
        dead = only(db, "dead")
    assert (dead["jid"], dead["error_message"], dead["retry_count"]) == (jid, "python failed", 0)
    assert not db.exists("retry", "goretry")


def test_a_failed_job_with_the_option_retry_is_retried(
    go_producer: GoProducer, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = go_producer.call("EnqueueWithOptions", "python", "FailOnce", [7], options={"retry": True})
    with pyworkers(tmp_path / "python", url) as server:
        only(db, "retry", jid=jid, retry_count=0)
        hurry(db, "retry")
        server.wait_for_event("job.done", jid=jid, attempt=1, timeout=PATIENCE_S)


def test_retry_max_of_go_workers2_is_respected(
    go_programs: Path, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    producer = GoProducer([go_programs / "goworkers2", "produce"], go_environment(url, "1"), tmp_path / "log")
    jid = producer.call("EnqueueWithOptions", "python", "Fail", [7], options={"retry": True, "retry_max": 1})
    producer.close()
    with pyworkers(tmp_path / "python", url):
        only(db, "retry", jid=jid, retry_count=0, retry_max=1)
        hurry(db, "retry")
        only(db, "dead", jid=jid, retry_count=1)


def test_a_namespace_is_the_same_in_both(go: Path, url: str, db: redis.Redis, tmp_path: Path) -> None:
    producer = GoProducer([go, "produce"], go_environment(url, "1", "app"), tmp_path / "log")
    now = producer.call("Enqueue", "python", "Note", [1])
    later = producer.call("EnqueueIn", "python", "Note", [2], **{"in": 1.0})
    producer.close()
    with pyworkers(tmp_path / "python", url, "app:") as server:
        notes = server.wait_for_notes(2, timeout=PATIENCE_S)
    assert sorted(note[1] for note in notes) == sorted([now, later])
    assert all(as_bytes(key).startswith(b"app:") for key in db.keys())  # noqa: SIM118


def test_a_count_that_go_workers_gave_itself_goes_on(
    go_producer: GoProducer, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = go_producer.call(
        "EnqueueWithOptions", "python", "Fail", [7], options={"retry": True, "retry_count": 23}
    )
    with pyworkers(tmp_path / "python", url):
        failed = only(db, "retry", jid=jid, retry_count=24)
        assert failed["failed_at"] == failed["retried_at"]
        hurry(db, "retry")
        only(db, "dead", jid=jid, retry_count=25)
