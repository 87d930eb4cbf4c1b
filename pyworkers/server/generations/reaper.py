"""Reaper: collects the exit statuses of the master's children and of orphaned workers.

Runs in the master. Workers are children of a fork server. When the fork server has ended, they become
children of the master, which is a *subreaper*, or PID 1 of a container, which inherits every orphan.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Protocol

from pyworkers.server.generations.launch import ChildProcess

_PR_SET_CHILD_SUBREAPER = 36


class Handle(Protocol):
    """The master's object for one worker process; it gets every message about that process."""

    def forked(self, pid: int) -> None:
        """The process runs."""

    def refused(self, error: str) -> None:
        """The system refused the fork."""

    def exited(self, status: int | None, rss_kb: int = 0) -> None:
        """The process has ended; ``status`` as from waitpid, ``rss_kb`` its peak memory if known."""


class Reaper:
    """Waits for every child; reports its end to the object of the fork server or of the worker."""

    def __init__(self) -> None:
        self._processes: dict[int, ChildProcess] = {}
        self._workers: dict[int, Handle] = {}

    def inherit_orphans(self) -> None:
        """Become the parent of every worker whose fork server ends before it."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def expect(self, pid: int, worker: Handle) -> None:
        """Report the end of the process to this object, if it ends as an orphan."""
        self._workers[pid] = worker

    def forget(self, pid: int, worker: Handle) -> None:
        """Report nothing more: the worker's end is known. The pid may belong to another worker by now."""
        if self._workers.get(pid) is worker:
            del self._workers[pid]

    def adopt(self, process: ChildProcess) -> None:
        """Collect the exit status of this process, too."""
        self._processes[process.pid] = process

    def reaped(self, process: ChildProcess) -> bool:
        """Collect all children that have ended; True if this process has ended."""
        self.reap()
        return process.returncode is not None

    def reap(self) -> None:
        """Collect all children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            process = self._processes.pop(pid, None)
            if process is not None:
                process.collected(status)
            elif worker := self._workers.pop(pid, None):
                worker.exited(status)
