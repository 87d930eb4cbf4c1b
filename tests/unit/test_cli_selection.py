"""Which jobs a command is about."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyworkers.api import JobRecord
from pyworkers.cli.selection import Selection

JOB = JobRecord(
    json.dumps(
        {
            "class": "Mail::Send",
            "queue": "mail",
            "jid": "j1",
            "error_class": "Timeout",
            "error_message": "Is Down",
            "batch": "b1",
        }
    ).encode()
)


@pytest.mark.parametrize(
    ("conditions", "age_s", "selected"),
    [
        ({}, None, True),
        ({"jids": frozenset({"j1", "j2"})}, None, True),
        ({"jids": frozenset({"j2"})}, None, False),
        ({"job_class": "Mail::Send"}, None, True),
        ({"job_class": "Mail"}, None, False),
        ({"job_class": "Mail*"}, None, True),
        ({"job_class": "mail*"}, None, False),
        ({"queue": "mail"}, None, True),
        ({"queue": "m"}, None, False),
        ({"batch": "b1"}, None, True),
        ({"batch": "b2"}, None, False),
        ({"error": "timeout"}, None, True),
        ({"error": "TIMEOUT: is d"}, None, True),
        ({"error": "refused"}, None, False),
        ({"older_s": 60.0}, 61.0, True),
        ({"older_s": 60.0}, 60.0, False),
        ({"newer_s": 60.0}, 59.0, True),
        ({"newer_s": 60.0}, 61.0, False),
        ({"older_s": 60.0}, None, False),
        ({"newer_s": 60.0}, None, False),
        ({"job_class": "Mail*", "queue": "other"}, None, False),
    ],
)
def test_all_conditions_must_hold(conditions: dict[str, Any], age_s: float | None, selected: bool) -> None:
    assert Selection(**conditions).matches(JOB, age_s) is selected


def test_only_named_jobs_need_no_question() -> None:
    named = frozenset({"j1"})
    assert Selection(named).only_named
    assert not Selection(named, job_class="A").only_named
    assert not Selection(job_class="A").only_named
    assert Selection().empty


def test_bytes_that_are_no_job_are_selected_by_their_error() -> None:
    assert Selection(error="unreadable").matches(JobRecord(b"no job"), None)
    assert not Selection(job_class="A*").matches(JobRecord(b"no job"), None)
