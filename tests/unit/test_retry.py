"""What becomes of a failed job: Sidekiq's rules, as a table."""

from __future__ import annotations

import base64
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyworkers.errors import JobTimeout
from pyworkers.protocol import retry
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.protocol.retry import Failure, Policy

NOW = 1_795_225_197.5
FAILURE = Failure("ValueError", "bad")


class Lowest(random.Random):
    """Draws the lowest number each time."""

    def randrange(self, *_: Any) -> int:
        return 0


def message(**fields: Any) -> Message:
    raw = json.dumps({"class": "Add", "args": [1], "jid": "j1", **fields}).encode()
    return Message.parse(raw, "q", lambda: "made")


def decide(data: dict[str, Any], failure: Failure = FAILURE, policy: Policy | None = None) -> Outcome:
    return retry.decide(message(**data), failure, policy or Policy(), NOW, Lowest())


def fields_of(outcome: Outcome) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(outcome.payload)
    return fields


@pytest.mark.parametrize(
    ("data", "policy", "fate"),
    [
        ({"retry": True}, Policy(), Fate.RETRY),
        ({"retry": True, "retry_count": 23}, Policy(), Fate.RETRY),
        ({"retry": True, "retry_count": 24}, Policy(), Fate.DEAD),
        ({"retry": True, "retry_count": 4}, Policy(max_retries=5), Fate.DEAD),
        ({"retry": False}, Policy(), Fate.DISCARD),
        ({"retry": 0}, Policy(), Fate.DEAD),
        ({"retry": 2, "retry_count": 0}, Policy(), Fate.RETRY),
        ({"retry": 2, "retry_count": 1}, Policy(), Fate.DEAD),
        ({"retry": "2", "retry_count": 1}, Policy(), Fate.DEAD),
        ({"retry": " 2 ", "retry_count": 1}, Policy(), Fate.DEAD),
        ({"retry": 2.9, "retry_count": 1}, Policy(), Fate.DEAD),
        ({"retry": -1}, Policy(), Fate.DEAD),
        ({"retry": "true"}, Policy(), Fate.RETRY),
        ({"retry": "false"}, Policy(), Fate.DISCARD),
        ({"retry": [1]}, Policy(), Fate.RETRY),
        ({"retry": 10**400}, Policy(), Fate.RETRY),
        ({"retry": True, "retry_max": 1, "retry_count": 0}, Policy(), Fate.DEAD),
        ({}, Policy(), Fate.RETRY),
        ({}, Policy(retry=0), Fate.DEAD),
        ({"retry": None}, Policy(retry=0), Fate.DEAD),
        ({}, Policy(retry=False), Fate.DISCARD),
        ({}, Policy(retry=1), Fate.RETRY),
        ({"retry": 0, "dead": False}, Policy(), Fate.DISCARD),
        ({"retry": 0}, Policy(dead=False), Fate.DISCARD),
        ({"retry": 0, "dead": True}, Policy(dead=False), Fate.DEAD),
        ({"retry": 0, "retry_for": 60}, Policy(), Fate.RETRY),
        ({"retry_for": 60, "failed_at": NOW - 59, "retry_count": 99}, Policy(), Fate.RETRY),
        ({"retry_for": 60, "failed_at": NOW - 61}, Policy(), Fate.DEAD),
        ({"retry_for": 60, "failed_at": (NOW - 61) * 1000}, Policy(), Fate.DEAD),
        ({"retry_for": "60", "failed_at": "2001-01-01 00:00:00 UTC"}, Policy(), Fate.DEAD),
        ({"retry": False, "retry_for": 60}, Policy(), Fate.DISCARD),
        # The handler's seconds count for a job that has no number.
        ({"failed_at": NOW - 59, "retry_count": 99}, Policy(retry=0, retry_for=60), Fate.RETRY),
        ({"failed_at": NOW - 61}, Policy(retry=True, retry_for=60), Fate.DEAD),
        ({"retry": True, "failed_at": NOW - 61}, Policy(retry_for=60), Fate.DEAD),
        ({"retry": 1, "failed_at": NOW - 61}, Policy(retry_for=60), Fate.RETRY),
        ({"retry_max": 5, "failed_at": NOW - 61}, Policy(retry_for=60), Fate.RETRY),
        ({"retry_for": 99, "failed_at": NOW - 61}, Policy(retry_for=60), Fate.RETRY),
        ({"retry": False}, Policy(retry_for=60), Fate.DISCARD),
    ],
)
def test_retry_dead_or_discard(data: dict[str, Any], policy: Policy, fate: Fate) -> None:
    outcome = decide(data, policy=policy)
    assert outcome.fate is fate
    assert outcome.failed
    assert not outcome.crashed


@pytest.mark.parametrize(
    ("data", "chosen", "fate"),
    [
        ({"retry": True}, Fate.DISCARD, Fate.DISCARD),
        ({"retry": True}, Fate.DEAD, Fate.DEAD),
        ({"retry": False}, Fate.DEAD, Fate.DEAD),
        ({"retry": True, "dead": False}, Fate.DEAD, Fate.DISCARD),
    ],
)
def test_a_fate_that_the_job_chose(data: dict[str, Any], chosen: Fate, fate: Fate) -> None:
    assert decide(data, Failure("Kill", "", fate=chosen)).fate is fate


@pytest.mark.parametrize(("count", "delay"), [(0, 15), (1, 16), (2, 31), (3, 96), (24, 331791)])
def test_the_delay_grows_with_the_fourth_power(count: int, delay: int) -> None:
    assert retry.default_delay(count, Lowest()) == delay


@given(st.integers(0, 30), st.integers(0, 2**32))
def test_the_jitter_grows_with_the_count(count: int, seed: int) -> None:
    jitter = retry.default_delay(count, random.Random(seed)) - (count**4 + 15)
    assert 0 <= jitter < 10 * (count + 1)


@pytest.mark.parametrize(
    ("delay_s", "at"),
    [
        (None, NOW + 15),
        (0.0, NOW),
        (7.5, NOW + 7.5),
        (-1.0, NOW + 15),
        (float("nan"), NOW + 15),
        (1e300, NOW + 10 * 365 * 86_400),
    ],
)
def test_the_moment_of_the_retry(delay_s: float | None, at: float) -> None:
    assert decide({}, Failure("Retry", "", delay_s=delay_s)).at == at


def test_a_count_from_a_broken_producer_has_a_usable_moment() -> None:
    outcome = decide({"retry_for": 1e9, "retry_count": 10**30})
    assert (outcome.fate, outcome.at) == (Fate.RETRY, NOW + 10 * 365 * 86_400)


def test_the_fields_of_the_first_failure() -> None:
    fields = fields_of(decide({"retry": 5, "at": 1, "x": 1.0}))
    assert fields == {
        "class": "Add",
        "args": [1],
        "jid": "j1",
        "retry": 5,
        "x": 1.0,
        "queue": "q",
        "error_message": "bad",
        "error_class": "ValueError",
        "failed_at": NOW,
        "retry_count": 0,
    }


def test_the_fields_of_a_later_failure() -> None:
    fields = fields_of(
        decide({"retry_count": 0, "failed_at": 5.0, "error_class": "Old", "error_message": "old"})
    )
    found = {name: fields[name] for name in ("failed_at", "retried_at", "retry_count", "error_class")}
    assert found == {"failed_at": 5.0, "retried_at": NOW, "retry_count": 1, "error_class": "ValueError"}


def test_times_that_sidekiq_misreads_become_float_seconds() -> None:
    text, moment = "2026-11-21 01:39:57 UTC", 1795225197.0
    stored = {"created_at": 1795225197, "enqueued_at": text, "failed_at": text, "retry_count": 0}
    fields = fields_of(decide(stored))
    expected = {"created_at": moment, "enqueued_at": moment, "failed_at": moment, "retried_at": NOW}
    assert {name: fields[name] for name in expected} == expected
    assert all(isinstance(fields[name], float) for name in expected)


def test_milliseconds_stay_what_sidekiq_8_wrote() -> None:
    fields = fields_of(decide({"created_at": 1795225197500, "failed_at": 1795225197500, "retry_count": 0}))
    assert (fields["created_at"], fields["failed_at"]) == (1795225197500, 1795225197500)


def test_a_count_without_a_first_failure_gets_both_times() -> None:
    fields = fields_of(decide({"retry_count": 3}))
    assert (fields["retry_count"], fields["failed_at"], fields["retried_at"]) == (4, NOW, NOW)


@pytest.mark.parametrize(
    ("data", "queue"),
    [({"queue": "ns:q"}, "q"), ({"retry_queue": "slow"}, "slow"), ({"retry_queue": 5}, "q")],
)
def test_the_queue_of_the_retry(data: dict[str, Any], queue: str) -> None:
    assert fields_of(decide(data))["queue"] == queue


def test_a_new_jid_is_kept() -> None:
    assert fields_of(decide({"jid": None}))["jid"] == "made"


def test_the_stored_text_stays_as_it_was() -> None:
    raw = b'{"class":"Add","args":[1.50,"\\u003c"],"jid":"j"}'
    outcome = retry.decide(Message.parse(raw, "q", str), FAILURE, Policy(), NOW, Lowest())
    assert outcome.payload.startswith(b'{"class":"Add","args":[1.50,"\\u003c"],"jid":"j"')


def test_long_and_odd_error_texts() -> None:
    fields = fields_of(decide({}, Failure("E", "\ud800" + "x" * 20_000)))
    assert fields["error_message"] == "?" + "x" * 9_999


def test_a_job_id_that_utf8_does_not_carry_is_written_back_as_it_came() -> None:
    assert b'"jid":"\\ud800"' in decide({"jid": "\ud800"}).payload


@pytest.mark.parametrize(
    ("wanted", "policy", "kept"),
    [
        (None, False, None),
        (False, True, None),
        (True, False, 3),
        (2, False, 2),
        (None, True, 3),
        (None, 1, 1),
        (0, True, None),
        (-1, False, 3),
        (1e300, False, 3),
        ("x", False, 3),
    ],
)
def test_the_backtrace(wanted: object, policy: bool | int, kept: int | None) -> None:
    failure = Failure("E", "", ("a:1", "b:2", "c:3"))
    fields = fields_of(decide({"backtrace": wanted}, failure, Policy(backtrace=policy)))
    expected = ["a:1", "b:2", "c:3"][:kept] if kept else None
    packed = fields.get("error_backtrace")
    assert (json.loads(zlib.decompress(base64.b64decode(packed))) if packed else None) == expected


def test_a_backtrace_has_at_most_1000_lines_and_100000_characters() -> None:
    def kept(*lines: str) -> list[str]:
        packed = fields_of(decide({"backtrace": True}, Failure("E", "", lines)))["error_backtrace"]
        found: list[str] = json.loads(zlib.decompress(base64.b64decode(packed)))
        return found

    assert kept(*map(str, range(1500))) == [str(number) for number in range(1000)]
    assert kept("a" * 60_000, "b" * 40_000, "c") == ["a" * 60_000, "b" * 40_000]
    assert kept("a" * 100_001) == []


def test_the_backtrace_of_an_earlier_error_is_removed() -> None:
    before = {"error_backtrace": "old", "retry_count": 0, "failed_at": 1.0}
    assert "error_backtrace" not in fields_of(decide(before, Failure("E", "")))
    assert "error_backtrace" not in fields_of(decide(before, Failure("E", "", crashed=True)))
    assert "error_backtrace" not in fields_of(decide(before, Failure("E", "", ("a:1",), fate=Fate.DEAD)))
    again = fields_of(decide({**before, "backtrace": True}, Failure("E", "", ("a:1",))))["error_backtrace"]
    assert again != "old"


@pytest.mark.parametrize(
    ("data", "fate", "at"),
    [
        ({}, Fate.RETRY, NOW + 1),
        ({"crash_count": 1}, Fate.RETRY, NOW + 2),
        ({"crash_count": 2}, Fate.DEAD, 0.0),
        ({"crash_count": 2, "dead": False}, Fate.DISCARD, 0.0),
        ({"retry": False}, Fate.RETRY, NOW + 1),
        # It was dead of its crashes, by the hand of a version that left the count in the payload.
        ({"crash_count": 3}, Fate.RETRY, NOW + 1),
        ({"crash_count": 4}, Fate.RETRY, NOW + 1),
    ],
)
def test_a_crash_has_its_own_count(data: dict[str, Any], fate: Fate, at: float) -> None:
    outcome = decide(data, Failure("WorkerLost", "killed", crashed=True))
    assert (outcome.fate, outcome.at, outcome.crashed) == (fate, at, True)
    if fate is Fate.RETRY:
        assert fields_of(outcome)["crash_count"] == at - NOW
        assert "retry_count" not in fields_of(outcome)


@pytest.mark.parametrize(
    ("data", "failure", "message"),
    [
        ({"crash_count": 2}, Failure("WorkerLost", "killed", crashed=True), "killed; dead after 3 crashes"),
        ({"crash_count": 2, "retry": 0}, Failure("ValueError", "no"), "no"),
        ({"crash_count": 1}, Failure("Kill", "no", fate=Fate.DEAD), "no"),
        # Of the whole server, whose deaths are counted elsewhere.
        ({}, Failure("WorkerLost", "it died", crashed=True, fate=Fate.DEAD), "it died"),
        ({"crash_count": 2}, Failure("WorkerLost", "it died", crashed=True, fate=Fate.DEAD), "it died"),
    ],
)
def test_a_dead_job_says_why_and_has_no_crashes_counted(
    data: dict[str, Any], failure: Failure, message: str
) -> None:
    """Sidekiq, too, can put it into its queue again, and knows no crashes."""
    outcome = decide(data, failure)
    fields = fields_of(outcome)
    assert (outcome.fate, fields["error_class"], fields["error_message"]) == (
        Fate.DEAD,
        failure.error_class,
        message,
    )
    assert "crash_count" not in fields


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (ValueError(), "ValueError"),
        (JobTimeout(), "JobTimeout"),
        (json.JSONDecodeError("", "", 0), "json.decoder.JSONDecodeError"),
    ],
)
def test_error_name(error: Exception, name: str) -> None:
    assert retry.error_name(error) == name


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        # Spaces, numbers, escapes and doubled keys stay; only the reason and the time are new.
        (
            b'{"class": "Add","jid":7,"queue":"q","n":1.50,"u":"\\u003c","n":2, "at":5}',
            b'{"class": "Add","jid":7,"queue":"q","n":1.50,"u":"\\u003c","n":2, "at":5,'
            b'"error_message":"why","error_class":"BadMessageError","failed_at":1795225197.5}',
        ),
        # Where it is to go once it is repaired.
        (
            b"{}",
            b'{"error_message":"why","error_class":"BadMessageError","queue":"q","failed_at":1795225197.5}',
        ),
        (
            b'{"jid":7,"queue":"q","failed_at":1.5,"error_class":"Old","enqueued_at":"text"}',
            b'{"jid":7,"queue":"q","failed_at":1.5,"error_class":"BadMessageError","enqueued_at":"text",'
            b'"error_message":"why","retried_at":1795225197.5}',
        ),
        # Sidekiq's Web UI needs retried_at where retry_count is above 0.
        (
            b'{"jid":7,"queue":"q","retry_count":3}',
            b'{"jid":7,"queue":"q","retry_count":3,"error_message":"why","error_class":"BadMessageError",'
            b'"failed_at":1795225197.5,"retried_at":1795225197.5}',
        ),
        *[(raw, b"") for raw in (b"", b"7", b"[]", b'[{"jid":7}]', b'{"jid":7', b"\xff", b'{"a":NaN}')],
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b""),
    ],
)  # fmt: skip
def test_a_payload_that_is_no_job_says_why_it_is_dead_if_it_is_an_object(raw: bytes, expected: bytes) -> None:
    assert retry.refused(raw, "why", "q", NOW) == expected
