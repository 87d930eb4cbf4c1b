"""The effects link: adds the application's effects to the outcome of a job, successful or failed.

Runs in the worker process, around the retry link: it gets the outcome of a job that raised, too. It is a part
of the chain only if the list ``Worker.effects`` is not empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyworkers import logs
from pyworkers.middleware import EffectsOf
from pyworkers.protocol.outcome import Outcome
from pyworkers.worker.execution import Execution
from pyworkers.worker.links.link import Run

log = logs.get_logger()


def affecting(call_next: Run, functions: Sequence[EffectsOf]) -> Run:
    """Put the effects link around ``call_next``.

    An exception of a function is logged and does not change the job's fate.
    """

    def effects(execution: Execution) -> Outcome:
        outcome = call_next(execution)
        for function in functions:
            try:
                outcome = outcome.with_effects(*function(execution.message, outcome))
            except BaseException:
                log.exception("hook.failed", hook="effects")
        return outcome

    return effects
