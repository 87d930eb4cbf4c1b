"""One place to measure in: a Redis, a folder in which jobs count themselves, and the processes of a peer.

Everything that is started here is ended here, by its pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from contrib.bench import machine
from contrib.bench.broker import Broker
from contrib.bench.counts import Counts
from contrib.bench.environments import ROOT
from contrib.bench.peer import Peer, Serving

_POLL_S = 0.01


class Failed(Exception):
    """The peer did not do what was asked; says what it did instead."""


@dataclass(frozen=True)
class Reading:
    """The counters of one moment; the difference of two is a measurement."""

    time_s: float
    jobs: int
    server_cpu_s: float
    redis_cpu_s: float
    busy_s: float
    harness_cpu_s: float
    """With the programs that it has run."""

    def others(self, before: Reading) -> float:
        """CPUs that others on this machine kept busy since ``before``."""
        ours = self.server_cpu_s + self.redis_cpu_s + self.harness_cpu_s
        ours -= before.server_cpu_s + before.redis_cpu_s + before.harness_cpu_s
        return max(0.0, (self.busy_s - before.busy_s - ours) / (self.time_s - before.time_s))


class Site:
    """Where one peer at a time is measured."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.folder = folder
        self.counts = Counts(folder / "counts")
        self.log = folder / "server.log"
        self.line_log = folder / "lines.log"
        self._servers: list[subprocess.Popen[bytes]] = []

    def clear(self) -> None:
        """An empty Redis and no count: the state before each measurement."""
        self.broker.client.flushall()
        self.broker.client.script_flush()
        self.counts.clear()
        for path in (self.log, self.line_log):
            path.unlink(missing_ok=True)

    # Producing

    def program(self, peer: Peer, *words: object) -> float:
        """Run the peer's program (peer.py) and return the seconds that it reports."""
        return self.reported(peer, *words)["seconds"]

    def reported(self, peer: Peer, *words: object, timeout_s: float = 300) -> dict[str, float]:
        """Run the peer's program and return all numbers that it reports."""
        done = subprocess.run(
            [*peer.program, *map(str, words)],
            env=self._environment(peer, Serving(self.broker.port)),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            raise Failed(f"{words[0]} exited with {done.returncode}: {done.stderr.strip()[-500:]}")
        numbers: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return numbers

    # Serving

    @contextlib.contextmanager
    def serving(self, peer: Peer, workers: int = 10, *, lines: bool = False) -> Iterator[list[int]]:
        """Start the peer's server; yield the pids of its first processes; stop it after the block."""
        serving = Serving(self.broker.port, workers)
        if lines:
            serving = replace(serving, line_log=str(self.line_log))
        environment = self._environment(peer, serving)
        with self.log.open("ab") as log:
            for command in peer.serve(serving):
                server = subprocess.Popen(
                    command,
                    env=environment,
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                self._servers.append(server)
        try:
            yield self.roots
        finally:
            self.stop()

    @property
    def roots(self) -> list[int]:
        return [server.pid for server in self._servers]

    def stop(self, patience_s: float = 8) -> None:
        """TERM to the first processes, and KILL for what is left of their trees and sessions."""
        pids = machine.tree(self.roots)
        for server in self._servers:
            server.terminate()
        deadline = time.monotonic() + patience_s
        for server in self._servers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(max(0.0, deadline - time.monotonic()))
        # More than once: a process may fork while it is looked for, and outlive its parent.
        while left := {pid for pid in pids | machine.sessions(self.roots) if machine.alive(pid)}:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
        for server in self._servers:
            server.wait()
        self._servers.clear()

    def _environment(self, peer: Peer, serving: Serving) -> dict[str, str]:
        return {
            **machine.environment(),
            **dict(peer.variables),
            "PYTHONPATH": str(ROOT),
            "BENCH_URL": serving.url,
            "BENCH_PORT": str(serving.port),
            "BENCH_FOLDER": str(self.counts.folder),
            "BENCH_WORKERS": str(serving.workers),
            "BENCH_LINE_LOG": serving.line_log,
        }

    # Reading

    def jobs(self) -> int:
        """How many jobs have been executed, by their own count."""
        return self.counts.total()

    def stamps_ms(self) -> list[float]:
        """What "stamp" jobs wrote: milliseconds from enqueue to start, one process after the other."""
        nanoseconds: list[int] = []
        for path in self.counts.folder.glob("stamps-*"):
            raw = path.read_bytes()
            nanoseconds += struct.unpack(f"<{len(raw) // 8}q", raw)
        return [ns / 1e6 for ns in nanoseconds]

    def forget_stamps(self) -> None:
        for path in self.counts.folder.glob("stamps-*"):
            path.unlink()

    def log_lines(self) -> int:
        return self.line_log.read_bytes().count(b"\n") if self.line_log.exists() else 0

    def read(self) -> Reading:
        return Reading(
            time.monotonic(),
            self.jobs(),
            machine.cpu_s(machine.tree(self.roots)),
            self.broker.cpu_s(),
            machine.busy_s(),
            sum(os.times()[:4]),
        )

    def wait_for_jobs(self, count: int, timeout_s: float) -> None:
        """Return when at least ``count`` jobs have been executed. Raises Failed."""
        self.wait(lambda: self.jobs() >= count, timeout_s, f"{count} jobs")

    def wait(
        self, condition: Callable[[], bool], timeout_s: float, what: str, poll_s: float = _POLL_S
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if any(server.poll() is not None for server in self._servers):
                raise Failed(f"the server ended: {self.log_tail()}")
            if time.monotonic() > deadline:
                raise Failed(
                    f"{what}: not within {timeout_s:.0f} s, {self.jobs()} executed: {self.log_tail()}"
                )
            time.sleep(poll_s)

    def check_jobs(self, count: int) -> None:
        """Raise Failed unless exactly ``count`` jobs have been executed, also a moment later."""
        time.sleep(0.1)
        if (jobs := self.jobs()) != count:
            raise Failed(f"{jobs} executions of {count} jobs")

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-400:].strip() if self.log.exists() else ""
