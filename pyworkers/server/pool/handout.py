"""HandOut: the idle workers of one queue, and the jobs that wait for one.

Runs in the master's event loop. Each worker has a job pipe of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pyworkers.server.pool.delivery import Delivery
from pyworkers.server.pool.worker import Worker


class HandOut:
    """Pairs jobs with idle workers; calls ``freed`` when a worker stays idle."""

    def __init__(self, freed: Callable[[], None]) -> None:
        self._freed = freed
        self._idle: list[Worker] = []
        self._backlog: deque[Delivery] = deque()

    @property
    def free(self) -> int:
        """The number of jobs that can start at once; negative if jobs wait for a worker."""
        return len(self._idle) - len(self._backlog)

    def offer(self, delivery: Delivery) -> None:
        """Hand a job to an idle worker, or keep it until one is idle."""
        if not self._idle:
            self._backlog.append(delivery)
            return
        # The worker that was busy last: its memory is in the CPU caches, and rarely used workers stay small.
        self._idle.pop().hand(delivery)

    def take_back(self, delivery: Delivery) -> bool:
        """Drop a job that no worker has; False if a worker has it."""
        try:
            self._backlog.remove(delivery)
        except ValueError:
            return False
        return True

    def admit(self, worker: Worker) -> None:
        """Hand a waiting job to a worker that has become idle, or report that it is free."""
        self._idle.append(worker)
        if self._backlog:
            self.offer(self._backlog.popleft())
        if self._idle:
            self._freed()

    def withdraw(self, worker: Worker) -> None:
        """Hand no more jobs to this worker."""
        if worker in self._idle:
            self._idle.remove(worker)
