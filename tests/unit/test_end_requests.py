"""Requests to end, raised in a job by a signal to this very process; and what the job makes of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from pyworkers.errors import Discard, Interrupted, JobCancelled, JobTimeout, Kill, Retry, Snooze
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import CANCELLED, DONE, REQUEUE, Fate, Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.interrupts import cancelled, interrupted
from pyworkers.worker.links.limits import limited
from pyworkers.worker.links.running import running

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
    """Sends itself signals, in turn, and then ends in its way."""

    def __init__(self, *numbers: int, end: BaseException | Outcome | None = None) -> None:
        self._numbers = numbers
        self._end = end
        self.seen: list[BaseException] = []

    def __call__(self, execution: Execution) -> Outcome:
        for number in self._numbers:
            try:
                os.kill(os.getpid(), number)
            except BaseException as error:
                self.seen.append(error)
        if self._end is None and self.seen:
            raise self.seen[0]
        if isinstance(self._end, BaseException):
            raise self._end
        return self._end or DONE


def run(job: Callable[[Execution], Outcome], after: Callable[[Execution], None] = lambda _: None) -> Outcome:
    execution = Execution(MESSAGE)
    listen(execution.ask)
    return running(job, after)(execution)


@pytest.mark.parametrize(
    ("number", "kind"), [(CANCEL_REQUEST, JobCancelled), (INTERRUPT_REQUEST, Interrupted)]
)
def test_a_request_is_raised_in_the_job_and_leaves_it(number: int, kind: type[BaseException]) -> None:
    ended: list[Execution] = []
    with pytest.raises(kind) as raised:
        run(Job(number), ended.append)
    assert len(ended) == 1
    assert isinstance(raised.value, Exception) is (kind is JobCancelled)


def test_a_job_is_asked_once() -> None:
    job = Job(INTERRUPT_REQUEST, CANCEL_REQUEST, INTERRUPT_REQUEST, end=DONE)
    assert run(job) is DONE
    assert [type(error) for error in job.seen] == [Interrupted]


@pytest.mark.parametrize("end", [ValueError(), SystemExit(), JobTimeout(), Retry(delay=5), TRIED])
def test_an_interrupted_job_is_not_tried_again_but_given_back(end: BaseException | Outcome) -> None:
    with pytest.raises(Interrupted):
        run(Job(INTERRUPT_REQUEST, end=end))


@pytest.mark.parametrize("end", [Snooze(5), Discard(), Kill()])
def test_an_interrupted_job_may_choose_its_fate(end: Exception) -> None:
    with pytest.raises(type(end)):
        run(Job(INTERRUPT_REQUEST, end=end))


@pytest.mark.parametrize("end", [DONE, REQUEUE, CANCELLED, Outcome(Fate.DEAD)])
def test_an_interrupted_job_that_returns_has_ended(end: Outcome) -> None:
    assert run(Job(INTERRUPT_REQUEST, end=end)) is end


@pytest.mark.parametrize("end", [ValueError(), TRIED])
def test_a_cancelled_job_fails_as_it_likes(end: BaseException | Outcome) -> None:
    if isinstance(end, BaseException):
        with pytest.raises(ValueError):
            run(Job(CANCEL_REQUEST, end=end))
    else:
        assert run(Job(CANCEL_REQUEST, end=end)) is end


def test_a_request_from_before_the_job_runs_ends_it() -> None:
    execution = Execution(MESSAGE)
    listen(execution.ask)
    os.kill(os.getpid(), CANCEL_REQUEST)
    with pytest.raises(JobCancelled):
        running(Job(), lambda _: None)(execution)


def test_a_request_ends_no_job_but_the_one_that_it_was_meant_for() -> None:
    first, second = Execution(MESSAGE), Execution(MESSAGE)
    call = running(Job(), lambda _: None)
    listen(first.ask)
    assert call(first) is DONE
    os.kill(os.getpid(), CANCEL_REQUEST)
    assert call(second) is DONE


def test_nothing_follows_a_job_that_was_not_asked() -> None:
    ended: list[Execution] = []
    assert run(Job(), ended.append) is DONE
    with pytest.raises(ValueError):
        run(Job(end=ValueError()), ended.append)
    assert ended == []


def test_a_time_limit_is_a_request_like_the_others() -> None:
    ended: list[Execution] = []
    job = Job(signal.SIGALRM, INTERRUPT_REQUEST, end=DONE)
    assert run(limited(job, 60, lambda *_: None), ended.append) is DONE
    assert [type(error) for error in job.seen] == [JobTimeout]
    assert len(ended) == 1
