"""The serial runner: one job at a time, requests to end reach that job alone, and nothing of it is kept."""

from __future__ import annotations

import gc
import json
import random
import time
import weakref
from contextlib import suppress
from typing import Any

import pytest

from pyworkers.app import Worker
from pyworkers.errors import JobCancelled
from pyworkers.ipc.control import Settings
from pyworkers.ipc.jobsocket import Packet, PacketKind
from pyworkers.protocol.message import Message, current_message
from pyworkers.protocol.outcome import CANCELLED, DONE, Fate
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime
from pyworkers.worker.chains import Chains
from pyworkers.worker.execution import Execution
from pyworkers.worker.runner import SerialRunner
from pyworkers.worker.steps.timelimit import Alarm


class Calls:
    """What the runner tells the process."""

    def __init__(self) -> None:
        self.limits: list[tuple[int, float]] = []
        self.ended: list[int] = []

    def announce(self, delivery: int, seconds: float) -> None:
        self.limits.append((delivery, seconds))

    def after_request(self, execution: Execution) -> None:
        self.ended.append(execution.delivery)


def runner(app: Worker, calls: Calls | None = None, **settings: Any) -> SerialRunner:
    calls = calls or Calls()
    after, announce = calls.after_request, calls.announce
    runtime = Runtime(Bridge(), 25, time.time, random.Random(1), after, announce_limit=announce, timer=Alarm)
    return SerialRunner(Chains(app, Settings(**settings), runtime))


def packet(number: int, payload: bytes) -> Packet:
    return Packet(number, PacketKind.JOB, b"q", payload)


def raw(job_class: str = "job", **fields: Any) -> bytes:
    return json.dumps({"class": job_class, "args": [], "jid": "j1", "queue": "q", **fields}).encode()


def test_a_report_names_the_handler_and_the_time() -> None:
    app = Worker()
    app.job(name="job", queue="q")(lambda: None)
    report = runner(app).run(packet(1, raw()))
    assert (report.outcome, report.job_class, report.retiring) == (DONE, "job", False)


def test_bytes_that_are_no_job_are_dead() -> None:
    assert runner(Worker()).run(packet(1, b"nonsense")).outcome.fate is Fate.DEAD


def test_a_limit_is_announced_with_the_number_of_its_delivery() -> None:
    app, calls = Worker(), Calls()
    app.job(name="job", queue="q", timeout=5)(lambda: None)
    app.job(name="free", queue="q")(lambda: None)
    serial = runner(app, calls)
    for delivery, payload in enumerate([raw(), raw("free"), raw("free", timeout=7)], 1):
        assert serial.run(packet(delivery, payload)).outcome is DONE
    assert calls.limits == [(1, 5), (3, 7.0)]


def test_the_configured_limit_of_a_queue_wins() -> None:
    app, calls = Worker(), Calls()
    app.job(name="job", queue="q", timeout=5)(lambda: None)
    runner(app, calls, timeouts={"q": 9.0}).run(packet(1, raw()))
    runner(app, calls, timeouts={"q": 0.0}).run(packet(2, raw()))
    assert calls.limits == [(1, 9.0)]


def test_a_request_ends_the_job_that_runs() -> None:
    app, calls = Worker(), Calls()
    serial = runner(app, calls)
    app.job(name="job", queue="q")(lambda: serial.ask_to_end(7, JobCancelled()))
    app.job(name="next", queue="q")(lambda: None)
    assert serial.run(packet(7, raw())).outcome is CANCELLED
    assert serial.run(packet(8, raw("next"))).outcome is DONE
    assert calls.ended == [7]


def test_a_job_knows_that_it_was_asked_to_end() -> None:
    app, seen = Worker(), list[bool]()
    serial = runner(app)

    @app.job(name="job", queue="q")
    def job() -> None:
        seen.append(current_message().stopping)
        with suppress(JobCancelled):
            serial.ask_to_end(1, JobCancelled())
        seen.append(current_message().stopping)

    assert serial.run(packet(1, raw())).outcome is DONE
    assert seen == [False, True]


def test_a_request_between_two_jobs_was_meant_for_the_first() -> None:
    app = Worker()
    app.job(name="job", queue="q")(lambda: None)
    serial = runner(app)
    serial.run(packet(1, raw()))
    serial.ask_to_end(1, JobCancelled())
    assert serial.run(packet(2, raw())).outcome is DONE


def test_a_request_while_the_job_is_read_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    app, ran = Worker(), list[str]()
    app.job(name="job", queue="q")(lambda: ran.append("job"))
    serial, parse = runner(app), Message.parse

    def parse_slowly(*args: Any) -> Message:
        serial.ask_to_end(1, JobCancelled())
        return parse(*args)

    monkeypatch.setattr(Message, "parse", parse_slowly)
    assert serial.run(packet(1, raw())).outcome is CANCELLED
    assert ran == []


def test_a_request_before_a_job_whose_limit_fails_ends_it() -> None:
    app, calls = Worker(), Calls()
    app.job(name="job", queue="q", limits=[app.limit("x", concurrency=1, by=lambda: 1 // 0)])(lambda: None)
    serial = runner(app, calls)
    serial.ask_to_end(1, JobCancelled())
    assert serial.run(packet(1, raw())).outcome is CANCELLED
    assert calls.ended == [1]


def test_nothing_of_a_failed_job_is_kept() -> None:
    class Thing:
        pass

    app, things = Worker(), list[weakref.ref[Thing]]()

    @app.job(name="job", queue="q")
    def job() -> None:
        thing = Thing()
        things.append(weakref.ref(thing))
        raise ValueError

    serial = runner(app)
    gc.disable()
    try:
        assert serial.run(packet(1, raw())).outcome.fate is Fate.RETRY
        assert things[0]() is None
    finally:
        gc.enable()


def test_a_handler_has_one_chain_and_a_queue_with_one_handler_too(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = Chains.build

    def counting(self: Chains, queue: str, handler: Any, **more: Any) -> Any:
        built.append(handler.name if handler else "")
        return build(self, queue, handler, **more)

    monkeypatch.setattr(Chains, "build", counting)
    jobs, whole = Worker(), Worker()
    for name in "ab":
        jobs.job(name=name, queue="q")(lambda: None)
    whole.process("q")(lambda message: None)
    for app in (jobs, whole):
        serial = runner(app)
        for name in "abab":
            serial.run(packet(1, raw(name)))
    assert built == ["a", "b", "<lambda>"]
