"""Family: the processes below a worker, wherever they have put themselves.

Used by the master when it kills a worker. A program that a job started in a session of its own is in no group
that could be killed with the worker's, but it is still a descendant, as long as its parents live.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def kill_family(pid: int) -> None:
    """End a process, its group, and all below it, now. Where there is no /proc, the group alone."""
    below = _below(pid)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for descendant in below:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(descendant, signal.SIGKILL)


def _below(pid: int) -> list[int]:
    found: list[int] = []
    todo = [pid]
    while todo:
        children = _children(todo.pop())
        found += children
        todo += children
    return found


def _children(pid: int) -> list[int]:
    """Of all its threads: a child belongs to the one that started it."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
