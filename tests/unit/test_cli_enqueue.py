"""``pyworkers enqueue`` up to what it hands to Redis: what it reads, and what it refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyworkers.cli import main
from pyworkers.cli.params import parse_args, parse_duration, parse_retry, parse_time
from pyworkers.enqueueing import interception
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus
from pyworkers.protocol.status import JobStatus


class Pushes:
    """Takes the jobs instead of Redis."""

    def __init__(self) -> None:
        self.jobs: list[PushedJob] = []

    def now(self) -> float:
        return time.time()

    def redis(self) -> None: ...

    def push(self, jobs: list[PushedJob], owner: object) -> None:
        self.jobs += jobs

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        raise NotImplementedError

    def batch_status(self, batch: str) -> BatchStatus | None:
        raise NotImplementedError

    def batch_result(self, batch: str, deadline: float) -> object:
        raise NotImplementedError

    def status(self, jid: str) -> JobStatus:
        raise NotImplementedError

    def history(self, jid: str) -> JobHistory | None:
        raise NotImplementedError

    def iteration(self, jid: str) -> dict[str, bytes]:
        raise NotImplementedError

    def result(self, jid: str, deadline: float) -> object:
        raise NotImplementedError

    def envelope(self) -> dict[str, Any]:
        [job] = self.jobs
        envelope: dict[str, Any] = json.loads(job.payload)
        return envelope


@pytest.fixture
def pushes() -> Iterator[Pushes]:
    taken = Pushes()
    previous = interception.intercept(taken)
    yield taken
    interception.intercept(previous)


def enqueue(*words: str, stdin: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["enqueue", *words, "--url", "redis://127.0.0.1:1/0"], input=stdin)


# Durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10),
        ("5m", 300),
        ("2h", 7200),
        ("1d", 86_400),
        ("1h30m", 5400),
        ("1d2h3m4s5ms", 93_784.005),
        ("1.5h", 5400),
        ("90", 90),
        ("0", 0),
        ("0.5", 0.5),
    ],
)
def test_a_duration_is_read_in_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "10 s", "-5s", "5x", "30m1h", "1h1h", "1e3", "nan", "inf", "٣s", "1h30"]
)
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"is not a duration: write 250ms, 10s, 5m, 2h, 1d, 1h30m, or a number"
    ):
        parse_duration(text)


# Moments


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21T12:00:00Z",
        "2026-11-21T13:00:00+01:00",
        "2026-11-21 12:00:00+00:00",
        "20261121T120000Z",
        "1795262400",
        "1795262400.0",
    ],
)
def test_a_time_with_its_offset_and_epoch_seconds_are_the_same_moment(text: str) -> None:
    assert parse_time(text) == 1_795_262_400.0


@pytest.mark.parametrize("text", ["2026-11-21T12:00:00", "2026-11-21"])
def test_a_time_without_an_offset_is_refused_with_what_to_add(text: str) -> None:
    with pytest.raises(ValueError, match=r"has no time zone: add Z for UTC or an offset"):
        parse_time(text)


@pytest.mark.parametrize("text", ["", "tomorrow", "12:00", "-5", "1795262400000", "nan"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time"):
        parse_time(text)


# Retries


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("0", 0), ("7", 7)])
def test_retry_is_a_flag_or_a_number(text: str, value: bool | int) -> None:
    parsed = parse_retry(text)
    assert (type(parsed), parsed) == (type(value), value)


@pytest.mark.parametrize("text", ["", "yes", "-1", "1.5", "9999999999"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not true, false or a number of retries"):
        parse_retry(text)


# Arguments


def test_arguments_are_read_exactly() -> None:
    text = ' [123456789012345678901234567890, 1.5, "ä\\u00e4", null, true, {"a": []}] '
    assert parse_args(text) == [123456789012345678901234567890, 1.5, "ää", None, True, {"a": []}]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("[1,", "not JSON"),
        ("['a']", "not JSON"),
        ("[NaN]", "not JSON"),
        ("[-Infinity]", "not JSON"),
        ("[1] [2]", "not JSON"),
        ("{}", r"must be a JSON list, e\.g\. \[1, 2\], not \{\}"),
        ("7", "must be a JSON list"),
        ("[[1, 1e999]]", r"args\[0\]\[1\] is inf"),
        ('["\\ud800"]', r"args\[0\] holds a lone surrogate"),
        ("[" * 100_000, "nested too deep"),
        ("[" + "[" * 600 + "]" * 600 + "]", "nested deeper than 500 levels"),
    ],
)
def test_bad_arguments_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_args(text)


# The command


def test_a_job_is_enqueued_and_its_jid_printed(pushes: Pushes) -> None:
    result = enqueue("mail", "SendMail", '[12345678901234567890123, "hello"]')
    assert result.exit_code == 0
    assert result.output == f"{pushes.jobs[0].jid}\n"
    assert (pushes.jobs[0].queue, pushes.jobs[0].at) == ("mail", None)
    envelope = pushes.envelope()
    assert (envelope["class"], envelope["queue"], "retry" in envelope) == ("SendMail", "mail", False)
    assert envelope["args"] == [12345678901234567890123, "hello"]


def test_arguments_are_empty_unless_given(pushes: Pushes) -> None:
    assert enqueue("mail", "Sweep").exit_code == 0
    assert pushes.envelope()["args"] == []


def test_a_dash_reads_the_arguments_from_stdin(pushes: Pushes) -> None:
    assert enqueue("mail", "SendMail", "-", stdin='["grüße"]\n'.encode()).exit_code == 0
    assert pushes.envelope()["args"] == ["grüße"]


def test_a_delay_is_counted_from_now(pushes: Pushes) -> None:
    before = time.time()
    assert enqueue("mail", "SendMail", "--in", "1h30m").exit_code == 0
    at = pushes.jobs[0].at
    assert at is not None
    assert before + 5400 <= at <= time.time() + 5400


def test_a_moment_is_taken_as_it_is(pushes: Pushes) -> None:
    assert enqueue("mail", "SendMail", "--at", "2099-01-31T12:00:00+01:00").exit_code == 0
    assert pushes.jobs[0].at == 4_073_540_400.0


@pytest.mark.parametrize(("text", "stored"), [("false", False), ("3", 3), ("true", True)])
def test_retry_is_stored_in_the_envelope(text: str, stored: bool | int, pushes: Pushes) -> None:
    assert enqueue("mail", "SendMail", "--retry", text).exit_code == 0
    retry = pushes.envelope()["retry"]
    assert (type(retry), retry) == (type(stored), stored)


def test_up_to_20_equal_jobs_their_jids_are_printed_one_per_line(pushes: Pushes) -> None:
    result = enqueue("mail", "SendMail", "[1]", "--count", "20")
    assert result.output.split("\n") == [*(job.jid for job in pushes.jobs), ""]
    assert len({job.jid for job in pushes.jobs}) == 20


def test_above_20_equal_jobs_only_their_number_is_printed(pushes: Pushes) -> None:
    assert enqueue("mail", "SendMail", "--count", "2500").output == "2500\n"
    assert len(pushes.jobs) == 2500


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "Missing argument 'QUEUE'"),
        (["mail"], "Missing argument 'CLASS'"),
        (["a b", "C"], "'a b' cannot be a queue: a queue name has 1 to 128 characters"),
        (["mail", "A|B"], "'A|B' cannot be a job class"),
        (["mail", ""], "'' cannot be a job class"),
        (["mail", "C", "nope"], "not JSON"),
        (["mail", "C", "--in", "5x"], "'5x' is not a duration"),
        (["mail", "C", "--in", "99999999d"], "up to the year 9999"),
        (["mail", "C", "--at", "2099-01-01T00:00:00"], "has no time zone"),
        (["mail", "C", "--in", "5s", "--at", "5"], "--in and --at exclude each other"),
        (["mail", "C", "--in", "0", "--at", "0"], "--in and --at exclude each other"),
        (["mail", "C", "--retry", "maybe"], "'maybe' is not true, false"),
        (["mail", "C", "--count", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_usage_error_ends_with_2_and_enqueues_nothing(
    words: list[str], reason: str, pushes: Pushes
) -> None:
    result = enqueue(*words)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert pushes.jobs == []


def test_bytes_on_stdin_that_are_no_text_are_a_usage_error(pushes: Pushes) -> None:
    result = enqueue("mail", "SendMail", "-", stdin=b'["\xff"]')
    assert result.exit_code == 2
    assert "'utf-8' codec can't decode byte 0xff" in result.stderr


def test_without_redis_the_command_ends_with_4_and_says_so() -> None:
    result = enqueue("mail", "SendMail")
    assert result.exit_code == 4
    assert "Redis cannot be reached" in result.stderr
