"""Rules: the effects that the end of a job has, by the fields of its envelope.

Pure. Worker, master and ``api`` compute them from the envelope alone, so that a job has the same effects
however it ends: done, dead, lost with its worker, cancelled, or deleted by hand. Each feature is one rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pyworkers.errors import BadMessageError, BadResultError
from pyworkers.protocol import envelope
from pyworkers.protocol.effects import MAX_BYTES, Effect, can_be_sent
from pyworkers.protocol.flow import batch, checkpoint, history, runs, track, unique
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.outcome import Outcome

LeftOut = Callable[[str, Exception], object]
"""Called with the field of an envelope and the reason why an effect of it is left out."""
Rule = Callable[[Ended], Iterable[Effect]]


def _of_tracked(ended: Ended) -> Iterator[Effect]:
    yield from track.effects(ended)
    if ended.may_have_log and track.is_tracked(ended.data, ended.jid):
        # Imported here: most jobs have no log.
        from pyworkers.protocol.flow import joblog

        yield joblog.ended(ended)


RULES: Mapping[str, Rule] = {
    track.FIELD: _of_tracked,
    history.FIELD: history.effects,
    unique.FIELD: unique.effects,
    batch.FIELD: batch.effects,
    checkpoint.FIELD: checkpoint.effects,
    runs.FIELD: runs.effects,
}
"""The rule for each field of the envelope that has one."""
FIELDS = frozenset(RULES)
STARTS: Mapping[str, Callable[[JobStart], Iterable[Effect]]] = {
    track.FIELD: track.started,
    history.FIELD: history.started,
    runs.FIELD: runs.started,
    unique.FIELD: lambda start: unique.effects_at_start(start.data, start.jid),
}
"""The rule for the start of a run, for each field that has one; all of them are in ``FIELDS``."""
STARTING = frozenset(STARTS)
"""The fields for which the start of a run has effects."""
MORE_THAN_BATCH = FIELDS - {batch.FIELD} | batch.MORE
"""The fields with which more follows from a member than that its end is counted."""
KEEP_RESULT = frozenset({track.FIELD, "batch_index", "then"})
"""The fields for which the result of a job is kept."""
MARKS = tuple(f'"{field}"'.encode() for field in sorted(FIELDS))
"""The bytes of which an envelope with one of ``FIELDS`` contains at least one."""


def ignore(_field: str, _error: Exception) -> None:
    """Leave out an effect without a line in the log."""


def effects_of(ended: Ended) -> tuple[Effect, ...]:
    """The effects of an end; none for a job without one of ``FIELDS``."""
    if FIELDS.isdisjoint(ended.data):
        return ()
    return tuple(effect for field, rule in RULES.items() if field in ended.data for effect in rule(ended))


def with_end(outcome: Outcome, ended: Ended, left_out: LeftOut) -> Outcome:
    """The outcome of a job with the effects of its end, without those that cannot be made.

    A producer may write anything into a field: it must not change how the job ends. Raises BadResultError for
    a result that makes the effects too large.
    """
    try:
        return outcome.with_effects(*effects_of(ended))
    except BadResultError:
        raise
    except Exception:
        # The fields are read one by one, to find the effect that is the reason.
        return _with_usable(outcome, ended, left_out)


def _with_usable(outcome: Outcome, ended: Ended, left_out: LeftOut) -> Outcome:
    for field, effect in _usable(ended, left_out):
        try:
            outcome = outcome.with_effects(effect)
        except ValueError as error:
            # Names are short, so that only a result, or what it is sent to, is large.
            if ended.result is not None:
                raise BadResultError(
                    f"the result, and what follows with it, are larger than {MAX_BYTES} bytes",
                    hint="store the value elsewhere, and return its name",
                ) from error
            left_out(field, error)
    return outcome


def _usable(ended: Ended, left_out: LeftOut) -> Iterator[tuple[str, Effect]]:
    """Each effect of an end that can be sent, with its field."""
    for field in RULES:
        if field in ended.data:
            yield from ((field, effect) for effect in _of_rule(field, ended, left_out))


def _of_rule(field: str, ended: Ended, left_out: LeftOut) -> Iterator[Effect]:
    try:
        for effect in RULES[field](ended):
            if can_be_sent(effect):
                yield effect
            else:
                left_out(field, ValueError(f"{type(effect).__name__} has a name that is invalid or too long"))
    except BadResultError:
        raise
    except Exception as error:
        left_out(field, error)


def member_at(data: Mapping[str, Any], jid: str, raw: bytes) -> tuple[int, int] | None:
    """The places (``MemberAt``) that represent the effect of a done member, at a tenth of its cost.

    For a member without ``MORE_THAN_BATCH``. Any place will do that has the bytes of the id. None if an
    effect is needed: few ids are not in the job as they are (another type or length, escapes).
    """
    name = data.get(batch.FIELD)
    if name.__class__ is not str or not len(name) == len(jid) == batch.ID_LENGTH:
        return None
    if not (name.isascii() and jid.isascii()):
        return None
    batch_at, jid_at, size = raw.rfind(name.encode()), raw.rfind(jid.encode()), len(raw)
    return None if batch_at < 0 or jid_at < 0 else (size - batch_at, size - jid_at)


def effects_of_start(start: JobStart) -> tuple[Effect, ...]:
    """The effects of the start of a run: a running job may note them, so they are repeatable."""
    return tuple(effect for field, rule in STARTS.items() if field in start.data for effect in rule(start))


def effects_of_stored(raw: bytes, ending: Ending, now: float, queue: str = "") -> tuple[Effect, ...]:
    """The effects of the end of a stored job; none for an invalid one, and for one without ``FIELDS``.

    ``queue`` is its queue, empty for the one that it names; ``now`` is in epoch seconds. An effect that
    cannot be made is left out.
    """
    ended = ended_of_stored(raw, ending, now, queue)
    return () if ended is None else tuple(effect for _, effect in _usable(ended, ignore))


def ended_of_stored(
    raw: bytes, ending: Ending, now: float, queue: str = "", *, error_class: str = "", error_message: str = ""
) -> Ended | None:
    """The end of a stored job; None for an invalid one, and for one without ``FIELDS``."""
    if not any(mark in raw for mark in MARKS):
        return None
    try:
        data = envelope.decode(raw)
    except BadMessageError:
        return None
    jid, job_class, named = (_text(data.get(field)) for field in ("jid", "class", "queue"))
    return Ended(
        ending, data, jid, queue or named, job_class, now, error_class, error_message, may_have_log=True
    )


def effects_of_buried(fields: bytes, now: float) -> tuple[Effect, ...]:
    """The effects of the end of a job that is in ``dead`` without them; the error is the job's own.

    ``fields``: the job without its arguments, also of one that no server could read. Without ``history``:
    which of its runs the error ended is unknown.
    """
    try:
        data = envelope.decode(fields.decode(errors="replace").encode())
    except BadMessageError:
        return ()
    data.pop(history.FIELD, None)
    names = ("jid", "queue", "class", "error_class", "error_message")
    jid, queue, job_class, error_class, message = (_text(data.get(name)) for name in names)
    ended = Ended(Ending.DEAD, data, jid, queue, job_class, now, error_class, message)
    return tuple(effect for _, effect in _usable(ended, ignore))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
