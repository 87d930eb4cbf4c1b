"""Processes by /proc: memory in use, kills for lack of memory, cores, the kill of a worker with its programs.

Used by the master. Without /proc, as on macOS, the results are incomplete, and nothing is raised.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from pyworkers import programs
from pyworkers.server.health import Health, ShortageError, shortages_translated
from pyworkers.server.waiting import pause

# ``oom_kill`` counts the processes that Linux killed for lack of memory, of the machine and of every memory
# cgroup (since 4.13; the kernel's mm/oom_kill.c). While it does not change, a SIGKILL had another cause.
_VMSTAT = Path("/proc/vmstat")
# The control groups of this process, a line for each hierarchy, and where they are mounted (cgroups(7)).
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_FRESH_S = 60.0
# The longest wait of a beat for the numbers: a process that holds its memory map locked blocks the thread.
_PATIENCE_S = 0.5
_PROC = Path("/proc")
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1024


def used_kb(pid: int, proc: Path = _PROC, page_kb: int = _PAGE_KB) -> int:
    """The proportional set size in KB: a page that n processes share counts as 1/n in each.

    The resident memory if the kernel does not show the proportional set size (before 4.14, or of a process of
    another user); 0 without /proc. Raises OSError without a descriptor or memory.
    """
    with _unreadable():
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    with _unreadable():
        return int((proc / str(pid) / "statm").read_text().split()[1]) * page_kb
    return 0


@contextmanager
def _unreadable() -> Iterator[None]:
    """A block that ends without an error where the file is missing, forbidden, or of another form."""
    try:
        yield
    except OSError as error:
        if error.errno in _SHORT:
            raise
    except (ValueError, IndexError):
        pass


class ProcessStatus(NamedTuple):
    """What the system says of a process: its state in words, and its resident memory in KB, now and at most.

    Empty and 0 where it does not say so.
    """

    state: str = ""
    rss_kb: int = 0
    peak_kb: int = 0


def status_of(pid: int, proc: Path = _PROC) -> ProcessStatus:
    """The status of a process. Raises OSError without a descriptor or memory."""
    with _unreadable():
        lines = (proc / str(pid) / "status").read_text(errors="replace").splitlines()
        values = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
        kb = (int(values.get(name, "0").split()[0]) for name in ("VmRSS", "VmHWM"))
        return ProcessStatus(values.get("State", ""), *kb)
    return ProcessStatus()


class Memory:
    """Measures processes in a thread, each once a minute. ``clock`` is monotonic seconds.

    Without a thread or a descriptor the last values stay.
    """

    def __init__(
        self, clock: Callable[[], float], health: Health, measure: Callable[[int], int] = used_kb
    ) -> None:
        self._clock = clock
        self._health = health
        self._measure = measure
        self._measured: dict[int, tuple[float, int]] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    async def total_kb(self, pids: Sequence[int]) -> int:
        """Their memory in KB. A process that is not measured in time counts from a later call on."""
        for pid in self._measured.keys() - set(pids):
            del self._measured[pid]
        self._refresh(pids)
        await pause(self._idle, _PATIENCE_S)
        return sum(self._measured[pid][1] for pid in pids if pid in self._measured)

    def last_kb(self, pid: int) -> int:
        """The memory of a process in KB when it was measured last; 0 before."""
        return self._measured[pid][1] if pid in self._measured else 0

    def _refresh(self, pids: Sequence[int]) -> None:
        oldest = self._clock() - _FRESH_S
        due = [pid for pid in pids if pid not in self._measured or self._measured[pid][0] <= oldest]
        if due and self._idle.is_set():
            self._idle.clear()
            arguments = (due, asyncio.get_running_loop())
            try:
                with shortages_translated():
                    # A daemon thread: a measurement that hangs must not delay the end of the server.
                    threading.Thread(target=self._read, args=arguments, name="memory", daemon=True).start()
            except ShortageError as error:
                self._ended(error)

    def _read(self, pids: Sequence[int], loop: asyncio.AbstractEventLoop) -> None:
        missing: ShortageError | None = None
        try:
            with shortages_translated():
                for pid in pids:
                    self._measured[pid] = (self._clock(), self._measure(pid))
        except ShortageError as error:
            missing = error
        finally:
            # The loop may be closed by now.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._ended, missing)

    def _ended(self, missing: ShortageError | None) -> None:
        self._idle.set()
        if missing is None:
            self._health.ok()
        else:
            self._health.failed(missing)


def affinity() -> frozenset[int]:
    """The CPUs that this process may use; none where the system does not say so."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def used_s(pid: int) -> float:
    """The CPU time that a process on Linux has used, in seconds; 0 if it has ended."""
    # The number of its clock, as clock_getcpuclockid(3) makes it.
    with suppress(OSError):
        return time.clock_gettime(~pid << 3 | 2)
    return 0.0


def cores(own: Path = _OWN_GROUPS, mounted: Path = _GROUPS) -> int:
    """The number of cores that this process may use: of its affinity, and of the quotas of its containers."""
    usable = len(affinity()) or os.cpu_count() or 1
    for folder in _cpu_groups(own, mounted):
        with suppress(OSError, ValueError, ZeroDivisionError):
            time_us, period_us = _quota(folder)
            if time_us > 0:
                usable = min(usable, -(-time_us // period_us))
    return max(1, usable)


def _cpu_groups(own: Path, mounted: Path) -> Iterator[Path]:
    """The folders of the groups of this process that may limit its CPU time, with the groups around them.

    In a container a path may be the one outside of it; then only the groups around it are found.
    """
    # ValueError: a line of another form.
    with suppress(OSError, ValueError):
        for line in own.read_text(errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" or "cpu" in controllers.split(","):
                roots = [controllers, "cpu"] if controllers else ["", "unified"]
                group = PurePosixPath(path.lstrip("/"))
                yield from (mounted / root / part for root in roots for part in (group, *group.parents))


def _quota(folder: Path) -> tuple[int, int]:
    """Microseconds of CPU time per period, and the period. Raises OSError, or ValueError without a limit."""
    if (limit := folder / "cpu.max").exists():
        # "max 100000", or both (version 2).
        time_us, period_us = map(int, limit.read_text().split())
        return time_us, period_us
    # -1, or the time (version 1).
    time_us, period_us = (int((folder / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    return time_us, period_us


def kill_tree(pid: int, job_age_s: float | None = None) -> None:
    """Kill a process, its group, its descendants, and the programs that its job has started.

    ``job_age_s`` is the time since the job's start, None if idle. Without /proc, only the group is killed.
    """
    found = programs.below(pid)
    if job_age_s is not None:
        found += programs.started_by(pid, (os.getpid(),), programs.tick(job_age_s))
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for program in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(program, signal.SIGKILL)


def oom_kills(vmstat: Path = _VMSTAT) -> int | None:
    """The number of processes that the kernel has killed for lack of memory since boot; None if unknown."""
    try:
        lines = vmstat.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


_OOM_KILLS_AT_START = oom_kills()


def oom_may_have_killed(vmstat: Path = _VMSTAT, at_start: int | None = _OOM_KILLS_AT_START) -> bool:
    """True if the kernel has killed a process for lack of memory since this one started, or if unknown."""
    found = oom_kills(vmstat)
    return found is None or found != at_start
