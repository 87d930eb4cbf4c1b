"""Chain: the steps that each job of a handler passes, as a tuple that can be printed, and what drives them.

Built in the worker process for each handler at its first job, and by ``pyworkers.testing``, which runs jobs
through the same steps. A step is a function of the Execution, the record of one run. A step before the job
returns None, or ends the job by returning its outcome. The job has an outcome, or raises. A step after it
gets the outcome and returns one. A job passes the steps that it needs: most jobs pass few.

One generator runs the steps in threads and in tasks (``StepChain._steps``): there is one list of them.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextvars import copy_context
from dataclasses import dataclass, replace
from enum import Enum
from types import coroutine
from typing import Any, NamedTuple

from pyworkers.app import Worker
from pyworkers.config import own_redis
from pyworkers.errors import BadResultError
from pyworkers.handler import Handler
from pyworkers.middleware import name_of
from pyworkers.observing.readable import readable
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.fates import Fates
from pyworkers.protocol.keeping import Keep
from pyworkers.protocol.outcome import DONE, Fate, Outcome
from pyworkers.protocol.retry import BACKTRACE, Policy
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.execution import Execution
from pyworkers.worker.fence import Fence
from pyworkers.worker.steps.effects import StartEffects, envelope_effects, plugin_effects
from pyworkers.worker.steps.hooks import FailureHooks
from pyworkers.worker.steps.job import job_of
from pyworkers.worker.steps.limits import LimitsStep
from pyworkers.worker.steps.logging import log_end, log_end_in_links
from pyworkers.worker.steps.misfits import FitCheck
from pyworkers.worker.steps.retry import AfterRequest, RetryStep
from pyworkers.worker.steps.start import carrying, decryption, enter, expiry, naming, starting
from pyworkers.worker.steps.timelimit import Announce, MakeTimer, TimeLimit

# A module constant, because reading an attribute of an enum takes three times as long.
_ASK = Fate.ASK


@dataclass(frozen=True, slots=True)
class Runtime:
    """What the chains of one process use, as its runner supplies it."""

    bridge: Bridge
    max_retries: int
    clock: Callable[[], float]
    """Epoch seconds."""
    rng: Rng
    after_request: AfterRequest = lambda _: None
    stopwatch: Callable[[], float] = time.monotonic
    """Seconds, for durations."""
    redis_clock: Callable[[], float] = time.time
    """Epoch seconds by Redis' clock."""
    backtrace: int = BACKTRACE
    """Lines of the traceback of a failed job, where neither the job nor its handler gives a number."""
    announce_limit: Announce = lambda *_: None
    timer: MakeTimer | None = None
    """None: jobs have no time limit."""
    fence: Fence | None = None
    """What ends jobs that must not overlap; None: nothing does."""


class Passed(Enum):
    """Which jobs pass a step."""

    BY_ALL = 0
    BY_FIELDS = 1
    """Those whose envelope has one of ``STEP_FIELDS``, and those that have asked for a checkpoint."""
    BY_FAILED = 2
    """Those that have failed, or were asked to end."""


class Step(NamedTuple):
    """A step and its name."""

    name: str
    run: Callable[..., Any]
    passed: Passed = Passed.BY_ALL


class StepChain:
    """The steps for one handler or, for None, those through which a job without a handler fails."""

    def __init__(
        self,
        worker: Worker,
        handler: Handler | None,
        runtime: Runtime,
        default_limit_s: float = 0.0,
        *,
        ordered: bool = False,
        keep: Keep | None = None,
    ) -> None:
        """``default_limit_s`` is the time limit of jobs without their own; 0 is none.

        ``ordered``: for jobs of an ordered queue. ``keep``: what is kept of jobs that end.
        """
        self.name = handler.name if handler else ""
        """The name of the handler; empty for the chain of jobs without one."""
        self.asks = bool(handler and handler.limits)
        """True if jobs ask for limits."""
        fit = FitCheck(handler)
        starts = StartEffects(fit, runtime.clock)
        hooks = FailureHooks(worker, handler, runtime.bridge.run)
        fence = runtime.fence if ordered or (handler and handler.fenced) else None
        before = tuple(_before(worker, handler, runtime, default_limit_s, fit, starts, fence))
        after = tuple(_after(worker, handler, runtime, hooks, fit, fence, keep))
        self.steps = (
            *(("built-in", step.name) for step in before),
            *(("application", name_of(link)) for link in worker.links),
            *(("handler", name_of(link)) for link in (handler.middleware if handler else ())),
            ("job", self.name),
            *(("built-in", step.name) for step in after),
        )
        """The owner and the name of each step, in their order."""
        self._before = _runs(before, Passed.BY_ALL, Passed.BY_FIELDS)
        self._before_plain = _runs(before, Passed.BY_ALL)
        self._deciding = _runs(after, Passed.BY_FAILED)
        self._after = _runs(after, Passed.BY_ALL, Passed.BY_FIELDS)
        self._after_plain = _runs(after, Passed.BY_ALL)
        bridge = self._bridge = runtime.bridge
        self._stopwatch = runtime.stopwatch
        # What may take its time.
        self._calls_application = bool(hooks.exist or (handler and handler.retry_in))
        part = job_of(worker, handler, bridge, starts)
        self._call = bridge.for_def(part.call) if part.is_async else part.call
        self._call_async = (
            part.call if part.is_async else bridge.for_async(part.call, has_async=part.has_async)
        )

    def run(self, execution: Execution) -> Outcome:
        """Run one job in this thread, in its own context; an exception is turned into an outcome.

        A context variable that a job sets is unset in the next.
        """
        copy_context().run(next, self._steps(execution, self._call, False), None)
        return execution.outcome

    def run_async(self, execution: Execution) -> Awaitable[None]:
        """``run`` in this task, which was made for the job and so has its own context.

        The execution delivers requests to this task.
        """
        return self._steps(execution, self._call_async, True)

    @coroutine
    def _steps(
        self, execution: Execution, call: Callable[..., Any], waits: bool
    ) -> Generator[Any, Any, None]:
        """Run all steps; ``call`` is the job. It only yields if it ``waits`` for the job, in a task.

        A generator costs 0.05 µs, and two functions that differ in an ``await`` would each have this list.
        """
        outcome: Outcome
        try:
            try:
                before = self._before_plain if execution.plain else self._before
                ended = _first_outcome(before, execution)
                if ended is None:
                    message = execution.message
                    outcome = (yield from call(message)) if waits else call(message)
                else:
                    outcome = ended
            finally:
                # Twice inside a try: a request may be raised at any instruction until it has ended.
                asked = execution.end(self._stopwatch())
        except BaseException as error:
            outcome = yield from self._decide(execution, readable(error), waits)
        else:
            if asked or outcome is not DONE:
                if outcome.fate is _ASK:
                    # The job has not started: nothing follows.
                    execution.settle(outcome)
                    return
                if asked or outcome.failed:
                    outcome = yield from self._decide(execution, outcome, waits)
        after = self._after_plain if execution.plain else self._after
        try:
            for step in after:
                outcome = step(execution, outcome)
        except BadResultError as error:
            outcome = yield from self._decide(execution, error, waits)
            for step in after:
                outcome = step(execution, outcome)
        execution.settle(outcome)

    @coroutine
    def _decide(
        self, execution: Execution, ending: Outcome | BaseException, waits: bool
    ) -> Generator[Any, Any, Outcome]:
        """The outcome of a job that failed or was asked to end. In a task, hooks run on a thread."""
        if waits and (execution.stopping or self._calls_application):
            outcome: Outcome = yield from self._bridge.finish(self._decided, execution, ending)
            return outcome
        return self._decided(execution, ending)

    def _decided(self, execution: Execution, ending: Any) -> Outcome:
        for step in self._deciding:
            ending = step(execution, ending)
        outcome: Outcome = ending
        return outcome


def _first_outcome(steps: tuple[Callable[..., Any], ...], execution: Execution) -> Outcome | None:
    """The outcome of the first step that has one. A function, because of a loop inside a ``try``, Python 3.12
    and 3.13 leave the jump to its start, where signals are handled, outside of the ``try``.
    """
    for step in steps:
        outcome: Outcome | None = step(execution)
        if outcome is not None:
            return outcome
    return None


def _before(
    worker: Worker,
    handler: Handler | None,
    runtime: Runtime,
    default_limit_s: float,
    fit: FitCheck,
    starts: StartEffects,
    fence: Fence | None,
) -> Iterator[Step]:
    """The steps before the job."""
    yield Step("context", enter)
    if (own := own_redis.of_this_process()) is not None and own.others:
        yield Step("redis", naming(own.name_of))
    if names := worker.carried():
        yield Step("carried values", carrying(names))
    if handler and handler.limits:
        # A link may give the job other arguments.
        check = None if worker.links or handler.middleware else fit.check
        limits_step = LimitsStep(handler.limits, worker.encryption, runtime.rng, runtime.stopwatch, check)
        yield Step("limits", limits_step.ask)
    yield Step("expiry", expiry(runtime.redis_clock), Passed.BY_FIELDS)
    if fence is not None:
        yield Step("fence", fence.begin)
    yield Step("start", starting(runtime.stopwatch))
    if runtime.timer is not None:
        time_limit = TimeLimit(default_limit_s, runtime.announce_limit, runtime.timer)
        yield Step("time limit", time_limit.apply, Passed.BY_ALL if default_limit_s else Passed.BY_FIELDS)
    yield Step("decryption", decryption(worker.encryption), Passed.BY_FIELDS)
    yield Step("start effects", starts.step, Passed.BY_FIELDS)


def _after(
    worker: Worker,
    handler: Handler | None,
    runtime: Runtime,
    hooks: FailureHooks,
    fit: FitCheck,
    fence: Fence | None,
    keep: Keep | None,
) -> Iterator[Step]:
    """The steps after the job."""
    retry_step = RetryStep(
        _policy(handler, runtime),
        runtime.clock,
        runtime.rng,
        runtime.after_request,
        runtime.stopwatch,
        handler.fates if handler else Fates(),
        handler.retry_in if handler else None,
        fit,
    )
    yield Step("retry", retry_step.decide, Passed.BY_FAILED)
    if hooks.exist:
        yield Step("hooks", hooks.after, Passed.BY_FAILED)
    yield Step("effects", envelope_effects(runtime.clock), Passed.BY_FIELDS)
    if worker.effects:
        yield Step("plug-in effects", plugin_effects(worker.effects))
    if keep is not None:
        # Imported here: most servers keep no finished jobs.
        from pyworkers.worker.steps.keeping import keeping

        yield Step("finished jobs", keeping(keep, runtime.clock))
    if fence is not None:
        yield Step("fence", fence.end)
    has_links = worker.links or (handler and handler.middleware)
    yield Step("logging", log_end_in_links if has_links else log_end)


def _runs(steps: tuple[Step, ...], *passed: Passed) -> tuple[Callable[..., Any], ...]:
    return tuple(step.run for step in steps if step.passed in passed)


def _policy(handler: Handler | None, runtime: Runtime) -> Policy:
    """The handler's policy, with the settings where it says nothing."""
    policy = handler.policy if handler else Policy()
    lines = runtime.backtrace if policy.backtrace is None else policy.backtrace
    return replace(policy, max_retries=runtime.max_retries, backtrace=lines)
