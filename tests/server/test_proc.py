"""The memory and the CPU time of processes: how memory is measured, how seldom, and that nothing waits."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyworkers.server.health import Health
from pyworkers.server.proc import Memory, used_kb, used_s
from tests.helpers.support import PATIENCE_S, async_wait_for, wait_for

SMAPS = "55d0-7fff ---p 00000000 00:00 0  [rollup]\nRss:   9000 kB\nPss:   1234 kB\nPss_Anon:  1000 kB\n"


class Processes:
    """Some processes; measuring one takes until ``may_go_on``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.kb = {1: 100, 2: 20}
        self.measured: list[int] = []
        self.health = Health(self.clock, random.Random(), part="memory")
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def clock(self) -> float:
        return self.now

    def measure(self, pid: int) -> int:
        assert self.may_go_on.wait(PATIENCE_S)
        self.measured.append(pid)
        return self.kb[pid]


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = Processes()
    yield found
    found.may_go_on.set()


@pytest.mark.parametrize(
    ("files", "kb"),
    [
        ({"smaps_rollup": SMAPS, "statm": "9000 500 100 1 0 400 0"}, 1234),
        ({"statm": "9000 500 100 1 0 400 0"}, 2000),
        ({"smaps_rollup": "", "statm": "0 0 0 0 0 0 0"}, 0),
        ({}, 0),
    ],
    ids=["its share of what is shared", "an old kernel", "a zombie", "no /proc"],
)
def test_the_memory_of_a_process(tmp_path: Path, files: dict[str, str], kb: int) -> None:
    (tmp_path / "77").mkdir()
    for name, text in files.items():
        (tmp_path / "77" / name).write_text(text)
    assert used_kb(77, tmp_path, page_kb=4) == kb


async def test_a_process_is_measured_once_a_minute(processes: Processes) -> None:
    memory = Memory(processes.clock, processes.health, processes.measure)
    assert await memory.total_kb([1, 2]) == 120
    processes.kb = {1: 200, 2: 20, 3: 7}
    processes.now += 59
    assert await memory.total_kb([1, 2, 3]) == 127
    processes.now += 1
    assert await memory.total_kb([1, 3]) == 207
    assert processes.measured == [1, 2, 3, 1]


async def test_a_new_process_with_an_old_number_is_measured(processes: Processes) -> None:
    memory = Memory(processes.clock, processes.health, processes.measure)
    assert await memory.total_kb([1, 2]) == 120
    assert await memory.total_kb([1]) == 100
    processes.kb[2] = 50
    assert await memory.total_kb([1, 2]) == 150


async def test_a_measurement_that_hangs_delays_neither_the_loop_nor_its_caller(processes: Processes) -> None:
    memory = Memory(processes.clock, processes.health, processes.measure)
    assert await memory.total_kb([1]) == 100
    processes.may_go_on.clear()
    processes.now += 60
    turned = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, turned.set)
    assert await memory.total_kb([1, 2]) == 100
    assert turned.is_set()
    assert await memory.total_kb([1, 2]) == 100
    processes.may_go_on.set()

    async def complete() -> bool:
        return await memory.total_kb([1, 2]) == 120

    await async_wait_for(complete, message="both are measured")
    assert processes.measured == [1, 1, 2]


async def test_without_a_thread_or_a_descriptor_the_last_values_stay(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(processes.clock, processes.health, processes.measure)
    assert await memory.total_kb([1]) == 100
    processes.now += 60
    processes.kb = {1: 200}
    with monkeypatch.context() as patched:

        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", refuse)
        assert await memory.total_kb([1]) == 100
        assert processes.health.troubles == ["EAGAIN"]
    with monkeypatch.context() as patched:

        def fail(_pid: int) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        patched.setattr(memory, "_measure", fail)
        assert await memory.total_kb([1]) == 100
        assert processes.health.troubles == ["EMFILE"]
    assert await memory.total_kb([1]) == 200
    assert processes.health.troubles == []


@pytest.mark.skipif(sys.platform != "linux", reason="the clock of another process is Linux's")
def test_the_cpu_time_of_a_process() -> None:
    before = time.process_time()
    used = used_s(os.getpid())
    assert before <= used <= time.process_time()
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            # While Linux moves a process to another CPU, it may not have counted the time on the first one.
            wait_for(lambda: used_s(process.pid) > 0)
            assert used_s(process.pid) < 60
        finally:
            process.kill()
    assert used_s(process.pid) == 0
