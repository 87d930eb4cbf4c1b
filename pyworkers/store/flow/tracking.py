"""Tracking: reads the status and the result of a tracked job, and waits for the result.

Used by ``client``. The wait polls nothing: one blocking read (XREAD) on its own connection, which is
opened again if it is lost. A wait of seconds is noted for the sweep, which ends it if the job is nowhere. All
of it may be sent twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

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
from pyworkers.store.wiresteps import Apart, OverClient, Pause, WireSteps, asked, sent

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
    status = ("HMGET", keys.job(jid), *FIELDS)
    values, entries = yield from asked(status, _ending(keys, jid))
    return TrackedJob(read_status(values), _first(entries))


def history(keys: Keys, jid: str) -> WireSteps[JobHistory | None]:
    """The job as it was enqueued, and its runs; None without them. Raises as ``look``."""
    found, entries = yield from asked(("HGETALL", keys.job(jid)), _ending(keys, jid))
    # In RESP3 a map.
    stored = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
    return read_history(jid, stored, _first(entries))


def logs(keys: Keys, jid: str) -> WireSteps[list[LogLine]]:
    """The lines of a job's log. Raises as ``look``."""
    [entries] = yield from asked(("XRANGE", keys.log(jid), "-", "+"))
    return [read_line(parts[1]) for _, parts in entries]


def iteration(keys: Keys, jid: str) -> WireSteps[dict[str, bytes]]:
    """The state of a long job, which Sidekiq may have written. Raises as ``look``."""
    [values] = yield from asked(("HMGET", keys.iteration(jid), *_ITERATION))
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
    raise ResultTimeout(f"the job {jid} has not ended in the time") from lost


def _announcement(keys: Keys, jid: str, block_s: float) -> WireSteps[Answer | None]:
    """The end of a job, if it comes within a time; otherwise the wait is noted."""
    # Not 0, which blocks for ever.
    block_ms = max(1, math.ceil(block_s * 1000))
    read = ("XREAD", "COUNT", "1", "BLOCK", str(block_ms), "STREAMS", keys.result(jid), "0")
    [found] = yield from asked(read)
    # In RESP3 a map.
    streams = found.items() if isinstance(found, dict) else found or ()
    answer = next((_first(entries) for _, entries in streams), None)
    if answer is None:
        # The sweep forgets old notes by Redis' time. A user may have no right to it, or to note a wait.
        [clock] = yield sent(("TIME",))
        now = str(time.time()) if isinstance(clock, redis.RedisError) else clock[0]
        noting = ("ZADD", keys.awaited, now, jid)
        yield sent(noting, ("EXPIRE", keys.awaited, str(_NOTES_LIFE_S)))
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


def _ending(keys: Keys, jid: str) -> tuple[str, ...]:
    """The command that reads the end of a job."""
    return "XRANGE", keys.result(jid), "-", "+", "COUNT", "1"


def _first(entries: Sequence[Any]) -> Answer | None:
    """The end of a job from the entry of its stream; an invalid one counts as missing."""
    try:
        [[_, [_, packed]]] = entries
        return read_answer(packed)
    except (ValueError, TypeError):
        return None
