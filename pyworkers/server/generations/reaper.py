"""Reaper: collects the exit statuses of the master's children and of orphaned workers.

Runs in the master. Workers are children of a fork server. When the fork server has ended, they become
children of the master, which is a *subreaper*, or PID 1 of a container, which inherits every orphan.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from pyworkers.server.generations.launch import ChildProcess

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class WorkerForked:
    """The process of this worker runs."""

    member: int
    pid: int


@dataclass(frozen=True, slots=True)
class ForkRefused:
    """The system refused the fork of this worker."""

    member: int
    error: str


@dataclass(frozen=True, slots=True)
class Died:
    """The process of this worker has ended; ``status`` as from waitpid, ``rss_kb`` its peak memory."""

    member: int
    status: int | None
    rss_kb: int = 0


ProcessEvent: TypeAlias = WorkerForked | ForkRefused | Died


@dataclass(frozen=True, slots=True, eq=False)
class WorkerSpec:
    """The place of a worker in its group: its number, how many jobs it runs at once, and its descriptors."""

    group: str
    member: int
    slots: int
    mode: str
    """How it runs them (worker/process.py)."""
    jobs: int
    """The descriptor of the workers' end of the job socket."""
    outcomes: int
    """The descriptor of the write end of the outcome pipe."""
    put: Callable[[ProcessEvent], None]
    """Puts an event into the queue of the group."""


class Reaper:
    """Waits for every child; reports the end of a fork server to its object, of a worker as an event."""

    def __init__(self) -> None:
        self._processes: dict[int, ChildProcess] = {}
        self._workers: dict[int, WorkerSpec] = {}

    def inherit_orphans(self) -> None:
        """Become the parent of every worker whose fork server ends before it."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def expect(self, pid: int, worker: WorkerSpec) -> None:
        """Report the end of this process, if it ends as an orphan."""
        self._workers[pid] = worker

    def forget(self, worker: WorkerSpec) -> None:
        """Report nothing more: the worker's end is known. Its pid may belong to another worker by now."""
        for pid in [pid for pid, other in self._workers.items() if other is worker]:
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
                worker.put(Died(worker.member, status))
