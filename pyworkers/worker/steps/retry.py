"""The retry step: turns an exception of a job into an outcome, and cleans up after a request to end.

Runs in the worker process, after a job that raised, ``sys.exit`` and Ctrl-C included: no exception may decide
whether a job is acknowledged. Programs of a job that was asked to end are killed then, also if it caught the
request.
"""

from __future__ import annotations

import os
import time
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType, TracebackType

from pyworkers import logs
from pyworkers.errors import (
    BadArgumentError,
    BadMessageError,
    Discard,
    FateChosen,
    Interrupted,
    JobCancelled,
    Kill,
    Retry,
    Snooze,
)
from pyworkers.handler import RetryIn
from pyworkers.logs.lines import safe_repr
from pyworkers.observing.choices import choice_of
from pyworkers.observing.readable import kind_of, readable, text_of
from pyworkers.protocol import envelope, retry, timestamps
from pyworkers.protocol.draft import seconds
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.fates import Fates
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import BURIED, CANCELLED, Fate, Outcome
from pyworkers.protocol.retry import Failure, Policy
from pyworkers.worker.execution import Execution, caused
from pyworkers.worker.steps.misfits import FitCheck

_OWN_CODE = str(Path(__file__).resolve().parents[2]) + os.sep
# Exceptions that an interrupted job may raise; any other exception is replaced by Interrupted.
_CHOICES = (Interrupted, Discard, Kill, Snooze)

AfterRequest = Callable[[Execution], None]
"""Called when a job that was asked to end has ended."""

log = logs.get_logger()


@dataclass(frozen=True)
class RetryStep:
    """The step, with the handler's policy and functions, clocks in seconds, and an Rng."""

    policy: Policy
    clock: Callable[[], float]
    """Epoch seconds."""
    rng: Rng
    after_request: AfterRequest = lambda _: None
    stopwatch: Callable[[], float] = time.monotonic
    fates: Fates = field(default_factory=Fates)
    retry_in: RetryIn | None = None
    fit: FitCheck = field(default_factory=lambda: FitCheck(None))

    def decide(self, execution: Execution, ending: Outcome | BaseException) -> Outcome:
        """The outcome of a job that raised an error (a readable one), was asked to end, or has failed."""
        request = self._release(execution) if execution.stopping else None
        if isinstance(ending, Outcome):
            if not isinstance(request, Interrupted) or ending.fate is not Fate.RETRY:
                return ending
            ending = request
        return self._outcome_of_failure(execution, answer_to(request, ending))

    def _release(self, execution: Execution) -> BaseException | None:
        """Clean up after a job that was asked to end, as a part of its time; returns the request."""
        request = execution.take_request()
        self.after_request(execution)
        execution.end(self.stopwatch())
        return request

    def _outcome_of_failure(self, execution: Execution, error: BaseException) -> Outcome:
        """The outcome of a job that raised; the Execution keeps the error."""
        error = choice_of(readable(error))
        execution.fail(error, _traceback(error))
        try:
            return self._outcome_by_fit(execution.message, error)
        except BaseException:
            # Nothing that is in a payload or an exception may end the process: the job is kept as it is.
            log.exception("job.unsettled", fate="dead")
            return BURIED

    def _outcome_by_fit(self, message: Message, error: BaseException) -> Outcome:
        """The outcome by the rules, unless the job does not fit this server."""
        if self.fit.refuses(message, error):
            return self._misfit(message, error)
        outcome = self._outcome_by_rules(message, error)
        if outcome.fate is Fate.DISCARD and self.fit.lacks_key(message, error):
            # It is retried as its ``retry`` says, but never dropped: another server may have the key.
            return self._misfit(message, error)
        return outcome

    def _misfit(self, message: Message, error: BaseException) -> Outcome:
        failure = Failure(retry.error_name(error), text_of(error))
        return retry.misfit(message, failure, self.clock(), self.rng)

    def _outcome_by_rules(self, message: Message, error: BaseException) -> Outcome:
        """The outcome that the error, the handler and the job choose (``protocol/retry.py``)."""
        now = self.clock()
        if isinstance(error, JobCancelled):
            return CANCELLED
        if isinstance(error, Interrupted):
            return retry.given_back(message.raw)
        if isinstance(error, Snooze):
            try:
                return _snoozed(message, now + seconds(error.delay))
            except BadArgumentError as bad:
                error = bad
        failure = _failure(error, self.fates)
        outcome = retry.decide(message, failure, self.policy, now, self.rng)
        if outcome.fate is not Fate.RETRY or self.retry_in is None or isinstance(error, FateChosen):
            return outcome
        asked = _ask(self.retry_in, message, error, failure)
        return outcome if asked is failure else retry.decide(message, asked, self.policy, now, self.rng)


def answer_to(request: BaseException | None, error: BaseException) -> BaseException:
    """The error of a job that was asked to end, by the request and the error that it raised.

    An interrupted job that fails is given back to its queue, unless it raises Discard, Kill or Snooze.
    """
    if isinstance(request, Interrupted) and not isinstance(error, _CHOICES):
        return caused(Interrupted(*request.args), error)
    if request is not None and isinstance(error, CancelledError):
        return caused(request, error)
    return error


def _snoozed(message: Message, at: float) -> Outcome:
    """The outcome of a snoozed job, which is stored unchanged except for two fields.

    Its queue is set, because jobs in ``schedule`` need it, and its id if the job had none. It has started, so
    it does not expire any more.
    """
    facts = {"jid": message.jid, "queue": message.queue}
    changes = {key: value for key, value in facts.items() if message.data.get(key) != value}
    remove = [name for name in ("expiry",) if name in message.data]
    if "misfit_at" in message.data:
        remove += retry.of_misfits(message.data)
    payload = envelope.splice(message.raw, changes, remove) if changes or remove else b""
    return Outcome(Fate.SNOOZE, min(at, timestamps.LATEST), payload)


def _failure(error: BaseException, fates: Fates) -> Failure:
    own = isinstance(error, BadMessageError | FateChosen)
    fate = fates.of(kind_of(error)) if not own else Fate.DEAD if isinstance(error, BadMessageError) else None
    if tied := fates.tie(kind_of(error)):
        log.error("job.fate_tied", error=retry.error_name(error), listed=tied)
    failure = Failure(retry.error_name(error), text_of(error), tuple(_backtrace(error)), fate=fate)
    return _choose(failure, error) if isinstance(error, FateChosen) else failure


def _choose(failure: Failure, choice: FateChosen) -> Failure:
    if isinstance(choice, Retry):
        return replace(failure, delay_s=_delay(choice.delay))
    fates = {Discard: Fate.DISCARD, Kill: Fate.DEAD}
    return replace(failure, fate=next((fates[kind] for kind in fates if isinstance(choice, kind)), None))


def _ask(retry_in: RetryIn, message: Message, error: BaseException, failure: Failure) -> Failure:
    """The failure with the delay or fate that ``retry_in`` chooses; unchanged if it returns None or fails."""
    try:
        delay = retry_in(message.attempt, error, message)
        return failure if delay is None else replace(failure, delay_s=seconds(delay))
    except FateChosen as choice:
        return _choose(failure, choice)
    except BaseException:
        log.exception("hook.failed", hook="retry_in")
        return failure


def _delay(delay: object) -> float | None:
    """The delay that a job has chosen; None, the default, for an invalid one."""
    try:
        return None if delay is None else seconds(delay)  # type: ignore[arg-type]
    except BaseException:  # what the job has chosen may raise anything when it is read
        log.warning("job.bad_delay", delay=safe_repr(delay))
        return None


def _traceback(error: BaseException) -> TracebackType | None:
    """The traceback from the first frame outside of pyworkers."""
    trace = error.__traceback__
    while trace is not None and _is_own(trace.tb_frame):
        trace = trace.tb_next
    return trace


def _backtrace(error: BaseException) -> Iterator[str]:
    """Yield ``file:line:in function``, innermost first as in Ruby: ``backtrace=10`` keeps the frames
    nearest to the error.
    """
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if not _is_own(frame):
            yield f"{frame.f_code.co_filename}:{line}:in {frame.f_code.co_qualname}"


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN_CODE)
