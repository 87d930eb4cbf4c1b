"""The measurements by name: the load, the peers that take part, the columns of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from contrib.bench import batches, growth, loads, stamps
from contrib.bench.peer import Peer

BASE = "pyworkers"
SHARED_BASE = "pyworkers-async"


@dataclass(frozen=True)
class Column:
    """One number of a measurement, as it is in the table."""

    key: str
    head: str
    digits: int = 0


def _few(peer: Peer) -> bool:
    return peer.few


@dataclass(frozen=True)
class Measure:
    """One measurement; its first column is what peers are compared by, and what the picture shows."""

    name: str
    title: str
    take: loads.Load
    columns: tuple[Column, ...]
    fits: Callable[[Peer], bool] = _few
    more_is_better: bool = True
    base: str = BASE
    """The peer that the others' ratios are to."""
    rare: bool = False
    """Whether it is taken only if it is named."""


_RATE = (
    Column("jobs_s", "jobs/s"),
    Column("cpu_s", "CPU s per 1,000 jobs", 3),
    Column("server_cpu_s", "of that the server", 3),
    Column("redis_cpu_s", "Redis", 3),
)
_SHARE = (Column("percent", "% of the ideal", 1), *_RATE[1:2])
_TREE = (Column("pss_mb", "all processes, MB"), Column("processes", "processes"))
_LATE = (Column("p50_ms", "p50, ms", 2), Column("p99_ms", "p99, ms", 2), Column("max_ms", "max, ms", 2))


def _many(peer: Peer) -> bool:
    return peer.many


def _can_schedule(peer: Peer) -> bool:
    return peer.few and peer.later


def _has_schedule(peer: Peer) -> bool:
    return peer.few and bool(peer.schedule_key)


def _has_batches(peer: Peer) -> bool:
    return peer.few and peer.batches


def _compares(peer: Peer) -> bool:
    return peer.compares


def _has_list(peer: Peer) -> bool:
    return peer.few and bool(peer.queue_key)


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("noop", "No-op jobs from a full queue, logs at warning", loads.noop, _RATE),
        Measure("single", "No-op jobs with one worker", loads.single, _RATE),
        Measure(
            "lines",
            "No-op jobs, each peer's own log of its jobs in a file",
            loads.lines,
            (*_RATE[:2], Column("lines_per_job", "lines per job", 1)),
        ),
        Measure(
            "cpu",
            "Jobs that use 1 ms of CPU; the ideal is 1,000/s on each core",
            loads.share("cpu", 1000 * loads.CORES),
            _SHARE,
        ),
        Measure(
            "sleep",
            "Jobs that sleep for 10 ms; the ideal is 1,000/s with 10 workers",
            loads.share("sleep", 1000),
            _SHARE,
        ),
        Measure(
            "shared",
            f"No-op jobs, {loads.SHARED} at once in one or two processes",
            loads.shared,
            (*_RATE, *_TREE),
            _many,
            base=SHARED_BASE,
        ),
        Measure(
            "waits",
            f"Jobs that sleep for 10 ms, {loads.WAITING} at once; the ideal is {loads.WAITING * 100:,}/s",
            loads.share("sleep", loads.WAITING * 100, loads.WAITING),
            (*_SHARE, *_TREE),
            _many,
            base=SHARED_BASE,
        ),
        Measure(
            "slow",
            f"Jobs that sleep for a second, {loads.SLOW} at once; the ideal is {loads.SLOW}/s",
            loads.slow,
            (*_SHARE, *_TREE),
            _many,
            base=SHARED_BASE,
        ),
        Measure(
            "blob",
            "Payloads of 1 MB",
            loads.blob,
            (*_RATE[:2], Column("peak_mb", "largest process at its peak, MB", 0)),
        ),
        Measure(
            "latency", "An idle server: from enqueue to start", stamps.latency, _LATE, more_is_better=False
        ),
        Measure(
            "pickup",
            "An idle server: from LPUSH to start, with one producer for all",
            stamps.pickup,
            _LATE,
            _has_list,
            more_is_better=False,
        ),
        Measure(
            "exactness",
            "Scheduled jobs: start after their time (negative: before it)",
            stamps.exactness,
            _LATE,
            _can_schedule,
            more_is_better=False,
        ),
        Measure(
            "enqueue",
            "Enqueueing by one producer",
            loads.enqueue,
            (Column("one_s", "one by one, jobs/s"), Column("bulk_s", "in bulk, jobs/s")),
        ),
        Measure(
            "producers",
            "Enqueueing from Go: pyworkers' client, go-workers2 and pipelined LPUSH of the same bytes",
            loads.producers,
            (
                Column("plain_s", "one by one, jobs/s"),
                Column("unique_s", "unique and tracked"),
                Column("other_s", "go-workers2, one by one"),
                Column("bulk_s", "in bulk"),
                Column("lpush_s", "pipelined LPUSH"),
                Column("plain_us", "CPU of a job with Redis, µs", 1),
                Column("other_us", "go-workers2", 1),
                Column("bulk_us", "in bulk", 1),
                Column("lpush_us", "pipelined LPUSH", 1),
            ),
            _compares,
            base="go-pyworkers",
        ),
        Measure(
            "batch",
            "Jobs that are members of one batch, and the same jobs without it",
            batches.batch,
            (
                Column("bulk_s", "enqueued in bulk, jobs/s"),
                Column("plain_bulk_s", "without it"),
                Column("one_s", "one by one, jobs/s"),
                Column("plain_one_s", "without it"),
                Column("cpu_s", "CPU s per 1,000 jobs", 3),
                Column("plain_cpu_s", "without it", 3),
                Column("bytes", "more bytes a job"),
            ),
            _has_batches,
        ),
        Measure(
            "promote",
            "Jobs that are all due at once",
            loads.promote,
            (Column("promoted_s", "moved to the queue, jobs/s"), *_RATE[1:2]),
            _has_schedule,
        ),
        Measure(
            "memory",
            "Memory of all processes (PSS)",
            loads.memory,
            (
                Column("pss_2000_mb", "after 2,000 jobs, MB"),
                Column("pss_idle_mb", "idle, MB"),
                Column("processes", "processes"),
            ),
            more_is_better=False,
        ),
        Measure(
            "startup",
            "Start: from the command until the first job is done",
            loads.startup,
            (Column("start_s", "first job, s", 2), Column("help_s", "--help, s", 2)),
            more_is_better=False,
        ),
        Measure(
            "workers",
            "Growth: CPU seconds per 1,000 jobs by number of workers",
            growth.by_workers,
            tuple(
                Column(f"cpu_s_{workers}", f"{workers} worker{'s' * (workers > 1)}", 3)
                for workers in growth.WORKERS
            ),
            more_is_better=False,
        ),
        Measure(
            "backlog",
            "Growth: CPU seconds per 1,000 jobs by jobs waiting",
            growth.by_backlog,
            (Column("cpu_s_0", "none left", 3), Column("cpu_s_1000000", "1 million", 3)),
            _has_list,
            more_is_better=False,
        ),
        Measure(
            "backlog10",
            "Growth: CPU seconds per 1,000 jobs by jobs waiting (2 GB of memory)",
            lambda site, peer, scale: growth.by_backlog(site, peer, scale, (0, 10_000_000)),
            (Column("cpu_s_0", "none left", 3), Column("cpu_s_10000000", "10 million", 3)),
            _has_list,
            more_is_better=False,
            rare=True,
        ),
    )
}
