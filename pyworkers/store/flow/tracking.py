"""Tracking: reads the status and the result of a tracked job, and waits for the result.

Used by ``client``. The wait polls nothing: one blocking read (XREAD) on its own connection, which is
opened again if it is lost. A wait of seconds is noted for the sweep, which ends it if the job is nowhere. All
of it may be sent twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import hiredis
import redis

from pyworkers.config.fields import RedisConfig
from pyworkers.errors import (
    BadArgumentError,
    PyworkersError,
    RedisUnavailableError,
    ResultTimeout,
    StoreError,
    UntrackedJobError,
)
from pyworkers.protocol.flow.history import JobHistory, read_history
from pyworkers.protocol.flow.joblog import LogLine, read_line
from pyworkers.protocol.flow.track import is_tracked
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import FIELDS, Answer, JobState, JobStatus, read_answer, read_status
from pyworkers.store.calls import Steps
from pyworkers.store.flow import batchviews, deadlines
from pyworkers.store.flow.finding import find
from pyworkers.store.wiresteps import Apart, OverClient, Pause, Sent, WireSteps

# How long Redis blocks at a time. A connection that is half open is found that late.
_LONGEST_BLOCK_S = 30.0
# After this time a wait is noted: most end before.
_UNNOTED_S = 5.0
_NOTES_LIFE_S = 3600
# A reply that is later than this after the block does not come.
_PATIENCE_S = 5.0
# Until a lost connection is opened again.
_PAUSE_S = 0.2
# The fields of Sidekiq's hash for a long job.
_ITERATION = ("ex", "c", "rt")
_pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
_TIME = _pack(("TIME",))


class TrackedJob(NamedTuple):
    """What Redis holds about a job: its status, and its end if it has ended."""

    status: JobStatus
    answer: Answer | None


def result(config: RedisConfig, keys: Keys, jid: str, deadline: float) -> WireSteps[Any]:
    """What a job returned; waits for its end until ``deadline``, by the monotonic clock.

    Or what a batch returned. Raises UntrackedJobError at once for an id of which nothing is known,
    JobFailedError, ResultTimeout, RedisUnavailableError and StoreError.
    """
    seen = yield from look(keys, jid)
    if seen.answer is None and not _has_status(jid, seen):
        reason = yield OverClient(config, _no_result(keys, jid))
        # It may have ended during the search.
        seen = yield from look(keys, jid)
        _check(jid, seen, reason)
    answer = seen.answer or (yield from wait(config, keys, jid, deadline))
    return answer.value_of(jid)


def look(keys: Keys, jid: str) -> WireSteps[TrackedJob]:
    """Read both in one round trip. Raises BadArgumentError, RedisUnavailableError and StoreError."""
    return _seen((yield Sent(_looking(keys, jid), 2)))


def history(keys: Keys, jid: str) -> WireSteps[JobHistory | None]:
    """The job as it was enqueued, and its runs; None without them. Raises as ``look``."""
    return _history(jid, (yield Sent(_reading_all(keys, jid), 2)))


def _reading_all(keys: Keys, jid: str) -> bytes:
    return _pack(("HGETALL", keys.job(jid))) + _ending(keys, jid)


def _history(jid: str, replies: Sequence[Any]) -> JobHistory | None:
    found, entries = map(_checked, replies)
    # In RESP3 a map.
    stored = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
    return read_history(jid, stored, _first(entries))


def logs(keys: Keys, jid: str) -> WireSteps[list[LogLine]]:
    """The lines of a job's log. Raises as ``look``."""
    [entries] = map(_checked, (yield Sent(_pack(("XRANGE", keys.log(jid), "-", "+")), 1)))
    return [read_line(parts[1]) for _, parts in entries]


def iteration(keys: Keys, jid: str) -> WireSteps[dict[str, bytes]]:
    """The state of a long job, which Sidekiq may have written. Raises as ``look``."""
    return _iteration((yield Sent(_reading(keys, jid), 1)))


def _reading(keys: Keys, jid: str) -> bytes:
    return _pack(("HMGET", keys.iteration(jid), *_ITERATION))


def _iteration(replies: Sequence[Any]) -> dict[str, bytes]:
    [values] = map(_checked, replies)
    return {name: value for name, value in zip(_ITERATION, values, strict=True) if value is not None}


def wait(config: RedisConfig, keys: Keys, jid: str, deadline: float) -> WireSteps[Answer]:
    """Wait for the end of a job until ``deadline`` (monotonic). Raises ResultTimeout and StoreError."""
    lost: PyworkersError | None = None
    noted = False
    while lost is None or deadlines.now_s() < deadline:
        block_s = _block_s(deadline, noted)
        try:
            answer: Answer | None = yield Apart(
                config, block_s + _PATIENCE_S, _announcement(keys, jid, block_s)
            )
        except RedisUnavailableError as error:
            lost = error
            yield Pause(min(_PAUSE_S, max(0.0, deadline - deadlines.now_s())))
            continue
        if answer is not None:
            return answer
        lost, noted = None, True
        if deadlines.now_s() >= deadline:
            break
    raise _too_late(jid) from lost


def _announcement(keys: Keys, jid: str, block_s: float) -> WireSteps[Answer | None]:
    """The end of a job, if it comes within a time; otherwise the wait is noted."""
    [reply] = yield Sent(_waiting(keys, jid, block_s), 1)
    answer = _announced(reply)
    if answer is None:
        # The rights of a reader are not enough: then its wait is not noted.
        [clock] = yield Sent(_TIME, 1)
        yield Sent(_noting(keys, jid, clock), 2)
    return answer


def _block_s(deadline: float, noted: bool) -> float:
    """The time of one blocking read; the first one is sent also after the deadline."""
    most = _LONGEST_BLOCK_S if noted else _UNNOTED_S
    return max(0.001, min(deadline - deadlines.now_s(), most))


def check_jid(jid: object) -> None:
    """Raise BadArgumentError for a value that cannot be the id of a job."""
    if not isinstance(jid, str) or not jid or not jid.isprintable():
        raise BadArgumentError(f"a jid is a text that is not empty, not {jid!r}")


def _no_result(keys: Keys, jid: str) -> Steps[str]:
    """Why a job without a status will have no result; empty if it will, or if a batch with this id will."""
    if (yield from batchviews.announces(keys, jid)):
        return ""
    try:
        found = yield from find(keys, jid)
    except StoreError as error:
        # The rights of a client are not enough.
        if error.code != "NOPERM":
            raise
        found = None
    if found is None:
        return "its status has expired, or there was no such job"
    if not is_tracked(found.data, jid) or found.status.state.final:
        return f"it is {found.status.state}, but its result is not kept"
    return ""


def _has_status(jid: str, seen: TrackedJob) -> bool:
    """False if the job must be looked for: a producer that is not pyworkers writes no status.

    Raises UntrackedJobError if it has ended and its result is gone.
    """
    if seen.status.state.final:
        raise UntrackedJobError(f"the job {jid} is {seen.status.state}, but its result is gone")
    return seen.status.state is not JobState.UNKNOWN


def _check(jid: str, seen: TrackedJob, reason: str) -> None:
    """Raise UntrackedJobError if there is a reason why the job will have no result."""
    if reason and seen.answer is None and not _has_status(jid, seen):
        raise UntrackedJobError(
            f"no result of the job {jid}: {reason}",
            hint="a job has a result if it is enqueued with track=SECONDS",
        )


def deadline_of(timeout: float | None) -> float:
    """The end of a wait that begins now, by the monotonic clock. Raises BadArgumentError."""
    if timeout is None:
        return math.inf
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise BadArgumentError(f"timeout must be seconds from 0, or None, not {timeout!r}")
    return deadlines.now_s() + timeout


def _too_late(jid: str) -> ResultTimeout:
    return ResultTimeout(f"the job {jid} has not ended in the time")


def _looking(keys: Keys, jid: str) -> bytes:
    read = _pack(("HMGET", keys.job(jid), *FIELDS))
    return read + _ending(keys, jid)


def _ending(keys: Keys, jid: str) -> bytes:
    return _pack(("XRANGE", keys.result(jid), "-", "+", "COUNT", "1"))


def _waiting(keys: Keys, jid: str, block_s: float) -> bytes:
    # Not 0, which blocks for ever.
    block_ms = max(1, math.ceil(block_s * 1000))
    key = keys.result(jid)
    return _pack(("XREAD", "COUNT", "1", "BLOCK", str(block_ms), "STREAMS", key, "0"))


def _noting(keys: Keys, jid: str, clock: Any) -> bytes:
    """The commands that note a wait, at Redis' time: the sweep forgets old notes by that clock.

    ``clock`` is the reply to TIME, for which a user of Redis may have no right.
    """
    now = str(time.time()) if isinstance(clock, redis.RedisError) else clock[0]
    return _pack(("ZADD", keys.awaited, now, jid)) + _pack(("EXPIRE", keys.awaited, str(_NOTES_LIFE_S)))


def _seen(replies: Sequence[Any]) -> TrackedJob:
    values, entries = map(_checked, replies)
    return TrackedJob(read_status(values), _first(entries))


def _announced(reply: Any) -> Answer | None:
    found = _checked(reply)
    if found is None:
        return None
    # In RESP3 a map.
    [(_, entries)] = found.items() if isinstance(found, dict) else found
    return _first(entries)


def _first(entries: Sequence[Any]) -> Answer | None:
    """The end of a job from the entry of its stream; an invalid one counts as missing."""
    try:
        [[_, [_, packed]]] = entries
        return read_answer(packed)
    except (ValueError, TypeError):
        return None


def _checked(reply: Any) -> Any:
    if isinstance(reply, redis.RedisError):
        raise reply
    return reply
