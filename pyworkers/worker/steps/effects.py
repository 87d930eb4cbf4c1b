"""The effects steps: what the start of a job changes in Redis, and what its outcome changes.

Run in the worker process, for jobs whose envelope has fields with rules (protocol/flow); the last one if the
list ``Worker.effects`` is not empty. A job that raised has an outcome, too, by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyworkers import logs
from pyworkers.errors import text_with_class
from pyworkers.middleware import EffectsOf
from pyworkers.observing.readable import pieces_of
from pyworkers.protocol.envelope import splice
from pyworkers.protocol.flow import checkpoint, history, track
from pyworkers.protocol.flow.ending import Ended, ending_of
from pyworkers.protocol.flow.rules import (
    FIELDS,
    MORE_THAN_BATCH,
    STARTING,
    effects_of_start,
    member_at,
    with_end,
)
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.message import Message
from pyworkers.protocol.outcome import DONE, Fate, Outcome, done_member
from pyworkers.worker.execution import Execution
from pyworkers.worker.steps.misfits import FitCheck

After = Callable[[Execution, Outcome], Outcome]

log = logs.get_logger()


class StartEffects:
    """Notes the starts of the jobs of one handler. A job that does not fit this server does not start."""

    def __init__(self, fit: FitCheck, clock: Callable[[], float]) -> None:
        self._fit = fit
        self._clock = clock

    def step(self, execution: Execution) -> None:
        """Note what the fields of the envelope ask for, if the job takes its arguments."""
        self.note(execution, execution.message)

    def note(self, execution: Execution, call: Message) -> None:
        """``step``, if the job takes the arguments of ``call``, with which a link calls it."""
        message = execution.message
        if STARTING.isdisjoint(message.data) or not self._fit.takes(call):
            return
        execution.starts()
        if track.is_tracked(message.data, message.jid):
            execution.listen()
        attempt, now = message.attempt, self._clock()
        started = JobStart(message.data, message.jid, message.queue, attempt, now, name_of_process)
        try:
            if noted := effects_of_start(started):
                execution.note(*noted)
        except Exception as error:
            # A producer may write anything into these fields.
            left_out("start", error)


def envelope_effects(clock: Callable[[], float]) -> After:
    """Adds what the fields of the envelope ask for, and what the job has not yet noted."""
    return lambda execution, outcome: with_envelope_effects(execution, outcome, clock)


def with_envelope_effects(execution: Execution, outcome: Outcome, clock: Callable[[], float]) -> Outcome:
    """The outcome with these effects. Raises BadResultError for a result that makes them too large."""
    message = execution.message
    if execution.has_notes:
        outcome = _with_rest(execution, outcome)
    elif FIELDS.isdisjoint(message.data):
        return outcome
    elif outcome is DONE and MORE_THAN_BATCH.isdisjoint(message.data):
        # Nothing follows from the end of the job than that it is counted in its batch.
        at = member_at(message.data, message.jid, message.raw)
        if at is not None:
            return done_member(*at)
    return _with_effects_of(execution, outcome, clock())


def left_out(field: str, error: Exception) -> None:
    """Log that an effect which this field of an envelope asks for is not made."""
    log.error("effect.left_out", field=field, error=text_with_class(error)[:500])


def _with_rest(execution: Execution, outcome: Outcome) -> Outcome:
    """The outcome with what the job has not yet noted, and a mark if its checkpoint is kept for a retry."""
    for field, effect in execution.rest(ending_of(outcome).final):
        try:
            outcome = outcome.with_effects(effect)
        except ValueError as error:
            # The effects of a link may have left no room.
            left_out(field, error)
    if execution.has_checkpoint and outcome.fate is Fate.RETRY and outcome.payload:
        return replace(outcome, payload=splice(outcome.payload, {checkpoint.FIELD: True}))
    return outcome


def _with_effects_of(execution: Execution, outcome: Outcome, now: float) -> Outcome:
    message = execution.message
    ended = Ended(
        ending_of(outcome),
        message.data,
        message.jid,
        message.queue,
        message.job_class,
        now,
        outcome.error_class,
        outcome.error_message,
        outcome.result,
        _traceback(execution) if history.is_asked(message.data) else "",
        # An earlier run may have.
        message.attempt > 0 and not execution.has_log,
    )
    if execution.has_log:
        outcome = _with_end_of_log(outcome, ended)
    return with_end(outcome, ended, left_out)


def _with_end_of_log(outcome: Outcome, ended: Ended) -> Outcome:
    from pyworkers.protocol.flow import joblog

    try:
        return outcome.with_effects(joblog.ended(ended))
    except ValueError as error:
        left_out("log", error)
        return outcome


def _traceback(execution: Execution) -> str:
    """The traceback of the error as Python prints it; empty without an error."""
    if execution.exc_info is None:
        return ""
    return "".join(pieces_of(execution.exc_info))


def name_of_process() -> str:
    """Host and pid, as statuses and finished jobs name where a job ran."""
    return f"{os.uname().nodename}:{os.getpid()}"


def plugin_effects(functions: Sequence[EffectsOf]) -> After:
    """Adds the effects of ``Worker.effects``. What a function raises is logged; the fate stays."""

    def add(execution: Execution, outcome: Outcome) -> Outcome:
        for function in functions:
            try:
                outcome = outcome.with_effects(*function(execution.message, outcome))
            except BaseException:
                log.exception("hook.failed", hook="effects")
        return outcome

    return add
