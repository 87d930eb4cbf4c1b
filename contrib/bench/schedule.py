"""How exactly pyworkers keeps time, with one server and with eight, and how fast it promotes due jobs.

    python -m contrib.bench.schedule [--servers 1,8] [--jobs 200] [--due 100000]

Measures this working tree with the Python that runs it; the other benchmarks compare peers. Lateness is from
the time that was asked for to the first line of the job, on one host clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

from contrib.bench import machine
from contrib.bench.broker import running_broker
from contrib.bench.peer import Peer
from contrib.bench.peers.pyworkers import describe
from contrib.bench.site import Site
from pyworkers.protocol.draft import draft

DELAYS_S = (0.3, 1.1, 3.0)
"""Shorter than a poll, just longer, and long."""
# Servers learn of each other with a heartbeat, every five seconds.
ACQUAINTED_S = 11
FRESH_MS = 10


@dataclass(frozen=True)
class Here:
    """The environment of this very Python."""

    def install(self) -> None: ...

    def command(self, name: str) -> str:
        return str(Path(sys.executable).with_name(name))

    def program(self, app: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "contrib.bench.programs.produce", app)

    def versions(self) -> str:
        return "this working tree"


def servers(count: int) -> Peer:
    """This many servers of pyworkers."""
    one = describe("pyworkers", Here(), "")
    return replace(one, serve=lambda serving: [*one.serve(serving)] * count)


@contextmanager
def warm(site: Site, count: int) -> Iterator[Peer]:
    """Servers that have run jobs, and know each other."""
    site.clear()
    peer = servers(count)
    with site.serving(peer, workers=max(2, 10 // count)):
        site.program(peer, "push", "noop", 50, "one")
        site.wait_for_jobs(50, 120)
        time.sleep(ACQUAINTED_S if count > 1 else 1)
        yield peer


def lateness(site: Site, count: int, jobs: int) -> None:
    """Jobs 20 ms apart, the first of them due after each of the delays."""
    with warm(site, count) as peer:
        done = 50
        for delay_s in DELAYS_S:
            site.forget_stamps()
            # In portions of ten, because the last of a long row would be due much later.
            for _ in range(jobs // 10):
                site.program(peer, "later", "stamp", 10, delay_s, 20)
                done += 10
                site.wait_for_jobs(done, 60)
            print(f"| {count} | {delay_s} s | {_quantiles(site.stamps_ms())} |", flush=True)


def promotion(site: Site, count: int, due: int) -> None:
    """``due`` jobs that are all due at one moment, while others are enqueued every 10 ms."""
    with warm(site, count) as peer:
        site.forget_stamps()
        at = time.time() + 2 + due / 20_000
        _plan(site, due, at)
        before_mb = machine.peak_mb(machine.tree(site.roots))
        fresh = Thread(target=site.program, args=(peer, "pace", 300, FRESH_MS))
        fresh.start()
        calls = site.broker.client.info("commandstats")["cmdstat_evalsha"]["calls"]
        time.sleep(max(0.0, at - time.time()))
        site.wait(lambda: site.broker.scheduled("schedule") == 0, 120, "promotion", 0.005)
        took_s = time.time() - at
        fresh.join()
        site.wait_for_jobs(350, 60)
        calls = site.broker.client.info("commandstats")["cmdstat_evalsha"]["calls"] - calls
        moved = site.broker.waiting("queue:elsewhere")
        assert moved == due, f"{moved} jobs of {due}"
        more_mb = machine.peak_mb(machine.tree(site.roots)) - before_mb
        fresh_ms = _quantiles(site.stamps_ms())
        print(f"| {count} | {due / took_s:,.0f} | {calls} | {more_mb:.0f} MB | {fresh_ms} |", flush=True)


def _plan(site: Site, count: int, at: float) -> None:
    """Jobs for a queue without a server, so that promotion alone is measured."""
    plan = draft("elsewhere", "SendMail", True, {}, at)
    for first in range(0, count, 1000):
        batch = [(number, "hello", {"a": 1}) for number in range(first, min(first + 1000, count))]
        jobs = plan.jobs(batch, time.time())
        site.broker.client.zadd("schedule", {job.payload: at for job in jobs})


def _quantiles(values_ms: list[float]) -> str:
    cuts = statistics.quantiles(values_ms, n=100, method="inclusive")
    return f"{cuts[49]:.1f} | {cuts[98]:.1f} | {max(values_ms):.1f}"


def main() -> None:
    """Measure, and print two tables in Markdown."""
    parser = argparse.ArgumentParser(
        prog="contrib.bench.schedule", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--servers", default="1,8", help="numbers of servers")
    parser.add_argument("--jobs", type=int, default=200, help="jobs for each delay")
    parser.add_argument("--due", type=int, default=100_000, help="jobs that are due at once")
    options = parser.parse_args()
    numbers = [int(number) for number in options.servers.split(",")]
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder)) as broker:
        site = Site(broker, Path(folder))
        print("| servers | delay | p50 (ms) | p99 (ms) | max (ms) |\n|---|---|---|---|---|")
        for number in numbers:
            lateness(site, number, options.jobs)
        head = (
            "promoted (jobs/s) | calls of scripts | more memory | fresh jobs: p50 (ms) | p99 (ms) | max (ms)"
        )
        print(f"\n| servers | {head} |\n|---|---|---|---|---|---|---|")
        for number in numbers:
            promotion(site, number, options.due)


if __name__ == "__main__":
    main()
