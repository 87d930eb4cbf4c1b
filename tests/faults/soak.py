"""The soak: ``make soak SECONDS=600 SEED=7 MODE=async``, or ``python -m tests.faults.soak --mode async``.

Three servers and a producer on one Redis, each server behind its own proxy, and a random schedule of
faults. At rest points, and at the end, every invariant is checked. The seed is printed: it repeats the choice
of faults and of jobs, though not the moments in which the processes of a real machine meet them.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pyworkers import PyworkersError, embedded
from pyworkers.errors import EmbeddedError
from tests.faults.attack import attack
from tests.faults.fleet import Fleet
from tests.faults.ledger import Run
from tests.faults.nemesis import Nemesis
from tests.helpers.proxy import proxied
from tests.helpers.redises import OwnRedis

SERVERS = 3
ROUND_S = 15.0
# By mode, the concurrency and the processes of a server. Several jobs share a process in the last two.
SIZES = {"process": (3, 3), "async": (12, 2), "thread": (12, 2)}
EVIDENCE = (
    "process.recovered",
    "jobs.given_back",
    "worker.lost",
    "job.adopted",
    "lease.lost",
    "job.not_ours",
)


class Producer:
    """Enqueues all kinds of jobs in a thread, until told to pause."""

    def __init__(self, fleet: Fleet, rng: random.Random, mode: str) -> None:
        self._fleet = fleet
        self._classes = ["work", "wait"] if mode == "async" else ["work"]
        self._rng = rng
        self._running = threading.Event()
        self._idle = threading.Event()
        self._over = False
        self.refused = 0
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def producing(self) -> Iterator[None]:
        """For the length of a block."""
        self._idle.clear()
        self._running.set()
        try:
            yield
        finally:
            self._running.clear()
            self._idle.wait()

    def _work(self) -> None:
        while True:
            if not self._running.is_set():
                self._idle.set()
                self._running.wait()
            try:
                self._enqueue()
            except PyworkersError:
                # Nobody knows whether Redis has it; the ledger does not say so.
                self.refused += 1
                time.sleep(0.05)
            time.sleep(0.01)

    def _enqueue(self) -> None:
        kind = self._rng.random()
        seconds = self._rng.choice([0.0, 0.0, 0.01, 0.05, 0.3])
        job_class = self._rng.choice(self._classes)
        if kind < 0.7:
            self._fleet.enqueue(job_class, seconds)
        elif kind < 0.85:
            self._fleet.enqueue(job_class, seconds, self._rng.randrange(1, 3))
        elif kind < 0.95:
            self._fleet.enqueue(job_class, seconds, delay=self._rng.random() * 3)
        else:
            self._fleet.enqueue("elsewhere", queue="other")


class Chapters:
    """Checks every invariant at each rest point, and forgets then what it has checked."""

    def __init__(self, fleet: Fleet, nemesis: Nemesis, share: int) -> None:
        self._fleet = fleet
        self._nemesis = nemesis
        # How many jobs a worker may lose.
        self._share = share
        self._over: set[str] = set()
        self.again = 0

    @property
    def jobs(self) -> int:
        """How many jobs have come to their end."""
        return len(self._over)

    def check(self) -> None:
        """Wait for the rest. Raises AssertionError with what does not hold."""
        fleet, nemesis = self._fleet, self._nemesis
        fleet.rest(timeout=90)
        runs = fleet.ledger.runs()
        spans = {jid: (found[0].start.time, found[-1].start.time) for jid, found in runs.items()}
        extra = {jid: nemesis.touched(*span) for jid, span in spans.items()}
        unleased = {jid for jid, span in spans.items() if nemesis.may_break_leases(*span)}
        fleet.check(extra_runs=extra, unleased=unleased)
        assert not (late := self._over & runs.keys()), f"{late} ran again after the rest"
        again = sum(_again(runs))
        evidence = sum(self._evidence())
        assert again <= evidence, f"{again} runs too many, and {evidence} reasons logged"
        self._over |= fleet.ledger.enqueued() | runs.keys()
        self.again += again
        fleet.clear()
        nemesis.clear()
        print(f"at rest: {self.jobs} jobs, {self.again} runs too many, none lost", flush=True)

    def _evidence(self) -> Iterator[int]:
        for name in EVIDENCE:
            for event in self._fleet.events(name):
                yield self._share if name == "worker.lost" else 1 + event.get("jobs", 0)


def soak(fleet: Fleet, own: OwnRedis | None, seconds: float, seed: int, mode: str) -> Counter[str]:
    """Run it; how often each fault was done. Raises AssertionError with what does not hold."""
    rng = random.Random(seed)
    concurrency, processes = SIZES[mode]
    config = f'[queues.q]\nmode = "{mode}"\nconcurrency = {concurrency}\nprocesses = {processes}\n'
    with contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(proxied(fleet.url)) for _ in range(SERVERS)]
        for proxy in proxies:
            fleet.server(url=proxy.url, config=config)
        nemesis = Nemesis(fleet, proxies, own, rng)
        chapters = Chapters(fleet, nemesis, concurrency // processes)
        producer = Producer(fleet, random.Random(seed + 1), mode)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            rest_at = min(end, time.monotonic() + ROUND_S)
            with producer.producing():
                while time.monotonic() < rest_at:
                    time.sleep(rng.random())
                    if (fault := nemesis.strike()) is not None:
                        print(f"{fault.began:.1f} {fault.name}", flush=True)
            chapters.check()
        fleet.stop()
        chapters.check()
        left = [key.decode() for key in fleet.redis.scan_iter(f"{fleet.namespace}pyworkers:owners")]
        assert not left, f"servers that stopped are still registered: {left}"
    return nemesis.done


def _again(found: dict[str, list[Run]]) -> Iterator[int]:
    for runs in found.values():
        failures = sum(run.end is not None and run.end.word == "raise" for run in runs)
        yield max(0, len(runs) - 1 - failures)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--mode", choices=[*SIZES, "attack"], default="process")
    parser.add_argument("--url", help="soak on this Redis, with faults that hurt no other client")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="pyworkers-soak-"))
    print(f"seed {seed}, logs in {folder}", flush=True)
    own = None if options.url else OwnRedis(_binary(), folder / "redis").start()
    try:
        with Fleet(folder, options.url or own.url, f"soak-{uuid.uuid4().hex[:8]}:") as fleet:  # type: ignore[union-attr]
            if options.mode == "attack":
                done = attack(fleet, options.seconds, seed)
            else:
                done = soak(fleet, own, options.seconds, seed, options.mode)
            _clean(fleet)
    except AssertionError as error:
        print(f"FAILED with seed {seed}, logs in {folder}:\n{str(error)[:20_000]}")
        return 1
    finally:
        if own is not None:
            own.kill()
    print(f"held with seed {seed}: {dict(sorted(done.items()))}")
    shutil.rmtree(folder)
    return 0


def _binary() -> str:
    try:
        return str(embedded.server_binary())
    except EmbeddedError:
        return shutil.which("redis-server") or sys.exit("no Redis: install redis-server, or use --url")


def _clean(fleet: Fleet) -> None:
    if names := list(fleet.redis.scan_iter(f"{fleet.namespace}*", count=1000)):
        fleet.redis.unlink(*names)


if __name__ == "__main__":
    sys.exit(main())
