"""Track: the rule of tracked jobs (option ``track``): their status and their result.

Pure. The status is the HASH ``job:JID``, the result the STREAM ``result:JID`` with one entry, for which any
number of readers wait (XREAD). Both expire ``track`` seconds after the end of the job; until then, the status
is kept for 30 days after its last change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyworkers.errors import BadArgumentError, BadResultError
from pyworkers.protocol.effects import Announce, DeleteKey, Effect, StoreFields
from pyworkers.protocol.envelope import check_value, encode_args
from pyworkers.protocol.flow.ending import Ended, Ending
from pyworkers.protocol.flow.start import JobStart
from pyworkers.protocol.message import as_count
from pyworkers.protocol.status import JobState, Progress, pack_answer

FIELD = "track"
ALIVE_S = 30 * 86_400
"""How long the status of a job is kept that has not ended, after its last change."""
MAX_RESULT_BYTES = 4 * 1024 * 1024
"""The largest result, as JSON: it goes through the server's memory, together with the job's other effects."""
_MAX_S = 10**9
# For a value of another producer that is not a number of seconds.
_DEFAULT_S = 3600
_LONGEST_JID, _LONGEST_ERROR = 256, 2000


def status_key(jid: str) -> str:
    """The HASH with the status, as effects name keys."""
    return f"job:{jid}"


def result_key(jid: str) -> str:
    """The STREAM with the end of the job, as effects name keys."""
    return f"result:{jid}"


def is_tracked(data: Mapping[str, Any], jid: str) -> bool:
    """True if the envelope asks for it, and the id can be part of a key."""
    return kept_after_s(data) > 0 and fits(jid)


def fits(jid: str) -> bool:
    """True if an id can be part of a key: others come from other languages, or are a job's own."""
    return 0 < len(jid) <= _LONGEST_JID and jid.isprintable()


def kept_after_s(data: Mapping[str, Any]) -> int:
    """How long the status is kept after the end; 0: it is not tracked.

    A value that is not a number, from a producer in another language, counts as an hour.
    """
    value = data.get(FIELD)
    if not value:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _DEFAULT_S
    return int(min(max(1.0, value), _MAX_S)) if value > 0 else 0


def entered(jid: str, queue: str, at: float | None, status_s: int) -> Effect:
    """The status of a job that is enqueued, as push.lua writes it. ``at`` is when it is due, None for now."""
    state = JobState.WAITING if at is None else JobState.SCHEDULED
    fields = {"state": state.value, "queue": queue, "attempt": "0"}
    return StoreFields.of(status_key(jid), fields, status_s)


def entered_s(jid: str, now: float, at: float | None) -> int:
    """How long the status of a job is kept that is enqueued now, and due at ``at``; 0: it has none."""
    if not fits(jid):
        return 0
    due_s = 0.0 if at is None else min(max(0.0, at - now), _MAX_S)
    return min(ALIVE_S + int(due_s), _MAX_S)


def started(start: JobStart) -> Iterable[Effect]:
    """The effects of the start of a run."""
    if not is_tracked(start.data, start.jid):
        return
    fields = {
        "state": JobState.RUNNING.value,
        "queue": start.queue,
        "attempt": str(start.attempt),
        "started_at": repr(start.now),
    }
    yield StoreFields.of(status_key(start.jid), fields, ALIVE_S)
    if start.attempt:
        # It was dead perhaps, and is retried by hand.
        yield DeleteKey(result_key(start.jid))


def progressed(jid: str, progress: Progress) -> Effect:
    """The effect of a progress."""
    return StoreFields.of(status_key(jid), {"progress": progress.encoded()}, ALIVE_S)


def effects(ended: Ended) -> Iterable[Effect]:
    """The effects of the end of a run, or of a wait."""
    if not is_tracked(ended.data, ended.jid):
        return
    jid, state, ending = ended.jid, ended.ending.state, ended.ending
    keep_s = kept_s(ended)
    fields = {"state": state.value, "queue": ended.queue}
    if ending.final or ending is Ending.RETRY:
        fields |= {"attempt": str(_attempt(ended)), "finished_at": repr(ended.now), "error": _error(ended)}
    elif ending is Ending.MISFIT:
        fields |= {"error": _error(ended)}
    yield StoreFields.of(status_key(jid), fields, keep_s)
    if ending.final:
        answer = pack_answer(state, ended.result or b"null", ended.error_class, ended.error_message)
        yield Announce(result_key(jid), answer, keep_s)


def kept_s(ended: Ended) -> int:
    """How long the status is kept after this end."""
    return kept_after_s(ended.data) if ended.ending.final else ALIVE_S


def _attempt(ended: Ended) -> int:
    """The number of failures before this end; after a failure that is retried, with that one."""
    count = as_count(ended.data.get("retry_count"))
    return (0 if count is None else count + 1) + (ended.ending is Ending.RETRY)


def _error(ended: Ended) -> str:
    if not ended.error_class:
        return ended.error_message[:_LONGEST_ERROR]
    return f"{ended.error_class}: {ended.error_message}"[:_LONGEST_ERROR]


def encode_result(value: Any) -> bytes:
    """What a job returned, as JSON. Raises BadResultError, with the path of the invalid value."""
    try:
        text = encode_args([value], "result")[1:-1].encode()
    except (TypeError, ValueError, RecursionError) as error:
        fault, hint = _fault(value)
        raise BadResultError(f"{fault or error}: it cannot be kept as JSON", hint=hint) from error
    if len(text) > MAX_RESULT_BYTES:
        raise BadResultError(f"the result has {len(text)} bytes; the limit is {MAX_RESULT_BYTES}")
    return text


def _fault(value: Any) -> tuple[str, str]:
    """What is wrong, with the path of the invalid value, and the fix; empty if nothing is found."""
    try:
        check_value(value, "result")
    except BadArgumentError as error:
        return error.message, error.hint
    except RecursionError as error:
        return str(error), ""
    return "", ""
