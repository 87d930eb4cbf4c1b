"""Chain: all links of a handler, outermost first: built-in, the application's, the handler's own, the job.

Built in the worker process for each handler at its first job, and by ``pyworkers.testing``, which runs jobs
through the same links. The built-in links are steps before and after the application's part. Two drivers run
the steps: one in a thread and one in a task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.errors import BadMessageError, BadResultError, Interrupted, Kill, UnknownJobError
from pyworkers.handler import Handler
from pyworkers.middleware import Part, build, name_of
from pyworkers.observing.readable import readable
from pyworkers.protocol.envelope import Rng
from pyworkers.protocol.fates import Fates
from pyworkers.protocol.message import Message, set_run
from pyworkers.protocol.outcome import DONE, EXPIRED, Fate, Outcome
from pyworkers.protocol.retry import BACKTRACE, Policy
from pyworkers.worker.bridge import Bridge
from pyworkers.worker.execution import Execution
from pyworkers.worker.signals import STOPS
from pyworkers.worker.steps.carrying import bind
from pyworkers.worker.steps.effects import Starts, with_effects, with_flow
from pyworkers.worker.steps.expiry import has_expired
from pyworkers.worker.steps.hooks import FailureHooks
from pyworkers.worker.steps.logging import log_end
from pyworkers.worker.steps.misfits import Fitting
from pyworkers.worker.steps.retry import AfterRequest, Retrying, answer_to, outcome_of_failure
from pyworkers.worker.steps.returning import Dropped, log_end_in_links, marked
from pyworkers.worker.steps.timelimit import Limits

_ENTERPRISE = (
    "the last argument is encrypted by Sidekiq Enterprise (`encrypt`), which pyworkers cannot open: "
    "run this class in Ruby, or enqueue it without `encrypt`"
)
log = logs.get_logger()


@dataclass(frozen=True, slots=True)
class Setting:
    """The parameters of the chains of one process."""

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


class Chain:
    """The links of one handler or, for None, those through which a job without a handler fails."""

    def __init__(
        self, worker: Worker, handler: Handler | None, setting: Setting, limits: Limits | None = None
    ) -> None:
        self.name = handler.name if handler else ""
        """The name of the handler; empty for the chain of jobs without one."""
        self.links = tuple(_names(worker, handler, limits))
        """The owner and the name of each link, the outermost first; the last one is the job."""
        self._effects = tuple(worker.effects)
        self._encryption = worker.encryption
        self._limits = limits
        fitting = Fitting(handler)
        self._starts = Starts(fitting, setting.clock)
        self._retrying = Retrying(
            _policy(handler, setting),
            setting.clock,
            setting.rng,
            FailureHooks(worker, handler, setting.bridge.run),
            handler.fates if handler else Fates(),
            handler.retry_in if handler else None,
            fitting,
        )
        self._setting = setting
        self._stopwatch = setting.stopwatch
        self._log_end = log_end_in_links if worker.links or (handler and handler.middleware) else log_end
        part = _application(worker, handler, setting.bridge, self._starts)
        bridge = setting.bridge
        self._call = bridge.for_def(part.call) if part.is_async else part.call
        self._call_async = (
            part.call if part.is_async else bridge.for_async(part.call, has_async=part.has_async)
        )

    # --- the drivers ----------------------------------------------------------------------------------------

    def run(self, execution: Execution) -> Outcome:
        """Run one job in this thread, in a context of its own; an exception is turned into an outcome.

        A context variable that a job sets is unset in the next.
        """
        return copy_context().run(self._run, execution)

    def _run(self, execution: Execution) -> Outcome:
        if "expiry" in execution.message.data and self._has_expired(execution):
            return self._finish(execution, EXPIRED)
        try:
            try:
                self._begin(execution)
                outcome = self._call(execution.message)
            finally:
                # Twice inside a try: a request may be raised at any instruction until it has ended.
                asked = execution.end(self._stopwatch())
        except BaseException as error:
            outcome = self._failed(execution, error)
        else:
            if asked or outcome is not DONE:
                outcome = self._ended(execution, outcome)
        try:
            return self._finish(execution, outcome)
        except BadResultError as error:
            return self._finish(execution, self._failed(execution, error))

    async def run_async(self, execution: Execution) -> Outcome:
        """Run one job in this task, which was made for it and so has a context of its own; as ``run``.

        The execution delivers requests to this task.
        """
        if "expiry" in execution.message.data and self._has_expired(execution):
            return self._finish(execution, EXPIRED)
        try:
            try:
                self._begin(execution)
                outcome = await self._call_async(execution.message)
            finally:
                asked = execution.end(self._stopwatch())
        except BaseException as error:
            outcome = await self._aside(execution, self._failed, error)
        else:
            if asked or outcome is not DONE:
                outcome = await self._aside(execution, self._ended, outcome)
        try:
            return self._finish(execution, outcome)
        except BadResultError as error:
            return self._finish(execution, await self._aside(execution, self._failed, error))

    async def _aside(self, execution: Execution, step: Callable[..., Outcome], ending: object) -> Outcome:
        """Run a step that may take its time on a thread: other jobs share the loop."""
        if execution.stopping or self._retrying.has_hooks:
            outcome: Outcome = await self._setting.bridge.finish(step, execution, ending)
            return outcome
        return step(execution, ending)

    def refuse(self, execution: Execution, error: BaseException) -> Outcome:
        """Have a job fail that cannot start."""
        return copy_context().run(self._refuse, execution, error)

    async def refuse_async(self, execution: Execution, error: BaseException) -> Outcome:
        """``refuse`` on a thread: its hooks may take their time, or run on the loop."""
        outcome: Outcome = await self._setting.bridge.finish(self.refuse, execution, error)
        return outcome

    def _refuse(self, execution: Execution, error: BaseException) -> Outcome:
        set_run(execution)
        execution.begin(self._stopwatch())
        execution.end(self._stopwatch())
        return self._finish(execution, self._failed(execution, error, called=False))

    # --- the steps ------------------------------------------------------------------------------------------

    def _has_expired(self, execution: Execution) -> bool:
        set_run(execution)
        return has_expired(execution.message, self._setting.redis_clock())

    def _begin(self, execution: Execution) -> None:
        set_run(execution)
        log.debug("job.start")
        execution.begin(self._stopwatch())
        if self._limits is not None:
            self._limits.apply(execution)
        if execution.message.data.get("encrypted") is True:
            # Last, so that a job that cannot be opened fails like any other.
            execution.replace_message(self._encryption.opened(execution.message))
        elif execution.message.data.get("encrypt"):
            raise Kill(_ENTERPRISE)
        if execution.flows and not execution.only_counts:
            self._starts.note(execution, execution.message)

    def _ended(self, execution: Execution, outcome: Outcome) -> Outcome:
        """The outcome of a job that returned one, other than DONE, or that was asked to end."""
        if execution.stopping:
            request = self._release(execution)
            if isinstance(request, Interrupted) and outcome.fate is Fate.RETRY:
                return outcome_of_failure(execution, Interrupted(STOPS), self._retrying)
        self._retrying.hooks.call(execution.message, None, outcome)
        return outcome

    def _failed(self, execution: Execution, error: BaseException, *, called: bool = True) -> Outcome:
        """The outcome of a job that raised; ``called`` unless it failed before its links were called."""
        error = readable(error)
        if execution.stopping:
            error = answer_to(self._release(execution), error)
        return outcome_of_failure(execution, error, self._retrying, called=called)

    def _release(self, execution: Execution) -> BaseException | None:
        """Clean up after a job that was asked to end, as a part of its time; returns the request."""
        request = execution.take_request()
        self._setting.after_request(execution)
        execution.end(self._stopwatch())
        return request

    def _finish(self, execution: Execution, outcome: Outcome) -> Outcome:
        """The outcome with its effects, logged. Raises BadResultError for a result that cannot be kept."""
        if execution.flows:
            outcome = with_flow(execution, outcome, self._setting.clock)
        if self._effects:
            outcome = with_effects(self._effects, execution.message, outcome)
        self._log_end(execution, outcome)
        return outcome


def _policy(handler: Handler | None, setting: Setting) -> Policy:
    """The handler's policy, with the settings where it says nothing."""
    policy = handler.policy if handler else Policy()
    lines = setting.backtrace if policy.backtrace is None else policy.backtrace
    return replace(policy, max_retries=setting.max_retries, backtrace=lines)


class CarryingChain(Chain):
    """The links of a handler whose jobs carry values under ``names`` (steps/carrying.py)."""

    def __init__(
        self,
        names: Sequence[str],
        worker: Worker,
        handler: Handler | None,
        setting: Setting,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(worker, handler, setting, limits)
        self._carried = names

    def _run(self, execution: Execution) -> Outcome:
        bind(self._carried, execution.message)
        return super()._run(execution)

    async def run_async(self, execution: Execution) -> Outcome:
        bind(self._carried, execution.message)
        return await super().run_async(execution)

    def _refuse(self, execution: Execution, error: BaseException) -> Outcome:
        bind(self._carried, execution.message)
        return super()._refuse(execution, error)


def chain_maker(names: Sequence[str]) -> Callable[..., Chain]:
    """Makes the chains of an application whose jobs carry values under ``names``, if there are any."""
    return partial(CarryingChain, names) if names else Chain


def _names(worker: Worker, handler: Handler | None, limits: Limits | None) -> Iterator[tuple[str, str]]:
    asks = bool(handler and handler.limits)
    built_in = {
        "limits": asks,
        "context": True,
        "logging": True,
        "effects": worker.effects,
        "retry": True,
        "running": True,
    }
    yield from (("built-in", name) for name, wanted in built_in.items() if wanted)
    if limits is not None:
        yield "built-in", "time limit"
    yield from (("application", name_of(link)) for link in worker.links)
    yield from (("handler", name_of(link)) for link in (handler.middleware if handler else ()))
    yield "job", handler.name if handler else ""


def _application(worker: Worker, handler: Handler | None, bridge: Bridge, starts: Starts) -> Part:
    """The application's code, inside the built-in links: its own links and the job."""
    if handler is None:
        return build(worker.links, _refuse, bridge)
    links = [*worker.links, *handler.middleware]
    # Only links can skip the job.
    run = marked(handler.run, starts) if links else handler.run
    return build(links, run, bridge, is_async=handler.is_async, dropped=Dropped())


def _refuse(message: Message) -> None:
    if not message.job_class:
        # No later release can add a handler for an empty class, so this job is not retried.
        raise BadMessageError(f"a job of the queue {message.queue!r} has no class")
    raise UnknownJobError(f"no handler for the class {message.job_class!r} of the queue {message.queue!r}")
