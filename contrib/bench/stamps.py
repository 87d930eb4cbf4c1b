"""Loads of one job now and then: how long after its enqueue, or its time, each starts.

From before the enqueue to the first line of the job, on one host clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from contrib.bench.fill import Stamps
from contrib.bench.loads import Numbers, size, warm
from contrib.bench.peer import Peer
from contrib.bench.site import Failed, Site

INTERVAL_MS = 10
_WARM_UP = 50
_FIRST = 50 + _WARM_UP
"""Jobs that are executed before those that count."""


def latency(site: Site, peer: Peer, scale: float) -> Numbers:
    """An idle server gets a job every 10 ms from the peer's own client."""

    def produce(count: int) -> None:
        site.program(peer, "pace", count, INTERVAL_MS)

    site.clear()
    return _paced(site, peer, size(1000 / INTERVAL_MS, scale), produce)


def pickup(site: Site, peer: Peer, scale: float) -> Numbers:
    """The same with one producer for all peers, so that their clients are no part of it."""
    site.clear()
    stamps = Stamps(site, peer)

    def produce(count: int) -> None:
        started = time.perf_counter()
        for number in range(count):
            stamps.push(time.time_ns())
            time.sleep(max(0.0, started + (number + 1) * INTERVAL_MS / 1000 - time.perf_counter()))

    return _paced(site, peer, size(1000 / INTERVAL_MS, scale), produce)


def _paced(site: Site, peer: Peer, count: int, produce: Callable[[int], None]) -> Numbers:
    with site.serving(peer):
        warm(site, peer)
        produce(_WARM_UP)
        site.wait_for_jobs(_FIRST, 30)
        site.forget_stamps()
        before = site.read()
        produce(count)
        site.wait_for_jobs(_FIRST + count, 30)
        others = site.read().others(before)
        site.check_jobs(_FIRST + count)
    return _quantiles(site.stamps_ms(), count) | {"others_cpus": others}


def exactness(site: Site, peer: Peer, _scale: float) -> Numbers:
    """How late jobs start that were scheduled for a time, one every 50 ms."""
    site.clear()
    count = 60
    with site.serving(peer):
        warm(site, peer)
        site.program(peer, "later", "stamp", count, 3, 50)
        site.wait_for_jobs(50 + count, 60)
        site.check_jobs(50 + count)
    return _quantiles(site.stamps_ms(), count)


def _quantiles(stamps: list[float], count: int) -> Numbers:
    if len(stamps) != count:
        raise Failed(f"{len(stamps)} stamps of {count} jobs")
    cuts = statistics.quantiles(stamps, n=100, method="inclusive")
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(stamps)}
