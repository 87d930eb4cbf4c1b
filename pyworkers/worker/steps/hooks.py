"""The hooks step: calls the functions of the application that are called after a failed run of a job.

Runs in the worker process, or later for a job that was lost with its worker. What such a function raises is
logged; the outcome of the job is decided, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyworkers import logs
from pyworkers.app import Worker
from pyworkers.handler import Handler, OnExhausted
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution

log = logs.get_logger()


class FailureHooks:
    """The error handlers and the exhaustion hooks for the jobs of one handler, or of jobs without one.

    ``run`` calls a function with its arguments, one that is async on a loop (``Bridge.run``).
    """

    def __init__(self, worker: Worker, handler: Handler | None, run: Callable[..., object]) -> None:
        self._on_error = worker.hooks("on_error")
        self._on_exhausted = exhausted_hooks(worker, handler)
        self._run = run
        self.exist = bool(self._on_error or self._on_exhausted)
        """True if there is something to call."""

    def after(self, execution: Execution, outcome: Outcome) -> Outcome:
        """The step: ``call`` for a run that has failed. The outcome stays."""
        if outcome.failed:
            self.call(execution.message, execution.error, outcome)
        return outcome

    def call(self, message: Message, error: BaseException | None, outcome: Outcome) -> None:
        """Call what is due after a failed run. ``error`` is None if nothing was raised."""
        for handle in self._on_error:
            try:
                self._run(handle, message, error, outcome)
            except BaseException:
                log.exception("hook.failed", hook="on_error")
        if outcome.final:
            run_exhausted(self._on_exhausted, message, error)


def exhausted_hooks(worker: Worker, handler: Handler | None) -> tuple[OnExhausted, ...]:
    """The hooks for a job that is not tried again: the handler's own, then the application's."""
    own = (handler.on_exhausted,) if handler and handler.on_exhausted else ()
    return (*own, *worker.hooks("on_exhausted"))


def run_exhausted(hooks: Sequence[OnExhausted], message: Message, error: BaseException | None) -> None:
    """Call all hooks. An exception of a hook is logged and does not change the job's fate."""
    for hook in hooks:
        try:
            hook(message, error)
        except BaseException:
            log.exception("hook.failed", hook="on_exhausted")
