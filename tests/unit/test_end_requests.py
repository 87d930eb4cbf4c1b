"""Requests to end, raised in a job by a signal to this very process; and what the job makes of them."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from itertools import count, takewhile
from types import FrameType
from typing import Any

import pytest

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.errors import Discard, Interrupted, JobCancelled, JobTimeout, Kill, Retry, Snooze
from pyworkers.middleware import CallNext
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import CANCELLED, DONE, REQUEUE, Fate, Outcome
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.chain import Runtime, StepChain
from pyworkers.worker.execution import Execution
from pyworkers.worker.signals import cancelled, interrupted
from pyworkers.worker.steps.timelimit import Alarm

# Two signals for the two requests, because a worker has a page for them, and a test has none.
CANCEL_REQUEST, INTERRUPT_REQUEST = signal.SIGUSR1, signal.SIGUSR2
MESSAGE = Message.parse(b'{"class":"job","args":[],"jid":"j1"}', "default", str)
TRIED = Outcome(Fate.RETRY, 5.0, failed=True)


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    numbers = (CANCEL_REQUEST, INTERRUPT_REQUEST, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def listen(ask: Callable[[BaseException], None]) -> None:
    signal.signal(CANCEL_REQUEST, lambda *_: ask(cancelled()))
    signal.signal(INTERRUPT_REQUEST, lambda *_: ask(interrupted()))


class Job:
    """Sends itself signals, in turn, and then ends in its way; a link, as it may choose an outcome."""

    def __init__(self, *numbers: int, end: BaseException | Outcome | None = None) -> None:
        self._numbers = numbers
        self._end = end
        self.seen: list[BaseException] = []

    def __call__(self, message: Message, call_next: CallNext) -> Outcome:
        for number in self._numbers:
            try:
                os.kill(os.getpid(), number)
            except BaseException as error:
                self.seen.append(error)
        if self._end is None and self.seen:
            raise self.seen[0]
        if isinstance(self._end, BaseException):
            raise self._end
        return self._end or call_next(message)


def chain(job: Job, after: Callable[[Execution], None] = lambda _: None, limit_s: float = 0.0) -> StepChain:
    worker = Worker()
    worker.job(name="job", middleware=[job])(lambda: None)
    runtime = Runtime(Bridge(), 25, lambda: 1_795_225_197.5, random.Random(1), after, timer=Alarm)
    return StepChain(worker, worker.lookup("default", "job"), runtime, limit_s)


def run(job: Job, after: Callable[[Execution], None] = lambda _: None, limit_s: float = 0.0) -> Outcome:
    """The outcome of a job that gets the signals."""
    execution = Execution(MESSAGE)
    listen(execution.ask)
    return chain(job, after, limit_s).run(execution)


@pytest.mark.parametrize(
    ("number", "kind", "outcome"),
    [(CANCEL_REQUEST, JobCancelled, CANCELLED), (INTERRUPT_REQUEST, Interrupted, REQUEUE)],
)
def test_a_request_is_raised_in_the_job_and_leaves_it(
    number: int, kind: type[BaseException], outcome: Outcome
) -> None:
    ended: list[Execution] = []
    job = Job(number)
    assert run(job, ended.append) == outcome
    assert [type(error) for error in job.seen] == [kind]
    assert len(ended) == 1
    assert issubclass(kind, Exception) is (kind is JobCancelled)


def test_a_job_is_asked_once() -> None:
    job = Job(INTERRUPT_REQUEST, CANCEL_REQUEST, INTERRUPT_REQUEST, end=DONE)
    assert run(job) is DONE
    assert [type(error) for error in job.seen] == [Interrupted]


@pytest.mark.parametrize("end", [ValueError(), SystemExit(), JobTimeout(), Retry(delay=5), TRIED])
def test_an_interrupted_job_is_not_tried_again_but_given_back(end: BaseException | Outcome) -> None:
    assert run(Job(INTERRUPT_REQUEST, end=end)) == REQUEUE


@pytest.mark.parametrize(
    ("end", "fate"), [(Snooze(5), Fate.SNOOZE), (Discard(), Fate.DISCARD), (Kill(), Fate.DEAD)]
)
def test_an_interrupted_job_may_choose_its_fate(end: Exception, fate: Fate) -> None:
    assert run(Job(INTERRUPT_REQUEST, end=end)).fate is fate


@pytest.mark.parametrize("end", [DONE, REQUEUE, CANCELLED, Outcome(Fate.DEAD)])
def test_an_interrupted_job_that_returns_has_ended(end: Outcome) -> None:
    assert run(Job(INTERRUPT_REQUEST, end=end)) is end


def test_a_cancelled_job_fails_as_it_likes() -> None:
    assert run(Job(CANCEL_REQUEST, end=ValueError())).error_class == "ValueError"
    assert run(Job(CANCEL_REQUEST, end=TRIED)) is TRIED


def test_a_request_from_before_the_job_runs_ends_it() -> None:
    execution, job = Execution(MESSAGE), Job(end=REQUEUE)
    listen(execution.ask)
    os.kill(os.getpid(), CANCEL_REQUEST)
    assert chain(job).run(execution) == CANCELLED


def test_a_request_ends_no_job_but_the_one_that_it_was_meant_for() -> None:
    first, second = Execution(MESSAGE), Execution(MESSAGE)
    call = chain(Job())
    listen(first.ask)
    assert call.run(first) is DONE
    os.kill(os.getpid(), CANCEL_REQUEST)
    assert call.run(second) is DONE


def test_nothing_follows_a_job_that_was_not_asked() -> None:
    ended: list[Execution] = []
    assert run(Job(), ended.append) is DONE
    assert run(Job(end=ValueError()), ended.append).failed
    assert ended == []


def test_a_time_limit_is_a_request_like_the_others() -> None:
    ended: list[Execution] = []
    job = Job(signal.SIGALRM, INTERRUPT_REQUEST, end=DONE)
    assert run(job, ended.append, 60) is DONE
    assert [type(error) for error in job.seen] == [JobTimeout]
    assert len(ended) == 1


def ask_at(instruction: int, call: StepChain, message: Message) -> Outcome | None:
    """The outcome of a job that is asked to end at this instruction of the chain; None if there are fewer."""
    execution, left, before = Execution(message), instruction, sys.gettrace()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if "/pyworkers/worker/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and (left := left - 1) == 0:
            sys.settrace(None)
            execution.ask(cancelled())
        return trace

    sys.settrace(trace)
    try:
        outcome = call.run(execution)
    finally:
        sys.settrace(before)
    return outcome if left <= 0 else None


@pytest.mark.parametrize("fields", [{}, {"timeout": 60}])
def test_a_request_at_any_instruction_ends_the_job_or_comes_too_late(fields: dict[str, Any]) -> None:
    logs.configure("critical")
    call, raw = chain(Job(end=DONE)), json.dumps({"class": "job", "args": [], "jid": "j1", **fields})
    message = Message.parse(raw.encode(), "default", str)
    # Python 3.12 shows no instruction to the first trace function that asks for them.
    ask_at(sys.maxsize, call, message)
    outcomes = list(takewhile(bool, (ask_at(number, call, message) for number in count(1))))
    assert len(outcomes) > 100
    # There is one instruction with which the job has ended: from then on, no request reaches it.
    late = outcomes.index(DONE)
    assert outcomes == [CANCELLED] * late + [DONE] * (len(outcomes) - late)
