"""Stats: the counts of jobs, queues and servers, now and by day."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyworkers.api import processes
from pyworkers.api.columns import Column, Kind, Table
from pyworkers.api.groups import GROUP, GroupStats, groups_of
from pyworkers.api.queuestats import QUEUE, QueueStats, stats_of
from pyworkers.api.target import Where, admin_of
from pyworkers.config.thresholds import Threshold
from pyworkers.protocol.flow.counted import COUNTERS, INCIDENTS
from pyworkers.protocol.keys import Keys
from pyworkers.store.calls import Steps
from pyworkers.store.processes.views import ProcessView
from pyworkers.store.search import Search
from pyworkers.store.stats import counters, overview, set_counters

_NOW = ("enqueued", "busy", "scheduled", "retries", "dead", "processes")
MOST_DAYS = 5 * 365
"""Sidekiq keeps the counters of a day for five years (protocol.md, Counters)."""


@dataclass(frozen=True, slots=True)
class Day:
    """The counts of one day, in UTC."""

    date: date
    processed: int
    failed: int

    def as_dict(self) -> dict[str, Any]:
        """The day for JSON; ``date`` is ``YYYY-MM-DD``."""
        return DAY.as_dict(self)

    @property
    def done(self) -> int:
        """The jobs that did not fail."""
        return max(0, self.processed - self.failed)


DAY: Table[Day] = Table(
    "Day",
    Column("date", title="Day", value=lambda day, _now: day.date.isoformat()),
    Column("processed", Kind.COUNT, "Processed"),
    Column("done", Kind.COUNT, "Done", only_shown=True),
    Column("failed", Kind.COUNT, "Failed"),
)


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
    thresholds: Sequence[Threshold] = field(default=(), repr=False)
    """The thresholds of the dashboard that people have set in this Redis."""

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
        return STATS.as_dict(self, self.now if now is None else now)

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


_OLDEST: Table[QueueStats] = Table(
    "Oldest",
    Column("queue", value=lambda queue, _now: queue.name),
    Column("age_s", Kind.SECONDS, value=QueueStats.latency_s),
)
_COUNTERS: Sequence[Column[Stats]] = [
    Column(name, Kind.COUNT, name.capitalize(), about=about) for name, about in COUNTERS.items()
]
STATS: Table[Stats] = Table(
    "Stats",
    *_COUNTERS,
    Column("enqueued", Kind.COUNT, "Waiting"),
    Column("busy", Kind.COUNT, "Running"),
    Column("scheduled", Kind.COUNT, "Scheduled"),
    Column("retries", Kind.COUNT, "Retries"),
    Column("dead", Kind.COUNT, "Dead"),
    Column("processes", Kind.COUNT, "Servers"),
    Column("oldest", Kind.RECORD, "Oldest job", table=_OLDEST, nullable=True),
    Column("queues", Kind.RECORDS, table=QUEUE),
    Column("groups", Kind.RECORDS, table=GROUP),
    Column("servers", Kind.RECORDS, table=processes.SERVER),
    Column("lost", Kind.TEXTS),
    Column("done", Kind.COUNT, "Done", value=lambda stats, _now: max(0, stats.processed - stats.failed),
           only_shown=True),
)  # fmt: skip


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
        queues=[stats_of(queue) for queue in seen.queues],
        servers=seen.servers,
        groups=groups_of(seen.servers, seen.now),
        lost=seen.lost,
        thresholds=seen.thresholds,
        now=seen.now,
        **seen.counted,
    )


def read_history(keys: Keys, days: int = 30, until: date | None = None) -> Steps[list[Day]]:
    """Read what ``Stats.history`` returns, with its errors."""
    if not 1 <= days <= MOST_DAYS:
        raise ValueError(f"days must be from 1 to {MOST_DAYS}, not {days}")
    last = until or datetime.now(UTC).date()
    dates = [last - timedelta(days=back) for back in range(days)]
    counts = yield from counters(keys, [day.isoformat() for day in dates])
    return [Day(day, processed, failed) for day, (processed, failed) in zip(dates, counts, strict=True)]
