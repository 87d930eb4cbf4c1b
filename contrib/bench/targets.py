"""The targets of pyworkers against named peers, and whether it reaches them. Pure: raw results in, text out.

A target compares two numbers of one round, because a machine that slows down slows both. It takes the median.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from contrib.bench.measures import BASE, MEASURES, SHARED_BASE
from contrib.bench.report import Rounds, foot, ratios, spread, values

FAST = "pyworkers-uvloop"
IN_GO = "go-pyworkers"


@dataclass(frozen=True)
class Bound:
    """A limit, and on which side of it a number is to be."""

    sign: str
    limit: float

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.sign == "≥" else value <= self.limit

    def __str__(self) -> str:
        return f"{self.sign} {self.limit:g}"


def least(limit: float) -> Bound:
    return Bound("≥", limit)


def most(limit: float) -> Bound:
    return Bound("≤", limit)


@dataclass(frozen=True)
class Target:
    """One row: a number of ours, mostly as a ratio to a number of a peer."""

    name: str
    what: str
    measure: str
    key: str
    """The number of the measurement."""
    bound: Bound | None = None
    """None: the row is shown and not judged."""
    ours: str = FAST
    peer: str = ""
    """The peer that ours is compared with; empty: the number itself is the result."""
    peer_key: str = ""
    """The peer's number, if it is another one."""

    @property
    def digits(self) -> int:
        return next((column.digits for column in MEASURES[self.measure].columns if column.key == self.key), 0)

    def found(self, by_peer: Mapping[str, Rounds]) -> list[float]:
        """The results, one for each round in which neither failed."""
        mine = by_peer.get(self.ours, ())
        if not self.peer:
            return values(mine, self.key)
        return ratios(mine, self.key, by_peer.get(self.peer, ()), self.peer_key or self.key)


_go = partial(Target, peer="go-workers2")
_async = partial(Target, ours=SHARED_BASE)
_thread = partial(Target, ours="pyworkers-thread", peer="celery-threads")
_in_go = partial(Target, ours=IN_GO, peer="go-workers2")


def _producer(name: str, what: str, key: str, bound: Bound | None = None, *, peer_key: str) -> Target:
    return Target(name, what, "producers", key, bound, IN_GO, IN_GO, peer_key)


# Compared with itself; flat, but for the noise of a measurement.
_itself = partial(Target, measure="batch", peer=FAST)
_growth = partial(Target, peer=FAST, bound=most(1.15))

_ROWS = (
    _go("noop", "no-op", "noop", "jobs_s", least(2)),
    _go("noop-plain", "no-op, without uvloop", "noop", "jobs_s", least(1.6), BASE),
    Target("noop-celery", "no-op", "noop", "jobs_s", least(25), peer="celery"),
    Target("noop-huey", "no-op", "noop", "jobs_s", least(4), peer="huey"),
    _go("lines", "no-op, each one's log in a file", "lines", "jobs_s", least(1.3)),
    _go("cost", "CPU of a job, all told", "noop", "cpu_s", most(0.6)),
    _go("cost-server", "CPU of a job, without Redis", "noop", "server_cpu_s"),
    _go("cost-redis", "CPU of a job, Redis alone", "noop", "redis_cpu_s"),
    _go("single", "CPU of a job, one worker", "single", "cpu_s", most(1)),
    _go("cpu", "1 ms of CPU", "cpu", "jobs_s", least(1)),
    _go("latency", "idle latency, p50", "latency", "p50_ms", most(1.3)),
    _go("latency-p99", "idle latency, p99", "latency", "p99_ms", most(2)),
    _go("pickup", "idle latency, one producer, p50", "pickup", "p50_ms"),
    _go("pickup-p99", "idle latency, one producer, p99", "pickup", "p99_ms"),
    _in_go("worker-go", "no-op, the worker for Go", "noop", "jobs_s", least(0.9)),
    _in_go("worker-go-cost", "CPU of a job, the worker for Go, all told", "noop", "cpu_s"),
    _producer("enqueue-go", "the client for Go, to go-workers2", "plain_s", least(1), peer_key="other_s"),
    _producer("enqueue-go-cost", "its CPU of a job, with Redis", "plain_us", peer_key="other_us"),
    _producer("enqueue-go-unique", "unique and tracked jobs", "unique_s", peer_key="other_s"),
    _producer("enqueue-go-bulk", "in bulk, to pipelined LPUSH", "bulk_s", least(0.8), peer_key="lpush_s"),
    _producer("enqueue-go-bulk-cost", "its CPU of a job, with Redis", "bulk_us", peer_key="lpush_us"),
    Target("blob", "payloads of 1 MB", "blob", "jobs_s", least(1), peer="sidekiq-2"),
    Target("blob-one", "payloads of 1 MB", "blob", "jobs_s", peer="sidekiq"),
    _async("async", "no-op, 2 processes of 50", "shared", "jobs_s", least(1.5), peer="taskiq-list"),
    _async("waits", "500 sleeps of 10 ms, % of the ideal", "waits", "percent", least(95)),
    _async("waits-memory", "500 sleeps of 10 ms, MB", "waits", "pss_mb", most(100)),
    _async("waits-gevent", "500 sleeps of 10 ms", "waits", "jobs_s", peer="celery-gevent"),
    _async("waits-taskiq", "500 sleeps of 10 ms", "waits", "jobs_s", peer="taskiq-list"),
    _thread("waits-threads", "500 sleeps of 10 ms", "waits", "jobs_s"),
    _async("slow", "400 sleeps of 1 s, % of the ideal", "slow", "percent"),
    _async("slow-gevent", "400 sleeps of 1 s", "slow", "jobs_s", peer="celery-gevent"),
    _thread("slow-threads", "400 sleeps of 1 s", "slow", "jobs_s"),
    Target("memory", "memory, 10 processes", "memory", "pss_2000_mb", most(0.28), peer="celery"),
    Target("batch", "members, enqueued in bulk", "batch", "bulk_s", least(100_000)),
    _itself("batch-bulk", "the same, to jobs without a batch", key="bulk_s", peer_key="plain_bulk_s"),
    _itself("batch-one", "members, one by one, to jobs without a batch", key="one_s", peer_key="plain_one_s"),
    Target("batch-bytes", "more bytes in Redis for a member", "batch", "bytes", most(200)),
    _itself(
        "batch-cost", "CPU, a member to another job", key="cpu_s", peer_key="plain_cpu_s", bound=most(1.15)
    ),
    _growth("workers", "CPU, 200 workers to 1", "workers", "cpu_s_200", peer_key="cpu_s_1"),
    _growth("workers-10", "CPU, 200 workers to 10", "workers", "cpu_s_200", peer_key="cpu_s_10"),
    _growth("backlog", "CPU, 1 million waiting to 0", "backlog", "cpu_s_1000000", peer_key="cpu_s_0"),
    _growth("backlog10", "CPU, 10 million waiting to 0", "backlog10", "cpu_s_10000000", peer_key="cpu_s_0"),
)
TARGETS: dict[str, Target] = {target.name: target for target in _ROWS}
USUAL = [target.name for target in _ROWS if not MEASURES[target.measure].rare]


def needed(targets: Iterable[Target]) -> dict[str, list[str]]:
    """The peers that each measurement takes, ours first."""
    found: dict[str, list[str]] = {}
    for target in targets:
        peers = found.setdefault(target.measure, [])
        peers += [peer for peer in dict.fromkeys((target.ours, target.peer)) if peer and peer not in peers]
    return found


_HEADS = ("row", "", "against", "target", "median of the rounds", "reached", "ours", "theirs")


def table(results: Mapping[str, Any], targets: Iterable[Target]) -> str:
    """The rows in Markdown, and below when, where and how each measurement was taken."""
    targets = list(targets)
    measures = results["measures"]
    rows = [_HEADS, ["---"] * len(_HEADS)]
    rows += [_row(target, measures.get(target.measure, {}).get("peers", {})) for target in targets]
    feet = [f"`{name}`: {foot(measures[name])}" for name in needed(targets) if name in measures]
    head = f"### Targets\n\nOurs is {FAST} unless the row says otherwise."
    lines = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return "\n\n".join([head, lines, "  \n".join(feet)])


def _row(target: Target, by_peer: Mapping[str, Rounds]) -> list[str]:
    found = target.found(by_peer)
    reached = "-"
    if found and target.bound:
        reached = "yes" if target.bound.holds(statistics.median(found)) else "no"
    return [
        target.name,
        target.what + (f" ({target.ours})" if target.ours != FAST else ""),
        target.peer or "-",
        str(target.bound or "-"),
        spread(found, 2) if found else "not measured",
        reached,
        _value(by_peer, target.ours, target.key, target.digits),
        _value(by_peer, target.peer, target.peer_key or target.key, target.digits),
    ]


def _value(by_peer: Mapping[str, Rounds], peer: str, key: str, digits: int) -> str:
    found = values(by_peer.get(peer, ()), key)
    return f"{statistics.median(found):,.{digits}f}" if found else "-"
