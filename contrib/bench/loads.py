"""Loads: a full queue, or an empty one, and what a peer makes of it. Each returns numbers, or raises Failed.

A load discards its warm-up, and checks by the jobs' own count that each was executed exactly once.
``scale`` is its length in seconds, at the rate that the peer is expected to have.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from contrib.bench import machine
from contrib.bench.environments import ROOT
from contrib.bench.fill import fill
from contrib.bench.peer import Peer
from contrib.bench.site import Failed, Reading, Site

Numbers = dict[str, float]
Load = Callable[[Site, Peer, float], Numbers]

WARM_UP = 0.2
"""Part of the jobs that is executed before the clock starts: start-up, imports, first connections."""
CORES = machine.cores()
SHARED = 100
"""Workers where jobs share a process: 50 in each of two processes."""
WAITING = 500
"""Workers whose jobs sleep for 10 ms."""
SLOW = 400
"""Workers whose jobs sleep for a second."""


def how(peer: Peer) -> str:
    return "bulk" if peer.bulk else "one"


def size(rate: float, scale: float) -> int:
    return max(100, round(rate * scale))


def between(before: Reading, after: Reading) -> Numbers:
    jobs = after.jobs - before.jobs
    if not jobs:
        raise Failed(f"all {after.jobs} jobs were executed before the clock started: a larger scale")
    server_s = after.server_cpu_s - before.server_cpu_s
    redis_s = after.redis_cpu_s - before.redis_cpu_s
    return {
        "jobs_s": jobs / (after.time_s - before.time_s),
        "cpu_s": (server_s + redis_s) * 1000 / jobs,
        "server_cpu_s": server_s * 1000 / jobs,
        "redis_cpu_s": redis_s * 1000 / jobs,
        "others_cpus": after.others(before),
    }


def served(site: Site, count: int) -> Numbers:
    """The numbers of ``count`` jobs that a server runs now, without the warm-up."""
    site.wait_for_jobs(round(count * WARM_UP), 90)
    before = site.read()
    site.wait_for_jobs(count, 120)
    after = site.read()
    site.check_jobs(count)
    return between(before, after)


def execute(
    site: Site, peer: Peer, kind: str, count: int, *, workers: int = 10, lines: bool = False
) -> Numbers:
    """``count`` jobs from a full queue."""
    site.clear()
    if peer.queue_key and not peer.bulk:
        fill(site, peer, kind, count)
    else:
        site.program(peer, "push", kind, count, how(peer))
    with site.serving(peer, workers, lines=lines):
        numbers = served(site, count)
        pids = machine.tree(site.roots)
        tree = {"processes": len(pids), "pss_mb": machine.pss_mb(pids), "peak_mb": machine.peak_mb(pids)}
    return numbers | tree | {"jobs": count, "lines_per_job": site.log_lines() / count}


def noop(site: Site, peer: Peer, scale: float) -> Numbers:
    return execute(site, peer, "noop", size(peer.expected, scale))


def single(site: Site, peer: Peer, scale: float) -> Numbers:
    return execute(site, peer, "noop", size(peer.expected / 4, scale), workers=1)


def lines(site: Site, peer: Peer, scale: float) -> Numbers:
    return execute(site, peer, "noop", size(peer.expected / 2, scale), lines=True)


def shared(site: Site, peer: Peer, scale: float) -> Numbers:
    return execute(site, peer, "noop", size(peer.expected, scale), workers=SHARED)


def share(kind: str, ideal: float, workers: int = 10) -> Load:
    """Jobs that take a known time, as a part of ``ideal`` jobs a second."""

    def load(site: Site, peer: Peer, scale: float) -> Numbers:
        numbers = execute(site, peer, kind, size(min(ideal, peer.expected), scale), workers=workers)
        return numbers | {"percent": 100 * numbers["jobs_s"] / ideal}

    return load


def slow(site: Site, peer: Peer, _scale: float) -> Numbers:
    """Jobs that sleep for a second, in five waves, of which the first is the warm-up."""
    numbers = execute(site, peer, "second", round(SLOW / WARM_UP), workers=SLOW)
    return numbers | {"percent": 100 * numbers["jobs_s"] / SLOW}


def blob(site: Site, peer: Peer, scale: float) -> Numbers:
    return execute(site, peer, "blob", size(min(100, peer.expected), scale))


def warm(site: Site, peer: Peer) -> None:
    """The first jobs of a server that was just started."""
    site.program(peer, "push", "noop", 50, "one")
    site.wait_for_jobs(50, 60)


def enqueue(site: Site, peer: Peer, scale: float) -> Numbers:
    """From one producer; the jobs are executed afterwards, to see that they were there."""
    site.clear()
    count = size(max(1000, peer.expected / 4), scale)
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


def producers(site: Site, peer: Peer, scale: float) -> Numbers:
    """What the peer's program measures itself: producers in turn, in one process."""
    site.clear()
    return site.reported(peer, "compare", size(1500, scale))


def promote(site: Site, peer: Peer, scale: float) -> Numbers:
    """Jobs that are all due when the server starts: how fast they leave the sorted set, and are done."""
    site.clear()
    count = size(min(10_000, peer.expected), scale)
    # They all have to be scheduled before the first is due; 1,500 a second is what the slowest peer enqueues.
    due = time.time() + 1 + count / 1500
    site.program(peer, "later", "noop", count, f"{due - time.time():.0f}", 0)

    def scheduled() -> int:
        return site.broker.scheduled(peer.schedule_key)

    if scheduled() != count:
        raise Failed(f"{scheduled()} jobs scheduled of {count}")
    time.sleep(max(0.0, due + 1 - time.time()))
    with site.serving(peer):
        site.wait(lambda: scheduled() < count, 90, "promotion", 0.001)
        before, left = site.read(), scheduled()
        site.wait(lambda: scheduled() == 0, 90, "promotion", 0.001)
        took_s = time.monotonic() - before.time_s
        site.wait_for_jobs(count, 90)
        after = site.read()
        site.check_jobs(count)
    # No number if they all went in one step.
    return between(before, after) | ({"promoted_s": left / took_s} if left else {})


def memory(site: Site, peer: Peer, _scale: float) -> Numbers:
    site.clear()
    with site.serving(peer):
        warm(site, peer)
        time.sleep(1)
        idle = machine.pss_mb(machine.tree(site.roots))
        site.program(peer, "push", "noop", 2000, how(peer))
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
