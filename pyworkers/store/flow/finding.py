"""Finding: looks for a job in all queues and sets, by its id.

Used by ``client`` and the command line; never by the server. It reads all waiting jobs, so its
time grows with their number: Redis reads about a million small jobs in a second or two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pyworkers.errors import BadMessageError
from pyworkers.protocol import envelope, timestamps
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.message import as_count
from pyworkers.protocol.status import JobState, JobStatus
from pyworkers.store.calls import Mode, Steps, command, every
from pyworkers.store.flow.copies import filled_queues, in_queue, in_set, is_job
from pyworkers.store.stats import read_in_progress


class Found(NamedTuple):
    """A job that was found: what its place and its envelope show, and the envelope."""

    status: JobStatus
    data: dict[str, Any]


def find(keys: Keys, jid: str) -> Steps[Found | None]:
    """Find a job; None if no queue, set or in-progress list holds it."""
    # Twice, because during a search the job may move from a place not yet searched to one already searched.
    for _ in range(2):
        for search in (_in_sets, _in_queues, _in_progress):
            if found := (yield from search(keys, jid)):
                return found
    return None


def _in_sets(keys: Keys, jid: str) -> Steps[Found | None]:
    places = {
        keys.schedule: JobState.SCHEDULED, keys.retry: JobState.RETRYING, keys.dead: JobState.DEAD,
    }  # fmt: skip
    for zset, state in places.items():
        copies = in_set(zset, jid)
        while not copies.ended:
            for raw in (yield from copies.next_page()):
                return _found(state, raw)
    return None


def _in_queues(keys: Keys, jid: str) -> Steps[Found | None]:
    for queue in (yield from filled_queues(keys)):
        copies = in_queue(keys, queue, jid)
        while not copies.ended:
            for raw in (yield from copies.next_page()):
                return _found(JobState.WAITING, raw, queue)
    return None


def _in_progress(keys: Keys, jid: str) -> Steps[Found | None]:
    lists = yield from read_in_progress(keys)
    reads = [command("LRANGE", keys.inprogress(queue, owner), 0, -1) for queue, owner in lists]
    for (queue, _), raws in zip(lists, (yield from every(reads, Mode.LENIENT)), strict=True):
        for raw in raws or ():
            if is_job(raw, jid):
                return _found(JobState.RUNNING, raw, queue)
    return None


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
