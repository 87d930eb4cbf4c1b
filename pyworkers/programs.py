"""Programs: the processes that a worker has started, as /proc shows them.

Used by a worker whose job was asked to end, and by the master when it kills a worker; never for a job that
ends by itself. Children are found below their parents. A program that has left its session and lost its
parent becomes a child of the master; it is known by its *mark*, which processes inherit across fork and exec.
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
# may run without a pause. 2**50 of them are 35 years, so it limits nothing; and it needs no rights, unlike a
# cgroup, and is neither cleared with the environment nor closed with the descriptors.
_UNMARKED = 1 << 50


def mark() -> None:
    """Mark this process, and thereby all that it will start; nothing happens where that is not possible."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            _, most = resource.getrlimit(resource.RLIMIT_RTTIME)
            resource.setrlimit(resource.RLIMIT_RTTIME, (_UNMARKED + os.getpid(), most))


def tick(age_s: float) -> int:
    """The moment so many seconds ago, in the unit in which /proc says when a process has started."""
    if sys.platform != "linux":
        return 0
    return int((time.clock_gettime(time.CLOCK_BOOTTIME) - age_s) * os.sysconf("SC_CLK_TCK"))


def children(pid: int) -> list[int]:
    """Of all its threads: a child belongs to the one that started it."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def below(pid: int) -> list[int]:
    """Its children, and theirs, and so on."""
    found: list[int] = []
    todo = [pid]
    while todo:
        offspring = children(todo.pop())
        found += offspring
        todo += offspring
    return found


def parent(pid: int) -> int:
    """The pid of its parent; 0 if it has none, or is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def started_by(worker: int, reapers: Iterable[int], since: int) -> list[int]:
    """The programs that a worker has started since that ``tick`` and that run, with all below them.

    ``reapers`` are the processes whose children its orphans may be. What an older program has started is
    left out with it.
    """
    orphans = [pid for reaper in reapers for pid in children(reaper) if _is_marked(pid, worker)]
    young = [pid for pid in (*children(worker), *orphans) if pid != worker and _runs_since(pid, since)]
    return list(dict.fromkeys([*young, *(deep for pid in young for deep in below(pid))]))


def _is_marked(pid: int, worker: int) -> bool:
    if sys.platform == "linux":
        with suppress(OSError):
            return resource.prlimit(pid, resource.RLIMIT_RTTIME)[0] == _UNMARKED + worker
    return False


def _runs_since(pid: int, since: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X") and int(fields[19]) >= since


def _stat(pid: int) -> list[str]:
    """The fields from the state on: the name before it is in parentheses and may hold anything."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return []
