"""Finding: looks for a job in all queues and sets, by its id.

Used by ``client`` and the command line; never by the server. It reads all waiting jobs, so its
time grows with their number: Redis reads about a million small jobs in a second or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope, timestamps
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.message import as_count
from pyworkers.protocol.status import JobState, JobStatus
from pyworkers.store import moving
from pyworkers.store.calls import Steps, decoded
from pyworkers.store.flow.copies import CopiesInLists, filled_queues, in_set, is_job
from pyworkers.store.stats import read_in_progress

_PLACES = {"queue": JobState.WAITING, "schedule": JobState.SCHEDULED, "retry": JobState.RETRYING}


class Found(NamedTuple):
    """A job that was found: what its place and its envelope show, and the envelope."""

    status: JobStatus
    data: dict[str, Any]


def find(keys: Keys, jid: str) -> Steps[Found | None]:
    """Find a job; None if no queue, set or in-progress list has it, and no move of a queue."""
    # Twice, because during a search the job may move from a place not yet searched to one already searched.
    for _ in range(2):
        for search in (_in_sets, _in_queues, _in_progress, _in_moves):
            if found := (yield from search(keys, jid)):
                return found
    return None


def _in_sets(keys: Keys, jid: str) -> Steps[Found | None]:
    places = {
        keys.schedule: JobState.SCHEDULED, keys.retry: JobState.RETRYING, keys.dead: JobState.DEAD,
    }  # fmt: skip
    for zset, state in places.items():
        if (raw := (yield from in_set(zset, jid).first())) is not None:
            return _found(state, raw)
    return None


def _in_queues(keys: Keys, jid: str) -> Steps[Found | None]:
    return (yield from _in_lists((yield from filled_queues(keys)), jid, JobState.WAITING))


def _in_progress(keys: Keys, jid: str) -> Steps[Found | None]:
    lists = {key: claim.queue for key, claim in (yield from read_in_progress(keys)).items()}
    return (yield from _in_lists(lists, jid, JobState.RUNNING))


def _in_moves(keys: Keys, jid: str) -> Steps[Found | None]:
    """Find it among the jobs that a move has parked; they stay parked for long if it was killed."""
    for queue, (_, size) in (yield from moving.unfinished(keys)).items():
        for job in (yield from moving.parked(keys, queue)) if size else ():
            if is_job(job.raw, jid):
                return _found(_PLACES[decoded(job.place)], job.raw, queue)
    return None


def _in_lists(queues: Mapping[str, str], jid: str, state: JobState) -> Steps[Found | None]:
    """Find it in lists; ``queues`` holds the queue of each list."""
    found = yield from CopiesInLists(queues, jid).first()
    return None if found is None else _found(state, found[1], queues[found[0]])


def _found(state: JobState, raw: bytes, queue: str = "") -> Found | None:
    try:
        data = envelope.decode(raw)
    except BadMessageError:
        return None
    count = as_count(data.get("retry_count"))
    failure = [text for name in ("error_class", "error_message") if isinstance(text := data.get(name), str)]
    status = JobStatus(
        state,
        queue or str(data.get("queue") or ""),
        0 if count is None else count + 1,
        finished_at=timestamps.read(data.get("retried_at")) or timestamps.read(data.get("failed_at")),
        error=": ".join(failure) or None,
    )
    return Found(status, data)
