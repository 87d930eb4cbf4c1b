"""The effects links: add the effects of the envelope, and of the application, to the outcome of a job.

Run in the worker process, around the retry link: they get the outcome of a job that raised, too. The first is
a part of the chain for a job with fields that have rules (protocol/flow), the second if the list
``Worker.effects`` is not empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyworkers import logs
from pyworkers.middleware import EffectsOf
from pyworkers.protocol.envelope import splice
from pyworkers.protocol.flow import checkpoint, effects_of, effects_of_start
from pyworkers.protocol.flow.ending import Ended, ending_of
from pyworkers.protocol.flow.start import Start
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import Fate, Outcome
from pyworkers.worker.execution import Execution

log = logs.get_logger()


def note_start(execution: Execution, now: float) -> None:
    """Note what the fields of the envelope ask for at the start. ``now`` is in epoch seconds."""
    message = execution.message
    started = Start(message.data, message.jid, message.queue, message.attempt, now)
    if noted := effects_of_start(started):
        execution.note(*noted)


def with_rest(execution: Execution, outcome: Outcome) -> Outcome:
    """The outcome with what the job has not yet noted, and a mark if its checkpoint is kept for a retry."""
    outcome = outcome.with_effects(*execution.rest(ending_of(outcome.fate).final))
    if execution.has_checkpoint and outcome.fate is Fate.RETRY and outcome.payload:
        return replace(outcome, payload=splice(outcome.payload, {checkpoint.FIELD: True}))
    return outcome


def with_flow(message: Message, outcome: Outcome, now: float) -> Outcome:
    """The outcome with the effects that the fields of the envelope ask for. ``now`` is in epoch seconds."""
    ended = Ended(
        ending_of(outcome.fate),
        message.data,
        message.jid,
        message.queue,
        message.job_class,
        now,
        outcome.error_class,
        outcome.error_message,
        outcome.result,
    )
    return outcome.with_effects(*effects_of(ended))


def with_effects(functions: Sequence[EffectsOf], message: Message, outcome: Outcome) -> Outcome:
    """The outcome with its effects. An exception of a function is logged and does not change the fate."""
    for function in functions:
        try:
            outcome = outcome.with_effects(*function(message, outcome))
        except BaseException:
            log.exception("hook.failed", hook="effects")
    return outcome
