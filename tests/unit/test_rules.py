"""What becomes of a job whose worker is gone: decided from the manifest alone, without user code."""

from __future__ import annotations

import json
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from pyworkers.ipc.control import Manifest
from pyworkers.protocol.outcome import Fate
from pyworkers.protocol.retry import Failure
from pyworkers.server import proc
from pyworkers.server.pool import settling
from pyworkers.server.pool.settling import Rules
from pyworkers.server.pool.worker import describe

NOW = 1_000_000.0
MANIFEST: Manifest = {
    "queues": {
        "go": {
            "kind": "process",
            "concurrency": None,
            "processes": None,
            "mode": None,
            "name": "go",
            "retry": 0,
            "dead": True,
            "is_async": False,
        },
        "go-retrying": {
            "kind": "process",
            "concurrency": None,
            "processes": None,
            "mode": None,
            "name": "again",
            "retry": 4,
            "dead": True,
            "is_async": False,
        },
        "mail": {"kind": "job", "concurrency": None, "processes": None, "mode": None, "is_async": False},
    },
    "groups": {},
    "jobs": {
        "send": {"name": "send", "retry": 2, "dead": True, "is_async": False, "envelope": {"queue": "mail"}},
        "drop": {
            "name": "drop",
            "retry": False,
            "dead": True,
            "is_async": False,
            "envelope": {"queue": "mail"},
        },
        "strict": {
            "name": "strict",
            "retry": True,
            "dead": True,
            "is_async": False,
            "retry_for": 60,
            "overdue": Fate.DEAD,
            "envelope": {"queue": "mail"},
        },
        "forget": {
            "name": "forget",
            "retry": 0,
            "dead": False,
            "is_async": False,
            "envelope": {"queue": "mail"},
        },
    },
    "handlers": ["go", "again", "send", "drop", "strict", "forget"],
    "cron": [],
    "hooks": {},
}
CRASH = settling.died("was killed by SIGSEGV", 0)
OVERRUN = settling.timed_out(30)


def decide(queue: str, envelope: object, failure: Failure) -> tuple[Any, dict[str, object]]:
    raw = envelope if isinstance(envelope, bytes) else json.dumps(envelope).encode()
    return Rules(MANIFEST, 25, lambda: NOW, random.Random(1)).outcome(queue, raw, failure)


def job(name: str, **fields: object) -> dict[str, object]:
    return {"class": name, "args": [1], "jid": "j1", **fields}


@pytest.mark.parametrize(
    ("queue", "envelope", "failure", "fate"),
    [
        # A crash says little about the job: the retries that it has left do not matter, its crashes do.
        ("go", job("Any"), CRASH, Fate.RETRY),
        ("go", job("Any", crash_count=1), CRASH, Fate.RETRY),
        ("go", job("Any", crash_count=2), CRASH, Fate.DEAD),
        ("mail", job("drop"), CRASH, Fate.RETRY),
        ("mail", job("forget", crash_count=2), CRASH, Fate.DISCARD),
        ("mail", job("send", crash_count=2, dead=False), CRASH, Fate.DISCARD),
        # A time limit counts like an exception: by the handler that the manifest names.
        ("go", job("Any"), OVERRUN, Fate.DEAD),
        ("go", job("Any", retry=3), OVERRUN, Fate.RETRY),
        ("go-retrying", job("Any", retry_count=2), OVERRUN, Fate.RETRY),
        ("go-retrying", job("Any", retry_count=3), OVERRUN, Fate.DEAD),
        ("mail", job("send"), OVERRUN, Fate.RETRY),
        ("mail", job("send", retry_count=1), OVERRUN, Fate.DEAD),
        ("mail", job("drop"), OVERRUN, Fate.DISCARD),
        ("mail", job("forget"), OVERRUN, Fate.DISCARD),
        # Nobody declares it: a deploy may be under way.
        ("mail", job("Unknown", retry_count=20), OVERRUN, Fate.RETRY),
        ("a queue of the code before", job("send"), OVERRUN, Fate.RETRY),
        # What is no job at all killed its worker all the same.
        ("go", b"[1]", CRASH, Fate.DEAD),
        ("go", b"\xff", OVERRUN, Fate.DEAD),
    ],
)
def test_the_fate_of_a_job_that_ended_with_its_worker(
    queue: str, envelope: object, failure: Failure, fate: Fate
) -> None:
    assert decide(queue, envelope, failure)[0].fate is fate


@pytest.mark.parametrize(
    ("queue", "job_class", "name"),
    [("go", "Any", "go"), ("go", "send", "go"), ("mail", "send", "send"), ("mail", "Unknown", "")],
)
def test_the_handler_of_a_lost_job(queue: str, job_class: str, name: str) -> None:
    found = Rules(MANIFEST, 25, lambda: NOW, random.Random(1)).handler_name(queue, job_class)
    assert found == name


def test_a_crash_is_counted_apart_from_the_retries_and_runs_again_soon() -> None:
    outcome, about = decide("mail", job("send", retry_count=0, custom=[1.50]), settling.died("x", 2048))
    after = json.loads(outcome.payload)
    assert (after["crash_count"], after["retry_count"], after["custom"]) == (1, 0, [1.5])
    assert (outcome.at, outcome.failed, outcome.crashed) == (NOW + 1, True, True)
    assert (after["error_class"], after["error_message"]) == (
        "WorkerLost",
        "the worker x; its peak memory was 2 MB",
    )
    assert about == {
        "jid": "j1",
        "job_class": "send",
        "attempt": 1,
        "crash_count": 1,
        "retry_at": outcome.at,
        "error_class": "WorkerLost",
        "error": "the worker x; its peak memory was 2 MB",
    }


@pytest.mark.parametrize(("before", "count"), [(0, 1), (2, 3), (3, 1)])
def test_the_log_counts_the_crashes_of_this_life(before: int, count: int) -> None:
    assert decide("mail", job("send", crash_count=before), CRASH)[1]["crash_count"] == count


def test_an_overrun_is_a_failure_of_the_job() -> None:
    outcome, about = decide("mail", job("send"), settling.timed_out(0.5))
    after = json.loads(outcome.payload)
    assert (after["retry_count"], "crash_count" in after, outcome.crashed) == (0, False, False)
    assert outcome.at >= NOW + 15
    assert after["error_class"] == about["error_class"] == "JobTimeout"
    assert after["error_message"] == "killed: still running after its limit of 0.5 s"


def test_an_overdue_job_ends_as_its_handler_declares() -> None:
    job = {"class": "strict", "jid": "j", "retry": True}
    outcome, about = decide("mail", job, OVERRUN)
    assert (outcome.fate, outcome.final, about["error_class"]) == (Fate.DEAD, True, "JobTimeout")
    assert decide("mail", job, CRASH)[0].fate is Fate.RETRY


def test_bytes_that_are_no_job_are_kept_as_they_are() -> None:
    outcome, about = decide("go", b"nonsense", CRASH)
    assert (outcome.fate, outcome.payload, outcome.final) == (Fate.DEAD, b"", False)
    assert about["error_class"] == "BadMessageError"


def test_an_object_that_is_no_job_says_why_it_is_dead() -> None:
    outcome, about = decide("go", {"class": "Any", "jid": 7}, CRASH)
    after = json.loads(outcome.payload)
    assert (outcome.fate, outcome.final, after["jid"], after["queue"]) == (Fate.DEAD, False, 7, "go")
    assert (after["error_class"], after["error_message"]) == ("BadMessageError", about["error"])


@pytest.mark.parametrize(
    ("status", "fault", "words"),
    [
        (None, "", "ended"),
        (None, "could not be forked", "could not be forked"),
        (0, "", "exited with status 0"),
        (3 << 8, "", "exited with status 3"),
        (signal.SIGSEGV, "", "was killed by SIGSEGV"),
        (signal.SIGABRT | 0x80, "", "was killed by SIGABRT"),
        (signal.SIGRTMIN + 3, "", f"was killed by signal {signal.SIGRTMIN + 3}"),
        (signal.SIGKILL, "", "was killed by SIGKILL"),
        # Our own kill is explained by its reason; another end is not.
        (signal.SIGKILL, "closed its pipe", "closed its pipe"),
        (signal.SIGSEGV, "closed its pipe", "was killed by SIGSEGV"),
        (1 << 8, "closed its pipe", "exited with status 1"),
    ],
)
def test_a_wait_status_in_words(status: int | None, fault: str, words: str) -> None:
    assert describe(status, fault) == words


@pytest.mark.parametrize(
    ("status", "fault", "hint"),
    [(signal.SIGKILL, "", True), (signal.SIGKILL, "ran too long", False), (signal.SIGSEGV, "", False)],
)
def test_memory_is_named_only_where_the_system_may_have_been_short_of_it(
    status: int, fault: str, hint: bool
) -> None:
    assert ("lack of memory" in describe(status, fault, lambda: True)) is hint
    assert "lack of memory" not in describe(status, fault, lambda: False)


def test_the_kernels_count_of_its_kills(tmp_path: Path) -> None:
    path = tmp_path / "vmstat"
    assert proc.oom_kills(path) is None
    assert proc.oom_may_have_killed(path, at_start=3)
    path.write_text("nr_free_pages 1\noom_kill 3\n")
    assert not proc.oom_may_have_killed(path, at_start=3)
    path.write_text("nr_free_pages 1\noom_kill 4\n")
    assert proc.oom_may_have_killed(path, at_start=3)
