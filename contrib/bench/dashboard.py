"""How long the pages of the dashboard take with large queues and sets, and how much memory they need.

python -m contrib.bench.dashboard
python -m contrib.bench.dashboard --waiting 100000 --scheduled 10000 --rounds 5

Fills its own Redis, runs ``pyworkers web`` on it and reads each address in turn. Prints the median and
the slowest time of each, and the peak memory of the process. The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import http.client
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import Path

from contrib.bench import crowd, machine
from contrib.bench.broker import free_port, running_broker
from contrib.bench.crowd import Crowd

TARGET_MS = 100.0
TARGET_MB = 120.0
_START_S = 20.0
# The first answer compiles the template and connects.
_WARM_UP = 2

PAGES = (
    "/",
    "/queues",
    "/queues/default",
    "/queues/default?page=100000",
    "/queues/default?class=Billing*",
    "/queues/default?text=nowhere",
    "/running",
    "/scheduled",
    "/scheduled?page=10000",
    "/scheduled?text=nowhere",
    "/retries?error=timeout",
    "/dead",
    f"/jobs/{crowd.JID}",
    "/batches",
    "/limits",
    "/locks",
    "/cron",
    "/servers",
    "/metrics",
    "/audit",
    "/api/stats",
    "/api/queues/default/jobs?first=5000000",
    "/api/running",
)
"""The addresses that are measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """The reads of one address. ``cpu_ms`` is the CPU time of the dashboard and of Redis for each."""

    address: str
    status: int
    median_ms: float
    slowest_ms: float
    cpu_ms: float
    size: int

    @property
    def missed(self) -> bool:
        """True if it took too long, or failed."""
        return self.median_ms > TARGET_MS or self.status != 200

    def __str__(self) -> str:
        times = f"{self.median_ms:9.1f}  {self.slowest_ms:7.1f}  {self.cpu_ms:6.1f}"
        note = "" if self.status == 200 else f"  {self.status}"
        return f"{times}  {self.size / 1000:6.0f}  {self.address}{note}"


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    options = _parser().parse_args(words)
    wanted = Crowd(**{field.name: getattr(options, field.name) for field in fields(Crowd)})
    with tempfile.TemporaryDirectory(prefix="pyworkers-bench-") as name, running_broker(Path(name)) as broker:
        started = time.monotonic()
        wanted.fill(broker)
        took_s = time.monotonic() - started
        print(f"{wanted} in {took_s:.0f} s, {broker.used_bytes() / 2**20:.0f} MB", flush=True)
        print(f"{'median ms':>9}  {'slowest':>7}  {'CPU ms':>6}  {'kB':>6}  address")
        missed = False
        with dashboard(broker.url, Path(name) / "web.log") as (port, pid):
            for row in measure(port, (pid, broker.pid), options.pages, options.rounds):
                print(row, flush=True)
                missed |= row.missed
            memory_mb = machine.peak_mb(machine.tree([pid]))
        print(f"{memory_mb:.0f} MB of memory")
    return 1 if missed or memory_mb > TARGET_MB else 0


@contextmanager
def dashboard(url: str, log: Path) -> Iterator[tuple[int, int]]:
    """A running ``pyworkers web``: its port and its pid. Raises RuntimeError if it does not answer."""
    port = free_port()
    command = [sys.executable, "-m", "pyworkers", "web", "--url", url, "--no-token"]
    command += ["--bind", f"127.0.0.1:{port}"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _wait_until_it_answers(port, log)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def measure(port: int, pids: Sequence[int], pages: Sequence[str], rounds: int) -> Iterator[Row]:
    """Read each address ``rounds`` times. ``pids``: the dashboard and Redis."""
    for page in pages:
        _times(port, page, _WARM_UP)
        before_s = machine.cpu_s(pids)
        times_ms, size, status = _times(port, page, rounds)
        cpu_ms = (machine.cpu_s(pids) - before_s) * 1000 / rounds
        yield Row(page, status, statistics.median(times_ms), max(times_ms), cpu_ms, size)


def _times(port: int, page: str, rounds: int) -> tuple[list[float], int, int]:
    """The times of ``rounds`` reads over one connection, and the size and status of the last answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times_ms, size, status = [], 0, 0
    for _ in range(rounds):
        started = time.perf_counter()
        connection.request("GET", page)
        answer = connection.getresponse()
        size, status = len(answer.read()), answer.status
        times_ms.append((time.perf_counter() - started) * 1000)
    connection.close()
    return times_ms, size, status


def _wait_until_it_answers(port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            _times(port, "/", 1)
            return
        time.sleep(0.05)
    raise RuntimeError(f"pyworkers web does not answer: {log.read_text()[-2000:]}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="contrib.bench.dashboard", description=__doc__.partition("\n")[0])
    for field in fields(Crowd):
        parser.add_argument(f"--{field.name}", type=int, default=field.default)
    parser.add_argument("--rounds", type=int, default=21, help="reads of each address")
    parser.add_argument("pages", nargs="*", default=PAGES, help="addresses")
    return parser


if __name__ == "__main__":
    sys.exit(main())
