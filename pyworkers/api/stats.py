"""Stats: the counts of jobs, queues and servers, now and by day."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyworkers.api import processes
from pyworkers.api.groups import GroupStats, groups_of
from pyworkers.api.record import JobRecord, valid
from pyworkers.api.target import Where, admin_of
from pyworkers.protocol import timestamps
from pyworkers.protocol.flow.counted import COUNTERS, INCIDENTS
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.flow.ordered import HeldHead
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.search import Search
from pyworkers.store.stats import QueueView, counters, one_queue, overview, set_counters

# Sidekiq keeps the counters of a day for five years (protocol.md, Counters).
_NOW = ("enqueued", "busy", "scheduled", "retries", "dead", "processes")
_MOST_DAYS = 5 * 365


@dataclass(frozen=True, slots=True)
class QueueHead:
    """A failed job at the head of an ordered queue: the others wait until it is done or dead.

    ``jid``, ``job_class`` and ``error_class`` are empty for a job above 64 KiB, which is not read.
    """

    jid: str
    job_class: str
    error_class: str
    misfit: bool
    """True if it does not fit the active server: its class or a parameter is of another release."""
    since: float | None
    """Its first failure in epoch seconds; None if it is unknown, or if the job waits for another reason."""
    retry_at: float
    """When it runs again, in epoch seconds."""

    def as_dict(self) -> dict[str, Any]:
        """The job for JSON."""
        return {
            "jid": valid(self.jid),
            "class": valid(self.job_class),
            "error_class": valid(self.error_class),
            "misfit": self.misfit,
            "since": self.since,
            "retry_at": self.retry_at,
        }


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One queue at one time; ``size`` jobs wait, and the next one was enqueued at ``next_enqueued_at`` (epoch
    seconds).

    ``in_progress`` counts the jobs in the in-progress lists of servers, ``in_progress_by`` those of each
    server: of pyworkers, and of Go programs if reported or searched for; Sidekiq has no in-progress lists. A
    queue is ``served`` if a server with a heartbeat or a lease takes jobs from it.
    """

    name: str
    size: int
    in_progress: int
    next_enqueued_at: float | None
    paused: bool
    served: bool
    in_progress_by: Mapping[str, int] = field(default_factory=dict)
    active: str = ""
    """The identity of the server that runs the jobs of an ordered queue; empty for any other queue."""
    rate_per_min: float | None = None
    """The jobs a minute that ran, failed ones included, over the last full minute and the current one.

    None if no server of pyworkers serves the queue: others do not count by queue.
    """
    failed_per_min: float | None = None
    """Those of them that failed."""
    head: QueueHead | None = None
    """The failed job at the head of an ordered queue, for which the others wait; else None."""

    def latency_s(self, now: float) -> float:
        """The seconds that the next job has been waiting; 0 if none waits or its age is unknown."""
        return 0.0 if self.next_enqueued_at is None else max(0.0, now - self.next_enqueued_at)

    def as_dict(self, now: float | None = None) -> dict[str, Any]:
        """The queue for JSON, with its latency at ``now`` (epoch seconds)."""
        return {
            "name": valid(self.name),
            "size": self.size,
            "latency_s": round(self.latency_s(time.time() if now is None else now), 3),
            "rate_per_min": _rounded(self.rate_per_min),
            "failed_per_min": _rounded(self.failed_per_min),
            "in_progress": self.in_progress,
            "in_progress_by": {valid(owner): jobs for owner, jobs in self.in_progress_by.items()},
            "paused": self.paused,
            "served": self.served,
            **({"active": valid(self.active)} if self.active else {}),
            **({"head": self.head.as_dict()} if self.head else {}),
        }


@dataclass(frozen=True, slots=True)
class OneQueue:
    """A queue by itself, and how many ``servers`` take jobs from it.

    ``now`` is the time by Redis' clock, in epoch seconds.
    """

    queue: QueueStats
    servers: int
    now: float


@dataclass(frozen=True, slots=True)
class Day:
    """The counts of one day, in UTC."""

    date: date
    processed: int
    failed: int

    def as_dict(self) -> dict[str, Any]:
        """The day for JSON; ``date`` is ``YYYY-MM-DD``."""
        return {"date": self.date.isoformat(), "processed": self.processed, "failed": self.failed}


@dataclass(frozen=True, slots=True)
class Stats:
    """The number of jobs in each state.

    ``processed`` and ``failed`` count since the last reset, as Sidekiq's do, and are up to one heartbeat old.
    ``expired`` counts the jobs that did not start in time, which are in neither.
    ``crashed``, ``interrupted``, ``recovered``, ``cancelled``, ``misfits`` and ``suspects`` count what is
    unusual. ``busy`` are the running jobs, ``processes`` the live servers, Sidekiq's included.
    """

    processed: int
    failed: int
    enqueued: int
    busy: int
    scheduled: int
    retries: int
    dead: int
    processes: int
    queues: Sequence[QueueStats] = field(default=(), repr=False)
    servers: Sequence[ProcessView] = field(default=(), repr=False)
    groups: Sequence[GroupStats] = field(default=(), repr=False)
    expired: int = 0
    crashed: int = 0
    interrupted: int = 0
    recovered: int = 0
    cancelled: int = 0
    misfits: int = 0
    suspects: int = 0
    lost: Sequence[str] = field(default=(), repr=False)
    """The servers whose lease has expired, and whose jobs no other server has taken over yet."""
    now: float = field(default=0.0, compare=False, repr=False)
    """The time at which they were read, by Redis' clock, in epoch seconds."""

    @classmethod
    def fetch(
        cls, where: Where = None, *, namespace: str | None = None, search: bool | Search = False
    ) -> Stats:
        """The counts now. Raises ConfigError, RedisUnavailableError and StoreError.

        ``search``: also scan the names of all keys for the lists of Go processes without a heartbeat.
        """
        admin = admin_of(where, namespace)
        return admin.run(read_stats(admin.keys, Search(admin.keys) if search is True else search or None))

    @property
    def oldest(self) -> QueueStats | None:
        """The queue whose next job has waited longest; None if no age is known."""
        known = [queue for queue in self.queues if queue.next_enqueued_at is not None]
        return min(known, key=lambda queue: queue.next_enqueued_at or 0.0, default=None)

    def counts(self) -> dict[str, int]:
        """The numbers by name, in the order in which they are shown."""
        return {name: getattr(self, name) for name in (*COUNTERS, *_NOW)}

    def incidents(self) -> dict[str, int]:
        """The counters of what is unusual, by name, those that are not 0."""
        return {name: number for name in INCIDENTS if (number := getattr(self, name))}

    def as_dict(self, now: float | None = None) -> dict[str, Any]:
        """All of it for JSON; the latencies are those at ``now`` (epoch seconds), or when it was read."""
        now = self.now if now is None else now
        oldest = self.oldest
        waits = {"queue": valid(oldest.name), "age_s": round(oldest.latency_s(now), 3)} if oldest else None
        return {
            **self.counts(),
            "oldest": waits,
            "queues": [queue.as_dict(now) for queue in self.queues],
            "groups": [group.as_dict() for group in self.groups],
            "servers": [processes.describe(about) for about in self.servers],
            "lost": list(map(valid, self.lost)),
        }

    @staticmethod
    def history(
        days: int = 30, where: Where = None, *, until: date | None = None, namespace: str | None = None
    ) -> list[Day]:
        """The counts of each of ``days`` days, the latest first: ``until``, or today in UTC.

        Raises ValueError for days out of range, and ConfigError, RedisUnavailableError and StoreError.
        """
        admin = admin_of(where, namespace)
        return admin.run(read_history(admin.keys, days, until))

    @staticmethod
    def reset(*names: str, where: Where = None, namespace: str | None = None) -> None:
        """Set ``processed`` or ``failed``, or both if none is named, to 0; the counts of the days remain."""
        unknown = set(names) - {"processed", "failed"}
        if unknown:
            raise ValueError(f"only processed and failed can be reset, not {', '.join(sorted(unknown))}")
        admin = admin_of(where, namespace)
        admin.run(set_counters(admin.keys, dict.fromkeys(names or ("processed", "failed"), 0)))


def read_stats(keys: Keys, search: Search | None = None) -> Steps[Stats]:
    """Read what ``Stats.fetch`` returns."""
    seen = yield from overview(keys, search)
    return Stats(
        enqueued=sum(queue.size for queue in seen.queues),
        busy=seen.busy,
        scheduled=seen.scheduled,
        retries=seen.retries,
        dead=seen.dead,
        processes=seen.processes,
        queues=[_queue(queue) for queue in seen.queues],
        servers=seen.servers,
        groups=groups_of(seen.servers, seen.now),
        lost=seen.lost,
        now=seen.now,
        **seen.counted,
    )


def read_queue(keys: Keys, name: str) -> Steps[OneQueue]:
    """Read one queue, in a time that does not grow with the number of queues. An unknown one is empty."""
    seen = yield from one_queue(keys, name)
    return OneQueue(_queue(seen.queue), seen.servers, seen.now)


def read_history(keys: Keys, days: int = 30, until: date | None = None) -> Steps[list[Day]]:
    """Read what ``Stats.history`` returns, with its errors."""
    if not 1 <= days <= _MOST_DAYS:
        raise ValueError(f"days must be from 1 to {_MOST_DAYS}, not {days}")
    last = until or datetime.now(UTC).date()
    dates = [last - timedelta(days=back) for back in range(days)]
    counts = yield from counters(keys, [day.isoformat() for day in dates])
    return [Day(day, processed, failed) for day, (processed, failed) in zip(dates, counts, strict=True)]


def _queue(view: QueueView) -> QueueStats:
    return QueueStats(
        view.name,
        view.size,
        view.in_progress,
        view.next_enqueued_at,
        view.paused,
        view.served,
        view.in_progress_by,
        view.active,
        view.rate_per_min,
        view.failed_per_min,
        None if view.head is None else _head(view.head),
    )


def _head(held: HeldHead) -> QueueHead:
    job = JobRecord(held.raw)
    misfit_at = timestamps.read(job.data.get("misfit_at"))
    failed_at = timestamps.read(job.data.get("failed_at"))
    return QueueHead(
        job.jid,
        job.job_class,
        job.error_class,
        misfit_at is not None,
        failed_at if misfit_at is None else misfit_at,
        held.until,
    )


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)
