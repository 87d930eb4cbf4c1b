"""The rule of batches: a member is counted at each end of its run.

Pure. The field ``batch`` of the envelope is the id of the batch. ``batch_index`` is the place of the result,
if that is kept. ``then`` has the steps of a chain that follow (filling.py): jobs without these fields of the
push. The last one may be a list of jobs that run at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyworkers.errors import BadMessageError, BadResultError
from pyworkers.protocol.effects import CountMember, Effect, Push
from pyworkers.protocol.envelope import encode
from pyworkers.protocol.flow import filling
from pyworkers.protocol.flow.ending import Ended
from pyworkers.protocol.keys import is_queue_name
from pyworkers.protocol.outcome import MemberAt, Outcome

FIELD = "batch"
MORE = frozenset({"batch_index", "then"})
"""The fields for which the end of a done member has more effects than its count."""
ID_LENGTH = 24
"""The length of the ids that are found by their places: those that pyworkers and Sidekiq make."""
MOST_BYTES = 8 * 1024 * 1024
"""The size of the jobs that one job may push at its end: half of what its effects may have."""
# A list of results is held in memory, and scripts read integers as floats.
_PLACES = 2**31
MOST_STEPS = 1000
"""The steps that may follow a job in a chain."""
MOST_JOBS = 50_000
"""The jobs that one job may push at its end."""
# The placeholder of a result in a job that an earlier development version wrote.
_RESULT = '{"pyworkers":"RESULT"}'


def note_of(batch: str) -> str:
    """The name of a cancelled batch among the notes of cancelled jobs (``batch.note_of`` of batches.lua)."""
    return f"batch:{batch}"


def effects(ended: Ended) -> Iterator[Effect]:
    """Count the member; none for a field of another type, or for a job without an id."""
    batch, state = ended.data.get("batch"), ended.ending.member
    if state is None or not ended.jid or not isinstance(batch, str):
        return
    place = result_place(ended.data)
    result = (ended.result or b"null") if place >= 0 and state == "done" else b""
    yield CountMember(batch, ended.jid, state, place, result)
    if state == "done" and (then := ended.data.get("then")):
        try:
            yield from following(then, ended.result or b"null", ended.now)
        except BadResultError as error:
            if ended.result is None:
                # The job returned nothing that could be smaller.
                raise BadMessageError(str(error)) from error
            raise


def counted(raw: bytes, at: MemberAt) -> CountMember:
    """The effect that the places in a stored job represent."""
    batch, jid = (raw[len(raw) - place :][:ID_LENGTH].decode() for place in at)
    return CountMember(batch, jid, "done")


def expanded(outcome: Outcome, raw: bytes) -> Outcome:
    """The outcome with effects alone."""
    if outcome.member is None:
        return outcome
    return replace(outcome, member=None, effects=(*outcome.effects, counted(raw, outcome.member)))


def following(then: Any, result: bytes, now: float) -> Iterator[Push]:
    """Push what follows a step that is done, with its result. Invalid jobs are left out.

    Raises BadResultError if all these jobs together are larger than ``MOST_BYTES``, before that is made, and
    BadMessageError for a ``then`` that would push more than its own jobs.
    """
    is_old = isinstance(then, list)
    steps = then if is_old else then.get("steps") if _is_current(then) else None
    if not isinstance(steps, list) or not steps:
        return
    first, *rest = steps
    _check_bounds(first, rest)
    room = MOST_BYTES
    for job in first if isinstance(first, list) else [first]:
        if not isinstance(job, dict) or not is_queue_name(job.get("queue")):
            continue
        args = job.get("args", [])
        parts = encode(args).split(_RESULT) if is_old else filling.cut(args, filling.paths_of(job))
        others = {name: value for name, value in job.items() if name not in ("args", filling.FIELD)}
        fields = others | due(job, now)
        if rest:
            fields["then"] = rest if is_old else {"v": filling.VERSION, "steps": rest}
        about = encode({**fields, "enqueued_at": now})
        room -= len(about) + sum(map(len, parts)) + (len(parts) - 1) * len(result)
        if room < 0:
            raise BadResultError(
                f"the jobs that follow, with the result, are larger than {MOST_BYTES} bytes",
                hint="store the value elsewhere, and return its name",
            )
        text = f'{about[:-1]},"args":{result.decode().join(parts)}}}'
        yield Push(job["queue"], text.encode(errors="backslashreplace"))


def _is_current(then: Any) -> bool:
    return isinstance(then, dict) and then.get("v") == filling.VERSION


def _check_bounds(first: Any, rest: list[Any]) -> None:
    """Raise BadMessageError for too many jobs; a list with steps after it would multiply them."""
    if len(rest) >= MOST_STEPS:
        raise BadMessageError(f"`then` has {len(rest) + 1} steps; the limit is {MOST_STEPS}")
    if isinstance(first, list) and len(first) > MOST_JOBS:
        raise BadMessageError(f"`then` pushes {len(first)} jobs at once; the limit is {MOST_JOBS}")
    if isinstance(first, list) and rest:
        raise BadMessageError(
            "`then` has steps after a list of jobs: what follows a group waits in its batch"
        )


def due(job: dict[str, Any], now: float) -> dict[str, float]:
    """The expiry of a job that is due now, but was made earlier: as long after ``now`` as was asked for."""
    created_at, expiry = job.get("created_at"), job.get("expiry")
    if created_at.__class__ not in (int, float) or expiry.__class__ not in (int, float):
        return {}
    return {"expiry": now + (expiry - created_at)}


def result_place(data: Any) -> int:
    """The place of a member's result in its batch; -1 if none is kept."""
    place = data.get("batch_index")
    return place if place.__class__ is int and 0 <= place < _PLACES else -1
