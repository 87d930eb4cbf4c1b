"""JobRecord: a stored job for display, written by any program."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from pyworkers.api import CronJob, Day, JobRecord, QueueStats, RetrySet, SortedEntry, Stats, Work
from pyworkers.api.processes import SERVER
from pyworkers.protocol.cron import CronEntry
from pyworkers.store.processes.decoding import process_view
from pyworkers.store.processes.views import WorkView
from pyworkers.store.queues import align

GO_TIME = "2026-11-21 01:39:57 UTC"


def record(**fields: Any) -> JobRecord:
    return JobRecord(json.dumps({"class": "Add", "args": [1], "jid": "j", **fields}).encode())


def test_the_fields_of_a_failed_job() -> None:
    job = record(
        queue="q",
        retry_count=2,
        error_class="E",
        error_message="m",
        failed_at=1.5,
        retried_at=2.5,
        tags=["a"],
    )
    assert (job.jid, job.job_class, job.args, job.queue, job.tags) == ("j", "Add", [1], "q", ["a"])
    assert (job.retry_count, job.error, job.failed_at) == (2, "E: m", 2.5)


@pytest.mark.parametrize("raw", [b"", b"no job", b"\xff", b"[1]", b"null", b"[" * 100_000, b'{"a":NaN'])
def test_bytes_that_are_no_job_say_why_and_raise_nothing(raw: bytes) -> None:
    job = JobRecord(raw)
    assert job.unreadable
    assert job.error == f"unreadable: {job.unreadable}"
    assert (job.jid, job.job_class, job.args, job.queue, job.created_at) == ("", "", [], "", None)


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("job_class", {"class": 5}, "5"),
        ("job_class", {"class": None}, ""),
        ("jid", {"jid": ["x"]}, '["x"]'),
        ("args", {"args": None}, []),
        ("args", {"args": {"a": 1}}, [{"a": 1}]),
        ("args", {"class": {"a": 1}}, [1]),
        ("args", {"args": ["x", "cipher"], "encrypt": True}, ["x", "[encrypted data]"]),
        ("failed_at", {"failed_at": GO_TIME}, 1795225197.0),
        ("failed_at", {"failed_at": 1795225197500}, 1795225197.5),
        ("failed_at", {"failed_at": "soon"}, None),
        ("retry_count", {"retry_count": "3"}, 3),
        ("error_backtrace", {"error_backtrace": "no base64"}, []),
        ("error_backtrace", {"error_backtrace": {"a": 1}}, []),
        ("error_backtrace", {"error_backtrace": ["a", 5]}, ["a", "5"]),
        ("tags", {"tags": "x"}, []),
        ("job_class", {"display_class": "Shown"}, "Shown"),
    ],
)
def test_a_field_of_any_type_is_shown(field: str, value: dict[str, Any], shown: object) -> None:
    assert getattr(record(**value), field) == shown


@pytest.mark.parametrize(
    "wrapper", ["ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "Sidekiq::ActiveJob::Wrapper"]
)
def test_an_active_job_is_shown_as_the_job_inside(wrapper: str) -> None:
    inner = {"job_class": "Mail", "arguments": [7]}
    job = record(**{"class": wrapper, "wrapped": "Mail", "args": [inner]})
    assert (job.job_class, job.args) == ("Mail", [7])
    assert record(**{"class": wrapper, "args": []}).job_class == wrapper


# Where a list goes on


def test_a_job_is_described_for_json() -> None:
    shown = {"jid": "j", "class": "Add", "queue": "q", "args": [1]}
    envelope = {"class": "Add", "args": [1], "jid": "j", "queue": "q"}
    assert record(queue="q").as_dict() == shown | {"job": envelope}
    failed = record(queue="q", error_class="E").as_dict()
    assert list(failed) == ["jid", "class", "queue", "args", "error", "job"]
    sealed = record(args=["c2VhbGVk"], encrypted=True).as_dict()
    assert (sealed["args"], sealed["job"]["args"]) == (["(encrypted)"], ["(encrypted)"])
    half = record(args=[1, "cipher"], encrypt=True).as_dict()
    assert half["args"] == half["job"]["args"] == [1, "[encrypted data]"]
    broken = JobRecord(b"\xff").as_dict()
    assert (broken["raw"], broken["error"]) == ("\\xff", f"unreadable: {broken['unreadable']}")
    assert "job" not in broken


def test_a_member_is_described_with_its_score() -> None:
    jobs = RetrySet("redis://127.0.0.1:1/0")
    raw = json.dumps({"class": "Add", "args": [], "jid": "j"}).encode()
    [due, never] = [SortedEntry(raw, score, jobs).as_dict() for score in (1.5, float("inf"))]
    assert list(due) == ["jid", "class", "queue", "args", "score", "job"]
    assert (due["score"], never["score"]) == (1.5, "inf")


def test_a_server_and_its_work_are_described_for_json() -> None:
    identity, info = b"web:\xff".decode(errors="surrogateescape"), b'{"pid": 7, "queues": ["q"]}'
    stored = dict.fromkeys(("beat", "busy", "concurrency", "rss", "rtt_us", "quiet"))
    about = process_view(identity, stored | {"info": info})
    assert about is not None
    described = SERVER.as_dict(about)
    assert described | {"identity": "web:\\xff", "pid": 7, "queues": ["q"], "quiet": False} == described
    assert described["stops_at"] is None
    assert json.loads(json.dumps(described)) == described
    work = Work(WorkView(identity, "t", "q", 5.0, b'{"class": "Add", "args": [], "jid": "j"}')).as_dict()
    assert list(work) == [
        "identity", "thread", "run_at", "limit_at", "rss_kb", "progress", "jid", "class", "queue", "args",
        "job",
    ]  # fmt: skip
    assert (work["identity"], work["thread"], work["run_at"], work["jid"]) == ("web:\\xff", "t", 5.0, "j")


def test_counts_are_described_for_json() -> None:
    queue = QueueStats("\udcff", 2, 1, 90.0, False, True, {"our:1:x": 1})
    stats = Stats(5, 1, 2, 1, 0, 0, 0, 1, [queue])
    row = {"name": "\\xff", "size": 2, "latency_s": 10.0, "in_progress": 1, "in_progress_by": {"our:1:x": 1}}
    rates = {"rate_per_min": None, "failed_per_min": None}
    assert queue.as_dict(100.0) == row | rates | {"paused": False, "served": True}
    assert stats.as_dict(100.0) == stats.counts() | {
        "oldest": {"queue": "\\xff", "age_s": 10.0},
        "queues": [queue.as_dict(100.0)],
        "groups": [],
        "servers": [],
        "lost": [],
    }
    day = Day(date(2026, 11, 21), 5, 1)
    assert day.as_dict() == {"date": "2026-11-21", "processed": 5, "failed": 1}


def test_a_cron_entry_is_described_with_its_next_slot() -> None:
    job = CronJob(CronEntry("poll", "every 30s", "mail", "Poll"), False, False, None)
    described = job.as_dict(95.0)
    assert (described["name"], described["class"], described["state"]) == ("poll", "Poll", "active")
    assert (described["last"], described["next"]) == (None, 120)
    assert CronJob(job.entry, True, False, None).as_dict(95.0)["next"] is None


def places(text: str) -> list[bytes]:
    return [char.encode() for char in text]


@pytest.mark.parametrize(
    ("window", "expected", "behind", "ahead", "place"),
    [
        ("abcdef", 3, "abc", "def", 3),
        ("xyabcdef", 3, "abc", "def", 5),
        ("cdef", 3, "abc", "def", 1),
        ("abcf", 3, "abc", "def", 3),
        ("abcf", 3, "abc", "de", 3),
        ("axf", 3, "abc", "de", 1),
        ("xyz", 3, "abc", "def", None),
        ("", 3, "abc", "", None),
        ("aaaaaa", 3, "aaa", "aaa", 3),
        ("aaaaaaaa", 3, "aaa", "aaa", 3),
        ("aaab", 3, "aaa", "ab", 2),
        ("abcz", 3, "abc", "", 3),
    ],
)
def test_the_place_where_a_changed_list_goes_on(
    window: str, expected: int, behind: str, ahead: str, place: int | None
) -> None:
    assert align(places(window), expected, places(behind), places(ahead)) == place
