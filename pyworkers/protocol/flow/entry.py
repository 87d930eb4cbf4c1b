"""Entry: the fields of the envelope and the conditions of the push that the options of a job ask for.

Pure; used by producers, and by the server for the jobs of cron entries. The counterpart of ``effects_of``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyworkers.protocol.conditions import Conditions, UniqueLock
from pyworkers.protocol.effects import Effect
from pyworkers.protocol.flow import history, track, unique
from pyworkers.protocol.options import seconds_of


@dataclass(frozen=True, slots=True)
class Entering:
    """A job that is about to be pushed. ``at`` is when it is due, ``now`` the time, in epoch seconds."""

    queue: str
    job_class: str
    args: Sequence[Any]
    jid: str
    options: Mapping[str, Any]
    """All options, those without a field in the envelope (``max_waiting`` …) included."""
    now: float
    at: float | None = None
    path: str = "args"
    """Names ``args`` in errors."""
    digest: Callable[[bytes], bytes] = unique.digest
    """The digest of the arguments for the key of a unique job."""


class Entry(NamedTuple):
    """How a job enters: more fields of its envelope, and the conditions of its push."""

    fields: Mapping[str, Any]
    conditions: Conditions | None


def entry_of(job: Entering) -> Entry:
    """The entry of a job. Raises BadArgumentError, and the errors of ``unique_by``."""
    fields: dict[str, Any] = {}
    lock, options = None, job.options
    if options.get("unique_for") is not None:
        by = options.get("unique_by")
        key = unique.key_of(job.job_class, job.queue, job.args, by, job.path, job.digest)
        if options.get("unique_until") == "expiry":
            key += unique.BY_TIME
        fields[unique.FIELD] = key
        mode = options.get("on_duplicate", "skip")
        life_s = seconds_of(options["unique_for"]) + (0.0 if job.at is None else max(0.0, job.at - job.now))
        lock = UniqueLock(unique.lock_of(key), life_s, mode)
    # A job for later does not wait in the queue.
    limit = options.get("max_waiting") or 0
    status_s = 0 if options.get("track") is None else track.entered_s(job.jid, job.now, job.at)
    if lock is None and not limit and not status_s:
        return Entry(fields, None)
    is_kept = bool(status_s and options.get("history"))
    return Entry(fields, Conditions(lock, limit, options.get("wait", 0.0), status_s, is_kept))


def entered(queue: str, payload: bytes, jid: str, at: float | None, asked: Conditions) -> Iterator[Effect]:
    """What push.lua writes with a job, but for its lock, as effects for what has no Redis."""
    if asked.status_s:
        yield track.entered(jid, queue, at, asked.status_s)
    if asked.history:
        yield history.entered(payload, jid, asked.status_s)
