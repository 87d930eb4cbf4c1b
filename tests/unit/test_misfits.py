"""Jobs that do not fit a server during a deploy: which ones they are, and what becomes of them."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import pytest

from pyworkers import Worker
from pyworkers.errors import BadArgumentError, UnknownJobError
from pyworkers.ipc.control import Settings
from pyworkers.ipc.jobsocket import Packet, PacketKind
from pyworkers.protocol import retry
from pyworkers.protocol.effects import Effect, Unlock
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome, Report
from pyworkers.protocol.retry import MISFIT_S, Failure, Policy
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.chains import Chains
from pyworkers.worker.execution import Channel, Execution
from pyworkers.worker.steps.start import has_expired

NOW = 1_795_225_197.5
FAILURE = Failure("UnknownJobError", "no handler")


def message(job_class: str = "job", **fields: Any) -> Message:
    raw = json.dumps({"class": job_class, "args": [], "jid": "j1", **fields}).encode()
    return Message.parse(raw, "default", lambda: "made")


def misfit(job: Message, now: float = NOW) -> Outcome:
    return retry.misfit(job, FAILURE, now, random.Random(1))


def read(outcome: Outcome) -> Message:
    return Message.parse(outcome.payload, "default", lambda: "made")


@pytest.mark.fault("P4")
@pytest.mark.parametrize(
    "about", [{"retry": False}, {"retry": 0, "dead": False}, {"retry_count": 24}, {"retry_queue": "other"}]
)
def test_a_misfit_waits_for_an_hour_and_is_dead_then(about: dict[str, Any]) -> None:
    job, now, number = message(**about), NOW, 0
    while (outcome := misfit(job, now)).fate is Fate.RETRY:
        number += 1
        assert 5 <= outcome.at - now <= 180
        assert not outcome.failed
        job, now = read(outcome), outcome.at
        assert (job.misfits, job.data["misfit_at"]) == (number, NOW)
        assert job.data["queue"] == "default"
        assert job.data.get("retry_count") == about.get("retry_count")
    assert now - NOW >= MISFIT_S
    assert (outcome.fate, outcome.failed, outcome.misfit) == (Fate.DEAD, True, True)
    dead = read(outcome)
    assert dead.misfits == number + 1
    # Sidekiq's button moves it to its queue as it is: it starts anew.
    assert read(misfit(dead, now)).misfits == 1


def test_an_outage_does_not_use_up_the_hour() -> None:
    assert misfit(message(misfits=2, misfit_at=NOW - 1e6)).fate is Fate.RETRY


def test_a_misfit_is_neither_a_failure_nor_a_start() -> None:
    waiting = read(misfit(message(expiry=NOW + 5, retry_for=600)))
    assert has_expired(waiting, NOW + 6)
    late = NOW + MISFIT_S
    failed = read(retry.decide(waiting, Failure("ValueError", ""), Policy(), late, random.Random(1)))
    assert (failed.data["failed_at"], failed.data["retry_count"]) == (late, 0)
    assert not {"misfits", "misfit_at", "retried_at"} & failed.data.keys()
    back = json.loads(retry.given_back(waiting.raw).payload)
    assert not {"misfits", "misfit_at", "failed_at", "expiry"} & back.keys()


def test_the_master_is_told() -> None:
    report = Report(misfit(message()))
    assert Report.unpack(report.pack()).outcome.misfit


def passing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def apassing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return call


def takes_one(value: Any) -> None:
    raise TypeError("of the job")


async def atakes_one(value: Any) -> None:
    raise TypeError("of the job")


def takes_a_date(day: date) -> None:
    raise BadArgumentError("of the job")


def calls(value: Any) -> None:
    takes_one()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("function", "args", "fits"),
    [
        (takes_one, [1], True),
        (takes_one, [], False),
        (takes_one, [1, 2], False),
        (passing(takes_one), [1], True),
        (passing(takes_one), [], False),
        (atakes_one, [1], True),
        (atakes_one, [], False),
        (apassing(atakes_one), [1], True),
        (apassing(atakes_one), [], False),
        (takes_a_date, ["2026-11-28"], True),
        (takes_a_date, ["tomorrow"], False),
        (calls, [1], True),
    ],
)
def test_a_job_whose_arguments_do_not_fit_is_a_misfit(
    function: Callable[..., Any], args: list[Any], fits: bool
) -> None:
    worker, errors = Worker(), list[BaseException | None]()
    worker.job(name="job", retry=False, discard_on=(TypeError,))(function)
    worker.on_error(lambda message, error, outcome: errors.append(error))
    outcome = run(worker, message(args=args, retry=False))
    assert (outcome.fate, outcome.misfit) == ((Fate.DISCARD, False) if fits else (Fate.RETRY, True))
    # An error handler is called for runs.
    assert bool(errors) is fits


def test_an_argument_that_a_middleware_adds_is_no_misfit() -> None:
    worker = Worker()
    worker.job(name="job")(takes_one)

    @worker.middleware
    def inject(message: Message, call_next: Callable[[Message], Any]) -> Any:
        if message.data.get("fails"):
            raise TypeError("of the middleware")
        return call_next(message.replace(args=[1]))

    assert not run(worker, message()).misfit
    assert not run(worker, message(fails=True)).misfit


class Notes:
    """The line of an execution, which keeps the effects that the job notes."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def note(self, delivery: int, effects: Sequence[Effect]) -> None:
        self.effects += effects


STARTS: dict[str, Any] = {"track": 60, "history": True, "unique_key": "k", "unique_until": "start"}


@pytest.mark.parametrize(
    ("function", "args", "starts"),
    [
        (takes_one, [1], True),
        (takes_one, [], False),
        (passing(takes_one), [], False),
        (atakes_one, [1], True),
        (atakes_one, [1, 2], False),
        (takes_a_date, ["2026-11-28"], True),
        (takes_a_date, ["tomorrow"], False),
    ],
)
@pytest.mark.parametrize("link", [None, "passes", "adds"])
def test_only_a_job_that_fits_starts(
    function: Callable[..., Any], args: list[Any], starts: bool, link: str | None
) -> None:
    worker, notes = Worker(), Notes()
    worker.job(name="job")(function)
    if link:

        @worker.middleware
        def around(message: Message, call_next: Callable[[Message], Any]) -> Any:
            return call_next(message if link == "passes" else message.replace(args=["2026-11-28"]))

    run(worker, message(args=args, **STARTS), notes)
    # It keeps its lock and its state, for the server that it fits; and a start is noted once.
    assert sum(isinstance(effect, Unlock) for effect in notes.effects) == (starts or link == "adds")
    assert bool(notes.effects) is (starts or link == "adds")


@pytest.mark.parametrize(
    ("function", "args", "link", "sealed", "fate"),
    [
        (takes_one, [1], False, False, Fate.ASK),
        (takes_one, [], False, False, Fate.RETRY),
        (atakes_one, [1, 2], False, False, Fate.RETRY),
        (takes_a_date, ["tomorrow"], False, False, Fate.RETRY),
        # What the job will be called with is not known yet.
        (takes_one, [], True, False, Fate.ASK),
        (takes_a_date, ["sealed"], False, True, Fate.ASK),
    ],
)
def test_a_misfit_asks_for_no_limit(
    function: Callable[..., Any], args: list[Any], link: bool, sealed: bool, fate: Fate
) -> None:
    worker = Worker()
    worker.job(name="job", limits=[worker.limit("rate", rate=1, per=1.0)])(function)
    if link:
        worker.middleware(lambda message, call_next: call_next(message.replace(args=[1])))
    bridge = Bridge()
    job = message(args=args, retry=False, encrypted=sealed)
    packet = Packet(1, PacketKind.JOB, b"default", job.raw)
    found = Chains(worker, Settings(), Runtime(bridge, 25, lambda: NOW, random.Random(1))).prepare(packet)
    assert found is not None
    outcome = found[0].run(found[1])
    bridge.close()
    assert (outcome.fate, outcome.misfit) == (fate, fate is Fate.RETRY)


@pytest.mark.parametrize("day", ["2026-11-28", "tomorrow"])
def test_only_arguments_of_the_annotated_type_start(day: str) -> None:
    worker, notes = Worker(), Notes()

    @worker.process("default")
    def handle(message: Message[tuple[date]]) -> None: ...

    assert run(worker, message(args=[day], **STARTS), notes).misfit is (day == "tomorrow")
    assert bool(notes.effects) is (day != "tomorrow")


def run(worker: Worker, job: Message, line: Notes | None = None) -> Outcome:
    bridge = Bridge()
    try:
        handler = worker.lookup("default", job.job_class)
    except UnknownJobError:
        handler = None
    try:
        return StepChain(worker, handler, Runtime(bridge, 25, lambda: NOW, random.Random(1))).run(
            Execution(job, channel=Channel(line.note) if line else None)
        )
    finally:
        bridge.close()


def test_a_tracked_misfit_counts_no_attempt_and_does_not_start() -> None:
    outcome = run(Worker(), message("gone", track=60, history=True, batch="b", unique_key="k"))
    [effect] = outcome.effects
    assert json.loads(effect.fields) == {  # type: ignore[union-attr]
        "state": "retrying",
        "queue": "default",
        "error": "UnknownJobError: no handler for the class 'gone' of the queue 'default'",
    }


@pytest.mark.parametrize(("options", "fate"), [({"retry": 3}, Fate.RETRY), ({"retry": 0}, Fate.DEAD)])
def test_a_job_without_its_key_is_retried_as_it_says(options: dict[str, Any], fate: Fate) -> None:
    assert not (outcome := run_sealed(**options)).misfit
    assert outcome.fate is fate


@pytest.mark.parametrize("options", [{"retry": False}, {"retry": 0, "dead": False}])
def test_a_job_without_its_key_is_never_dropped(options: dict[str, Any]) -> None:
    assert run_sealed(**options).misfit


def run_sealed(**options: Any) -> Outcome:
    worker = Worker()
    worker.job(name="job")(takes_one)
    return run(worker, message(encrypted=True, args=["sealed"], **options))
