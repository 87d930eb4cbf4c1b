"""The log of a job without Redis: its lines, what a run sends of them, and the test support."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pyworkers import Worker, current_message
from pyworkers.errors import BadArgumentError, JobCancelled, JobTimeout
from pyworkers.protocol import effects
from pyworkers.protocol.effects import AppendLog, DeleteKey, Effect
from pyworkers.protocol.effects.kinds import MAX_LOG_BYTES
from pyworkers.protocol.flow import joblog
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.testing import fake
from pyworkers.worker.joblog import LogNotes, parts_of

NOW = 1_795_225_197.5


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no text")


def test_a_line_is_read_as_it_was_written() -> None:
    line = joblog.encoded(NOW, "info", "sent \n ä", {"n": 7, "to": ["a", None]})
    assert b"\n" not in line
    assert joblog.read_line(line) == LogLine("sent \n ä", NOW, "info", {"n": 7, "to": ["a", None]})


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("x" * 1_000_000, {}),
        ("\ud800\0" * 500_000, {}),
        ("sent", {"body": "\x01" * 1_000_000}),
        ("sent", {f"\x01 {number}": "\x01" * 300 for number in range(1000)}),
        ("sent", {"n": Unprintable(), "other": 1}),
        ("sent", {"n": {1, 2}, "deep": {(1,): 2}}),
    ],
)
def test_no_line_is_too_long_or_lost(text: str, fields: dict[str, Any]) -> None:
    line = joblog.encoded(NOW, "info", text, fields)
    assert len(line) <= 8100
    found = joblog.read_line(line)
    assert (found.at, found.level) == (NOW, "info")
    # It says how much is missing.
    assert found.text == text or "characters …]" in found.text


@pytest.mark.parametrize("packed", [b"", b"\xff", b"[]", b"7", b"[" * 10_000, b'{"at":"x","fields":[]}'])
def test_a_foreign_line_is_shown(packed: bytes) -> None:
    assert isinstance(joblog.read_line(packed), LogLine)


def appended(first: int, *lines: bytes, run: str = "a") -> AppendLog:
    return AppendLog("log:j1", run, first, b"\n".join(lines), 60)


def test_lines_of_one_run_become_one_effect() -> None:
    merged = effects.merge([appended(0, b"a", b"b"), DeleteKey("x")], [appended(2, b"c")])
    assert merged == (DeleteKey("x"), appended(0, b"a", b"b", b"c"))
    other = effects.merge([appended(0, b"a")], [appended(0, b"b", run="b")])
    assert other == (appended(0, b"a"), appended(0, b"b", run="b"))


def test_what_the_server_keeps_of_a_log_is_limited() -> None:
    noted: tuple[Effect, ...] = ()
    for number in range(100):
        noted = effects.merge(noted, [appended(number, b"%03d" % number + b"x" * 1000)])
    [kept] = noted
    assert isinstance(kept, AppendLog)
    assert MAX_LOG_BYTES - 2000 < len(kept.lines) <= MAX_LOG_BYTES
    lines = kept.lines.split(b"\n")
    assert [int(line[:3]) for line in lines] == list(range(kept.first, 100))


def sent_by(noted: list[Effect]) -> list[str]:
    found = [effect for effect in noted if isinstance(effect, AppendLog)]
    return [json.loads(line)["text"] for effect in found for line in effect.lines.split(b"\n")]


def test_lines_are_sent_at_once_and_many_with_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [NOW]
    monkeypatch.setattr(time, "time", lambda: now[0])
    noted: list[Effect] = []
    notes = LogNotes("j1", 60, noted.append)
    for number in range(150):
        notes.add("info", str(number), {})
    assert len(noted) == 100
    assert sent_by(notes.rest()) == [str(number) for number in range(100, 150)]
    # The result was invalid: another outcome asks again.
    assert sent_by(notes.rest()) == [str(number) for number in range(100, 150)]
    notes.add("info", "after the end", {})
    assert len(noted) == 100


def test_the_lines_of_a_fork_do_not_have_the_numbers_of_the_job() -> None:
    noted: list[Effect] = []
    notes = LogNotes("j1", 60, noted.append)
    notes.add("info", "job", {})
    reading, writing = os.pipe()
    if not (child := os.fork()):
        notes.add("info", "fork", {})
        os.write(writing, effects.pack(noted[1:]))
        os._exit(0)
    os.waitpid(child, 0)
    [mine], [forked] = noted, effects.unpack(os.read(reading, 10_000))
    os.close(reading)
    os.close(writing)
    assert isinstance(mine, AppendLog)
    assert isinstance(forked, AppendLog)
    assert mine.run != forked.run


class Unreadable(dict[str, Any]):
    def __init__(self, error: BaseException) -> None:
        super().__init__(a=1)
        self._error = error

    def items(self) -> Any:
        raise self._error

    def __str__(self) -> str:
        raise self._error


@pytest.mark.parametrize("error", [ValueError("closed"), BaseException("odd")])
def test_an_object_that_cannot_be_read_fails_no_job(error: BaseException) -> None:
    sent: list[Any] = []
    notes = LogNotes("jid", 60, sent.append)
    notes.add("info", "sent", {"row": Unreadable(error)})
    notes.add("info", *parts_of({"event": Unreadable(error), "n": 7}))
    lines = [joblog.read_line(effect.lines) for effect in sent]
    assert [(line.text, line.fields) for line in lines] == [("sent", {}), ("<unprintable>", {"n": 7})]


@pytest.mark.parametrize("request_to_end", [JobTimeout("late"), JobCancelled("asked")])
def test_a_request_that_comes_while_a_line_is_written_passes(request_to_end: Exception) -> None:
    notes = LogNotes("jid", 60, lambda _effect: None)

    class Value:
        def __repr__(self) -> str:
            raise request_to_end

    for value in (Value(), Unreadable(request_to_end), {(1,): Value()}):
        with pytest.raises(type(request_to_end)):
            notes.add("info", "sent", {"value": value})
    with pytest.raises(type(request_to_end)):
        parts_of({"event": Value()})


def test_an_error_of_a_log_event_is_a_field() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        text, fields = parts_of({"event": "it.failed", "exc_info": error, "n": 7})
    assert (text, fields["n"]) == ("it.failed", 7)
    assert fields["exception"].endswith("ValueError: broken")


worker = Worker()


@worker.job(queue="q", track=60, retry=False)
def work(what: str) -> None:
    current_message().log("begun", what=what)
    if what == "fail":
        raise ValueError("broken")


@worker.job(queue="q")
async def waits() -> None:
    current_message().log("begun")


def test_fake_keeps_the_log_of_a_job() -> None:
    with fake() as jobs:
        done, untracked = work.enqueue("a"), waits.enqueue()
        jobs.drain()
        assert [(line.text, line.fields, line.state) for line in worker.logs(done)] == [
            ("begun", {"what": "a"}, ""),
            ("", {}, "done"),
        ]
        assert [line.text or line.state for line in jobs.logs(untracked)] == ["begun", "done"]
        failed = work.enqueue("fail")
        with pytest.raises(ValueError, match="broken"):
            jobs.drain()
        assert [line.text or line.state for line in worker.logs(failed)] == ["begun", "ValueError: broken"]
        assert worker.logs("other") == []


def test_a_line_is_a_text() -> None:
    with pytest.raises(BadArgumentError, match="text must be a string, not of type int"):
        current_message_of_nothing().log(7)


def current_message_of_nothing() -> Any:
    from pyworkers.protocol.message import Message

    return Message("j1", "q", "Any", [], {}, b"")


def test_a_job_without_a_log_imports_nothing_for_it() -> None:
    code = """
import sys
from pyworkers import Worker
from pyworkers.testing import inline
worker = Worker()
@worker.job(queue="q")
def plain() -> None: ...
with inline():
    plain.enqueue()
print("pyworkers.worker.joblog" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"


def test_a_value_of_megabytes_is_cut_before_it_is_encoded() -> None:
    class Counted(list[int]):
        read = 0

        def __iter__(self) -> Iterator[int]:
            for number in super().__iter__():
                self.read += 1
                yield number

    blob = Counted(range(1_000_000))
    line = joblog.read_line(joblog.encoded(NOW, "info", "x", {"blob": blob, "n": 7}))
    assert line.fields["blob"].startswith("[0, 1, 2")
    assert (line.fields["blob"][-1], line.fields["n"]) == ("…", 7)
    assert blob.read < 10_000
