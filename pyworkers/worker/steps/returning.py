"""Returning: what the log says of a job that did not run, and of a value that is not kept.

Runs in the worker process, where jobs end. A job without links around it that returns None pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from pyworkers import logs
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.worker.execution import Execution, current_execution
from pyworkers.worker.steps.effects import Starts
from pyworkers.worker.steps.logging import log_end

log = logs.get_logger()


def marked(run: Callable[[Message], object], starts: Starts) -> Callable[[Message], object]:
    """The job, which notes that the links around it have called it, perhaps with other arguments."""

    def call(message: Message) -> object:
        execution = current_execution()
        execution.called()
        if execution.flows and not execution.only_counts and not execution.has_started:
            starts.note(execution, message)
        return run(message)

    return call


def log_end_in_links(execution: Execution, outcome: Outcome) -> None:
    """``log_end``; a job is skipped that counts as done, but was not called by a link."""
    if outcome.fate is Fate.DONE and not execution.has_run:
        log.info("job.skipped", hint="a middleware has not called call_next")
    else:
        log_end(execution, outcome)


class Dropped:
    """Logs for the first job of a handler in a process that its result is not kept."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, message: Message) -> None:
        """Note a job that has returned a value, but whose envelope does not ask for it."""
        if not self._said:
            self._said = True
            log.info("job.result_dropped", hint="track=3600 keeps it for an hour: worker.result(jid)")
