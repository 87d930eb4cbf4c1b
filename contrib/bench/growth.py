"""The cost of a job as the load grows: more workers, more jobs that wait."""

from __future__ import annotations

from contrib.bench.fill import fill
from contrib.bench.loads import WARM_UP, Numbers, between, execute, size
from contrib.bench.peer import Peer
from contrib.bench.site import Site

WORKERS = (1, 10, 50, 200)


def by_workers(site: Site, peer: Peer, scale: float) -> Numbers:
    """The cost of a job by the number of workers."""
    numbers: Numbers = {}
    for workers in WORKERS:
        rate = peer.expected / 4 if workers == 1 else peer.expected
        found = execute(site, peer, "noop", size(rate, scale), workers=workers)
        numbers |= _numbers(workers, found, numbers)
    return numbers


def by_backlog(site: Site, peer: Peer, scale: float, backlogs: tuple[int, ...] = (0, 1_000_000)) -> Numbers:
    """The cost of a job by the number of jobs that are still waiting behind it."""
    numbers: Numbers = {}
    for waiting in backlogs:
        site.clear()
        count = size(peer.expected, scale)
        total = fill(site, peer, "noop", count + waiting)
        with site.serving(peer):
            site.wait_for_jobs(round(count * WARM_UP), 90)
            before = site.read()
            site.wait_for_jobs(count, 90)
            found = between(before, site.read())
            if not waiting:
                site.check_jobs(total)
        numbers |= _numbers(waiting, found, numbers)
    return numbers


def _numbers(point: int, found: Numbers, before: Numbers) -> Numbers:
    return {
        f"cpu_s_{point}": found["cpu_s"],
        f"jobs_s_{point}": found["jobs_s"],
        "others_cpus": max(found["others_cpus"], before.get("others_cpus", 0.0)),
    }
