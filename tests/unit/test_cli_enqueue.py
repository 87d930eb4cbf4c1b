"""``pyworkers enqueue`` up to what it hands to Redis: what it reads, and what it refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pyworkers.api.enqueueing import BatchedJob, Enqueued
from pyworkers.cli import main
from pyworkers.cli.params import parse_args, parse_duration, parse_retry, parse_time
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.options import OPTIONS


class Pushes:
    """Takes the jobs instead of Redis."""

    def __init__(self) -> None:
        self.jobs: list[PushedJob] = []
        self.batches: set[str] = set()

    def enqueue(self, _admin: object, jobs: Iterable[BatchedJob]) -> list[Enqueued]:
        taken = list(jobs)
        self.jobs += [member.job for member in taken]
        self.batches |= {member.batch for member in taken}
        return [Enqueued(member.job.jid, True) for member in taken]

    def envelope(self) -> dict[str, Any]:
        [job] = self.jobs
        envelope: dict[str, Any] = json.loads(job.payload)
        return envelope


@pytest.fixture
def pushes(monkeypatch: pytest.MonkeyPatch) -> Pushes:
    taken = Pushes()
    monkeypatch.setattr("pyworkers.cli.enqueue.enqueue_all", taken.enqueue)
    return taken


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
        (f"[-{'9' * 4301}]", "an integer of more than 4,300 digits"),
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


@pytest.mark.parametrize(
    ("name", "word", "text", "stored"),
    [
        ("backtrace", "--backtrace", "7", 7),
        ("dead", "--no-dead", None, False),
        ("tags", "--tag", "x", ["x"]),
        ("retry_for", "--retry-for", "1h", 3600),
        ("retry_queue", "--retry-queue", "slow", "slow"),
        ("retry_max", "--retry-max", "3", 3),
        ("timeout", "--timeout", "1.5", 1.5),
        ("track", "--track", "1h", 3600),
        ("unique_for", "--unique-for", "5m", 300),
        ("jid", "--jid", "mine", "mine"),
    ],
)
def test_an_option_of_a_job_is_a_field_of_the_envelope(
    name: str, word: str, text: str | None, stored: object, pushes: Pushes
) -> None:
    assert enqueue("mail", "SendMail", word, *([] if text is None else [text])).exit_code == 0
    assert pushes.envelope()[name] == stored


def test_several_options_of_a_job_count_together(pushes: Pushes) -> None:
    unique = [
        "--unique-for",
        "1h",
        "--unique-until",
        "start",
        "--unique-by",
        '"eu"',
        "--on-duplicate",
        "raise",
    ]
    more = [
        "--track",
        "1h",
        "--history",
        "--tag",
        "a",
        "--tag",
        "b",
        "--extra",
        '{"tenant": 7}',
        "--batch",
        "B",
    ]
    room = ["--max-waiting", "3", "--wait-for-room", "2s", "--expires-in", "1d"]
    assert enqueue("mail", "SendMail", "[7]", *unique, *more, *room).exit_code == 0
    envelope = pushes.envelope()
    assert (envelope["unique_until"], envelope["tags"], envelope["tenant"]) == ("start", ["a", "b"], 7)
    assert envelope["expiry"] == envelope["enqueued_at"] + 86_400
    conditions = pushes.jobs[0].conditions
    assert conditions is not None and conditions.lock is not None
    assert (conditions.max_waiting, conditions.wait_s, conditions.lock.on_duplicate) == (3, 2, "raise")
    assert pushes.batches == {"B"}


@pytest.mark.parametrize("command", [["enqueue"], ["cron", "add"]])
def test_the_help_has_each_option_of_a_job_in_the_words_of_the_table(command: list[str]) -> None:
    words = CliRunner().invoke(main, [*command, "--help"], terminal_width=10_000).output
    shown = {name for name, option in OPTIONS.items() if option.meaning.replace("``", "") in words}
    assert OPTIONS.keys() - shown == (set() if command == ["enqueue"] else {"jid", "encrypt"})


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
        (["mail", "C", "--in", "99999999d"], "from now is after the year 9999"),
        (["mail", "C", "--at", "2099-01-01T00:00:00"], "has no time zone"),
        (["mail", "C", "--in", "5s", "--at", "5"], "--in and --at exclude each other"),
        (["mail", "C", "--in", "0", "--at", "0"], "--in and --at exclude each other"),
        (["mail", "C", "--retry", "maybe"], "'maybe' is not true, false"),
        (["mail", "C", "--count", "0"], "0 is not in the range x>=1"),
        (["mail", "C", "--count", "2", "--jid", "a"], "--wait and --jid are for one job"),
        (["mail", "C", "--count", "2", "--wait", "1"], "--wait and --jid are for one job"),
        (["mail", "C", "--history"], "history has no effect without track"),
        (["mail", "C", "--unique-for", "0"], "unique_for must be seconds above 0"),
        (["mail", "C", "--extra", "[7]"], "extra must be a dict with fields of your own, not [7]"),
        (["mail", "C", "--extra", "{tenant: 7}"], "not JSON"),
        (["mail", "C", "--extra", '{"batch": "b"}'], "pyworkers writes it"),
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
