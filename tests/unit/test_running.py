"""How running jobs are shown: as they are, but never large, and never an invalid job."""

from __future__ import annotations

import json

import pytest

from pyworkers.server.running import MAX_SHOWN, Payloads, Running, names, show


@pytest.mark.parametrize(
    "raw",
    [b'{"class":"A","args":[1.50,1e3]}', ' {"class" : "é"} '.encode(), b'{"args":["\\ud800"]}', b"{}"],
)
def test_a_job_is_shown_as_it_is(raw: bytes) -> None:
    assert show(raw).encode() == raw


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b"\xff", b'{"a":"\xff"}', b"[" * 30_000])
def test_what_is_no_job_is_not_shown(raw: bytes) -> None:
    assert show(raw) == ""


@pytest.mark.parametrize("size", [MAX_SHOWN, 1_000_000])
@pytest.mark.parametrize(
    "form", ['{"class":"A","jid":"b","args":["%s"]}', '{"args":["%s"],"jid":"b","class":"A"}']
)
def test_a_large_job_is_shown_without_its_arguments(form: str, size: int) -> None:
    raw = (form % ("x" * size)).encode()
    shown = json.loads(show(raw))
    assert shown == {"class": "A", "jid": "b", "args": [f"(a job of {len(raw)} bytes, not shown)"]}


def test_a_large_job_without_names_is_shown_all_the_same() -> None:
    shown = json.loads(show(b"\xff" * 100_000))
    assert (shown["class"], shown["jid"]) == ("", "")


def test_the_log_names_a_job_as_its_worker_would() -> None:
    assert names(b'{"class":"A","jid":"b"}', "q") == {"jid": "b", "job_class": "A", "attempt": 0}
    assert names(b'{"class":"A","jid":"b","retry_count":2}', "q")["attempt"] == 3
    assert names(b"no job", "q") == {}


def test_a_job_that_runs_on_is_looked_at_once() -> None:
    payloads = Payloads()
    first = [Running("q", 7, 1, b'{"class":"A"}', 0.0), Running("q", 8, 2, b"no job", 0.0)]
    assert [(job.name, text) for job, text in payloads.of(first)] == [("7.1", '{"class":"A"}')]
    changed = [Running("q", 7, 1, b'{"class":"B"}', 0.0)]
    assert [text for _, text in payloads.of(changed)] == ['{"class":"A"}']
    assert list(payloads.of([])) == []
    assert [text for _, text in payloads.of(changed)] == ['{"class":"B"}']


def test_a_name_that_a_reload_masks_is_hidden_in_a_job_that_runs_already() -> None:
    payloads, job = Payloads(), Running("q", 7, 1, b'{"class":"A","args":[{"pin":1}]}', 0.0)
    assert [text for _, text in payloads.of([job])] == ['{"class":"A","args":[{"pin":1}]}']
    assert [text for _, text in payloads.of([job], ("pin",))] == ['{"class":"A","args":[{"pin":"(hidden)"}]}']


def test_a_queue_that_moves_to_another_group_shows_the_jobs_of_that_group() -> None:
    payloads = Payloads()
    before, after = Running("q", 7, 1, b'{"class":"A"}', 0.0), Running("q", 8, 1, b'{"class":"B"}', 0.0)
    assert [text for _, text in payloads.of([before])] == ['{"class":"A"}']
    assert [text for _, text in payloads.of([after])] == ['{"class":"B"}']
