"""The conditions of a search, hidden values, and large jobs of which both ends are known."""

from __future__ import annotations

import fnmatch
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.api import JobRecord
from pyworkers.api.browse.cut import CutRecord
from pyworkers.api.browse.filter import Filter, folded
from pyworkers.api.browse.masking import HIDDEN, masked, shown_bytes
from pyworkers.api.browse.places import DEAD, RETRIES, SCHEDULED, Place
from pyworkers.protocol import patterns

JOB: dict[str, Any] = {
    "class": "Mail::Send",
    "jid": "4711",
    "queue": "mail",
    "tags": ["vip"],
    "batch": "b1",
    "args": [{"to": "Ann", "password": "hunter2"}, 12],
    "error_class": "Net::ReadTimeout",
    "error_message": "No answer from 10.0.0.1",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def record(**fields: Any) -> JobRecord:
    return JobRecord(json.dumps(JOB | fields).encode())


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, True),
        ({"job_class": "Mail::Send"}, True),
        ({"job_class": "Mail::*"}, True),
        ({"job_class": "Mail::"}, False),
        ({"jid": "4711"}, True),
        ({"jid": "471"}, False),
        ({"queue": "mail", "tag": "vip"}, True),
        ({"tag": "vi"}, False),
        ({"batch": "b1"}, True),
        ({"batch": "b"}, False),
        ({"error": "readtimeout: no answer"}, True),
        ({"error": "refused"}, False),
        ({"error_like": "Net::ReadTimeout: No answer from #"}, True),
        ({"error_like": "Net::ReadTimeout: No answer"}, False),
        ({"text": "ann"}, True),
        ({"text": "hunter2"}, False),
        ({"text": "12"}, True),
        ({"older_s": 60.0}, True),
        ({"older_s": 3600.0}, False),
        ({"younger_s": 3600.0}, True),
    ],
)
def test_a_filter(conditions: dict[str, Any], expected: bool) -> None:
    wanted = Filter.of(conditions)
    assert wanted.as_dict() == conditions
    assert wanted.matches(record(), 120.0, ("password",)) is expected
    if expected:
        assert wanted.sieve()(record().raw)
        texts = [text.partition(":")[2] for text in wanted.literals()]
        assert all(text.lower().encode() in record().raw.lower() for text in texts)


@pytest.mark.parametrize(
    "conditions", [{"job_class": "Mail::Other*"}, {"error": "TIMEOUTS"}, {"jid": "4712"}]
)
def test_most_jobs_that_do_not_meet_a_filter_need_no_decoding(conditions: dict[str, Any]) -> None:
    assert not Filter(**conditions).sieve()(record().raw)


def test_a_job_of_unknown_age_is_neither_older_nor_younger() -> None:
    assert not Filter(older_s=0.0).matches(record(), None)
    assert not Filter(younger_s=1e9).matches(record(), None)


def test_a_class_with_marks_of_a_pattern_is_found() -> None:
    assert Filter(job_class="A[b]?").matches(record(**{"class": "A[b]?"}), None)
    assert not Filter(job_class="A?").matches(record(**{"class": "AB"}), None)


def test_an_unreadable_job_is_found_by_that_word() -> None:
    wanted = Filter(error="unreadable")
    assert wanted.literals() == []
    assert wanted.matches(JobRecord(b"\xff"), None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("Timeout: no answer in 1,5 s", "Timeout: no answer in # s"),
        ("KeyError: 'ann'", "KeyError: '#'"),
        ("E: it can't be read, and won't be", "E: it can't be read, and won't be"),
        ("E: 6f1b2c3d-0000-4abc-8def-1234567890ab at 0x7fEE and job 5f3a9b8c7d6e", "E: # at # and job #"),
        ("E: deadbeef and facade", "E: deadbeef and facade"),
        ("E: two\nlines\tand \x1b[1m \ud800 \\u001b", "E: two lines and ?[#m ? #"),
        ("E: " + "x" * 5_000_000, "E: " + "x" * 297),
        ("", ""),
    ],
)
def test_errors_of_one_cause_are_one_text(error: str, expected: str) -> None:
    assert folded(error) == expected


@given(st.text(), st.text())
def test_a_job_is_in_the_group_of_its_error(name: str, message: str) -> None:
    job = record(error_class=name, error_message=message)
    wanted = Filter(error_like=folded(job.error))
    assert wanted.matches(job, None)
    assert wanted.sieve()(job.raw)


def test_patterns_of_searches_that_are_over_are_not_kept() -> None:
    kept = fnmatch._compile_pattern.cache_info()  # type: ignore[attr-defined]
    for number in range(300):
        assert Filter(job_class=f"Mail*{number}").matches(record(**{"class": f"Mail::{number}"}), None)
    assert fnmatch._compile_pattern.cache_info() == kept  # type: ignore[attr-defined]
    assert patterns._compiled.cache_info().currsize <= 256


def test_conditions_on_lists_send_no_text_of_theirs_if_names_are_hidden() -> None:
    wanted = Filter(job_class="Mail::*", tag="vip", error="Late", text="Ann")
    named = {"=class,display_class,wrapped,job_class:Mail", "~error_class,error_message:late"}
    assert set(wanted.literals(("token",))) == {*named, "=:tags"}
    assert set(wanted.literals()) == {*named, "=:vip", "~:ann"}


def test_values_of_other_types_are_no_conditions() -> None:
    assert Filter.of({"older_s": 3600}) == Filter(older_s=3600.0)
    for wrong in ({"jid": 7}, {"older_s": "1"}, {"older_s": True}, {"unknown": "x"}):
        with pytest.raises(ValueError, match="is no condition"):
            Filter.of(wrong)


def test_masking() -> None:
    value = [{"Password": 1, "a": [{"api_token": [2]}]}, 3]
    assert masked(value, ("password", "token")) == [
        {"Password": HIDDEN, "a": [{"api_token": HIDDEN}]},
        3,
    ]
    assert value == [{"Password": 1, "a": [{"api_token": [2]}]}, 3]


def test_deep_values_are_masked() -> None:
    deep: Any = {"token": 1}
    for _ in range(5000):
        deep = [deep]
    found = masked(deep, ("token",))
    for _ in range(5000):
        [found] = found
    assert found == {"token": HIDDEN}


@pytest.mark.parametrize(
    ("text", "names", "read", "operate"),
    [
        ('[{"token":1}]', ("token",), f'[{{"token": "{HIDDEN}"}}]', f'[{{"token": "{HIDDEN}"}}]'),
        ('{"token":1', ("token",), HIDDEN, '{"token":1'),
        ("[" * 9000, ("token",), HIDDEN, "[" * 9000),
        ('{"token":1', (), '{"token":1', '{"token":1'),
    ],
)
def test_bytes_that_are_no_job(text: str, names: tuple[str, ...], read: str, operate: str) -> None:
    assert shown_bytes(text, names, operate=False) == read
    assert shown_bytes(text, names, operate=True) == operate


@pytest.mark.parametrize(
    ("place", "expected"),
    [(Place.of_queue("q"), 2.0), (SCHEDULED, 1.0), (RETRIES, 3.0), (DEAD, 4.0)],
)
def test_the_time_from_which_an_age_counts(place: Place, expected: float) -> None:
    assert place.since(record(created_at=1.0, enqueued_at=2.0, failed_at=3.0), 4.0) == expected


def test_the_words_of_places() -> None:
    assert Place.read("queue:a:b") == Place.of_queue("a:b")
    assert Place.read("retries") == RETRIES
    assert [Place.read(word) for word in ("", "queue:", "mail", "schedule")] == [None] * 4


def test_a_large_job_shows_the_fields_at_both_ends() -> None:
    stored = {"class": "Big", "args": ['","jid":"no"' * 9999, {"jid": "no"}], "jid": "yes", "created_at": 1.5}
    raw = json.dumps(stored).encode()
    job = CutRecord(raw[:2048], raw[-4096:], len(raw))
    assert (job.job_class, job.jid, job.created_at, job.length, job.cut) == (
        "Big",
        "yes",
        1.5,
        len(raw),
        True,
    )
    assert job.args == []


def test_a_large_job_without_a_whole_field_shows_none_of_its_bytes() -> None:
    job = CutRecord(b'{"args":[{"password":"hunter2"},"xx', b'xx"]}', 400_000)
    assert (job.raw, job.unreadable) == (b"{}", "")
    broken = CutRecord(b'[{"password":"hunter2"},"xx', b'xx"]}', 400_000)
    assert (broken.raw, broken.unreadable != "") == (b"[", True)


@given(
    st.dictionaries(st.sampled_from(["class", "jid", "args", "queue", "error_message", "x"]), JSON), st.data()
)
def test_a_cut_job_never_shows_a_wrong_value(fields: dict[str, Any], data: st.DataObject) -> None:
    raw = json.dumps(fields).encode()
    head, tail = data.draw(st.integers(0, len(raw))), data.draw(st.integers(1, len(raw)))
    shown = CutRecord(raw[:head], raw[-tail:], len(raw)).data
    for name, value in shown.items():
        assert name in fields or _is_inside(name, fields)
        if name in fields and not _is_inside(name, fields):
            assert value == fields[name]


def _is_inside(name: str, value: Any) -> bool:
    """True if a text in the values makes the name ambiguous."""
    return any(name in json.dumps(inner) for inner in value.values())


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_make_a_cut_job(head: bytes, tail: bytes) -> None:
    CutRecord(head, tail, 10_000_000).as_dict()
