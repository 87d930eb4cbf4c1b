"""The keeping step: notes a job that has ended in the list of finished jobs, where ``keep`` asks for it.

Runs in the worker process, for handlers, queues and servers with ``keep`` alone.
"""

from __future__ import annotations

from collections.abc import Callable

from pyworkers.protocol.flow.ending import ending_of
from pyworkers.protocol.flow.finished import FinishedFacts, entry
from pyworkers.protocol.keeping import Keep
from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.steps.effects import After, left_out, name_of_process


def keeping(keep: Keep, clock: Callable[[], float]) -> After:
    """Adds the effect that keeps the job. What cannot be kept is logged; the fate stays."""

    def add(execution: Execution, outcome: Outcome) -> Outcome:
        ending = ending_of(outcome)
        if not ending.final:
            return outcome
        message = execution.message
        error = outcome.error_message
        facts = FinishedFacts(
            ending.state.value,
            clock(),
            execution.elapsed_s,
            message.attempt + 1,
            name_of_process(),
            None if outcome.result is None else len(outcome.result),
            f"{outcome.error_class}: {error}" if outcome.error_class else error,
        )
        try:
            return outcome.with_effects(entry(keep, facts, message.data, message.raw, message.queue))
        except Exception as problem:
            # The effects of a link may have left no room.
            left_out("keep", problem)
            return outcome

    return add
