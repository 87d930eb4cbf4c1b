"""The effects link: adds the effects that the application wants for a job's outcome, whatever it is.

Runs in the worker process, around the retry link: it gets the outcome of a job that raised, too. It is a part
of the chain only if the application has such functions (``Worker.effects``).
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
    """The link. A function that fails is logged; the job's fate is decided already."""

    def effects(execution: Execution) -> Outcome:
        outcome = call_next(execution)
        for function in functions:
            try:
                outcome = outcome.with_effects(*function(execution.message, outcome))
            except BaseException:
                log.exception("hook.failed", hook="effects")
        return outcome

    return effects
