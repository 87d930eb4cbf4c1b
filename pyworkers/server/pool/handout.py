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
        """How many jobs could start right now."""
        return len(self._idle) - len(self._backlog)

    def offer(self, delivery: Delivery) -> None:
        """Start a job; if its idle worker has just died, the next one gets it."""
        if not self._idle:
            self._backlog.append(delivery)
            return
        # The one that was busy last: its memory is warm, and those at the bottom stay small.
        self._idle.pop().hand(delivery)

    def take_back(self, delivery: Delivery) -> bool:
        """Withdraw a job that no worker has; False if a worker has it."""
        try:
            self._backlog.remove(delivery)
        except ValueError:
            return False
        return True

    def admit(self, worker: Worker) -> None:
        """A worker is idle: give it a job that waits, or report it as free."""
        self._idle.append(worker)
        if self._backlog:
            self.offer(self._backlog.popleft())
        if self._idle:
            self._freed()

    def withdraw(self, worker: Worker) -> None:
        """Hand no more jobs to this worker."""
        if worker in self._idle:
            self._idle.remove(worker)
