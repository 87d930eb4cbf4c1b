"""Jobs that a real Sidekiq client enqueues, executed by pyworkers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import redis

from tests.helpers.support import PATIENCE_S, wait_for
from tests.interop.programs import Ruby, hurry, only, pyworkers


def test_jobs_of_every_kind_of_push_run(ruby: Ruby, url: str, tmp_path: Path) -> None:
    before = int(time.time())  # Sidekiq 8 cuts its times to milliseconds
    single = ruby.call("push", {"class": "Note", "queue": "python", "args": [1, "ä<&", {"a": [None]}]})
    several = ruby.call("push_bulk", {"class": "Note", "queue": "python", "args": [[n] for n in range(300)]})
    later = ruby.call("perform_in", "Note", 1.5, "later")
    with pyworkers(tmp_path / "python", url) as server:
        notes = {note[1]: note for note in server.wait_for_notes(302, timeout=PATIENCE_S)}
    assert len(notes) == 302
    assert notes[single][2:5] == ["Note", [1, "ä<&", {"a": [None]}], 0]
    assert [notes[jid][3] for jid in several] == [[n] for n in range(300)]
    assert notes[later][3] == ["later"]
    assert before <= notes[single][5] <= time.time()
    assert notes[later][5] >= before + 1.5  # stamped when it entered the queue


def test_retry_options_of_sidekiq_are_respected(
    ruby: Ruby, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    told: list[tuple[dict[str, Any], str | None]] = [
        ({}, "retry"),
        ({"retry": 2, "tags": ["a"], "backtrace": True}, "retry"),
        ({"retry": 0}, "dead"),
        ({"retry": 0, "dead": False}, None),
        ({"retry": False}, None),
    ]
    jids = [ruby.call("perform_async", "Fail", options, 7) for options, _ in told]
    with pyworkers(tmp_path / "python", url) as server:
        server.wait_for_notes(len(told), timeout=PATIENCE_S)
        wait_for(lambda: not server.inprogress("python"), PATIENCE_S, "settled")
    found = {
        job["jid"]: job["item"] | {"in": name} for name in ("retry", "dead") for job in ruby.call("set", name)
    }
    for jid, (options, place) in zip(jids, told, strict=True):
        expected = {**options, "in": place, "class": "Fail", "queue": "python", "retry_count": 0}
        assert (jid in found) == (place is not None)
        assert place is None or found[jid].items() >= expected.items()


def test_a_job_that_failed_here_is_retried_as_often_as_sidekiq_said(
    ruby: Ruby, url: str, db: redis.Redis, tmp_path: Path
) -> None:
    jid = ruby.call("perform_async", "Fail", {"retry": 2}, 7)
    with pyworkers(tmp_path / "python", url) as server:
        for attempt in range(2):
            only(db, "retry", retry_count=attempt)
            hurry(db, "retry")
            server.wait_for_notes(attempt + 2, jid, timeout=PATIENCE_S)
        only(db, "dead", retry_count=2)
    assert [note[4] for note in server.ledger()] == [0, 1, 2]
