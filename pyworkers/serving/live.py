"""Live: the transport to the Redis servers of a server that this process serves, for all its clients.

Used in the program that serves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Self

from pyworkers.config.stores import Stores
from pyworkers.protocol.conditions import Others
from pyworkers.protocol.draft import PushedJob
from pyworkers.protocol.flow.history import JobHistory
from pyworkers.protocol.flow.joblog import LogLine
from pyworkers.protocol.flow.plans import BatchPlan, BatchStatus, CancelledBatch
from pyworkers.protocol.status import Cancelled, JobStatus
from pyworkers.store.routes import Routes


class Live:
    """Connections to the Redis servers, closed at the end of the ``with``."""

    def __init__(self, stores: Stores) -> None:
        self._routes = Routes(stores)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._routes.close()

    def now(self) -> float:
        """The system's time."""
        return time.time()

    def push(self, jobs: list[PushedJob], owner: object) -> Others:
        """As ``Client.push``."""
        return self._routes.push(jobs)

    def enlist(self, plan: BatchPlan, owner: object) -> None:
        """As ``Client.enlist``."""
        self._routes.enlist(plan)

    def batch_status(self, batch: str) -> BatchStatus | None:
        """The status of a batch; None for an unknown one."""
        return self._routes.batch_status(batch)

    def cancel_batch(self, batch: str, owner: object) -> CancelledBatch | None:
        """As ``Batch.cancel``; None for an unknown one."""
        return self._routes.cancel_batch(batch)

    def batch_result(self, batch: str, deadline: float) -> Any:
        """As ``Batch.result``."""
        return self._routes.batch_result(batch, deadline)

    def cancel(self, jid: str, owner: object) -> Cancelled:
        """As ``Client.cancel``."""
        return self._routes.cancel(jid)

    def find(self, jid: str) -> JobStatus:
        """As ``Client.find``."""
        return self._routes.find(jid)

    def status(self, jid: str) -> JobStatus:
        """As ``Client.status``."""
        return self._routes.status(jid)

    def result(self, jid: str, deadline: float) -> Any:
        """As ``Client.result``."""
        return self._routes.result(jid, deadline)

    def history(self, jid: str) -> JobHistory | None:
        """As ``Client.history``."""
        return self._routes.history(jid)

    def logs(self, jid: str) -> list[LogLine]:
        """As ``Client.logs``."""
        return self._routes.logs(jid)

    def iteration(self, jid: str) -> Mapping[str, bytes]:
        """As ``Client.iteration``."""
        return self._routes.iteration(jid, None)
