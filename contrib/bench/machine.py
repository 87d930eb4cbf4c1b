"""What the kernel says about a process tree and about this machine: CPU time, memory, pids. Linux only.

Reads /proc and nothing else; proc(5) describes the fields.
"""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import time
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")
_WAKES = 2000


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on; the second may hold anything, even parentheses."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def tree(roots: Iterable[int]) -> set[int]:
    """The pids of these processes and of all below them that exist, zombies among them."""
    parents: dict[int, int] = {}
    for path in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int(_stat(int(path.name))[1])
    found = {pid for pid in roots if pid in parents}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def sessions(leaders: Iterable[int]) -> set[int]:
    """The pids of the processes in the sessions of these leaders, also if those are gone."""
    wanted = set(leaders)
    found = set()
    for path in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(_stat(int(path.name))[3]) in wanted:
                found.add(int(path.name))
    return found


def cpu_s(pids: Iterable[int]) -> float:
    """User and system seconds of these processes and of the children that they have waited for."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            ticks += sum(int(field) for field in _stat(pid)[11:15])
    return ticks / _TICKS_PER_SECOND


def busy_s() -> float:
    """Seconds that all CPUs together have been busy since the start of the machine, with anything."""
    user, nice, system, _idle, _iowait, irq, softirq = map(
        int, (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / _TICKS_PER_SECOND


def pss_mb(pids: Iterable[int]) -> float:
    """Proportional set size of these processes in MB: a page that n of them share counts 1/n for each."""
    kilobytes = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    kilobytes += int(line.split()[1])
    return kilobytes / 1024


def peak_mb(pids: Iterable[int]) -> float:
    """The most memory that any one of these processes has had in RAM so far, in MB."""
    peaks = [0]
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in (_PROC / str(pid) / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    peaks.append(int(line.split()[1]))
    return max(peaks) / 1024


def environment() -> dict[str, str]:
    """The environment for a measured program: with files of bytecode.

    Without them, a program that is installed from this folder compiles all its modules at each start.
    """
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def cores() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0))


def alive(pid: int) -> bool:
    """True if the process runs; a zombie does not."""
    try:
        return _stat(pid)[0] not in "ZX"
    except OSError:
        return False


def wake_us(cpus: tuple[int, int]) -> float:
    """Microseconds until a process that waits in a pipe has read what another wrote, each on its CPU."""
    there, back, mine = os.pipe(), os.pipe(), os.sched_getaffinity(0)
    child = os.fork()
    os.sched_setaffinity(0, cpus[:1] if child else cpus[1:])
    if child == 0:
        try:
            for _ in range(_WAKES):
                os.write(back[1], os.read(there[0], 1))
        finally:
            os._exit(0)
    took_ns = []
    for _ in range(_WAKES):
        started = time.perf_counter_ns()
        os.write(there[1], b"x")
        os.read(back[0], 1)
        took_ns.append(time.perf_counter_ns() - started)
    os.waitpid(child, 0)
    os.sched_setaffinity(0, mine)
    for end in (*there, *back):
        os.close(end)
    # There and back: two wakes, in nanoseconds.
    return statistics.median(took_ns) / 2 / 1000


def describe() -> dict[str, str | int]:
    """The machine, for the head of a table."""
    models = [
        line.partition(":")[2].strip()
        for line in (_PROC / "cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    first, *_, last = sorted(os.sched_getaffinity(0)) * 2
    return {
        "cpu": models[0] if models else platform.machine(),
        "virtual": " hypervisor" in (_PROC / "cpuinfo").read_text(),
        "wake_us": f"{wake_us((first, first)):.1f} on one CPU, {wake_us((first, last)):.1f} on two",
        "cores": cores(),
        "memory_mb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
