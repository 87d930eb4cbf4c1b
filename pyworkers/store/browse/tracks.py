"""Tracks: what Redis holds about one job, apart from the job: status, result, runs, and who runs it.

Used by ``api``; never by the server. It only reads, and searches no queue and no set.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pyworkers.protocol.flow.history import JobHistory, read_history
from pyworkers.protocol.flow.joblog import LogLine, read_line
from pyworkers.protocol.keys import Keys
from pyworkers.protocol.status import FIELDS, UNKNOWN, Answer, JobStatus, read_answer, read_status
from pyworkers.store.calls import Mode, Steps, command, decoded, every
from pyworkers.store.flow.copies import CopiesInLists, reported
from pyworkers.store.flow.ordered import is_head, until_of
from pyworkers.store.processes.reading import Processes
from pyworkers.store.stats import one_queue, read_in_progress, read_owners

_MOST_LIMITS = 1000


class Tracked(NamedTuple):
    """What a tracked job has written. ``cancelled``: servers do not start it, and end it if it runs."""

    status: JobStatus = UNKNOWN
    answer: Answer | None = None
    history: JobHistory | None = None
    cancelled: bool = False


class Held(NamedTuple):
    """A running job: its bytes, and the server that runs it."""

    identity: str
    queue: str
    raw: bytes
    run_at: float = 0.0
    thread: str = ""


class OrderedState(NamedTuple):
    """What runs before a waiting job of an ordered queue."""

    active: str
    """The server that runs the jobs of the queue, one at a time; empty if no live server takes jobs."""
    running: bool
    """True if it runs one now."""
    retry_at: float | None
    """When the failed job at the head runs again, in epoch seconds; None if none has failed."""


def read_tracked(keys: Keys, jid: str) -> Steps[Tracked]:
    """Read what is kept under the id of a job."""
    stored, entries, cancelled = yield from every(
        [
            command("HGETALL", keys.job(jid)),
            command("XRANGE", keys.result(jid), "-", "+", "COUNT", 1),
            command("ZSCORE", keys.cancelled, jid),
        ],
        Mode.LENIENT,
    )
    fields: dict[bytes, bytes] = stored or {}
    answer = _answer(entries)
    return Tracked(
        read_status([fields.get(name.encode()) for name in FIELDS]),
        answer,
        read_history(jid, fields, answer),
        cancelled is not None,
    )


def read_log(keys: Keys, jid: str, after: str) -> Steps[tuple[list[tuple[str, LogLine]], JobStatus]]:
    """The lines of a job's log behind the entry ``after``, each with the id of its entry, and its status.

    All lines without ``after``.
    """
    entries, values = yield from every(
        [
            command("XRANGE", keys.log(jid), f"({after}" if after else "-", "+"),
            command("HMGET", keys.job(jid), *FIELDS),
        ],
        Mode.LENIENT,
    )
    lines = [(decoded(id), read_line(fields[b"v"])) for id, fields in entries or () if b"v" in fields]
    return lines, read_status(values) if values else UNKNOWN


def read_held(keys: Keys, jid: str) -> Steps[Held | None]:
    """A running job with this id, and who runs it; None if there is none."""
    lists = yield from read_in_progress(keys)
    if found := (yield from CopiesInLists(lists, jid).first()):
        key, raw = found
        queue, owner = lists[key]
        work = yield from reported(keys, [owner], jid)
        return Held(owner, queue, raw, work.run_at if work else 0.0, work.thread if work else "")
    owners = yield from read_owners(keys)
    servers = yield from Processes(keys).rest()
    others = [server.identity for server in servers if server.identity not in owners]
    work = yield from reported(keys, others, jid)
    return None if work is None else Held(work.identity, work.queue, work.payload, work.run_at, work.thread)


def read_limits(keys: Keys, queue: str, jid: str) -> Steps[list[str]]:
    """The limits that have put a scheduled job off; of more than a thousand limits, some are not asked."""
    stored = yield from every([command("HKEYS", keys.limits)], Mode.LENIENT)
    names = sorted(map(decoded, stored[0] or ()))[:_MOST_LIMITS]
    waiter = f"{queue} {jid}"
    scores = yield from every(
        [command("ZSCORE", keys.limit_waiting(name), waiter) for name in names], Mode.LENIENT
    )
    return [name for name, score in zip(names, scores, strict=True) if score is not None]


def read_order(keys: Keys, queue: str) -> Steps[OrderedState | None]:
    """What runs before a waiting job; None if the queue is not ordered, or no server is active yet."""
    # Not HMGET, for which the role ``read-only`` has no right.
    fields = ("identity", "until", "head", "fence")
    identity, until, head, fence = yield from every(
        [command("HGET", keys.ordered(queue), field) for field in fields], Mode.LENIENT
    )
    if not identity and not fence:
        return None
    active, lease, running = decoded(identity or b""), 0, 0
    if active:
        # As in still_active (flow/ordered): a dead server keeps the queue until its job is recovered.
        lease, running = yield from every(
            [command("EXISTS", keys.lease(active)), command("LLEN", keys.inprogress(queue, active))],
            Mode.LENIENT,
        )
    if lease or running:
        return OrderedState(active, bool(running), (yield from _retry_at(keys, queue, until, head)))
    # A server that takes its jobs is not active while it is paused, or if it is no longer ordered.
    served = (yield from one_queue(keys, queue)).served
    return None if served else OrderedState("", False, (yield from _retry_at(keys, queue, until, head)))


def _retry_at(keys: Keys, queue: str, until_ms: bytes | None, head: bytes | None) -> Steps[float | None]:
    """As take.lua: the failed job waits while it is at the head; it may have been deleted since."""
    retry_at = until_of(until_ms)
    if retry_at is None:
        return None
    [raw] = yield from every([command("LINDEX", keys.queue(queue), -1)], Mode.LENIENT)
    return retry_at if raw and is_head(raw, head) else None


def _answer(entries: Any) -> Answer | None:
    """The end of a job; an invalid one counts as missing."""
    try:
        [(_, fields)] = entries
        [packed] = fields.values()
        return read_answer(packed)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
