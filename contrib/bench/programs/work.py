"""What the jobs of every Python peer do. Standard library only.

A job counts itself in a file of its thread that is mapped into memory: outside Redis, readable at any moment,
kept if the process is killed, and cheap.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import sys
import threading
import time
from pathlib import Path

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0")
PORT = int(os.environ.get("BENCH_PORT", "6379"))
WORKERS = int(os.environ.get("BENCH_WORKERS", "10"))
LINE_LOG = os.environ.get("BENCH_LINE_LOG", "")
QUEUE = "bench"

CPU_NS = 1_000_000
SLEEP_S = {"sleep": 0.01, "second": 1.0}

Value = int | str


class _Counter:
    """The number of jobs that this process has executed, and its file of stamps."""

    _view: memoryview | None = None
    _stamps: Path

    def add(self) -> None:
        view = self._view or self._open()
        view[0] += 1

    def stamp(self, ns: int) -> None:
        if self._view is None:
            self._open()
        with self._stamps.open("ab", buffering=0) as file:
            file.write(ns.to_bytes(8, "little", signed=True))

    def _open(self) -> memoryview:
        folder = Path(os.environ["BENCH_FOLDER"])
        name = f"{os.getpid()}-{threading.get_ident()}"
        self._stamps = folder / f"stamps-{name}"
        with (folder / f"count-{name}").open("w+b") as file:
            file.write(bytes(8))
            file.flush()
            self._view = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
        return self._view


class _CounterOfThread(_Counter, threading.local):
    """Its own counter in each thread, because += is not atomic."""


# gevent replaces threads by greenlets, one for each job, which do not interrupt each other.
_new_counter = _Counter if "gevent" in sys.modules else _CounterOfThread
_counter = _new_counter()


def _begin_anew() -> None:
    """A forked process has its own counter."""
    global _counter
    _counter = _new_counter()


os.register_at_fork(after_in_child=_begin_anew)


def run(kind: str, value: Value) -> None:
    """One job."""
    if kind == "stamp":
        _counter.stamp(time.time_ns() - int(value))
    elif kind == "cpu":
        use_cpu()
    elif kind in SLEEP_S:
        time.sleep(SLEEP_S[kind])
    _counter.add()


async def run_async(kind: str, value: Value) -> None:
    """One job of a peer whose jobs are coroutines."""
    if kind in SLEEP_S:
        await asyncio.sleep(SLEEP_S[kind])
        kind = "noop"
    run(kind, value)


def use_cpu() -> None:
    """Use 1 ms of this thread's CPU time, however often others get the CPU in between."""
    end = time.thread_time_ns() + CPU_NS
    while time.thread_time_ns() < end:
        pass
