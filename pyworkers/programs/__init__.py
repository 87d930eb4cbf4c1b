"""Programs: finds the processes that a worker has started, by /proc.

Used by a worker whose job was asked to end, and by the master when it kills a worker; never for a job that
ends by itself. Children are found below their parents. A program that has left its session and lost its
parent becomes a child of the master; it is found by its *mark*, which processes inherit across fork and exec.
A resource tracker of multiprocessing is left out: it frees what the others leave, and then exits by itself.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

# The mark is the pid of the worker above this number, as RLIMIT_RTTIME: microseconds that a real-time thread
# may run without a pause. 2**50 of them are 35 years, so it limits nothing. Unlike a cgroup it needs no
# rights. A program that clears its environment and closes its descriptors keeps it.
_UNMARKED = 1 << 50
TRACKER = "resource_tracker import main"
"""In the command line of a resource tracker: of multiprocessing's, and of joblib's."""


def mark() -> None:
    """Mark this process and all that it will start. Does nothing where that is not possible."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            _, most = resource.getrlimit(resource.RLIMIT_RTTIME)
            resource.setrlimit(resource.RLIMIT_RTTIME, (_UNMARKED + os.getpid(), most))


def tick(age_s: float) -> int:
    """The time ``age_s`` seconds ago, in the unit of the start times in /proc."""
    if sys.platform != "linux":
        return 0
    return int((time.clock_gettime(time.CLOCK_BOOTTIME) - age_s) * os.sysconf("SC_CLK_TCK"))


def children(pid: int) -> list[int]:
    """The children of a process, of all its threads, because a child belongs to one thread."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def _is_tracker(pid: int) -> bool:
    with suppress(OSError):
        return TRACKER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def below(pid: int) -> list[int]:
    """All descendants of a process, without resource trackers."""
    found: list[int] = []
    todo = [pid]
    while todo:
        offspring = [child for child in children(todo.pop()) if not _is_tracker(child)]
        found += offspring
        todo += offspring
    return found


def parent(pid: int) -> int:
    """The pid of the parent; 0 if the process has none, or has exited."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def started_by(worker: int, reapers: Iterable[int], since: int) -> list[int]:
    """The running programs that a worker has started since a ``tick``, with their descendants.

    ``reapers`` are the processes that its orphans may have as parents. An older program is left out, with
    its descendants.
    """
    orphans = [pid for reaper in reapers for pid in children(reaper) if _is_marked(pid, worker)]
    young = [pid for pid in (*children(worker), *orphans) if pid != worker and _runs_since(pid, since)]
    return list(dict.fromkeys([*young, *(deep for pid in young for deep in below(pid))]))


def started_by_thread(thread: int, since: int) -> list[int]:
    """The running programs that a thread of this process has started since a ``tick``, with descendants."""
    found: list[int] = []
    with suppress(OSError):
        found += map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())
    young = [pid for pid in found if _runs_since(pid, since)]
    return list(dict.fromkeys([*young, *(deep for pid in young for deep in below(pid))]))


def _is_marked(pid: int, worker: int) -> bool:
    if sys.platform == "linux":
        with suppress(OSError):
            return resource.prlimit(pid, resource.RLIMIT_RTTIME)[0] == _UNMARKED + worker
    return False


def _runs_since(pid: int, since: int) -> bool:
    fields = _stat(pid)
    runs = bool(fields) and fields[0] not in ("Z", "X") and int(fields[19]) >= since
    return runs and not _is_tracker(pid)


def _stat(pid: int) -> list[str]:
    """The fields from the state on; the name before it is in parentheses and may hold any character."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
