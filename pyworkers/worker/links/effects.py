"""The effects link: adds the application's effects to the outcome of a job, successful or failed.

Runs in the worker process, around the retry link: it gets the outcome of a job that raised, too. It is a part
of the chain only if the list ``Worker.effects`` is not empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyworkers import logs
from pyworkers.middleware import EffectsOf
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Outcome

log = logs.get_logger()


def with_effects(functions: Sequence[EffectsOf], message: Message, outcome: Outcome) -> Outcome:
    """The outcome with its effects. An exception of a function is logged and does not change the fate."""
    for function in functions:
        try:
            outcome = outcome.with_effects(*function(message, outcome))
        except BaseException:
            log.exception("hook.failed", hook="effects")
    return outcome
