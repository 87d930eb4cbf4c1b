"""JobRecord: what people see of a stored job, whatever wrote it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyworkers.api import JobRecord
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
