"""Crew: the worker processes of one group, and which of them has which delivery.

Used in the master's event loop. It asks the pages of the workers, which is done only when something is to be
found out: a job that ends normally needs none of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyworkers.server.pool.worker import Worker


class Crew:
    """The workers by their numbers in the group."""

    def __init__(self) -> None:
        self._members: dict[int, Worker] = {}
        self.get = self._members.get
        """Returns the worker with a number; None if there is none."""

    def __iter__(self) -> Iterator[Worker]:
        """All workers, the oldest first; the crew may change meanwhile."""
        return iter(list(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def add(self, worker: Worker) -> None:
        """Add a worker that was requested."""
        self._members[worker.member] = worker

    def remove(self, worker: Worker) -> None:
        """Remove a worker that has ended."""
        del self._members[worker.member]

    def claims(self) -> dict[int, Worker]:
        """The worker of each delivery that is claimed; also of deliveries that have ended."""
        return {number: worker for worker in self._members.values() for number in worker.claims()}
