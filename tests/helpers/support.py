"""Parts of many tests: waiting for a condition, programs that cannot outlive the tests, a Redis server.

Read by the tests alone. Nothing here sleeps for a fixed time and hopes.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import secrets
import socket
import subprocess
import sys
import textwrap
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar, overload

from pyworkers.embedded import answers, spawn_bound

ROOT = Path(__file__).resolve().parent.parent.parent

PATIENCE_S = 60.0
"""For what takes a second on a quiet machine: on a busy one, only a hang takes so long."""
STALL_S = 5.0
"""Room in each limit for processes that are not scheduled for seconds, also at a low load: a virtual machine
is paused, or the host runs another one.
"""
# Ports: some are not in use yet, others are between two starts of a server.
_given: deque[int] = deque(maxlen=500)

T = TypeVar("T")


def whole_lines(path: Path) -> list[str]:
    """The lines of a file to which other processes append: a reader may see a part of the last one."""
    return path.read_text().rpartition("\n")[0].splitlines()


def wait_for(condition: Callable[[], T | None], timeout: float = PATIENCE_S, message: str = "") -> T:
    """The first true value of ``condition()``; fails with ``message`` after ``timeout`` seconds."""
    deadline, intervals = time.monotonic() + timeout, _intervals_s()
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(_too_late(timeout, message, condition))
        time.sleep(next(intervals))
    return value


@overload
async def async_wait_for(
    condition: Callable[[], Awaitable[T | None]], timeout: float = PATIENCE_S, message: str = ""
) -> T: ...


@overload
async def async_wait_for(
    condition: Callable[[], T | None], timeout: float = PATIENCE_S, message: str = ""
) -> T: ...


async def async_wait_for(
    condition: Callable[[], object], timeout: float = PATIENCE_S, message: str = ""
) -> object:
    """As ``wait_for``, without blocking the loop; ``condition`` may be a coroutine function."""
    deadline, intervals = time.monotonic() + timeout, _intervals_s()
    while True:
        result = condition()
        value = await result if inspect.isawaitable(result) else result
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(_too_late(timeout, message, condition))
        await asyncio.sleep(next(intervals))


def _intervals_s() -> Iterator[float]:
    """From one look to the next: many looks a second use the CPU that the awaited processes need."""
    interval_s = 0.005
    while True:
        yield interval_s
        interval_s = min(interval_s * 1.2, 0.05)


def stretched(seconds: float) -> float:
    """The limit for a promised time: ``by_load``, and ``STALL_S``.

    For promises alone; what only waits has ``PATIENCE_S``. The promise must differ by more than ``STALL_S``
    from what happens without it: 0.5 s instead of a poll each minute, not of one each two seconds.
    """
    return by_load(seconds) + STALL_S


def by_load(seconds: float) -> float:
    """The usual limit for a promised time: on a machine with more to do than cores to do it, as many times
    longer.

    For one of several tries that need not all succeed, because a stall delays those under way.
    """
    cores = os.cpu_count() or 1
    runnable = max(os.getloadavg()[0], _runnable()) / cores
    return seconds * max(1.0, runnable)


def _runnable() -> int:
    """How many threads want to run at this moment; the load average lags behind by a minute."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except OSError:
        return 0  # macOS has no /proc


def _too_late(timeout: float, message: str, condition: object) -> str:
    return f"not within {timeout:g} s: {message or getattr(condition, '__qualname__', condition)}"


def free_port() -> int:
    """A TCP port of the loopback interface on which no program listens, and that was not given lately.

    Not one that the system chooses: it would choose it again, for a connection of another test, before the
    server of this one listens.
    """
    # Each process of the suite has its own ports: two may look for one at the same moment.
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    # Above the last port that browsers refuse (10080), below those that systems choose themselves, also for
    # outgoing connections.
    ports = range(10_081 + process, 32_768, processes)
    while True:
        # Tests begin with the same seed in every process.
        port = ports[secrets.randbelow(len(ports))]
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.append(port)
            return port


@contextlib.contextmanager
def running_python(code: str, *args: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``code`` in another Python that can import pyworkers and tests; kill it after the block.

    Its output, both streams, is the ``stdout`` of what this yields. It ends with this process.
    """
    program = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{textwrap.dedent(code)}"
    command = [sys.executable, "-u", "-c", program, *map(str, args)]
    with spawn_bound(command, output=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def next_line(process: subprocess.Popen[bytes]) -> str:
    """The next line that a ``running_python`` prints, without its end; blocks until it comes."""
    assert process.stdout is not None
    return process.stdout.readline().decode().rstrip("\n")


@contextlib.contextmanager
def running_server(binary: Path | str, directory: Path, port: int) -> Iterator[str]:
    """Run a Redis or Valkey server on the loopback ``port`` and on ``directory/redis.sock``; yield its URL.

    It keeps nothing on disk, it has ``DEBUG``, and it ends with this process, also if that is killed.
    """
    path = directory / "redis.sock"
    command = [str(binary), "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(path)]
    command += ["--dir", str(directory), "--save", "", "--appendonly", "no", *_allow_debug(binary)]
    with (directory / "server.log").open("wb") as log:
        server = spawn_bound(command, output=log)
    try:
        wait_for(lambda: answers(path) or server.poll() is not None, message=f"{binary} answers")
        assert server.poll() is None, (directory / "server.log").read_text()
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        server.kill()
        server.wait()


def _allow_debug(binary: Path | str) -> list[str]:
    """The option that allows ``DEBUG``, which Redis 6.2 always does and says so by refusing the option."""
    version = subprocess.run([str(binary), "--version"], capture_output=True, text=True, check=True).stdout
    return [] if " v=6." in version else ["--enable-debug-command", "yes"]
