"""Reaper: collects ended children of the master, and orphans that fall to it.

Runs in the master. Workers are children of a fork server; when that is gone, they become the master's, which
is a *subreaper*, or, as PID 1 of a container, everybody's heir.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

from pyworkers.server.generations.launch import Process

_PR_SET_CHILD_SUBREAPER = 36


class Reaper:
    """``on_orphan`` hears the pid and wait status of every process that nobody else waits for."""

    def __init__(self, on_orphan: Callable[[int, int], None]) -> None:
        self._on_orphan = on_orphan
        self._processes: dict[int, Process] = {}
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def adopt(self, process: Process) -> None:
        """Wait for a process on behalf of its object."""
        self._processes[process.pid] = process

    def reaped(self, process: Process) -> bool:
        """Collect all that have ended; whether this process is among those."""
        self.reap()
        return process.returncode is not None

    def reap(self) -> None:
        """Collect all that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self._processes.pop(pid, None)
            if process is not None:
                process.returncode = os.waitstatus_to_exitcode(status)
            else:
                self._on_orphan(pid, status)
