"""Logging: what a line looks like, what it costs, and what happens when it cannot be written."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import socket
import time
import timeit
from collections.abc import Callable, Iterator
from contextvars import copy_context
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

import pytest
import structlog

from pyworkers import logs
from pyworkers.protocol.message import Message, set_run
from pyworkers.worker.execution import Execution
from tests.helpers.processes import close_garbage, leaving_no_descriptor, own_descriptors
from tests.helpers.support import PATIENCE_S, stretched, wait_for


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def nothing_is_bound() -> Iterator[None]:
    yield
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The descriptor to read from, and a stream that stands for a stderr which is a pipe."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reader, stream
    logs.reset()
    os.close(reader)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def drain(reader: int) -> bytes:
    os.set_blocking(reader, False)
    data = b""
    while True:
        try:
            chunk = os.read(reader, 1 << 20)
        except BlockingIOError:
            return data
        if not chunk:
            return data
        data += chunk


def test_a_json_line_holds_event_level_utc_timestamp_and_fields(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream, identity="host:1:abc")
    logs.get_logger("fetcher").info("job.done", jid="j1", duration_ms=1.5)
    (line,) = lines(stream)
    stamp = line.pop("timestamp")
    assert line == {
        "event": "job.done",
        "level": "info",
        "logger": "fetcher",
        "identity": "host:1:abc",
        "pid": os.getpid(),
        "jid": "j1",
        "duration_ms": 1.5,
    }
    assert stamp.endswith("Z")
    assert abs(datetime.fromisoformat(stamp).timestamp() - time.time()) < 60


def test_the_timestamp_follows_the_clock_forward_and_back(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.configure("info", "json", stream)
    for ns in (1_700_000_000_999_999_999, 1_700_000_001_000_001_000, 1_700_000_000_500_000_000):
        monkeypatch.setattr(time, "time_ns", lambda ns=ns: ns)
        logs.get_logger().info("event")
    assert [line["timestamp"] for line in lines(stream)] == [
        "2023-11-14T22:13:20.999999Z",
        "2023-11-14T22:13:21.000001Z",
        "2023-11-14T22:13:20.500000Z",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xff", "b'\\xff'"),
        ({1}, "{1}"),
        (float("nan"), "nan"),
        (Broken(), "<unprintable Broken>"),
        ({(1, 2): "tuple as key"}, "{(1, 2): 'tuple as key'}"),
        ("\udc80 lone surrogate", "\udc80 lone surrogate"),
        ("two\nlines", "two\nlines"),
    ],
    ids=["bytes", "set", "nan", "broken repr", "tuple as key", "lone surrogate", "two lines"],
)
def test_a_value_that_json_does_not_know_is_shown_as_text(
    stream: io.StringIO, value: object, shown: str
) -> None:
    logs.configure("info", "json", stream)
    logs.get_logger().info("odd", value=value, other=1)
    (line,) = lines(stream)
    assert (line["value"], line["other"]) == (shown, 1)


def test_values_without_any_text_lose_neither_the_line_nor_its_other_fields(stream: io.StringIO) -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    itself: list[object] = []
    itself.append(itself)
    logs.configure("info", "json", stream)
    logs.get_logger().info("odd", deep=deep, itself=itself, huge=10**5000, jid="j1")
    (line,) = lines(stream)
    assert line["jid"] == "j1"
    assert line["itself"] == "[[...]]"
    assert line["deep"] == "<unprintable list>"
    assert line["huge"] == "<unprintable int>"


def test_fields_named_like_our_own_do_not_replace_them(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    logs.get_logger().info("job.done", level="mine", timestamp="mine")
    logging.getLogger("app").warning("hello", extra={"event": "mine", "level": "mine"})
    first, second = lines(stream)
    assert (first["event"], first["level"]) == ("job.done", "info")
    assert first["timestamp"] != "mine"
    assert (second["event"], second["level"]) == ("hello", "warning")


def run_of(text: str) -> Execution:
    """A run of a job with this text in all fields."""
    return Execution(Message(text, text, text, [], {}, b""))


def test_both_worlds_carry_the_job_in_whose_context_they_are(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)

    def run() -> None:
        set_run(Execution(Message("j1", "q", "Add", [], {}, b"")))
        logs.get_logger().info("ours")
        logging.getLogger("app.mail").info("theirs %d", 7, extra={"user_id": 9})

    copy_context().run(run)
    logging.getLogger("app.mail").info("after")
    ours, theirs, after = lines(stream)
    job = {"jid": "j1", "job_class": "Add", "queue": "q", "attempt": 0}
    assert ours.items() >= job.items()
    assert theirs.items() >= {**job, "event": "theirs 7", "logger": "app.mail", "user_id": 9}.items()
    assert "jid" not in after


@pytest.mark.parametrize("log", [lambda: logs.get_logger(), lambda: logging.getLogger("app")])
def test_an_exception_is_one_json_field(stream: io.StringIO, log: Callable[[], Any]) -> None:
    logs.configure("info", "json", stream)
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        log().exception("job.failed")
    (line,) = lines(stream)
    assert (line["event"], line["level"]) == ("job.failed", "error")
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: bad\nvalue")
    assert "exc_info" not in line


def test_the_stack_that_the_standard_library_took_is_a_field(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    logging.getLogger("app").info("where", stack_info=True)
    assert lines(stream)[0]["stack"].startswith("Stack (most recent call last):")


def test_a_bad_call_of_the_standard_library_still_logs_what_it_had(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own would fail the test
    logs.configure("info", "json", stream)
    logging.getLogger("app").info("%d jobs", "seven")
    assert lines(stream)[0]["event"] == "'%d jobs' % ('seven',)"


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_rules_both_worlds(stream: io.StringIO, level: str, seen: int) -> None:
    logs.configure(level, "json", stream)
    for log in (logs.get_logger(), logging.getLogger("app")):
        for method in ("debug", "info", "warning", "error"):
            getattr(log, method)("x")
    assert len(lines(stream)) == 2 * seen


def test_a_filtered_call_costs_a_fraction_of_what_structlogs_own_proxy_costs(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    ours, theirs = logs.get_logger("fetcher"), structlog.get_logger()
    once = best_time(lambda: ours.debug("job.start", jid="j1"))
    assert once < best_time(lambda: theirs.debug("job.start", jid="j1")) / 3
    assert stream.getvalue() == ""


def best_time(call: Callable[[], object]) -> float:
    return min(timeit.repeat(call, number=5_000, repeat=20))


def test_a_logger_made_before_configure_follows_every_configure(stream: io.StringIO) -> None:
    log, again = logs.get_logger("early"), io.StringIO()
    logs.configure("warning", "json", stream)
    log.info("hidden")
    log.warning("first")
    logs.configure("info", "json", again)
    log.info("second")
    logging.getLogger().info("third")
    assert [line["event"] for line in lines(stream)] == ["first"]
    assert [line["event"] for line in lines(again)] == ["second", "third"]


def test_the_application_may_use_structlog_itself(stream: io.StringIO) -> None:
    log = structlog.get_logger()
    logs.configure("info", "json", stream)
    log.bind(part=1).info("mine")
    assert lines(stream)[0]["part"] == 1


def test_reset_leaves_no_handler_and_no_configuration(stream: io.StringIO) -> None:
    before = logging.getLogger().handlers[:]
    logs.configure("info", "json", stream)
    log = logs.get_logger()
    logs.reset()
    log.error("structlog's own default prints this")
    logging.getLogger("app").error("unread")
    assert logging.getLogger().handlers == before
    assert not structlog.is_configured()
    assert stream.getvalue() == ""


def test_capture_logs_sees_what_configured_loggers_say(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    with structlog.testing.capture_logs() as captured:
        logs.get_logger().info("job.done", jid="j1")
        logging.getLogger("app").info("dropped by the capture, not an error")
    assert captured[0] == {"event": "job.done", "jid": "j1", "log_level": "info"}
    assert stream.getvalue() == ""


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="'xml' is none of auto, console, json"):
        logs.configure("info", "xml")


def test_auto_is_json_in_a_pipe_and_text_on_a_terminal(
    pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    logs.configure("info", "auto", pipe[1])
    logs.get_logger().info("job.done", jid="j1")
    assert json.loads(drain(pipe[0]))["jid"] == "j1"

    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        logs.configure("info", "auto", terminal)
        logs.get_logger().info("job.done", jid="j1")
        shown = os.read(master, 4096).decode()
        logs.reset()
    os.close(master)
    assert "job.done" in shown
    assert "jid=j1" in shown
    assert "\x1b" not in shown


def test_console_shows_a_traceback_and_survives_a_broken_repr(stream: io.StringIO) -> None:
    logs.configure("info", "console", stream)
    try:
        raise ValueError("bad value")
    except ValueError:
        logs.get_logger().exception("job.failed", jid="j1")
    logs.get_logger().info("odd", value=Broken(), jid="j2")
    text = stream.getvalue()
    assert "jid=j1" in text
    assert "ValueError: bad value" in text
    assert "<unprintable Broken>" in text


# Clears a terminal, rings, turns the direction of writing, and begins a line that looks like ours.
HOSTILE = "\x1b[2J\x07\u202e\x9b\x7f\r\x85\u2028\n2026-01-01T00:00:00.000000Z [info     ] forged"


class Hostile:
    def __repr__(self) -> str:
        return HOSTILE


@pytest.mark.parametrize(
    "write",
    [
        lambda: logs.get_logger().info(HOSTILE),
        lambda: logs.get_logger(f"a{HOSTILE}").info("x"),
        lambda: logs.get_logger().info("x", error=HOSTILE),
        lambda: logs.get_logger().info("x", error="\x1b[31mred"),
        lambda: logs.get_logger().info("x", queues=[HOSTILE], owner=HOSTILE.encode(), hook=Hostile()),
        lambda: logs.get_logger().info("x", **{HOSTILE: 1}),
        lambda: logs.get_logger().info("x", stack=HOSTILE, exception=HOSTILE),
        lambda: logs.get_logger().info("x", exc_info=ValueError(HOSTILE)),
        lambda: logging.getLogger(HOSTILE).warning("bad: %s", HOSTILE, stack_info=True),
        lambda: logging.getLogger().warning("x", exc_info=ValueError(HOSTILE), extra={HOSTILE: HOSTILE}),
        lambda: logging.getLogger().log(35, HOSTILE),
        lambda: (set_run(run_of(HOSTILE)), logs.get_logger().info("x")),
    ],
    ids=[
        "event", "logger", "error", "without a newline", "values with a repr", "name of a field", "blocks",
        "exception", "standard library", "extra fields", "unknown level", "job",
    ],
)  # fmt: skip
def test_nothing_that_is_logged_steers_a_console_or_forges_a_line(
    stream: io.StringIO, write: Callable[[], object]
) -> None:
    logs.configure("info", "console", stream)
    copy_context().run(write)
    first, *others = stream.getvalue().removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in (first, *others))
    assert all(line == "" or line.startswith(("    ", "=====")) for line in others)


def test_a_console_shows_what_it_escapes(stream: io.StringIO) -> None:
    logs.configure("info", "console", stream)
    logs.get_logger().info("two\nlines", error="it's\x1b[2J", job_class="Ünï::Çode", names=["a\x07"])
    text = stream.getvalue()
    assert r"two\nlines" in text
    assert r'''error="it's\x1b[2J"''' in text
    assert "job_class=Ünï::Çode" in text
    assert r"names=['a\x07']" in text


def test_a_console_shows_a_traceback_on_its_own_lines(stream: io.StringIO) -> None:
    logs.configure("info", "console", stream)
    try:
        try:
            raise KeyError("cause")
        except KeyError as cause:
            raise ValueError("bad\n\tvalue\x1b[2J") from cause
    except ValueError:
        logs.get_logger().exception("job.failed")
    shown = stream.getvalue().splitlines()
    assert shown[1] == "    Traceback (most recent call last):"
    assert '    raise KeyError("cause")' in shown[3]
    assert "    KeyError: 'cause'" in shown
    assert shown[-2:] == ["    ValueError: bad", r"            value\x1b[2J"]


def test_colors_of_a_console_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal:
        logs.configure("info", "auto", terminal)
        logs.get_logger().info("x", error="\x1b[2J")
        shown = os.read(master, 4096).decode()
        logs.reset()
    os.close(master)
    assert "\x1b[0m" in shown
    assert "\x1b[2J" not in shown and r"\x1b[2J" in shown


@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize(
    "write",
    [
        lambda huge: logs.get_logger().error("job.failed", exc_info=ValueError(huge)),
        lambda huge: logging.getLogger().error("failed", exc_info=ValueError(huge)),
        lambda huge: logs.get_logger().info("x", error=huge, traceback=huge, stack=huge, exception=huge),
        lambda huge: logs.get_logger().info("x", queues=[huge], about={huge: 1}),
        lambda huge: logging.getLogger().warning(huge),
        lambda huge: (
            set_run(run_of(huge)),
            logs.get_logger().info("x"),
        ),
    ],
    ids=["exception", "standard library's", "fields", "values in values", "event", "job"],
)
def test_a_text_of_megabytes_makes_no_line_of_megabytes(
    stream: io.StringIO, format: str, write: Callable[[str], object]
) -> None:
    logs.configure("info", format, stream)
    copy_context().run(write, "begin" + "x" * 2_000_000 + "end")
    line = stream.getvalue()
    assert len(line) < 200_000
    assert "begin" in line and "end" in line and "characters" in line


def test_the_name_of_an_exception_outlives_its_message_and_those_of_its_causes(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    error = ValueError("v" * 1_000_000)
    error.__cause__ = KeyError("k" * 1_000_000)
    logs.get_logger().error("job.failed", exc_info=error)
    (line,) = lines(stream)
    assert "KeyError: 'kkk" in line["exception"] and "ValueError: vvv" in line["exception"]


def test_an_exception_that_cannot_be_formatted_is_logged_with_its_frames(stream: io.StringIO) -> None:
    class Broken(Exception):
        def __bool__(self) -> bool:
            raise KeyError("asked by traceback.TracebackException")

    logs.configure("info", "json", stream)
    try:
        raise Broken
    except Broken as error:
        exc_info = type(error), error, error.__traceback__
    logs.get_logger().error("job.failed", exc_info=exc_info)
    (line,) = lines(stream)
    assert "in test_an_exception_that_cannot_be_formatted" in line["exception"]
    assert line["exception"].endswith("Broken: (its traceback cannot be shown: KeyError)")


def test_texts_within_the_limit_are_whole(stream: io.StringIO) -> None:
    logs.configure("info", "json", stream)
    logs.get_logger().info("x", error="é" * 10_000, traceback="x" * 50_000, names=["y" * 49_000])
    (line,) = lines(stream)
    assert line["error"] == "é" * 10_000
    assert (len(line["traceback"]), line["names"]) == (50_000, ["y" * 49_000])


def test_every_line_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    with (tmp_path / "log").open("w") as stream:
        logs.configure("info", "json", stream)
        real_write = os.write

        def write(fd: int, data: bytes) -> int:
            writes.append(data)
            return real_write(fd, data)

        monkeypatch.setattr(os, "write", write)
        logs.get_logger().info("long", text="x" * 100_000)
        logging.getLogger().info("short")
        monkeypatch.undo()
    assert [write.count(b"\n") for write in writes] == [1, 1]
    assert (tmp_path / "log").read_bytes() == b"".join(writes)


def test_processes_that_share_a_file_never_mix_their_lines(tmp_path: Path) -> None:
    with (tmp_path / "log").open("a") as stream:
        logs.configure("info", "json", stream)
        children = [fork(log_many) for _ in range(4)]
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
    pids = [json.loads(line)["pid"] for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted(pids) == sorted(children * 200)


def log_many() -> None:
    for _ in range(200):
        logs.get_logger().info("job.done", text="x" * 300)


def test_a_forked_child_configures_again_without_touching_its_parent(pipe: tuple[int, TextIO]) -> None:
    logs.configure("info", "json", pipe[1], role="parent")

    def in_child() -> None:
        logs.configure("debug", "json", pipe[1], role="child")
        logs.get_logger().debug("x")

    child = fork(in_child)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    logs.get_logger().info("y")
    logs.get_logger().debug("hidden")
    got = [json.loads(line) for line in drain(pipe[0]).splitlines()]
    assert [(line["event"], line["role"]) for line in got] == [("x", "child"), ("y", "parent")]


def fork(run: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run()
        status = 0
    finally:
        os._exit(status)


def test_configuring_again_and_again_leaks_no_descriptor(pipe: tuple[int, TextIO]) -> None:
    logs.configure("info", "json", pipe[1])
    with leaving_no_descriptor():
        for _ in range(20):
            logs.configure("info", "json", pipe[1])


def test_configure_closes_no_descriptor_that_was_reused(pipe: tuple[int, TextIO], tmp_path: Path) -> None:
    close_garbage()
    before = own_descriptors()
    logs.configure("info", "json", pipe[1])
    opened = own_descriptors() - before
    if not opened:
        pytest.skip("this system cannot open a pipe again")
    os.closerange(min(opened), max(opened) + 1)
    with (tmp_path / "file").open("w") as file:
        assert file.fileno() in opened
        logs.configure("info", "json", pipe[1])
        file.write("still open")
        file.flush()
    assert (tmp_path / "file").read_text() == "still open"


def test_a_closed_stream_costs_the_line_only(stream: io.StringIO, tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        logs.configure("info", "json", file)
    logs.get_logger().info("after close")
    logs.configure("info", "json", stream)
    stream.close()
    logs.get_logger().info("after close")
    logging.getLogger().info("after close")


def test_a_process_without_stderr_logs_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    logs.configure("info", "auto")
    logs.get_logger().info("unread")
    assert capsys.readouterr().out == ""


def test_a_pipe_whose_reader_is_gone_costs_the_line_only() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        logs.configure("info", "json", stream)
        os.close(reader)
        logs.get_logger().info("unread")
        logs.configure("info", "json", stream)
        logs.get_logger().info("unread")
        logs.reset()


def test_a_reader_that_stands_still_blocks_no_call_and_gets_the_number_of_lost_lines(
    pipe: tuple[int, TextIO],
) -> None:
    logs.configure("info", "json", pipe[1])
    log = logs.get_logger()
    began = time.monotonic()
    for n in range(5000):
        log.info("job.done", n=n, text="x" * 200)
    assert time.monotonic() - began < stretched(5)
    assert os.get_blocking(pipe[1].fileno()), "other processes share the description"
    early = [json.loads(line)["n"] for line in drain(pipe[0]).splitlines()]
    assert early == list(range(len(early)))
    assert 100 < len(early) < 5000

    log.info("job.done", n="late")
    late, dropped = (json.loads(line) for line in drain(pipe[0]).splitlines())
    assert late["n"] == "late"
    assert (dropped["event"], dropped["count"]) == ("log.dropped", 5000 - len(early))


def test_a_line_that_went_out_in_part_does_not_spoil_the_next(pipe: tuple[int, TextIO]) -> None:
    logs.configure("info", "json", pipe[1])
    logs.get_logger().info("too long", **{f"text{n}": "x" * 9_000 for n in range(20)})
    torn = drain(pipe[0])
    assert torn.count(b"\n") == 0
    logs.get_logger().info("next")
    end_of_torn, next_line, dropped = drain(pipe[0]).split(b"\n")[:3]
    assert end_of_torn == b""
    assert json.loads(next_line)["event"] == "next"
    assert json.loads(dropped)["count"] == 1


def test_a_socket_that_is_full_blocks_no_call() -> None:
    ours, theirs = socket.socketpair()
    with theirs, os.fdopen(ours.detach(), "w") as stream:
        logs.configure("info", "json", stream)
        began = time.monotonic()
        for _ in range(5000):
            logs.get_logger().info("job.done", text="x" * 200)
        assert time.monotonic() - began < stretched(5)
        theirs.settimeout(PATIENCE_S)
        assert json.loads(theirs.recv(1 << 20).partition(b"\n")[0])["event"] == "job.done"


def test_a_burst_is_not_cut_while_the_reader_lives(pipe: tuple[int, TextIO]) -> None:
    # However slow this machine is.
    logs.configure("info", "json", pipe[1], patience_ms=10_000)
    child = fork(lambda: [logs.get_logger().info("job.done", text="x" * 200) for _ in range(3000)])
    got = b""

    def all_came() -> bool:
        nonlocal got
        got += drain(pipe[0])
        return got.count(b"\n") >= 3000

    wait_for(all_came, message="3000 lines came")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert b"log.dropped" not in got
