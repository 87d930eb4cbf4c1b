"""Exceptions that resist being looked at, choices in groups, and observers that raise: the outcome stays."""

from __future__ import annotations

import io
import json
import logging
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import structlog

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.errors import (
    Discard,
    Interrupted,
    JobCancelled,
    JobTimeout,
    Kill,
    Retry,
    Snooze,
    text_with_class,
)
from pyworkers.logs.lines import safe_repr
from pyworkers.observing.guard import Observer
from pyworkers.observing.readable import text_of
from pyworkers.observing.requests import ignore
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.execution import Execution


def resist(*_: Any) -> Any:
    raise RuntimeError("do not look")


class Meta(type):
    __getattribute__ = resist


RESISTING: dict[str, Any] = {
    name: type(name, (ValueError,), {attribute: property(resist) if is_property else resist})
    for name, attribute, is_property in (
        ("Class", "__class__", True),
        ("Trace", "__traceback__", True),
        ("Cause", "__cause__", True),
        ("Any", "__getattribute__", False),
        ("Text", "__str__", False),
        ("Set", "__setattr__", False),
    )
}
RESISTING["Meta"] = Meta("Meta", (ValueError,), {})
ODD_GROUP = type("Odd", (ExceptionGroup,), {"exceptions": property(resist)})


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("debug", "json", stream)
    yield stream
    logs.reset()


def run(worker: Worker, **fields: Any) -> Outcome:
    raw = json.dumps({"class": "job", "args": [], "jid": "j", **fields}).encode()
    message = Message.parse(raw, "default", lambda: "j")
    bridge = Bridge()
    try:
        runtime = Runtime(bridge, 25, lambda: 1e9, random.Random(1))
        return StepChain(worker, worker.lookup("default", "job"), runtime).run(Execution(message))
    finally:
        bridge.close()


def raising(make: Callable[[], BaseException], **options: Any) -> Worker:
    worker = Worker()

    @worker.job(name="job", **options)
    def job() -> None:
        raise make()

    return worker


@pytest.mark.parametrize("name", RESISTING)
@pytest.mark.parametrize("options", [{"retry": 3}, {"discard_on": (ValueError,)}])
def test_an_exception_that_resists_fails_its_job_alone(
    name: str, options: dict[str, Any], logged: io.StringIO
) -> None:
    seen: list[Any] = []
    worker = raising(RESISTING[name], **options)
    worker.on_error(lambda message, error, outcome: seen.append((str, outcome.fate)))
    outcome = run(worker, track=60, history=True)
    expected = Fate.RETRY if "retry" in options else Fate.DISCARD
    assert outcome.fate is expected
    assert outcome.error_class.endswith(name)
    assert seen == [(str, expected)]
    [line] = [json.loads(text) for text in logged.getvalue().splitlines() if "job.failed" in text]
    assert line["outcome"] == expected.name.lower()


@pytest.mark.usefixtures("logged")
@pytest.mark.parametrize(("choice", "fate"), [(Retry, Fate.RETRY), (Snooze, Fate.DEAD)])
def test_a_delay_that_resists_ends_no_worker(choice: Any, fate: Fate) -> None:
    def leave(_: object) -> str:
        raise BaseException("of no kind that Exception is")

    delay = type("Leaving", (), {"__repr__": leave})()
    assert run(raising(lambda: choice(message="later", delay=delay))).fate is fate


@pytest.mark.parametrize("name", [*RESISTING, "exceptions"])
def test_a_group_with_one_that_resists_fails_its_job_alone(name: str, logged: io.StringIO) -> None:
    kind, member = (ExceptionGroup, RESISTING[name]) if name in RESISTING else (ODD_GROUP, ValueError)
    outcome = run(raising(lambda: kind("group", [member()])), retry=3, track=60, history=True)
    assert outcome.fate is Fate.RETRY
    assert "job.failed" in logged.getvalue()


def test_the_text_of_an_error_is_read_in_any_case() -> None:
    assert text_with_class(ValueError("bad")) == "ValueError: bad"
    assert text_with_class(RESISTING["Text"]()) == "Text: (its text cannot be shown: __str__ failed)"


def test_a_syntax_error_far_behind_its_line_fills_no_memory(logged: io.StringIO) -> None:
    def make() -> BaseException:
        error = SyntaxError("bad", ("file", 1, 10**10, "text", 1, 10**10))
        error.__cause__ = ExceptionGroup("more", [SyntaxError("bad", ("file", 1, 10**10, "text"))])
        return error

    outcome = run(raising(make), track=60, history=True)
    assert outcome.error_class == "SyntaxError"
    assert len(logged.getvalue()) < 10_000


@pytest.mark.parametrize(
    ("errors", "fate"),
    [
        ([Snooze(5)], Fate.SNOOZE),
        ([Snooze(5), Snooze(7)], Fate.SNOOZE),
        ([ExceptionGroup("inner", [Discard("no")])], Fate.DISCARD),
        ([Kill("yes")], Fate.DEAD),
        ([Retry(delay=50)], Fate.RETRY),
        ([Snooze(5), Discard("no")], Fate.RETRY),
        ([Discard("no"), ValueError("bad")], Fate.RETRY),
        ([Interrupted("stop")], Fate.REQUEUE),
        ([JobCancelled("stop"), JobCancelled("stop")], Fate.CANCELLED),
        ([JobTimeout("late")], Fate.DEAD),
    ],
)
def test_a_group_that_holds_one_choice_alone_is_that_choice(errors: list[BaseException], fate: Fate) -> None:
    outcome = run(raising(lambda: BaseExceptionGroup("tasks", errors), dead_on=(JobTimeout,)))
    assert outcome.fate is fate
    if fate is Fate.SNOOZE:
        assert outcome.at == 1e9 + 5


def test_an_observer_that_raises_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    observer = Observer("tracer")
    assert [observer.see(resist), observer.see(resist), observer.see(int, 7)] == [None, None, 7]
    assert [(record.msg, record.__dict__["observer"]) for record in caplog.records] == [
        ("observer.failed", "tracer")
    ]


@pytest.mark.parametrize("request_", [JobTimeout("late"), Interrupted("stop")])
def test_a_request_to_end_passes_an_observer(request_: BaseException) -> None:
    def step() -> None:
        raise request_

    with pytest.raises(type(request_)):
        Observer("tracer").see(step)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_that_no_signal_can_mean_is_kept_from_the_job(
    kind: type[BaseException], number: signal.Signals, monkeypatch: pytest.MonkeyPatch, logged: io.StringIO
) -> None:
    def end(*_: object) -> Any:
        raise kind("of an observer")

    value = type("Ending", (), {"__repr__": end})()
    error = type("Error", (ValueError,), {"__str__": end})()
    looks = (
        lambda: Observer("tracer").see(end),
        lambda: safe_repr(value),
        lambda: text_of(error),
        lambda: structlog.get_logger().info("event", value=value),
    )
    # In a worker, which ignores these signals, and in a program in which one has a handler that may raise.
    for handler in (ignore, end):
        monkeypatch.setattr(
            "pyworkers.observing.requests.signal.getsignal",
            lambda asked, handler=handler: handler if asked == number else signal.SIG_DFL,
        )
        for look in looks:
            with nullcontext() if handler is ignore else pytest.raises(kind):
                look()
    assert '"event": "event"' in logged.getvalue()


def test_a_handler_of_the_log_that_raises_is_nothing_to_the_job() -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError(record.msg)

    handler = Broken()
    logging.getLogger("pyworkers.observing.guard").addHandler(handler)
    try:
        assert Observer("tracer").see(resist) is None
    finally:
        logging.getLogger("pyworkers.observing.guard").removeHandler(handler)
