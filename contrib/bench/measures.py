"""The measurements: each puts one load on one peer and returns numbers, or raises Failed.

A measurement discards its warm-up, and checks by the jobs' own count that each was executed exactly once.
``scale`` is the length of a load in seconds, at the rate that the peer is expected to have.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from contrib.bench import machine
from contrib.bench.environments import ROOT
from contrib.bench.peer import Peer
from contrib.bench.site import Failed, Reading, Site

Numbers = dict[str, float]

WARM_UP = 0.2
"""Part of the jobs that is executed before the clock starts: start-up, imports, first connections."""
CORES = machine.cores()
IDEAL = {"cpu": CORES * 1000.0, "sleep": 1000.0}
"""Jobs a second: 1 ms of CPU on every core; 10 ms of sleep in 10 workers."""


@dataclass(frozen=True)
class Column:
    """One number of a measurement, as it stands in the table."""

    key: str
    head: str
    digits: int = 0


@dataclass(frozen=True)
class Measure:
    """One measurement; its first column is what peers are compared by, and what the picture shows."""

    name: str
    title: str
    take: Callable[[Site, Peer, float], Numbers]
    columns: tuple[Column, ...]
    fits: Callable[[Peer], bool] = lambda _peer: True
    more_is_better: bool = True


def _how(peer: Peer) -> str:
    return "bulk" if peer.bulk else "one"


def _between(before: Reading, after: Reading) -> Numbers:
    jobs = after.jobs - before.jobs
    server_s = after.server_cpu_s - before.server_cpu_s
    redis_s = after.redis_cpu_s - before.redis_cpu_s
    return {
        "jobs_s": jobs / (after.time_s - before.time_s),
        "cpu_s": (server_s + redis_s) * 1000 / jobs,
        "server_cpu_s": server_s * 1000 / jobs,
        "redis_cpu_s": redis_s * 1000 / jobs,
        "others_cpus": after.others(before),
    }


def _execute(
    site: Site, peer: Peer, kind: str, count: int, *, workers: int = 10, lines: bool = False
) -> Numbers:
    """``count`` jobs from a full queue."""
    site.clear()
    site.program(peer, "push", kind, count, _how(peer))
    with site.serving(peer, workers, lines=lines):
        site.wait_for_jobs(round(count * WARM_UP), 90)
        before = site.read()
        site.wait_for_jobs(count, 120)
        after = site.read()
        site.check_jobs(count)
        peak_mb = machine.peak_mb(machine.tree(site.roots))
    return _between(before, after) | {
        "jobs": count,
        "lines_per_job": site.log_lines() / count,
        "peak_mb": peak_mb,
    }


def _load(rate: float, scale: float) -> int:
    return max(100, round(rate * scale))


def noop(site: Site, peer: Peer, scale: float) -> Numbers:
    return _execute(site, peer, "noop", _load(peer.expected, scale))


def lines(site: Site, peer: Peer, scale: float) -> Numbers:
    return _execute(site, peer, "noop", _load(peer.expected / 2, scale), lines=True)


def _share(kind: str) -> Callable[[Site, Peer, float], Numbers]:
    def share(site: Site, peer: Peer, scale: float) -> Numbers:
        numbers = _execute(site, peer, kind, _load(min(IDEAL[kind], peer.expected), scale))
        return numbers | {"percent": 100 * numbers["jobs_s"] / IDEAL[kind]}

    return share


def blob(site: Site, peer: Peer, scale: float) -> Numbers:
    return _execute(site, peer, "blob", _load(min(100, peer.expected), scale))


def latency(site: Site, peer: Peer, scale: float) -> Numbers:
    """An idle server gets a job every 10 ms."""
    site.clear()
    with site.serving(peer):
        _warm(site, peer)
        site.program(peer, "pace", 50, 10)
        site.wait_for_jobs(100, 30)
        site.forget_stamps()
        count = _load(100, scale)
        site.program(peer, "pace", count, 10)
        site.wait_for_jobs(100 + count, 30)
        site.check_jobs(100 + count)
    return _quantiles(site.stamps_ms(), count)


def exactness(site: Site, peer: Peer, _scale: float) -> Numbers:
    """How late jobs start that were scheduled for a time, one every 50 ms."""
    site.clear()
    count = 60
    with site.serving(peer):
        _warm(site, peer)
        site.program(peer, "later", "stamp", count, 3, 50)
        site.wait_for_jobs(50 + count, 60)
        site.check_jobs(50 + count)
    return _quantiles(site.stamps_ms(), count)


def _warm(site: Site, peer: Peer) -> None:
    site.program(peer, "push", "noop", 50, "one")
    site.wait_for_jobs(50, 60)


def _quantiles(stamps: list[float], count: int) -> Numbers:
    if len(stamps) != count:
        raise Failed(f"{len(stamps)} stamps of {count} jobs")
    cuts = statistics.quantiles(stamps, n=100, method="inclusive")
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(stamps)}


def enqueue(site: Site, peer: Peer, scale: float) -> Numbers:
    """From one producer; the jobs are executed afterwards, to see that they were there."""
    site.clear()
    count = _load(max(1000, peer.expected / 4), scale)
    site.program(peer, "push", "noop", 10, "one")
    numbers = {"one_s": count / site.program(peer, "push", "noop", count, "one")}
    total = 10 + count
    if peer.bulk:
        numbers["bulk_s"] = count / site.program(peer, "push", "noop", count, "bulk")
        total += count
    with site.serving(peer):
        site.wait_for_jobs(total, 180)
        site.check_jobs(total)
    return numbers


def promote(site: Site, peer: Peer, scale: float) -> Numbers:
    """Jobs that are all due when the server starts: how fast they leave the sorted set, and are done."""
    site.clear()
    count = _load(min(10_000, peer.expected), scale)
    # They all have to be scheduled before the first is due; 1,500 a second is what the slowest peer enqueues.
    due = time.time() + 1 + count / 1500
    site.program(peer, "later", "noop", count, f"{due - time.time():.0f}", 0)

    def size() -> int:
        return site.broker.scheduled(peer.schedule_key)

    if size() != count:
        raise Failed(f"{size()} jobs scheduled of {count}")
    time.sleep(max(0.0, due + 1 - time.time()))
    with site.serving(peer):
        site.wait(lambda: size() < count, 90, "promotion", 0.001)
        before, left = site.read(), size()
        site.wait(lambda: size() == 0, 90, "promotion", 0.001)
        took_s = time.monotonic() - before.time_s
        site.wait_for_jobs(count, 90)
        after = site.read()
        site.check_jobs(count)
    # No number if they all went in one step.
    return _between(before, after) | ({"promoted_s": left / took_s} if left else {})


def memory(site: Site, peer: Peer, _scale: float) -> Numbers:
    site.clear()
    with site.serving(peer):
        _warm(site, peer)
        time.sleep(1)
        idle = machine.pss_mb(machine.tree(site.roots))
        site.program(peer, "push", "noop", 2000, _how(peer))
        site.wait_for_jobs(2050, 120)
        site.check_jobs(2050)
        pids = machine.tree(site.roots)
        return {"pss_2000_mb": machine.pss_mb(pids), "pss_idle_mb": idle, "processes": len(pids)}


def startup(site: Site, peer: Peer, _scale: float) -> Numbers:
    """From the start of the command until the first job, which is waiting, has been executed."""
    site.clear()
    site.program(peer, "push", "noop", 1, "one")
    started = time.monotonic()
    with site.serving(peer):
        site.wait_for_jobs(1, 60)
        numbers = {"start_s": time.monotonic() - started}
    if peer.help:
        started = time.monotonic()
        subprocess.run(peer.help, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=True)
        numbers["help_s"] = time.monotonic() - started
    return numbers


WORKERS = (1, 10, 50, 200)


def by_workers(site: Site, peer: Peer, scale: float) -> Numbers:
    """The cost of a job by the number of workers."""
    numbers: Numbers = {}
    for workers in WORKERS:
        found = _execute(site, peer, "noop", _load(peer.expected, scale), workers=workers)
        numbers |= {f"cpu_s_{workers}": found["cpu_s"], f"jobs_s_{workers}": found["jobs_s"]}
    return numbers


# KEYS[1] the queue. ARGV[1] how many, ARGV[2] and ARGV[3] the envelope around its jid, ARGV[4] the first jid.
_FILL = """
for i = 1, ARGV[1] do
  redis.call('LPUSH', KEYS[1], ARGV[2] .. string.format('%024d', ARGV[4] + i) .. ARGV[3])
end
"""


def by_backlog(site: Site, peer: Peer, scale: float, backlogs: tuple[int, ...] = (0, 1_000_000)) -> Numbers:
    """The cost of a job by the number of jobs that are still waiting behind it."""
    numbers: Numbers = {}
    for waiting in backlogs:
        site.clear()
        count = _load(peer.expected, scale)
        total = fill(site, peer, count + waiting)
        with site.serving(peer):
            site.wait_for_jobs(round(count * WARM_UP), 90)
            before = site.read()
            site.wait_for_jobs(count, 90)
            found = _between(before, site.read())
            if not waiting:
                site.check_jobs(total)
        numbers |= {f"cpu_s_{waiting}": found["cpu_s"], f"jobs_s_{waiting}": found["jobs_s"]}
    return numbers


def fill(site: Site, peer: Peer, count: int) -> int:
    """Put so many no-op jobs into the queue, without its producer; the number that is there then."""
    site.program(peer, "push", "noop", 1, "one")
    raw = site.broker.client.lindex(peer.queue_key, 0)
    assert isinstance(raw, bytes)
    before, after = raw.split(json.loads(raw)["jid"].encode())
    batch = 10_000
    for first in range(0, count - 1, batch):
        some = min(batch, count - 1 - first)
        site.broker.client.eval(_FILL, 1, peer.queue_key, some, before, after, first)
    return site.broker.waiting(peer.queue_key)


_RATE = (
    Column("jobs_s", "jobs/s"),
    Column("cpu_s", "CPU s per 1,000 jobs", 3),
    Column("server_cpu_s", "of that the server", 3),
    Column("redis_cpu_s", "Redis", 3),
)
_SHARE = (Column("percent", "% of the ideal", 1), Column("cpu_s", "CPU s per 1,000 jobs", 3))
_LATE = (Column("p50_ms", "p50, ms", 2), Column("p99_ms", "p99, ms", 2), Column("max_ms", "max, ms", 2))


def _can_schedule(peer: Peer) -> bool:
    return peer.later


MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        Measure("noop", "No-op jobs from a full queue, logs at warning", noop, _RATE),
        Measure(
            "lines",
            "No-op jobs, each peer's own log of its jobs in a file",
            lines,
            (*_RATE[:2], Column("lines_per_job", "lines per job", 1)),
        ),
        Measure("cpu", "Jobs that use 1 ms of CPU; the ideal is 1,000/s on each core", _share("cpu"), _SHARE),
        Measure(
            "sleep",
            "Jobs that sleep for 10 ms; the ideal is 1,000/s with 10 workers",
            _share("sleep"),
            _SHARE,
        ),
        Measure(
            "blob",
            "Payloads of 1 MB",
            blob,
            (*_RATE[:2], Column("peak_mb", "largest process at its peak, MB", 0)),
        ),
        Measure("latency", "An idle server: from enqueue to start", latency, _LATE, more_is_better=False),
        Measure(
            "exactness",
            "Scheduled jobs: start after their time",
            exactness,
            _LATE,
            _can_schedule,
            more_is_better=False,
        ),
        Measure(
            "enqueue",
            "Enqueueing by one producer",
            enqueue,
            (Column("one_s", "one by one, jobs/s"), Column("bulk_s", "in bulk, jobs/s")),
        ),
        Measure(
            "promote",
            "Jobs that are all due at once",
            promote,
            (Column("promoted_s", "moved to the queue, jobs/s"), *_RATE[1:2]),
            lambda peer: bool(peer.schedule_key),
        ),
        Measure(
            "memory",
            "Memory of all processes (PSS)",
            memory,
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
            startup,
            (Column("start_s", "first job, s", 2), Column("help_s", "--help, s", 2)),
            more_is_better=False,
        ),
        Measure(
            "workers",
            "Growth: CPU seconds per 1,000 jobs by number of workers",
            by_workers,
            tuple(Column(f"cpu_s_{workers}", f"{workers} workers", 3) for workers in WORKERS),
            more_is_better=False,
        ),
        Measure(
            "backlog",
            "Growth: CPU seconds per 1,000 jobs by jobs waiting",
            by_backlog,
            (Column("cpu_s_0", "none left", 3), Column("cpu_s_1000000", "1 million", 3)),
            lambda peer: bool(peer.queue_key),
            more_is_better=False,
        ),
        Measure(
            "backlog10",
            "Growth: CPU seconds per 1,000 jobs by jobs waiting (3 GB of memory)",
            lambda site, peer, scale: by_backlog(site, peer, scale, (0, 10_000_000)),
            (Column("cpu_s_0", "none left", 3), Column("cpu_s_10000000", "10 million", 3)),
            lambda peer: bool(peer.queue_key),
            more_is_better=False,
        ),
    )
}
